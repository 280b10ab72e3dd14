"""What a session can do for other agents: children of this process, and markers for other processes and hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .agent_caps import Family
from .flow import Flow, adrive, drive

if TYPE_CHECKING:
    from ..ledgers.port import Ledger
    from .outcome import RunOutcome
    from .remote import Remote
    from .session import BoundSession

#: How long a marker is good for, unless somebody says otherwise: an hour, as for an approval.
MARKER_SECONDS = 3_600


class SubAgents:
    """The part of ``BoundSession`` that hands work on."""

    family: Family
    """The sub-agents that run now, of the whole tree."""
    kept: dict[str, int]
    """The largest reserve that this session keeps back from its children, by meter."""
    remote: Remote | None = None
    """Where this session comes from, when a marker opened it."""

    def child(self, agent: str, *, spec: Any = None, id: str | None = None, **limits: Any) -> BoundSession:
        """A session for a sub-agent: it gets at most what was asked and at most what this one has left.

        Whatever bounds this session bounds the child too (tools, models, prices, time), and what ``agents`` in the
        specification says of the name. Close the child, or leave its ``with`` block, when it is done: until then it
        counts as one that runs.

        Args:
            agent: the name in the breakdown by agent.
            spec: the child's own specification; ``None`` bounds it by this session alone.
            id: names the child for later: the same id of the same agent goes on with what it has spent, also after
                a restart, and is no new start. ``None``: another child each time.
            **limits: the short names (``iterations``, ``tokens``, ``usd``, ``seconds``, ``tools``).

        Raises:
            BoundExceeded: ``spawn_limit``: too deep, too many in the run or at the same time; nothing was opened.
            SpecError: nonsense in a bound, or both kinds of them.
        """
        return drive(self._child(agent, spec, id, limits))

    async def achild(self, agent: str, *, spec: Any = None, id: str | None = None, **limits: Any) -> BoundSession:
        """The same on an event loop, which it does not block."""
        return await adrive(self._child(agent, spec, id, limits))

    def _child(self, agent: str, spec: Any, id: str | None, limits: dict[str, Any]) -> Flow[BoundSession]:
        from .children import child_of

        return child_of(cast("BoundSession", self), agent, spec, id, limits)

    def handoff(self, agent: str) -> None:
        """Count a hand-off of work to an agent that there is already: a peer, or a child that is resumed.

        Raises:
            BoundExceeded: ``handoff_limit``: no more are allowed; nothing was counted.
        """
        drive(self._handoff(agent))

    async def ahandoff(self, agent: str) -> None:
        """The same on an event loop, which it does not block."""
        await adrive(self._handoff(agent))

    def _handoff(self, agent: str) -> Flow[None]:
        from .agent_caps import handoff
        from .arguments import name_of

        return handoff(cast("BoundSession", self), name_of(agent, "agent"))

    def marker(
        self,
        agent: str = "remote",
        *,
        spec: Any = None,
        key: str | bytes | None = None,
        expires_seconds: int = MARKER_SECONDS,
        **limits: Any,
    ) -> str:
        """A signed text with which another process or host may spend a part of this budget.

        The part is held here at once: on each bounded axis what was asked, at most what is left; all that is left
        where nothing was asked. It is settled by ``accept``, or in full, as an estimate, when the marker expires.
        The text is signed, not encrypted: the bounds in it can be read by whoever has it.

        Args:
            agent: the name in the breakdown by agent.
            spec: as for ``child``.
            key: the secret of both sides; ``None`` takes ``BOUND_MARKER_KEY`` from the environment.
            expires_seconds: more than 0; at this time (inclusive) the marker is worth nothing.
            **limits: as for ``child``.

        Raises:
            BoundExceeded: ``spawn_limit``; nothing is held.
            SpecError: no key, or nonsense in a bound.
        """
        return drive(self._marker(agent, spec, key, expires_seconds, limits))

    async def amarker(
        self,
        agent: str = "remote",
        *,
        spec: Any = None,
        key: str | bytes | None = None,
        expires_seconds: int = MARKER_SECONDS,
        **limits: Any,
    ) -> str:
        """The same on an event loop, which it does not block."""
        return await adrive(self._marker(agent, spec, key, expires_seconds, limits))

    def _marker(self, agent: str, spec: Any, key: Any, expires_seconds: Any, limits: dict[str, Any]) -> Flow[str]:
        from .remote import issue

        return issue(cast("BoundSession", self), agent, spec, key, expires_seconds, limits)

    @classmethod
    def from_marker(
        cls, marker: str, *, ledger: Ledger | None = None, key: str | bytes | None = None, **given: Any
    ) -> BoundSession:
        """The session that a marker stands for, once on each ledger.

        On the ledger of the session that made it, this is a child of that session. On another one, or none, it is a
        session of its own, limited to what is held for it; hand its ``report()`` back.

        Args:
            marker: what ``marker`` gave.
            ledger: the shared ledger, or one of this side; ``None`` keeps balances in memory.
            key: the secret of both sides; ``None`` takes ``BOUND_MARKER_KEY`` from the environment.
            **given: ``clock``, ``prices``, ``sinks`` and ``approver``, as for ``BoundSession``.

        Raises:
            MarkerError: it is forged, signed with another key, expired, or was used; nothing was opened.
            SpecError: no key.
        """
        return drive(cls._from_marker(marker, ledger, key, given))

    @classmethod
    async def afrom_marker(
        cls, marker: str, *, ledger: Ledger | None = None, key: str | bytes | None = None, **given: Any
    ) -> BoundSession:
        """The same on an event loop, which it does not block."""
        return await adrive(cls._from_marker(marker, ledger, key, given))

    @staticmethod
    def _from_marker(marker: Any, ledger: Any, key: Any, given: dict[str, Any]) -> Flow[BoundSession]:
        from .remote import open_marker

        return open_marker(marker, ledger, key, **given)

    def report(self, *, key: str | bytes | None = None) -> str:
        """A signed text that says what a session from a marker spent; from now on it can spend nothing more.

        Calls that are still open are reported at the most they can use.

        Raises:
            SpecError: no key, or no marker opened this session.
        """
        return drive(self._report(key))

    async def areport(self, *, key: str | bytes | None = None) -> str:
        """The same on an event loop, which it does not block."""
        return await adrive(self._report(key))

    def _report(self, key: Any) -> Flow[str]:
        from .remote import report

        return report(cast("BoundSession", self), key)

    def accept(self, report: str, *, key: str | bytes | None = None) -> RunOutcome:
        """Settle what is held for a marker by what its session reports; how that session ended.

        A report that comes when the marker has expired can only add to the estimate. What a marker that was used
        twice has spent is booked each time, whatever the ceilings say, and raised all the same.

        Raises:
            MarkerError: it is forged, signed with another key, of another session, or was accepted before
                (nothing changed); or the marker was used twice.
            SpecError: no key.
        """
        return drive(self._accept(report, key))

    async def aaccept(self, report: str, *, key: str | bytes | None = None) -> RunOutcome:
        """The same on an event loop, which it does not block."""
        return await adrive(self._accept(report, key))

    def _accept(self, report: Any, key: Any) -> Flow[RunOutcome]:
        from .remote import accept

        return accept(cast("BoundSession", self), report, key)

"""What a collector is: something that looks at one check and says what it saw, from where, on what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import SpecError
from .finding import Finding, missing
from .process import Run
from .site import Site, last_line

if TYPE_CHECKING:
    from ..contracts import StepContract
    from ..evidence import EvidenceClass, ExecutionEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look gave. ``digest`` is that of what it rests on."""

    finding: Finding
    source: str
    digest: str | None = None
    provenance: EvidenceClass = "observed"


@dataclass(frozen=True, kw_only=True)
class Collector:
    """The base of the collectors; a subclass implements ``look``.

    Args:
        check_id: the check that it answers when it stands alone. ``Collectors`` names the check itself.
        workspace: where it looks when it stands alone.
    """

    check_id: str | None = None
    workspace: str | Path = "."

    @property
    def parallel(self) -> bool:
        """Whether it may run beside others: it writes nothing that another one reads."""
        return True

    def look(self, site: Site) -> Look:
        """Looks once. Everything that goes wrong in the world is a finding, not an error."""
        raise NotImplementedError

    def collect(self, *, contract: StepContract, execution: object = None) -> ExecutionEvidence:
        """The evidence on its one check.

        Raises:
            SpecError: it has no ``check_id``, or the contract has no such check.
        """
        return self._alone(contract).collect(contract=contract, execution=execution)

    async def acollect(self, *, contract: StepContract, execution: object = None) -> ExecutionEvidence:
        """As ``collect``, without blocking the event loop."""
        return await self._alone(contract).acollect(contract=contract, execution=execution)

    def _alone(self, contract: StepContract) -> Collectors:
        from .together import Collectors

        checks = [check.id for check in (*contract.acceptance_checks, *contract.risk_checks)]
        if self.check_id not in checks:
            raise SpecError(
                f"the contract has no check {self.check_id!r}",
                key="check_id",
                value=self.check_id,
                allowed=", ".join(checks),
            )
        return Collectors({self.check_id: self}, workspace=self.workspace)


@dataclass(frozen=True, kw_only=True)
class CommandCollector(Collector):
    """The base of the collectors that run a command.

    Args:
        timeout_ms: when the command and all that it started are killed.
        cwd: relative to the workspace.
        allow: the names of the variables that the command may see; all by default.
        variables: more variables for the command.
        alone: whether it has to run alone, because it writes into the workspace.
    """

    timeout_ms: int = 300_000
    cwd: str = "."
    allow: tuple[str, ...] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    alone: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.timeout_ms, bool) or not isinstance(self.timeout_ms, int) or self.timeout_ms <= 0:
            raise SpecError("is no time-out", key="timeout_ms", value=self.timeout_ms, allowed="whole ms > 0")
        if isinstance(self.allow, str):
            raise SpecError("is one name, not a list of names", key="allow", value=self.allow)

    @property
    def parallel(self) -> bool:
        return not self.alone

    def ran(self, site: Site, argv: tuple[str, ...]) -> Run:
        """Runs the command as it was asked for."""
        return site.run(argv, timeout_ms=self.timeout_ms, cwd=self.cwd, allow=self.allow, variables=self.variables)


def checked_argv(key: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a command. Raises SpecError for a single string, no word, or a word that no process can get."""
    words = () if isinstance(argv, str) else tuple(argv)
    if not words or not words[0] or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise SpecError("is no command", key=key, value=argv, allowed='a list of words such as ["make", "test"]')
    return words


def trouble(done: Run, module: str | None = None) -> Finding | None:
    """Why a command taught nothing; ``None`` when it ran to its end. ``module`` is what ``python -m`` was given."""
    why = done.trouble
    if why is None and module is not None and done.code == 1:
        line = last_line(done.stderr)
        if line.endswith((f": No module named {module}", f": No module named {module}.__main__")):
            why = f"{module} is not installed: {line}"
    return None if why is None else missing(why, exit_code=done.exit_code)


if TYPE_CHECKING:
    from .together import Collectors

"""Runs the constraints of a phase and says whether the work is done.

In waves: what needs nothing undecided runs in parallel, rubrics of a wave one by one after it. Whatever goes wrong
in here becomes a blocking ``error`` of the constraint. Results are in the order of the contract.

- Evidence is reused when its key is the same: never in the phase ``ci``, never when it was ``pending``, an
  ``error`` or about the machine, and never when an input changed while it was gathered.
- A waiver turns exactly the result it was given for into ``waived``; in ``ci`` there are none.
- The same constraint runs once at a time, also across processes: who comes second takes what the first one found.
"""

from __future__ import annotations

import contextvars
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, get_args

from ..core.errors import SpecError
from ..core.redaction import Redactor
from ..decision.collectors.process import Clock, SystemClock
from .evidence import Evidence
from .graph import with_needs
from .keys import key_of
from .progress import Progress
from .runners.base import GateSite, found
from .state import State
from .values import Phase, Report, Result
from .watch import Unreadable, Watch
from .waves import Waves

if TYPE_CHECKING:
    from .contract import Constraint, GateContract
    from .rubric_port import RubricRunner


class Engine:
    """The gates of one project.

    Args:
        root: the folder that all paths of the contract are relative to.
        state: where evidence is kept; by default where ``State.at`` says.
        environment: the variables there are; commands see the part they are allowed to.
        rubrics: judges the rubrics; without it they are ``uncertain``.
        progress: told of what happens, from any thread, one call at a time.
        goal: what the work is for, in the words of who asked; for rubrics.
    """

    def __init__(
        self,
        contract: GateContract,
        *,
        root: str | os.PathLike[str],
        state: State | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        rubrics: RubricRunner | None = None,
        progress: Callable[[Progress], None] | None = None,
        goal: str | None = None,
    ) -> None:
        self.contract, self.root = contract, Path(root).resolve()
        self.environment = dict(os.environ if environment is None else environment)
        self.state = State.at(self.root, self.environment) if state is None else state
        self.evidence = Evidence(self.state)
        self.clock, self.rubrics, self.progress, self.goal = clock or SystemClock(), rubrics, progress, goal

    def run(
        self, phase: Phase, *, fresh: bool = False, only: Iterable[str] | None = None, stop: Event | None = None
    ) -> Report:
        """Runs what applies and reports it.

        Args:
            fresh: nothing is reused; what is found is kept.
            only: these constraints and what they need.
            stop: once set, commands are ended and the rest is an ``error``.

        Raises:
            SpecError: there is no such phase, or no such constraint in it.
        """
        constraints = self._chosen(phase, only)
        site = self._site(stop or Event())
        waves = Waves(self, site, constraints, reuse=not fresh and phase != "ci", keep=phase != "ci")
        started_at = self._now()
        try:
            results = waves.run()
        except BaseException:
            # Nothing that was started goes on behind an interrupt.
            site.stop.set()
            raise
        return self._report(phase, started_at, (results[name] for name in constraints))

    async def arun(
        self, phase: Phase, *, fresh: bool = False, only: Iterable[str] | None = None, stop: Event | None = None
    ) -> Report:
        """As ``run``, off the loop; a cancelled task ends after its commands have been ended."""
        from ..decision.collectors.threads import in_thread

        ending = stop or Event()
        # A rubric is judged in the context of the caller, whose session its model calls belong to.
        within = contextvars.copy_context()
        work = partial(self.run, phase, fresh=fresh, only=only, stop=ending)
        return await in_thread(lambda: within.run(work), ending)

    def status(self, phase: Phase) -> Report:
        """What is known now, without running anything: without fresh evidence a constraint is ``pending``."""
        site = self._site(Event())
        constraints, started_at = self._chosen(phase, None), self._now()
        results = (self._known(constraint, site, phase) for constraint in constraints.values())
        return self._report(phase, started_at, results)

    def peek(self, constraint_id: str) -> tuple[str, Result | None]:
        """The input digest of a constraint now, and its result if that is still fresh.

        Of a rubric the digest is that of its last evidence: its bundle is not built only to be looked at.

        Raises:
            SpecError: there is no such constraint.
            watch.Unreadable: a watched file cannot be read.
        """
        constraint = self.contract.constraints.get(constraint_id)
        if constraint is None:
            raise SpecError(
                f"there is no constraint {constraint_id!r}", allowed=", ".join(self.contract.constraints)
            )
        key = key_of(constraint, self._site(Event()))
        last = self.evidence.latest(constraint_id)
        if constraint.kind == "rubric":
            return key.inputs, None
        fresh = last is not None and last[0] == key.whole
        return key.inputs, last[1] if last is not None and fresh else None

    def waived(self, result: Result) -> Result:
        """The result, ``waived`` where a person accepted exactly this one."""
        waiver = self.evidence.waiver_for(result)
        if waiver is None:
            return result
        return replace(result, verdict="waived", message=f"waived: {waiver.reason} ({result.message})")

    def _known(self, constraint: Constraint, site: GateSite, phase: Phase) -> Result:
        try:
            _, known = self.peek(constraint.id) if phase != "ci" else ("", None)
        except Unreadable as error:
            return found(constraint, "error", str(error), category="environment")
        if known is None:
            return found(constraint, "pending", "no fresh evidence")
        return self.waived(replace(known, cached=True))

    def _chosen(self, phase: Phase, only: Iterable[str] | None) -> dict[str, Constraint]:
        if phase not in get_args(Phase):
            raise SpecError(f"{phase!r} is no phase", value=phase, allowed=", ".join(get_args(Phase)))
        constraints = self.contract.applicable(phase)
        if only is None:
            return constraints
        names = tuple(only)
        unknown = [name for name in names if name not in constraints]
        if unknown:
            allowed = ", ".join(constraints) or "none at all"
            raise SpecError(f"{unknown[0]!r} does not run in the phase {phase}", value=unknown[0], allowed=allowed)
        return with_needs(constraints, names)

    def _site(self, stop: Event) -> GateSite:
        return GateSite(
            root=self.root,
            contract=self.contract,
            watch=Watch(self.root, self.state),
            environment=self.environment,
            redact=Redactor(self.environment),
            clock=self.clock,
            stop=stop,
            goal=self.goal,
        )

    def _report(self, phase: Phase, started_at: str, results: Iterable[Result]) -> Report:
        return Report(
            run_id=str(uuid.uuid4()),
            project_root=str(self.root),
            contract_digest=self.contract.digest,
            phase=phase,
            started_at=started_at,
            results=tuple(results),
        )

    def _now(self) -> str:
        moment = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

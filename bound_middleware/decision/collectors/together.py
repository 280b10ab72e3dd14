"""Many collectors as one: which collector answers which check, and all that git and the session say beside."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.errors import SpecError
from ..contracts import StepContract
from ..evidence import CheckEvidence, EvidenceCollector, ExecutionEvidence
from .base import Collector
from .merge import merge_evidence
from .meters import Metered
from .process import Clock
from .site import Site, StepRun
from .step import Scope, begin_step, measured, site_of, touched
from .threads import in_thread

PARALLEL_MAX = 4


class Collectors:
    """Answers the checks of a contract, each with its own collector. An ``EvidenceCollector`` itself.

    Before any command runs, git is asked what the step changed; then the collectors look in the order of the
    mapping, those side by side that write nothing. Checks of the contract without a collector stay without
    evidence; collectors for checks that a contract does not have do not run.

    Args:
        checks: collector by id of an acceptance or risk check.
        workspace: where they all look, whatever their own workspace is.
        scope: what the step may touch. It fills ``unexpected_artifacts`` and ``rollback_available``; without it
            nobody looks.
        session: whose meters are read; without one nothing is measured.
        clock: dates the records and times the commands; tests inject one.
        environment: what the commands may see; the variables of this process by default.
        secrets: values that no record may hold, beside those of variables with telling names.
        others: more collectors, of any kind, whose evidence is added.

    Raises:
        SpecError: a collector is none, or an id is empty.
    """

    def __init__(
        self,
        checks: Mapping[str, Collector],
        *,
        workspace: str | Path = ".",
        scope: Scope | None = None,
        session: Metered | None = None,
        clock: Clock | None = None,
        environment: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        others: Iterable[EvidenceCollector] = (),
        parallel_max: int = PARALLEL_MAX,
    ) -> None:
        for check_id, collector in checks.items():
            if not isinstance(check_id, str) or not check_id.strip() or not isinstance(collector, Collector):
                raise SpecError(
                    "is no collector of a check",
                    key=str(check_id),
                    value=collector,
                    allowed="{check id: Collector}",
                )
        self.checks, self.scope, self.session = dict(checks), scope, session
        self.others, self.parallel_max = tuple(others), parallel_max
        self._site = site_of(workspace, clock, environment, tuple(secrets))

    def begin(self) -> StepRun:
        """Notes where things stand before a step runs: ``begin_step``, with what these collectors were given."""
        site = self._site
        return begin_step(site.workspace, session=self.session, clock=site.clock, environment=site.environment)

    def collect(self, *, contract: StepContract, execution: object = None) -> ExecutionEvidence:
        """All the evidence on one step. ``execution`` is a ``StepRun``, so that old reports and old changes do not
        count; anything else is for ``others``.

        Raises:
            SpecError: the meters of the session are none, or went back since the step began.
        """
        return self._collected(contract, execution, threading.Event())

    async def acollect(self, *, contract: StepContract, execution: object = None) -> ExecutionEvidence:
        """As ``collect``, without blocking the event loop. When it is cancelled, what runs is killed first."""
        stop = threading.Event()
        return await in_thread(lambda: self._collected(contract, execution, stop), stop)

    def _collected(self, contract: StepContract, execution: object, stop: threading.Event) -> ExecutionEvidence:
        step = execution if isinstance(execution, StepRun) else None
        site = replace(self._site, step=step, stop=stop)
        # First of all: what the commands below use and write is not the step's.
        used = measured(self.session, step)
        left_behind = touched(site, self.scope, contract)
        records = self._looked(site, contract)
        acceptance = {check.id for check in contract.acceptance_checks}
        risks = {check.id for check in contract.risk_checks}
        own = ExecutionEvidence(
            acceptance=tuple(record for record in records if record.check_id in acceptance),
            risks=tuple(record for record in records if record.check_id in risks),
            **used,
            **left_behind,
        )
        more = [other.collect(contract=contract, execution=execution) for other in self.others]
        return merge_evidence(own, *more)

    def _looked(self, site: Site, contract: StepContract) -> list[CheckEvidence]:
        declared = {check.id for check in (*contract.acceptance_checks, *contract.risk_checks)}
        wanted = [(check_id, one) for check_id, one in self.checks.items() if check_id in declared]
        with ThreadPoolExecutor(max_workers=self.parallel_max, thread_name_prefix="bound-collect") as pool:
            try:
                return [record for group in _waves(wanted) for record in _all(site, pool, group)]
            except BaseException:
                # Leaving the pool waits for what runs in it.
                site.stop.set()
                raise


def _waves(wanted: list[tuple[str, Collector]]) -> Iterable[list[tuple[str, Collector]]]:
    """In order: neighbours that may run side by side, and each of the others by itself."""
    wave: list[tuple[str, Collector]] = []
    for item in wanted:
        if not item[1].parallel:
            yield from ([wave] if wave else [])
            yield [item]
            wave = []
        else:
            wave.append(item)
    if wave:
        yield wave


def _all(site: Site, pool: ThreadPoolExecutor, wave: list[tuple[str, Collector]]) -> Iterable[CheckEvidence]:
    return pool.map(lambda item: _record(site, *item), wave)


def _record(site: Site, check_id: str, collector: Collector) -> CheckEvidence:
    look = collector.look(site)
    finding = look.finding
    seen = finding.status in ("passed", "failed")
    return CheckEvidence(
        check_id=check_id,
        passed=finding.passed,
        source=site.told(look.source),
        details=site.told(finding.details if seen else f"{finding.status}: {finding.details}"),
        provenance=look.provenance if seen else "missing",
        observed_ms=site.clock.now_ms(),
        digest=look.digest,
    )


def collect_all(
    checks: Mapping[str, Collector], *, contract: StepContract, execution: object = None, **options: Any
) -> ExecutionEvidence:
    """``Collectors(checks, **options).collect(...)`` in one call."""
    return Collectors(checks, **options).collect(contract=contract, execution=execution)


async def acollect_all(
    checks: Mapping[str, Collector], *, contract: StepContract, execution: object = None, **options: Any
) -> ExecutionEvidence:
    """As ``collect_all``, without blocking the event loop."""
    return await Collectors(checks, **options).acollect(contract=contract, execution=execution)

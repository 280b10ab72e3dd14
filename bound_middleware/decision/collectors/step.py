"""Before a step: where things stand. After it: what it touched and used."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.redaction import Redactor
from ..contracts import StepContract
from ..evidence import Telemetry
from .artifacts import produced
from .git import based, read_changes, read_start
from .git_private import GitFailed
from .globs import Globs, patterns
from .meters import Metered, MeterReading, read_meters
from .process import Clock, SystemClock
from .site import Site, StepRun, now_on_disk_ns, printable
from .threads import in_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a step may touch, by git: the artifacts that the contract expects, and these.

    Args:
        allowed: patterns of paths relative to the workspace.
        base: the commit to compare with; the start of the step by default.
    """

    allowed: tuple[str, ...] = ()
    base: str | None = None

    def __post_init__(self) -> None:
        Globs(self.allowed)


def begin_step(
    workspace: str | Path = ".",
    *,
    session: Metered | None = None,
    clock: Clock | None = None,
    environment: Mapping[str, str] | None = None,
) -> StepRun:
    """Notes where things stand before a step runs: the time, the commit, and what the session has used."""
    site = site_of(workspace, clock, environment, ())
    step = StepRun(started_ns=0, meters=None if session is None else read_meters(session))
    with suppress(GitFailed):
        step = replace(step, git=read_start(site))
        changes = read_changes(replace(site, step=step), None)
        step = replace(step, base=changes.base, dirty=bool(changes.paths))
    return replace(step, started_ns=now_on_disk_ns())


async def abegin_step(workspace: str | Path = ".", **options: Any) -> StepRun:
    """As ``begin_step``, without blocking the event loop."""
    return await in_thread(lambda: begin_step(workspace, **options), threading.Event())


def site_of(
    workspace: str | Path,
    clock: Clock | None,
    environment: Mapping[str, str] | None,
    secrets: Iterable[str],
) -> Site:
    """A site with the defaults of this process. The workspace is made absolute: a later ``chdir`` moves nothing."""
    variables = dict(os.environ if environment is None else environment)
    return Site(
        workspace=Path(workspace).absolute(),
        clock=clock or SystemClock(),
        environment=variables,
        # What our own process knows is no business of a record either, whatever the commands may see.
        redact=Redactor({**os.environ, **variables}, secrets),
    )


def measured(session: Metered | None, step: StepRun | None) -> dict[str, Any]:
    """The telemetry of a step, as fields of ``ExecutionEvidence``. What nobody counted is said to be unmeasured."""
    reading = MeterReading()
    if session is not None:
        reading = read_meters(session).since(None if step is None else step.meters)
    counts: dict[Telemetry, int | None] = {
        "retry_count": None if step is None else step.retries,
        "tool_call_count": reading.tool_calls,
    }
    return {
        **{name: value for name, value in counts.items() if value is not None},
        "unmeasured": tuple(name for name, value in counts.items() if value is None),
        "token_usage": reading.tokens,
        "runtime_seconds": None if reading.elapsed_ms is None else reading.elapsed_ms / 1000,
    }


def touched(site: Site, scope: Scope | None, contract: StepContract) -> dict[str, Any]:
    """What a step produced and whether it stayed within its scope, as fields of ``ExecutionEvidence``."""
    step, expected = site.step, tuple(contract.expected_artifacts)
    found = produced(site.workspace, expected, None if step is None else step.started_ns)
    if scope is None:
        return {"produced_artifacts": found}
    base = based(scope.base, site)
    try:
        if base is None:
            raise GitFailed("no base to compare with: name one in Scope, or pass a StepRun")
        changes = read_changes(site, base)
    except GitFailed as error:
        # Not known to be within bounds is not within bounds.
        return {
            "produced_artifacts": found,
            "unexpected_artifacts": (site.told(f"(what changed is not known: {error})"),),
            "rollback_available": False if error.no_repository else None,
        }
    allowed = Globs((*scope.allowed, *patterns(expected)))
    outside = [path for path in changes.outside(allowed) if path not in expected]
    there = [path for path in changes.paths if path not in outside and (site.workspace / path).is_file()]
    return {
        "produced_artifacts": tuple(dict.fromkeys((*found, *map(printable, there)))),
        "unexpected_artifacts": tuple(map(printable, outside)),
        # Going back to the base would also take what was there, uncommitted, before the step.
        "rollback_available": True if step is None else None if step.dirty is None else not step.dirty,
    }

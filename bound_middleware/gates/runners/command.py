"""Runs the command of a constraint, again where its retry policy says so, and judges how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...decision.collectors.process import Run
from ..values import Attempt, Category, Result, Verdict
from .base import GateSite, found

if TYPE_CHECKING:
    from ..contract import Command
    from ..contract.common import Retry, Runs

#: What a shell says when it cannot find, or not execute, a program.
_NOT_EXECUTED = (126, 127)
#: Sent by whoever runs the machine, not by a fault of the program.
_SENT_FROM_OUTSIDE = (2, 9, 15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended, as a verdict; ``pass`` means that it succeeded, whatever else there is to find out."""

    run: Run
    verdict: Verdict
    message: str
    category: Category
    exit_code: int | None
    attempts: tuple[Attempt, ...] = ()


def run_command(constraint: Command, site: GateSite) -> Result:
    """The result of a ``command``."""
    return as_result(constraint, execute(constraint, site), site)


def as_result(constraint: Runs, ended: Ended, site: GateSite) -> Result:
    """The result that the end of a command alone gives."""
    return found(
        constraint,  # type: ignore[arg-type]
        ended.verdict,
        site.redact(ended.message),
        category=ended.category,
        exit_code=ended.exit_code,
        output_tail=site.tail(ended.run),
        attempts=ended.attempts,
    )


def execute(constraint: Runs, site: GateSite) -> Ended:
    """Runs the command, and again as the retry policy allows; the last attempt counts."""
    outside = _outside(constraint, site)
    if outside is not None:
        return outside
    retry, attempts, spent_ms = constraint.retry, [], 0
    while True:
        ended = _once(constraint, site, _time_ms(constraint, retry, spent_ms))
        taken_ms = ended.run.ended_ms - ended.run.started_ms
        spent_ms += taken_ms
        attempts.append(
            Attempt(
                verdict=ended.verdict,
                message=site.redact(ended.message),
                duration_ms=taken_ms,
                exit_code=ended.exit_code,
            )
        )
        if retry is None or len(attempts) >= retry.max_attempts or not _again(retry, ended):
            break
        spent_ms += round(retry.delay_seconds * 1000)
        if retry.total_seconds is not None and spent_ms >= retry.total_seconds * 1000:
            break
        if site.stop.wait(retry.delay_seconds):
            break
    return Ended(
        run=ended.run,
        verdict=ended.verdict,
        message=ended.message if len(attempts) == 1 else f"{ended.message} (attempt {len(attempts)})",
        category=ended.category,
        exit_code=ended.exit_code,
        attempts=tuple(attempts) if len(attempts) > 1 else (),
    )


def _once(constraint: Runs, site: GateSite, timeout_ms: int) -> Ended:
    environment = site.environment_for(constraint.environment)
    done = site.command(constraint.argv, timeout_ms=timeout_ms, environment=environment, cwd=constraint.cwd)
    verdict, message, category = _judged(constraint, done)
    code = done.code if done.ending == "exited" else -done.code if done.code is not None else None
    return Ended(run=done, verdict=verdict, message=message, category=category, exit_code=code)


def _judged(constraint: Runs, done: Run) -> tuple[Verdict, str, Category]:
    if done.ending == "signalled":
        outside = done.code in _SENT_FROM_OUTSIDE
        return "fail", f"ended by signal {done.code}", "environment" if outside else "constraint"
    if done.ending != "exited":
        return "error", done.trouble or done.ending, "environment"
    if done.code in constraint.success_codes:
        return "pass", f"exit code {done.code}", "constraint"
    if done.code in constraint.pending_codes:
        return "pending", f"exit code {done.code}: not ready yet", "constraint"
    if done.code in _NOT_EXECUTED:
        return "error", done.trouble or "", "environment"
    return "fail", f"exit code {done.code}", "constraint"


def _outside(constraint: Runs, site: GateSite) -> Ended | None:
    place = Path(site.root, constraint.cwd)
    note = ""
    try:
        if not place.resolve(strict=True).is_relative_to(site.root):
            note = f"cwd {constraint.cwd!r} leads out of the project"
        elif not place.is_dir():
            note = f"cwd {constraint.cwd!r} is no folder"
    except (OSError, RuntimeError):
        note = f"cwd {constraint.cwd!r} does not exist"
    if not note:
        return None
    nothing = Run(argv=constraint.argv, ending="not_started", note=note)
    return Ended(run=nothing, verdict="error", message=note, category="environment", exit_code=None)


def _time_ms(constraint: Runs, retry: Retry | None, spent_ms: int) -> int:
    if retry is None or retry.total_seconds is None:
        return constraint.timeout_ms
    return max(1, min(constraint.timeout_ms, round(retry.total_seconds * 1000) - spent_ms))


def _again(retry: Retry, ended: Ended) -> bool:
    match ended.run.ending:
        case "exited":
            return ended.exit_code in retry.exit_codes
        case "not_started":
            return retry.start_errors
        case "timed_out":
            return retry.timeouts
    return False

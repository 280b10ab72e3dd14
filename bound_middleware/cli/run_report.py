"""What ``bound run`` says when its target has ended, and the exit code that it ends with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import INTERRUPTED, NO, OK
from .display import headline, summary, would_have_refused
from .programs import NOTHING
from .targets import plain, text_of

if TYPE_CHECKING:
    from ..session.outcome import RunOutcome
    from ..session.session import BoundSession
    from .programs import Ended


def report(session: BoundSession, ended: Ended, result: Any, *, as_json: bool, quiet: bool) -> int:
    """Print the result on stdout and the outcome on stderr; the exit code."""
    outcome = session.outcome
    code = _code(ended, outcome, result)
    if sys.stdout is None or sys.stdout.closed:
        # The program closed it, and whoever flushes it at the end must still find something.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    if as_json:
        said: dict[str, Any] = {} if result is NOTHING else {"result": plain(result)}
        said |= {"outcome": outcome.as_dict(), "exit_code": code}
        # A program may have ended in the middle of a line; the object must have its own.
        start = "\n" if result is NOTHING else ""
        print(f"{start}{json.dumps(said, default=str)}")
    elif result is not NOTHING and result is not None:
        print(text_of(result))
    sys.stdout.flush()
    if not quiet or code == NO or ended.stop is not None:
        print(_line(session, outcome, ended, result), file=sys.stderr)
    if not quiet:
        print(summary(session, outcome), file=sys.stderr)
        let_pass = would_have_refused(session) if session.shadow else None
        if let_pass is not None:
            print(f"  {'let pass':<12}{let_pass}", file=sys.stderr)
    return code


def _code(ended: Ended, outcome: RunOutcome, result: Any) -> int:
    """The target's own, unless it says that all is well although a bound stopped something."""
    stopped = outcome.stop_reason is not None or _inner(result).get("status") in ("stopped", "gate_unsatisfied")
    return NO if ended.code == OK and stopped else ended.code


def _line(session: BoundSession, outcome: RunOutcome, ended: Ended, result: Any) -> str:
    stop, inner = ended.stop, _inner(result)
    if outcome.stop_reason is None and stop is not None:
        return f"bound: stopped by {stop.stop_reason}, a bound of the program's own: {stop.note or stop}"
    if outcome.stop_reason is None and inner.get("stop_reason"):
        return f"bound: {inner.get('status')} by {inner['stop_reason']}, a bound of the graph's own"
    if ended.code == INTERRUPTED:
        return f"{headline(session, outcome)} (interrupted)"
    return headline(session, outcome, stop.note if stop is not None else None)


def _inner(result: Any) -> Mapping[str, Any]:
    """The outcome that a graph with bounds of its own has in its ``bound`` channel; empty without one."""
    own = result.get("bound") if isinstance(result, Mapping) else None
    outcome = own.get("outcome") if isinstance(own, Mapping) else None
    return outcome if isinstance(outcome, Mapping) else {}

"""What an approval is bound to, and how it is used.

Rules:

1. An approval is for one call: its place, its id, and the digest of tool, canonical arguments and specification.
   Another argument, tool or specification is another call, which is asked for anew.
2. It is used once: the first effect that claims it owns it. The same effect that comes again (a resume, a second
   dispatch) is granted again; whether it happens again is the journal's to say.
3. It expires ``approval_ttl_ms`` after the question was shown, by the session's clock: an answer to an older
   question is no answer, and an approval that is older when it is claimed is none.
4. An answer counts only for a question that was shown before: whoever changes the call between question and
   answer is asked again.
5. A rejection is remembered for the run. What was rejected ``REJECTIONS_MAX`` times is refused without asking, and
   the second such refusal ends the run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..core.limits import Limits
from ..core.verdicts import Approval
from .approval_book import ApprovalBook, Entry, book_beside
from .flow import Flow, Op

if TYPE_CHECKING:
    from .session import BoundSession

#: How often the same call is asked for although it was rejected. Two: once it may have been a slip.
REJECTIONS_MAX = 2
#: Which refusal of a call that is not asked for any more ends the run.
UNASKED_MAX = 2

#: How a round of questions stands: shown to somebody, answered in time, or of no use (changed, late, no answer).
RoundState = Literal["shown", "answered", "void"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a call is proposed: the thread, the graph in it, and the task that asks."""

    thread_id: str = ""
    graph: str = ""
    task: str = ""


def gates(session: BoundSession) -> bool:
    """Whether any tool of this session has to be approved; in shadow mode none has."""
    return gating(session.limits)


def gating(limits: Limits) -> bool:
    """Whether any tool has to be approved under these limits."""
    return bool(limits.approval_tools) or (limits.tools is None and limits.unknown_tools == "approval")


def waits(session: BoundSession, tool: str) -> bool:
    """Whether a call of this tool has to be approved."""
    return session.limits.tier(tool) == "approval"


def canonical(value: Any) -> str:
    """A JSON text that is equal for equal values: keys in order, 1 and 1.0 the same, True and 1 not."""
    try:
        return json.dumps(
            _plain(value), sort_keys=True, separators=(",", ":"), default=lambda v: f"{type(v).__name__}:{v}"
        )
    except (RecursionError, TypeError, ValueError):
        # Keys that JSON does not have, or a value inside of itself.
        return json.dumps(repr(value))


def digest_of(session: BoundSession, tool: str, args: Mapping[str, Any]) -> str:
    """SHA-256 over tool, canonical arguments and the fingerprint of the specification."""
    text = canonical([tool, dict(args), session.spec.fingerprint])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def book_of(session: BoundSession) -> ApprovalBook:
    return book_beside(session.ledger)


# -- one call ----------------------------------------------------------------------------------------------


def standing(session: BoundSession, seat: Seat, call: Mapping[str, Any], effect: str) -> Flow[Approval]:
    """What is known of the approval of a call that is about to run; a valid one now belongs to ``effect``."""
    now_ms, ttl_ms = session.clock.now_ms(), session.limits.approval_ttl_ms

    def claim(known: Entry | None) -> Entry | None:
        if known is None or known["state"] != "granted" or known["used_by"] or _late(known, now_ms, ttl_ms):
            return None
        return {**known, "used_by": effect}

    _, entry = yield _change(session, _grant_key(session, seat, call), claim)
    if entry is None:
        return ""
    if entry["state"] == "granted" and entry["used_by"] != effect:
        # Used by another call with the same id, or too old: what can be asked for is asked for again.
        return "" if entry["used_by"] else "expired"
    return entry["state"]  # type: ignore[no-any-return]


def decide(
    session: BoundSession, seat: Seat, call: Mapping[str, Any], state: Approval, *, asked_ms: int
) -> Flow[None]:
    """Write down an answer about a call. One that was used already stays used, in the same task."""

    def write(known: Entry | None) -> Entry | None:
        used_by = known["used_by"] if known is not None and known["task"] == seat.task else ""
        return None if used_by else {"state": state, "asked_ms": asked_ms, "used_by": "", "task": seat.task}

    yield _change(session, _grant_key(session, seat, call), write)


# -- rejections --------------------------------------------------------------------------------------------


def rejected(session: BoundSession, seat: Seat, call: Mapping[str, Any]) -> Flow[None]:
    """Remember a rejection; the same answer read twice counts once."""
    yield from _counted(session, seat, call, "rejected")


def unasked(session: BoundSession, seat: Seat, call: Mapping[str, Any]) -> Flow[int]:
    """0 when the call may be asked for; else 1 for the first refusal without a question, and so on."""
    entry, _ = yield _change(session, _rejection_key(session, seat, call), lambda known: None)
    before = [at for at in (entry or {"rejected": ()})["rejected"] if not at.startswith(f"{seat.task}:")]
    if len(before) < REJECTIONS_MAX:
        # Answers of this very task are left out: it reads them again each time it goes on.
        return 0
    return (yield from _counted(session, seat, call, "unasked"))


def _counted(session: BoundSession, seat: Seat, call: Mapping[str, Any], what: str) -> Flow[int]:
    def add(known: Entry | None) -> Entry | None:
        entry = dict(known or {"rejected": [], "unasked": []})
        if _at(seat, call) not in entry[what]:
            entry[what] = [*entry[what], _at(seat, call)]
        return entry

    _, entry = yield _change(session, _rejection_key(session, seat, call), add)
    return len(entry[what])


# -- rounds of questions -----------------------------------------------------------------------------------


def shown(session: BoundSession, seat: Seat, number: int, request: str) -> Flow[Entry | None]:
    """Write down that a question is shown now; the entry that was there before, ``None`` for a new question."""
    now_ms = session.clock.now_ms()

    def write(known: Entry | None) -> Entry | None:
        if known is not None and known["request"] == request:
            return None
        return {"request": request, "asked_ms": now_ms, "state": "shown"}

    before, _ = yield _change(session, _round_key(session, seat, number), write)
    return before if before is not None and before["request"] == request else None


def round_is(
    session: BoundSession, seat: Seat, number: int, state: RoundState, *, asked_ms: int, problem: str = ""
) -> Flow[None]:
    """Write down how a round of questions ended; ``problem`` says why its answer was of no use."""
    yield _change(
        session,
        _round_key(session, seat, number),
        lambda known: {**(known or {"request": ""}), "state": state, "asked_ms": asked_ms, "problem": problem},
    )


def in_time(session: BoundSession, asked_ms: int) -> bool:
    """Whether an answer to a question of then still counts: up to and including the last millisecond."""
    return 0 <= session.clock.now_ms() - asked_ms <= session.limits.approval_ttl_ms


def _late(entry: Entry, now_ms: int, ttl_ms: int) -> bool:
    return not 0 <= now_ms - entry["asked_ms"] <= ttl_ms


def _change(session: BoundSession, key: str, how: Any) -> Op:
    book = book_of(session)
    return Op(lambda: book.change(key, how), book.blocking)


def _root(session: BoundSession) -> str:
    return session.lineage[-1].session_id


def _at(seat: Seat, call: Mapping[str, Any]) -> str:
    return f"{seat.task}:{call['id']}"


def _grant_key(session: BoundSession, seat: Seat, call: Mapping[str, Any]) -> str:
    digest = digest_of(session, call["name"], call["args"])
    return json.dumps(["call", _root(session), seat.thread_id, seat.graph, str(call["id"]), digest])


def _rejection_key(session: BoundSession, seat: Seat, call: Mapping[str, Any]) -> str:
    return json.dumps(["no", _root(session), seat.thread_id, digest_of(session, call["name"], call["args"])])


def _round_key(session: BoundSession, seat: Seat, number: int) -> str:
    return json.dumps(["round", _root(session), seat.thread_id, seat.task, number])


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value

"""Taking effects back: newest first, each compensation once, also after a crash in the middle.

What happens to an effect, in this order:

1. It did nothing, its tool is declared reversible, or an earlier rollback took it back: nothing, not listed.
2. This rollback has taken it back already (it was cut off and goes on): listed as compensated.
3. Its tool has no compensation: could not be undone.
4. It or its compensation is in work elsewhere: could not be undone.
5. Its compensation was cut off or raised: run again when it is idempotent, else it could not be confirmed.
6. Its end is unknown (cut off, or the tool raised): compensated when that is declared safe, else effect unknown.
7. Otherwise it is compensated. When the compensation raises, asks a person, or returns what has yet to run, it
   failed; the older effects are still taken back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from ..session.flow import Flow, Op
from .compensating import called
from .effect_scope import Effects, Place
from .effects import Compensation, Effect

#: Why an effect could not be undone; ``None`` where it is or will be compensated.
Verdict = Literal["skip", "already", "run", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What became of the effects: two lists of JSON objects, newest effect first."""

    compensated: tuple[dict[str, Any], ...]
    could_not_undo: tuple[dict[str, Any], ...]


def undone(
    effects: Effects, chosen: tuple[Effect, ...], rollback_id: str, *, dry_run: bool = False
) -> Flow[Undone]:
    """Take back the effects of ``chosen``, which are given newest first.

    ``rollback_id`` is the same when the same rollback runs again after a crash. ``dry_run`` changes nothing, and
    lists as compensated what would be.
    """
    compensated: list[dict[str, Any]] = []
    could_not: list[dict[str, Any]] = []
    journal = effects.journal
    for effect in chosen:
        compensation = effects.compensation(effect.tool)
        in_work = yield Op(lambda e=effect: journal.in_work(e), journal.blocking)  # type: ignore[misc]
        verdict, reason = _judged(effect, compensation, effects.reversible, rollback_id, in_work=in_work)
        if verdict == "run" and not dry_run:
            assert compensation is not None
            reason = yield from _compensated(effects, effect, compensation, rollback_id)
            verdict = "refuse" if reason else "already"
        if verdict == "refuse":
            could_not.append({**described(effect), "reason": reason})
        elif verdict != "skip":
            compensated.append(described(effect))
    return Undone(compensated=tuple(compensated), could_not_undo=tuple(could_not))


def since_order(effects: Effects, place: Place, order: int) -> Flow[tuple[Effect, ...]]:
    """The effects after a mark in the journal, of the graph at ``place`` and those inside of it."""
    journal = effects.journal
    found = yield Op(lambda: journal.since(place.thread_id, order), journal.blocking)
    return tuple(effect for effect in found if place.holds(effect.id.checkpoint_ns))


def described(effect: Effect) -> dict[str, Any]:
    """An effect as an entry of a report."""
    return {
        "kind": "effect",
        "tool": effect.tool,
        "tool_call_id": effect.id.tool_call_id,
        "arguments": json.loads(effect.arguments),
        "step": effect.id.step,
    }


def _judged(
    effect: Effect,
    compensation: Compensation | None,
    reversible: frozenset[str],
    rollback_id: str,
    *,
    in_work: bool,
) -> tuple[Verdict, str]:
    if effect.state == "void" or (compensation is not None and compensation.undo is None):
        return "skip", ""
    if effect.undo == "compensated":
        return ("already" if effect.undone_by == rollback_id else "skip"), ""
    if compensation is None:
        if effect.tool in reversible:
            return "skip", ""
        unknown = "" if effect.state == "done" else "; effect unknown"
        return "refuse", f"no compensation is registered, and it is not declared reversible{unknown}"
    if in_work:
        return "refuse", "it is in work elsewhere"
    if effect.undo in ("compensating", "failed") and not compensation.idempotent:
        how = "was cut off" if effect.undo == "compensating" else f"raised {effect.note}"
        return "refuse", f"could not be confirmed: its compensation {how}, and is not declared idempotent"
    if effect.state != "done" and not (compensation.safe_if_unknown or effect.undo != "pending"):
        how = "the call was cut off" if effect.state == "started" else f"the tool failed ({effect.note})"
        return "refuse", f"effect unknown: {how}, and its compensation is not declared safe for that"
    return "run", ""


def _compensated(effects: Effects, effect: Effect, compensation: Compensation, rollback_id: str) -> Flow[str]:
    """Run one compensation; the reason why the effect is not undone, or nothing."""
    key, journal = effect.id.key, effects.journal
    try:
        call = called(compensation.undo, json.loads(effect.arguments), json.loads(effect.result))
    except TypeError as error:
        return f"its compensation cannot be called: {error}"
    if not (yield Op(lambda: journal.claim_undo(effect, rollback_id), journal.blocking)):
        return "it is in work elsewhere"
    try:
        yield call
    except Exception as error:  # noqa: BLE001 - the user's code; reported, and the older effects come next
        note = f"{type(error).__name__}: {error}"
        yield Op(lambda: journal.finish_undo(key, "failed", note), journal.blocking)
        return f"its compensation raised {note}"
    except BaseException:
        yield Op(lambda: journal.abandon(key), journal.blocking)
        raise
    yield Op(lambda: journal.finish_undo(key, "compensated", effect.note), journal.blocking)
    return ""

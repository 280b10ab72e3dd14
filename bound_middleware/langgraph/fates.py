"""What became of a tool call that has no answer: the words for it, from the journal of effects.

A call whose answer a rollback took away has run all the same, and a model that is told otherwise does it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .effect_scope import Effects
from .effects import Effect, canonical

#: Words about a call, from the call.
Fate = Callable[[Mapping[str, Any]], str]

NOT_RUN = "This call was not run: the answer that proposed it was not accepted."
_NOT_RECORDED = "This call has no answer any more. No run of it is recorded, so it is not known whether it ran."
_NO_EFFECT = (
    "This call has no answer any more. Whether it ran is not recorded: its tool is declared without effect."
)
_OTHER_ARGUMENTS = (
    "It is not known whether this call ran: a call with its id ran, and with other arguments. Find out before you "
    "call it again."
)
_REFUSED = "This call was not run: its arguments were refused."
_UNDONE = "This call ran, and what it did was undone."
_REVERSED = "This call ran. Its answer was taken back, and its tool is declared reversible."
_NOT_UNDONE = "This call ran, and what it did could not be undone. Do not call it again as if it had not run."
_ANSWER_LOST = "This call ran, and its answer is not kept. What it did stays."
_UNKNOWN = (
    "This call was started, and it is not known what it did. It could not be undone: find out before you call it "
    "again."
)
_UNKNOWN_KEPT = "This call was started, and it is not known what it did: find out before you call it again."
#: The worst comes first: of several runs of one call it is the one to be told.
_WORST_FIRST = (_UNKNOWN, _UNKNOWN_KEPT, _NOT_UNDONE, _ANSWER_LOST, _REVERSED, _UNDONE, _REFUSED)


def fate_of(effects: Effects, recorded: Iterable[Effect], *, rolled_back: bool) -> Fate:
    """The words about a call, by the effects that are ``recorded`` since the savepoint.

    ``rolled_back``: whether the effects were taken back, as far as that was possible.
    """
    known = tuple(recorded)

    def of(call: Mapping[str, Any]) -> str:
        name, arguments = call["name"], canonical(call["args"])
        same_id = [e for e in known if e.tool == name and e.id.tool_call_id == str(call["id"])]
        runs = [_of(effects, e, rolled_back) for e in same_id if e.arguments == arguments]
        if runs:
            return min(runs, key=_WORST_FIRST.index)
        if same_id:
            return _OTHER_ARGUMENTS
        if not rolled_back:
            return NOT_RUN
        compensation = effects.compensation(name)
        return _NO_EFFECT if compensation is not None and compensation.undo is None else _NOT_RECORDED

    return of


def _of(effects: Effects, effect: Effect, rolled_back: bool) -> str:
    if effect.state == "void":
        return _REFUSED
    if effect.undo == "compensated":
        return _UNDONE
    if effect.state != "done":
        return _UNKNOWN if rolled_back else _UNKNOWN_KEPT
    if not rolled_back:
        return _ANSWER_LOST
    return _REVERSED if effect.tool in effects.reversible else _NOT_UNDONE

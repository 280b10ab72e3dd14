"""Errors carry values, derive their text from them, and survive a pickle."""

import copy
import pickle

import pytest

from bound_middleware.core.errors import BoundError, BoundExceeded, LedgerError, SpecError, TraceError


class _Bubble(Exception):
    """Stands for a framework's control-flow error, with a constructor of its own."""

    def __init__(self, *signals: str, depth: int = 1) -> None:
        super().__init__(*signals)
        self.depth = depth


class _BoundFirst(BoundExceeded, _Bubble):
    pass


class _BubbleFirst(_Bubble, BoundExceeded):
    def __init__(self, *, depth: int, **values: object) -> None:
        BoundExceeded.__init__(self, "idle", **values)
        self.depth = depth


ERRORS = [
    BoundError("plain"),
    SpecError(
        "too many", key="bounds.tokens", value=-1, allowed="0, 1, ...", nearest="token", file="bound.yml", line=3
    ),
    SpecError("bare"),
    BoundExceeded(
        "cost_budget",
        axis="nanousd",
        limit=9,
        used=5,
        held=3,
        asked=2,
        note="raise it",
        outcome={"status": "stopped"},
        partial=["half"],
        session_id="s-1",
    ),
    BoundExceeded("tool_refused"),
    _BoundFirst("deadline", axis="time_ms", limit=0, used=0),
    _BubbleFirst(depth=7, note="no chunk came", partial="text"),
    LedgerError("hold_closed", id="call-1", note="settled before"),
    LedgerError("unavailable"),
    TraceError("was changed", index=4, recorded="a", recomputed="b"),
]


@pytest.mark.parametrize("through", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: f"{type(e).__name__}-{e}")
def test_an_error_survives_a_copy_with_all_values(error, through):
    again = through(error)
    assert type(again) is type(error)
    assert again.args == error.args
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_pickles_in_every_protocol(protocol):
    again = pickle.loads(pickle.dumps(ERRORS[3], protocol))
    assert (again.limit, again.used, again.held, again.asked) == (9, 5, 3, 2)


def test_a_note_added_to_an_error_survives_a_pickle():
    error = BoundExceeded("idle")
    error.add_note("seen by the tracer")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["seen by the tracer"]


def test_an_error_of_two_bases_is_caught_as_either():
    for kind in (BoundExceeded, BoundError, _Bubble):
        with pytest.raises(kind):
            raise _BoundFirst("deadline")


def test_a_specification_error_is_a_value_error_and_the_others_are_not():
    assert issubclass(SpecError, ValueError)
    assert not any(issubclass(kind, ValueError) for kind in (BoundExceeded, LedgerError, TraceError))


def test_each_kind_of_error_has_its_own_code():
    codes = [kind.code for kind in (BoundError, SpecError, BoundExceeded, LedgerError, TraceError)]
    assert codes == ["bound_error", "spec_error", "bound_exceeded", "ledger_error", "trace_error"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SpecError("bare"), "bare"),
        (SpecError("bad", file="bound.yml", line=3, key="a.b"), "bound.yml:3: a.b: bad"),
        (SpecError("bad", file="bound.yml"), "bound.yml: bad"),
        (SpecError("bad", key="a", allowed="0 or more"), "a: bad; allowed: 0 or more"),
        (SpecError("no key 'tokns'", nearest="tokens"), "no key 'tokns'; did you mean 'tokens'?"),
        (
            SpecError("bad", file="f", line=1, key="k", allowed="x", nearest="y"),
            "f:1: k: bad; allowed: x; did you mean 'y'?",
        ),
        (BoundExceeded("cancelled"), "stopped by cancelled"),
        (BoundExceeded("tool_refused", note="use another tool"), "stopped by tool_refused: use another tool"),
        (BoundExceeded("cost_budget", limit=3), "stopped by cost_budget (limit 3)"),
        (
            BoundExceeded("deadline", axis="time_ms", limit=0, used=0),
            "stopped by deadline (time_ms: limit 0, used 0)",
        ),
        (
            BoundExceeded(
                "token_budget", axis="tokens", limit=9, used=5, held=3, asked=2, note="raise token_budget"
            ),
            "stopped by token_budget (tokens: limit 9, used 5, held 3, asked 2): raise token_budget",
        ),
        (LedgerError("unavailable"), "unavailable"),
        (LedgerError("hold_closed", id="c1"), "hold closed 'c1'"),
        (LedgerError("conflict", id="", note="its parent is 'p'"), "conflict '': its parent is 'p'"),
        (TraceError("was removed", index=0), "event 0: was removed"),
        (TraceError("differs", index=2, recorded=0), "event 2: differs (recorded 0, recomputed None)"),
        (TraceError("differs", index=2, recomputed="b"), "event 2: differs (recorded None, recomputed 'b')"),
    ],
)
def test_the_text_of_an_error_names_its_numbers_and_what_to_do(error, text):
    assert str(error) == text

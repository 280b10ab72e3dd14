"""What a session takes, and what it refuses to be made of."""

import json
import math
import pickle
from decimal import Decimal

import pytest

from bound_middleware import BoundExceeded, BoundSession, BoundSpec, SpecError, Usage, bound, install
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.metering.prices import PriceBook
from bound_middleware.testing import FakeClock

SPEC = {"version": 1, "bounds": {"token_budget": {"total": 100}}}


def test_a_spec_a_path_and_a_dict_are_the_same_bounds(tmp_path):
    path = tmp_path / "bound.yml"
    path.write_text(json.dumps(SPEC))
    sessions = [BoundSession(given) for given in (SPEC, str(path), path, BoundSpec.from_dict(SPEC))]
    assert {session.spec.fingerprint for session in sessions} == {BoundSpec.from_dict(SPEC).fingerprint}
    assert [session.remaining().tokens for session in sessions] == [100] * 4


def test_no_spec_bounds_nothing():
    left = BoundSession().remaining()
    assert (left.iterations, left.tokens, left.usd, left.seconds) == (None, None, None, None)


@pytest.mark.parametrize("value", [True, False, -1, math.nan, math.inf, "10", "ten", [], 1.5])
def test_nonsense_for_a_count_is_an_error_at_construction(value):
    with pytest.raises(SpecError) as caught:
        bound(iterations=value)
    assert caught.value.key == "iterations"


@pytest.mark.parametrize("value", [True, -1, math.nan, math.inf, "a lot", "-0.5", [], "1e12"])
def test_nonsense_for_money_is_an_error_at_construction(value):
    with pytest.raises(SpecError) as caught:
        bound(usd=value)
    assert caught.value.key == "usd"


@pytest.mark.parametrize("value", ["0.50", "$0.50", Decimal("0.5"), 0.5])
def test_money_may_be_given_in_every_form(value):
    assert bound(usd=value).session().remaining().usd == Decimal("0.5")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ledger", "ledger.db"),
        ("clock", 12),
        ("prices", [1]),
        ("prices", {"m": {"input": -1, "output": 1}}),
        ("prices", {"m": {"input": math.nan, "output": 1}}),
        ("sinks", 7),
        ("sinks", "trace.jsonl"),
        ("sinks", [7]),
        ("session_id", ""),
        ("session_id", 7),
        ("shadow", "yes"),
        ("shadow", 1),
        ("tenant", ""),
        ("user", 7),
    ],
)
def test_a_wrong_argument_is_a_spec_error_that_names_it(name, value):
    with pytest.raises(SpecError) as caught:
        BoundSession(SPEC, **{name: value})
    assert name in str(caught.value.key)
    with pytest.raises(SpecError):
        bound(SPEC, **{name: value}).session()


def test_a_misspelt_name_is_an_error_with_the_nearest_one():
    with pytest.raises(TypeError) as caught:
        bound(iteration=3)
    assert "iterations" in str(caught.value)
    with pytest.raises(TypeError):
        BoundSession(SPEC, iterations=3)
    with pytest.raises(SpecError):
        bound(SPEC, iterations=3)
    with pytest.raises(SpecError):
        BoundSession({"iterations": 3})


def test_a_single_sink_needs_no_list():
    seen, written = [], []

    class Writer:
        def write(self, event):
            written.append(event)

    first = BoundSession(SPEC, sinks=seen.append)
    second = BoundSession(SPEC, sinks=Writer())
    assert [e.name for e in (*seen, *written)] == ["session_opened"] * 2
    assert (tuple(seen), tuple(written)) == (first.events, second.events)


def test_sessions_have_different_ids_unless_one_is_given():
    assert BoundSession().session_id != BoundSession().session_id
    assert BoundSession(session_id="r1").session_id == "r1"


def test_the_rate_for_unknown_models_holds_for_a_price_book_too():
    spec = {
        "bounds": {
            "cost_budget": {"total_usd": 1, "on_unknown_price": {"input_usd_per_mtok": 2, "output_usd_per_mtok": 4}}
        }
    }
    for prices in (None, {"m": {"input": 1, "output": 1}}, PriceBook({"m": {"input": 1, "output": 1}})):
        session = BoundSession(spec, prices=prices)
        session.charge(usage=Usage(input_tokens=100_000), model="never-heard-of-0")
        assert session.usage.cost_usd == Decimal("0.2")
        assert session.usage.estimated


def test_tenant_and_user_are_in_the_trace():
    session = BoundSession(SPEC, tenant="acme", user="ann")
    assert session.events[0].detail["owner"] == {"tenant": "acme", "user": "ann"}
    assert session.child("a").events[0].detail["owner"] == {"tenant": "acme", "user": "ann"}


def test_a_session_on_a_durable_ledger_pickles_with_its_prices_and_its_owner(tmp_path):
    with SqliteLedger(tmp_path / "l.db") as ledger:
        session = BoundSession(SPEC, ledger=ledger, prices={"m": {"input": 1, "output": 10}}, user="ann")
        session.charge(usage=Usage(input_tokens=40), model="m")
        again = pickle.loads(pickle.dumps(session))
        again.charge(usage=Usage(output_tokens=30), model="m")
        assert again.session_id == session.session_id
        assert session.remaining().tokens == 30
        assert session.usage.cost_nanousd == 40 * 1_000 + 30 * 10_000
        assert again.owner == {"user": "ann"}
        again.ledger.close()


def test_a_session_in_memory_does_not_pickle_and_says_what_would_do():
    with pytest.raises(TypeError, match="SqliteLedger"):
        pickle.dumps(BoundSession(SPEC))
    with pytest.raises(TypeError, match="SqliteLedger"):
        pickle.dumps(BoundSession(SPEC).child("a"))


def test_install_takes_a_spec_short_names_or_a_session_and_goes_away_again():
    from bound_middleware.session import scope

    for ways in ((SPEC, {}), (None, {"tokens": 100}), (BoundSession(SPEC), {})):
        session = install(ways[0], **ways[1])
        assert scope.claim() == (session,)
        assert session.remaining().tokens == 100
    with pytest.raises(SpecError):
        install(session, shadow=True)
    with pytest.raises(SpecError):
        install(tokens=-1)
    assert scope.default() is session
    assert install(None) is None
    assert scope.claim() == ()


def test_a_zero_on_each_axis_refuses_and_none_does_not():
    for zero in ("tokens", "usd", "seconds"):
        with pytest.raises(BoundExceeded):
            bound(**{zero: 0}, clock=FakeClock()).session().charge(usd="0.01", usage=Usage(input_tokens=1))
        bound(**{zero: None}).session().charge(usd="0.01", usage=Usage(input_tokens=1))

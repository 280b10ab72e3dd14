"""A sub-agent gets what was asked, within what its parent has and may."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bound_middleware import BoundExceeded, SpecError, Usage
from bound_middleware.core.limits import Limits
from bound_middleware.session import scope
from bound_middleware.session.charges import tool_call
from bound_middleware.session.within import within


def test_a_child_gets_the_smaller_of_what_it_asks_and_what_is_left(make, charge, ledger):
    parent = make(tokens=1_000, ledger=ledger)
    charge(parent, usage=Usage(input_tokens=700))
    child = parent.child("a", tokens=500)
    assert child.remaining().tokens == 300
    charge(child, usage=Usage(input_tokens=120))
    assert (parent.remaining().tokens, child.remaining().tokens) == (180, 180)
    with pytest.raises(BoundExceeded):
        charge(child, usage=Usage(input_tokens=181))
    small = parent.child("b", tokens=10)
    assert small.remaining().tokens == 10


def test_the_sum_of_parallel_children_is_within_the_parent(make, ledger):
    parent = make(tokens=300, ledger=ledger)
    children = [parent.child(f"c{i}", tokens=200) for i in range(4)]

    def work(child):
        spent = 0
        while True:
            try:
                child.charge(usage=Usage(input_tokens=10))
            except BoundExceeded:
                return spent
            spent += 10

    with ThreadPoolExecutor(4) as pool:
        spent = list(pool.map(work, children))
    assert sum(spent) == 300
    assert max(spent) <= 200
    assert parent.usage.total_tokens == 300


def test_spend_is_in_the_total_of_everyone_above_by_agent(make, calls, ledger):
    parent = make({"agent": "main"}, ledger=ledger)
    for _ in range(2):
        calls.make(parent, input=60, output=40)
    child = parent.child("child")
    for _ in range(3):
        calls.make(child, input=30, output=20)
    calls.make(child.child("grandchild"), input=15, output=5)
    by_agent = {name: part.total_tokens for name, part in parent.usage.by_agent.items()}
    assert (parent.usage.total_tokens, by_agent) == (370, {"main": 200, "child": 150, "grandchild": 20})
    assert child.usage.total_tokens == 170
    calls.make(child, input=30, output=20)
    assert parent.usage.total_tokens == 420


def test_the_stop_of_a_child_is_not_its_parents(make, calls):
    parent = make(tokens=100)
    with parent:
        child = parent.child("a", tokens=20)
        with pytest.raises(BoundExceeded) as caught, child:
            calls.open(child, input=30)
        assert caught.value.session_id == child.session_id
        calls.make(parent)
    assert (child.outcome.status, child.outcome.stop_reason) == ("stopped", "token_budget")
    assert (parent.outcome.status, parent.outcome.stop_reason) == ("completed", None)
    assert child.outcome.detail["agent"] == "a"


def test_a_call_inside_parent_and_child_counts_once_wherever_the_model_belongs(make, calls):
    parent = make(tokens=1_000)
    child = parent.child("a")
    with parent, child:
        assert scope.claim() == (child,)
        assert scope.claim_for((parent,)) == (child,)
        assert scope.claim_for((child,)) == (child,)
        calls.make(*scope.claim_for((parent,)))
    with child, parent:
        assert scope.claim() == (child,)
    assert parent.usage.model_calls == 1


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"action_surface": {"models": ["other"], "allowed": ["t"]}}, "model_not_allowed"),
        ({"token_budget": {"input_per_call_max": 5}}, "input_per_call"),
        ({"cost_budget": {"per_model_call_usd_max": "0.000001"}}, "model_call_cost"),
        ({"time_budget": {"per_model_call_seconds_max": 0}}, "model_call_deadline"),
        ({"token_budget": {"output_per_call_max": 0}}, "token_budget"),
    ],
)
def test_what_bounds_each_call_of_the_parent_bounds_the_childs(make, calls, bounds, reason):
    child = make({"bounds": bounds}).child("a", tokens=500).child("b", iterations=7)
    with pytest.raises(BoundExceeded) as caught:
        calls.open(child)
    assert caught.value.stop_reason == reason


def test_tools_of_the_parent_bound_the_childs(make, calls):
    parent = make(tools=["search", "read"], approve=["send"])
    child = parent.child("a", tools=["search", "delete"])
    calls.run(tool_call(child, call_id="1", tool="search"))
    for tool in ("read", "delete", "send", "other"):
        with pytest.raises(BoundExceeded) as caught:
            calls.run(tool_call(child, call_id=tool, tool=tool))
        assert caught.value.stop_reason == "tool_refused"
    free = parent.child("b")
    calls.run(tool_call(free, call_id="2", tool="read"))
    with pytest.raises(BoundExceeded) as caught:
        calls.run(tool_call(free, call_id="3", tool="send"))
    assert caught.value.stop_reason == "approver_failed"
    assert parent.usage.tool_calls == 2


def test_the_time_of_the_parent_is_the_childs_too(make, calls, clock):
    parent = make(seconds=60)
    with parent:
        child = parent.child("a", seconds=50)
        clock.advance(seconds=15)
        assert child.remaining().seconds == 45.0
        with child:
            clock.advance(seconds=44)
            calls.make(child)
            assert child.remaining().seconds == 1.0
            clock.advance(seconds=1)
            with pytest.raises(BoundExceeded) as caught:
                calls.open(child)
    assert caught.value.stop_reason == "deadline"
    assert parent.remaining().seconds == 0.0


def test_a_childs_call_starts_the_clock_of_a_parent_that_nobody_entered(make, calls, clock):
    parent = make(seconds=60)
    child = parent.child("a")
    calls.make(child)
    clock.advance(seconds=60)
    for session in (child, parent):
        with pytest.raises(BoundExceeded) as caught:
            calls.open(session)
        assert caught.value.stop_reason == "deadline"


def test_what_the_specification_says_of_an_agent_holds_for_the_child_of_that_name(make, calls):
    spec = {
        "bounds": {"token_budget": {"total": 1_000}},
        "agents": {"researcher": {"token_budget": {"total": 200}}},
    }
    parent = make(spec)
    assert parent.child("researcher").remaining().tokens == 200
    assert parent.child("researcher", tokens=50).remaining().tokens == 50
    assert parent.child("researcher", tokens=500).remaining().tokens == 200
    assert parent.child("other").child("researcher").remaining().tokens == 200
    assert parent.child("other").remaining().tokens == 1_000


def test_a_parent_keeps_its_reserve(make, charge):
    spec = {
        "bounds": {"token_budget": {"total": 1_000}, "time_budget": {"wall_clock_seconds": 60}},
        "agents": {"a": {"child_reserve": {"tokens": 100, "seconds": 10}}},
    }
    parent = make(spec)
    charge(parent, usage=Usage(input_tokens=500))
    child = parent.child("a", tokens=700)
    assert (child.remaining().tokens, child.remaining().seconds) == (400, 50.0)
    charge(child, usage=Usage(input_tokens=400))
    assert parent.remaining().tokens == 100
    assert parent.child("a").remaining().tokens == 0


def test_iterations_of_a_child_are_counted_in_the_parents_unit(make, calls):
    parent = make({"bounds": {"iteration_limit": {"max": 2, "unit": "tool_call"}}})
    child = parent.child("a", iterations=5)
    for _ in range(3):
        calls.make(child)
    for i in range(2):
        calls.run(tool_call(child, call_id=str(i), tool="t"))
    with pytest.raises(BoundExceeded) as caught:
        calls.run(tool_call(child, call_id="3", tool="t"))
    assert caught.value.stop_reason == "iteration_limit"


@pytest.mark.parametrize(
    "wrong", [{"tokens": -1}, {"token": 5}, {"spec": {"bounds": {}}, "tokens": 5}, {"usd": True}]
)
def test_nonsense_of_a_child_is_an_error(make, wrong):
    with pytest.raises(SpecError):
        make(tokens=100).child("a", **wrong)
    for name in ("", None, 7):
        with pytest.raises(SpecError):
            make(tokens=100).child(name)


def test_no_axis_of_a_child_is_wider_than_its_parents():
    above = Limits(tokens=5, tools=frozenset({"a", "b"}), forbidden_tools=frozenset({"b"}), strict_usage=True)
    joined = within(Limits(), above)
    assert joined.ceilings == above.ceilings
    assert (joined.strict_usage, joined.tier("a"), joined.tier("b"), joined.tier("c")) == (
        True,
        "run",
        "refuse",
        "refuse",
    )
    assert within(above, Limits()).ceilings == above.ceilings
    assert within(above, above).ceilings == above.ceilings


@pytest.mark.parametrize("own", [None, frozenset("ab"), frozenset()])
@pytest.mark.parametrize("above", [None, frozenset("bc"), frozenset()])
@pytest.mark.parametrize("unknown", ["approval", "refuse", "reversible"])
@pytest.mark.parametrize("approval", [frozenset(), frozenset("b")])
def test_a_tool_is_as_free_as_the_stricter_of_the_two_says(own, above, unknown, approval):
    order = ["run", "approval", "refuse"]
    mine = Limits(tools=own, unknown_tools="reversible", forbidden_tools=frozenset("e"))
    theirs = Limits(
        tools=above if above is None else above | approval,
        approval_tools=approval,
        unknown_tools=unknown,
        reversible_tools=frozenset("ad"),
    )
    joined = within(mine, theirs)
    for tool in "abcdef":
        assert joined.tier(tool) == max(mine.tier(tool), theirs.tier(tool), key=order.index), tool

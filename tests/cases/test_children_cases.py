"""Sub-agents, from bug reports: caps reach the child, spend reaches the parent, and no sibling is lost."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bound_middleware import BoundExceeded, BoundSession, Usage
from bound_middleware.testing import FakeClock

PRICES = {"cheap": {"input": 1, "output": 10}, "dear": {"input": 100, "output": 1_000}}


@pytest.fixture(params=["sync", "async"])
def do(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A method of a session in one colour."""
    if request.param == "sync":
        return lambda session, name, *args, **kwargs: getattr(session, name)(*args, **kwargs)
    return lambda session, name, *args, **kwargs: asyncio.run(getattr(session, f"a{name}")(*args, **kwargs))


def work(do: Any, session: BoundSession, tokens: int, most: int = 1_000) -> int:
    """Calls until one is refused; how many were made."""
    for made in range(most):
        try:
            do(session, "charge", usage=Usage(input_tokens=tokens))
        except BoundExceeded:
            return made
    return most


@pytest.mark.parametrize(("asked", "made"), [(None, 50), (25, 25), (5, 5), (50, 50), (0, 0), (80, 50)])
def test_i1_a_child_inherits_the_limit_and_an_explicit_one_wins(do: Any, asked: int | None, made: int) -> None:
    parent = BoundSession({"bounds": {"iteration_limit": 50}})
    child = do(parent, "child", "a", **({} if asked is None else {"iterations": asked}))
    assert work(do, child, 1) == made
    assert parent.remaining().iterations == 50 - made


@pytest.mark.parametrize("own", [25, 50])
def test_i1_what_the_file_says_of_a_child_wins_also_when_it_equals_the_parents(do: Any, own: int) -> None:
    parent = BoundSession({"bounds": {"iteration_limit": 50}, "agents": {"a": {"iteration_limit": own}}})
    assert work(do, do(parent, "child", "a"), 1) == own


@pytest.mark.parametrize(("with_grandchild", "total"), [(True, 370), (False, 350)])
def test_i3_children_are_in_the_total_and_a_resumed_one_adds_the_difference(
    do: Any, with_grandchild: bool, total: int
) -> None:
    parent = BoundSession({"agent": "main"}, prices=PRICES)
    for _ in range(2):
        do(parent, "charge", usage=Usage(input_tokens=100), model="cheap")
    child = do(parent, "child", "child", id="task")
    for _ in range(3):
        do(child, "charge", usage=Usage(input_tokens=50), model="dear")
    if with_grandchild:
        deep = do(child, "child", "deep")
        do(deep, "charge", usage=Usage(input_tokens=20), model="cheap")
    assert parent.usage.total_tokens == total
    child.close()
    resumed = do(parent, "child", "child", id="task")
    do(resumed, "charge", usage=Usage(input_tokens=50), model="dear")
    by_agent = {name: part.total_tokens for name, part in parent.usage.by_agent.items()}
    assert by_agent == {"main": 200, "child": 200, **({"deep": 20} if with_grandchild else {})}
    assert parent.usage.total_tokens == total + 50
    assert parent.usage.by_agent["child"].cost_nanousd == 200 * 100_000
    assert resumed.usage.total_tokens == total - 150


def test_i5_the_bound_of_one_child_leaves_its_siblings_and_its_parent_alone(do: Any) -> None:
    parent = BoundSession({"bounds": {"token_budget": {"total": 1_000}}})
    limits = {"A": 500, "B": 100, "C": 500}

    def run(name: str) -> tuple[str, str]:
        with do(parent, "child", name, tokens=limits[name]) as child:
            said = ""
            try:
                for _ in range(2 if name == "B" else 1):
                    do(child, "charge", usage=Usage(input_tokens=100))
                    said += name
            except BoundExceeded as stopped:
                return said, stopped.stop_reason
        return said, child.outcome.status

    with parent:
        with ThreadPoolExecutor(3) as pool:
            said = list(pool.map(run, limits))
        assert said == [("A", "completed"), ("B", "token_budget"), ("C", "completed")]
        assert parent.usage.total_tokens == 300
        do(parent, "charge", usage=Usage(input_tokens=100))
    assert (parent.outcome.status, parent.outcome.stop_reason) == ("completed", None)
    assert {name: part.total_tokens for name, part in parent.usage.by_agent.items()} == dict.fromkeys("ABC", 100)


def test_i7_three_endless_children_are_stopped_each_by_its_own_axis(do: Any) -> None:
    clock = FakeClock()
    spec = {
        "bounds": {"token_budget": {"total": 100_000}},
        "agents": {
            name: {"token_budget": {"total": 500}, "iteration_limit": 5, "time_budget": {"wall_clock_seconds": 1}}
            for name in ("talker", "looper", "sleeper")
        },
    }
    parent = BoundSession(spec, clock=clock)
    ways = {"talker": (200, 0.0), "looper": (10, 0.0), "sleeper": (10, 0.4)}
    ended = {}
    with parent:
        for name, (tokens, seconds) in ways.items():
            with do(parent, "child", name) as child:
                for made in range(1_000):
                    try:
                        do(child, "charge", usage=Usage(input_tokens=tokens))
                    except BoundExceeded as stopped:
                        ended[name] = (made, stopped.stop_reason)
                        break
                    clock.advance(seconds=seconds)
        do(parent, "charge", usage=Usage(input_tokens=1_000))
    assert ended == {"talker": (2, "token_budget"), "looper": (5, "iteration_limit"), "sleeper": (3, "deadline")}
    assert parent.outcome.status == "completed"


def test_i9_a_child_gets_what_its_parent_has_left_and_the_rest_comes_back(do: Any) -> None:
    parent = BoundSession({"bounds": {"token_budget": {"total": 1_000}}})
    do(parent, "charge", usage=Usage(input_tokens=700))
    pair = [do(parent, "child", name, tokens=200) for name in ("b", "c")]
    child = do(parent, "child", "a", tokens=500)
    assert child.remaining().tokens == 300
    do(child, "charge", usage=Usage(input_tokens=120))
    child.close()
    assert parent.remaining().tokens == 180
    assert sum(10 * work(do, one, 10) for one in pair) == 180


def test_h5_a_child_that_is_resumed_goes_on_with_its_budget(do: Any) -> None:
    parent = BoundSession({"bounds": {"token_budget": {"total": 10_000}}})
    ran = []
    for resume in range(4):
        with do(parent, "child", "researcher", id="task", tokens=1_000) as child:
            if work(do, child, 400, most=1):
                ran.append(resume)
    assert ran == [0, 1]
    assert parent.usage.total_tokens == 800


def test_h5_resumes_are_capped_whatever_they_cost(do: Any) -> None:
    spec = {"agent": "main", "agents": {"main": {"handoffs_max": 2, "spawns_max": 1}}}
    parent = BoundSession(spec)
    do(parent, "child", "researcher", id="task").close()
    for _ in range(2):
        do(parent, "handoff", "researcher")
        with do(parent, "child", "researcher", id="task") as child:
            do(child, "charge", usage=Usage(input_tokens=1))
    with pytest.raises(BoundExceeded) as caught:
        do(parent, "handoff", "researcher")
    assert (caught.value.stop_reason, caught.value.limit, caught.value.used) == ("handoff_limit", 2, 2)

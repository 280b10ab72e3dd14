"""Failing while deciding is a refusal: the error is heard, nothing is accepted, nothing is counted."""

import asyncio

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, RetryPolicy, interrupt

from bound_middleware import SpecError
from bound_middleware.decision import EvaluationScores, ExecutionEvidence
from bound_middleware.langgraph import insert_decision


def fails(*args):
    raise ZeroDivisionError("no evidence today")


async def afails(*args):
    raise ZeroDivisionError("no evidence today")


@pytest.mark.parametrize("what", ["contract", "collect", "evaluate"])
@pytest.mark.parametrize("function", [fails, afails])
def test_an_error_goes_on_with_a_note_and_nothing_is_accepted(line, scripted, thread, what, function):
    graph = insert_decision(line("act", "tail"), "act", scripted("ACCEPT", **{what: function})).compile(
        checkpointer=InMemorySaver()
    )
    with pytest.raises(ZeroDivisionError) as caught:
        asyncio.run(graph.ainvoke({"log": []}, thread()))
    assert any(f"{what} while deciding about 'act'" in note for note in caught.value.__notes__)
    assert graph.get_state(thread()).values["log"] == ["act1"]
    assert graph.get_state(thread()).next == ("act#decide",)


def test_a_failed_decision_is_taken_again_without_running_the_step_again(line, scripted, thread):
    broken = [True]

    def collect(state):
        if broken:
            fails()
        return ExecutionEvidence()

    graph = insert_decision(line("act", "tail"), "act", scripted("RETRY", "ACCEPT", collect=collect)).compile(
        checkpointer=InMemorySaver()
    )
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            graph.invoke({"log": []} if not graph.get_state(thread()).next else None, thread())
    broken.clear()
    result = graph.invoke(None, thread())
    assert result["log"] == ["act1", "act2", "tail1"]
    assert result["bound"]["routes"]["act"]["counts"]["retries"] == 1


def test_a_retry_policy_sees_the_users_own_error(line, scripted):
    tries = []

    def collect(state):
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("busy")
        return ExecutionEvidence()

    builder = line("act", "tail")
    builder.set_node_defaults(retry_policy=RetryPolicy(initial_interval=0.001, jitter=False))
    graph = insert_decision(builder, "act", scripted("ACCEPT", collect=collect)).compile()
    assert graph.invoke({"log": []})["log"] == ["act1", "tail1"]
    assert len(tries) == 3


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("contract", None),
        ("contract", {"id": "step"}),
        ("collect", None),
        ("collect", True),
        ("collect", {"acceptance": []}),
        ("evaluate", None),
        ("evaluate", "ACCEPT"),
        ("evaluate", 1.0),
    ],
)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_what_a_function_gives_is_checked(line, scripted, what, value, colour):
    async def agives(*args):
        return value

    given = (lambda *args: value) if colour == "sync" else agives
    graph = insert_decision(line("act", "tail"), "act", scripted("ACCEPT", **{what: given})).compile()
    with pytest.raises(SpecError) as caught:
        graph.invoke({"log": []}) if colour == "sync" else asyncio.run(graph.ainvoke({"log": []}))
    assert caught.value.key == what


def test_scores_that_are_no_numbers_cannot_be_made(line, scripted):
    def evaluate(contract, evidence, state):
        return EvaluationScores(acceptance=float("nan"), influence=0, risk=0, cost=0)

    graph = insert_decision(line("act", "tail"), "act", scripted("ACCEPT", evaluate=evaluate)).compile()
    with pytest.raises(ValueError, match="acceptance"):
        graph.invoke({"log": []})


async def acontract(state):
    await asyncio.sleep(0)
    from bound_middleware.decision import AcceptanceCheck, StepContract

    return StepContract(
        id="s", description="d", goal="g", acceptance_checks=[AcceptanceCheck(id="a", description="a")]
    )


async def acollect(state):
    await asyncio.sleep(0)
    return ExecutionEvidence()


async def aevaluate(contract, evidence, state):
    await asyncio.sleep(0)
    return EvaluationScores(acceptance=1, influence=0, risk=0, cost=0)


class Collector:
    async def collect(self, *, contract, execution):
        return await acollect(execution)


class Calls:
    async def __call__(self, contract, evidence, state):
        return await aevaluate(contract, evidence, state)


ASYNC = [("contract", acontract), ("collect", acollect), ("collect", Collector()), ("evaluate", aevaluate)]
ASYNC += [("evaluate", Calls()), ("evaluate", lambda *args: aevaluate(*args))]


@pytest.mark.parametrize(("what", "function"), ASYNC)
def test_coroutine_functions_work_in_async_graphs(line, scripted, what, function):
    graph = insert_decision(line("act", "tail"), "act", scripted("ACCEPT", **{what: function})).compile()
    assert asyncio.run(graph.ainvoke({"log": []}))["log"] == ["act1", "tail1"]


@pytest.mark.parametrize(("what", "function"), ASYNC)
def test_coroutine_functions_in_a_sync_call_are_a_clear_error(line, scripted, what, function):
    graph = insert_decision(line("act", "tail"), "act", scripted("ACCEPT", **{what: function})).compile()
    with pytest.raises(SpecError) as caught:
        graph.invoke({"log": []})
    assert caught.value.key == what
    assert "ainvoke" in str(caught.value)


def test_a_sync_function_does_not_hold_up_the_loop(line, scripted):
    import threading

    here = []

    def collect(state):
        here.append(threading.current_thread() is threading.main_thread())
        return ExecutionEvidence()

    graph = insert_decision(line("act"), "act", scripted("ACCEPT", collect=collect)).compile()
    asyncio.run(graph.ainvoke({"log": []}))
    assert here == [False]


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("what", ["contract", "collect", "evaluate"])
def test_an_interrupt_while_deciding_passes(line, scripted, thread, contract, what, colour):
    values = {
        "contract": contract,
        "collect": ExecutionEvidence(),
        "evaluate": EvaluationScores(acceptance=1, influence=0, risk=0, cost=0),
    }

    def asks(*args):
        assert interrupt("is it good?") == "yes"
        return values[what]

    graph = insert_decision(line("act", "tail"), "act", scripted("ACCEPT", **{what: asks})).compile(
        checkpointer=InMemorySaver()
    )

    def go(value):
        return graph.invoke(value, thread()) if colour == "sync" else asyncio.run(graph.ainvoke(value, thread()))

    assert go({"log": []})["log"] == ["act1"]
    assert go(Command(resume="yes"))["log"] == ["act1", "tail1"]


def test_a_bound_that_is_reached_while_deciding_passes(line, scripted):
    from bound_middleware import BoundExceeded
    from bound_middleware.langchain.errors import bubbling

    def collect(state):
        raise bubbling(BoundExceeded("cost_budget"))

    graph = insert_decision(line("act", "tail"), "act", scripted("ACCEPT", collect=collect)).compile()
    with pytest.raises(BoundExceeded) as caught:
        graph.invoke({"log": []})
    assert not hasattr(caught.value, "__notes__")


def test_a_cancelled_decision_accepts_nothing(line, scripted, thread):
    started = []

    async def collect(state):
        started.append(1)
        await asyncio.Event().wait()

    graph = insert_decision(line("act", "tail"), "act", scripted("ACCEPT", collect=collect)).compile(
        checkpointer=InMemorySaver()
    )

    async def go():
        task = asyncio.create_task(graph.ainvoke({"log": []}, thread()))
        while not started:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert graph.get_state(thread()).values["log"] == ["act1"]

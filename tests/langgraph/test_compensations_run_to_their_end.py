"""An effect counts as compensated when its compensation has run to its end, and not because it was called."""

import asyncio
import concurrent.futures
import contextlib
import functools
import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from bound_middleware.core.errors import SpecError
from bound_middleware.decision import AcceptanceCheck, EvaluationScores, ExecutionEvidence, StepContract
from bound_middleware.langgraph import BoundDecisionNode, compensated_by, insert_decision
from bound_middleware.langgraph.compensations import since_order, undone
from bound_middleware.langgraph.effect_scope import Effects, Place
from bound_middleware.langgraph.effect_store import MemoryJournal
from bound_middleware.langgraph.effects import Compensation, Effect, EffectId, canonical, checked, digest_of
from bound_middleware.session.flow import adrive, drive

LOG: list[Any] = []


@pytest.fixture(autouse=True)
def _empty_log():
    LOG.clear()


@pytest.fixture(params=["sync", "async"])
def go(request):
    return drive if request.param == "sync" else lambda flow: asyncio.run(adrive(flow))


def generator(n: int) -> Any:
    LOG.append(n)
    yield


async def async_generator(n: int) -> Any:
    LOG.append(n)
    yield


async def coroutine(n: int) -> None:
    LOG.append(n)


class Called:
    def __call__(self, n: int) -> Any:
        LOG.append(n)
        yield

    def method(self, n: int) -> Any:
        LOG.append(n)
        yield


class CalledAsync:
    async def __call__(self, n: int) -> Any:
        LOG.append(n)
        yield


@pytest.mark.parametrize(
    "undo",
    [
        generator,
        async_generator,
        functools.partial(generator, 1),
        functools.partial(functools.partial(async_generator), 1),
        Called(),
        Called().method,
        CalledAsync(),
        StructuredTool.from_function(generator, name="undo", description="Undo."),
        Compensation(undo=generator),
    ],
    ids=lambda undo: type(undo).__name__,
)
def test_a_generator_function_is_refused_where_it_is_declared(undo):
    for declare in (checked, compensated_by):
        with pytest.raises(SpecError, match="generator function: to call it runs nothing"):
            declare(undo)
    with pytest.raises(SpecError, match="generator function"):
        BoundDecisionNode(CONTRACT, lambda state: ExecutionEvidence(), compensations={"book": undo})


def undo_one(go: Any, undo: Any, *, idempotent: bool = False) -> Any:
    journal = MemoryJournal()
    id = EffectId(
        thread_id="t", checkpoint_ns="tools", step=1, tool_call_id="c", digest=digest_of("book", {"n": 1})
    )
    assert journal.begin(Effect(id=id, tool="book", arguments=canonical({"n": 1})), again=False) is None
    journal.finish(id.key, "done", result="null", answer=None, note="")
    effects = Effects(journal, {"book": checked(undo, idempotent=idempotent)}, frozenset())
    chosen = go(since_order(effects, Place(thread_id="t", ns="decide", step=9, checkpoint_id=""), 0))
    return go(undone(effects, chosen, "r"))


async def of_coroutine(n: int) -> Any:
    return coroutine(n)


async def of_generator(n: int) -> Any:
    return generator(n)


@contextlib.contextmanager
def managed(n: int) -> Any:
    LOG.append(n)
    yield


@contextlib.asynccontextmanager
async def amanaged(n: int) -> Any:
    LOG.append(n)
    yield


@pytest.mark.parametrize(
    ("undo", "what"),
    [
        (lambda n: generator(n), "generator"),
        (lambda n: async_generator(n), "async_generator"),
        (of_coroutine, "coroutine"),
        (of_generator, "generator"),
        (managed, "_GeneratorContextManager"),
        (amanaged, "_AsyncGeneratorContextManager"),
        (StructuredTool.from_function(lambda n: generator(n), name="u", description="Undo."), "generator"),
        (lambda n: concurrent.futures.Future(), "Future"),
        (lambda n: {"__interrupt__": ["sure?"]}, "paused to ask"),
    ],
)
def test_what_has_yet_to_run_has_undone_nothing(go, undo, what):
    done = undo_one(go, undo)
    assert done.compensated == ()
    assert what in done.could_not_undo[0]["reason"]
    assert LOG == []


@pytest.mark.parametrize(
    "undo",
    [
        coroutine,
        lambda n: coroutine(n),
        functools.partial(coroutine),
        lambda n: LOG.append(n),
        lambda n: LOG.extend([n]),
    ],
)
def test_what_ran_to_its_end_has_undone_it_once(go, undo):
    done = undo_one(go, undo)
    assert [entry["tool"] for entry in done.compensated] == ["book"]
    assert LOG == [1]


CONTRACT = StepContract(
    id="s", description="d", goal="g", acceptance_checks=[AcceptanceCheck(id="k", description="k")]
)


class State(MessagesState):
    bound: Annotated[dict[str, Any], operator.or_]


def asking(undo: Any, *, idempotent: bool, saver: Any = None, on_exhausted: str = "end") -> Any:
    """A graph whose tools run twice and are rolled back, then ends or asks a person."""

    @tool
    def book(n: int) -> str:
        """Book."""
        LOG.append(("booked", n))
        return "ok"

    def agent(state: Any) -> Any:
        calls = [{"name": "book", "args": {"n": n}, "id": f"c{n}"} for n in (1, 2)]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([book]))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    builder.add_edge("tools", END)
    node = BoundDecisionNode(
        CONTRACT,
        lambda state: ExecutionEvidence(),
        lambda contract, evidence, state: EvaluationScores(acceptance=0, influence=0, risk=1, cost=0),
        max_replans=0,
        on_exhausted=on_exhausted,
        compensations={"book": Compensation(undo=undo, idempotent=idempotent)},
    )
    return insert_decision(builder, "tools", node, replan="agent").compile(checkpointer=saver or InMemorySaver())


CONFIG = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=["sync", "async"])
def invoke(request):
    if request.param == "sync":
        return lambda graph, given: graph.invoke(given, CONFIG)
    return lambda graph, given: asyncio.run(graph.ainvoke(given, CONFIG))


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("color", ["sync", "async", "async by a lambda", "tool", "async tool"])
def test_a_compensation_that_asks_is_told_that_it_cannot(invoke, color, idempotent):
    def undo(n: int) -> None:
        interrupt("sure?")
        LOG.append(("undone", n))

    async def aundo(n: int) -> None:
        undo(n)

    undos = {
        "sync": undo,
        "async": aundo,
        "async by a lambda": lambda n: aundo(n),
        "tool": StructuredTool.from_function(undo, name="undo", description="Undo."),
        "async tool": StructuredTool.from_function(coroutine=aundo, name="undo", description="Undo."),
    }
    graph = asking(undos[color], idempotent=idempotent)
    ended = invoke(graph, {"messages": [("user", "go")]})
    report = ended["bound"]["decisions"]["tools"]["rollback"]
    assert (report["compensated"], report["complete"]) == ([], False)
    for entry in report["could_not_undo"]:
        assert "a compensation cannot ask a person (interrupt)" in entry["reason"]
    assert len(report["could_not_undo"]) == 2
    assert "__interrupt__" not in ended
    assert ("undone", 1) not in LOG


@pytest.mark.parametrize("idempotent", [False, True])
def test_an_answer_that_is_meant_for_the_decision_never_reaches_a_compensation(invoke, idempotent):
    def undo(n: int) -> None:
        LOG.append(("answered", interrupt("sure?")))

    graph = asking(undo, idempotent=idempotent, on_exhausted="ask")
    asked = invoke(graph, {"messages": [("user", "go")]})
    assert len(asked["__interrupt__"]) == 1
    assert asked["__interrupt__"][0].value != "sure?"
    ended = invoke(graph, Command(resume={"decision": "rollback"}))
    while "__interrupt__" in ended:
        ended = invoke(graph, Command(resume={"decision": "end"}))
    assert [entry for entry in LOG if entry[0] == "answered"] == []


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_graph_inside_a_compensation_cannot_ask_either(invoke, idempotent):
    inner = StateGraph(MessagesState)
    inner.add_node("ask", lambda state: {"messages": [("ai", interrupt("sure?"))]})
    inner.add_edge(START, "ask")
    compiled = inner.compile()

    def undo(n: int) -> None:
        compiled.invoke({"messages": []})
        LOG.append(("undone", n))

    graph = asking(undo, idempotent=idempotent)
    ended = invoke(graph, {"messages": [("user", "go")]})
    report = ended["bound"]["decisions"]["tools"]["rollback"]
    assert (report["compensated"], len(report["could_not_undo"])) == ([], 2)
    assert ("undone", 1) not in LOG

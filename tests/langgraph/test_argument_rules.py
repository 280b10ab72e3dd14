"""Rules in Python for the arguments of a tool, at every entrance that sees the call."""

import asyncio
import pickle

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from bound_middleware import BoundExceeded, BoundSession, SpecError
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.langgraph import bound_graph
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
SPEC = {"bounds": {"iteration_limit": 9}}
ASK = {"messages": [("user", "go")]}


def small(args):
    return args["amount"] <= 5 or "the amount has to be 5 or less"


@pytest.fixture
def paid():
    return []


@pytest.fixture
def pay(paid):
    @tool
    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    return pay


@pytest.fixture(params=["sync", "async"])
def run(request):
    if request.param == "sync":
        return lambda graph, value, config=None: graph.invoke(value, config)
    return lambda graph, value, config=None: asyncio.run(graph.ainvoke(value, config))


def model_of(*amounts):
    return ScriptedChatModel([reply(tool_calls=[("pay", {"amount": n}) for n in amounts]), "done"])


def test_a_bounded_graph_refuses_by_a_rule_and_runs_the_twin(run, pay, paid):
    graph = bound_graph(create_agent(model_of(9, 3), [pay]), SPEC, argument_rules={"pay": small})
    result = run(graph, ASK)
    answers = [m for m in result["messages"] if m.type == "tool"]
    assert paid == [3]
    assert [m.status for m in answers] == ["error", "success"]
    assert "5 or less" in answers[0].text
    assert result["messages"][-1].text == "done"


def test_a_tool_that_a_node_calls_is_judged_by_the_rule_too(run, pay, paid):
    def node(state):
        pay.invoke({"amount": len(state["messages"][-1].text)})

    for text, ran in (("much too long", []), ("ok", [2])):
        builder = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
        run(bound_graph(builder, SPEC, argument_rules={"pay": small}), {"messages": [("user", text)]})
        assert paid == ran


@pytest.mark.parametrize("by", ["middleware", "graph", "session"])
def test_the_rules_of_a_session_hold_wherever_it_is_given(run, pay, paid, by):
    session = BoundSession(SPEC, argument_rules={"pay": small})
    if by == "middleware":
        agent = create_agent(model_of(9, 3), [pay], middleware=[BoundMiddleware(session=session)])
    elif by == "graph":
        agent = bound_graph(create_agent(model_of(9, 3), [pay]), session=session)
    else:
        agent = create_agent(bound_model(model_of(3), session), [pay])
        with session, pytest.raises(BoundExceeded):
            pay.invoke({"amount": 9})
    if by == "session":
        with session:
            run(agent, ASK)
    else:
        run(agent, ASK)
    assert paid == [3]


def test_a_child_is_judged_by_the_rules_above_it(pay, paid):
    with BoundSession(SPEC, argument_rules={"pay": small}) as session, session.child("helper"):
        with pytest.raises(BoundExceeded):
            pay.invoke({"amount": 9})
        pay.invoke({"amount": 5})
    assert paid == [5]


def test_a_session_that_is_pickled_takes_its_rules_along_or_does_not_travel(tmp_path, pay, paid):
    ledger = SqliteLedger(tmp_path / "l.db")
    again = pickle.loads(pickle.dumps(BoundSession(SPEC, ledger=ledger, argument_rules={"pay": small})))
    with again, pytest.raises(BoundExceeded):
        pay.invoke({"amount": 9})
    assert paid == []
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(BoundSession(SPEC, ledger=ledger, argument_rules={"pay": lambda args: True}))


def graph_with(spec, **options):
    return bound_graph(StateGraph(MessagesState), spec, **options)


@pytest.mark.parametrize("rules", [[], {"pay": 1}, {1: small}])
@pytest.mark.parametrize("make", [BoundSession, graph_with])
def test_what_are_no_rules_is_an_error(make, rules):
    with pytest.raises(SpecError, match="argument_rules"):
        make(SPEC, argument_rules=rules)


def test_a_run_that_goes_on_in_its_tools_is_judged_by_the_rules(run, pay, paid):
    for rules, ran in (({"pay": small}, []), ({"pay": lambda args: True}, [9])):
        saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
        for value, options in ((ASK, {}), (None, {"argument_rules": rules})):
            bound = BoundMiddleware(SPEC, **options)
            agent = create_agent(
                model_of(9), [pay], middleware=[bound], checkpointer=saver, interrupt_before=["tools"]
            )
            run(agent, value, config)
        assert paid == ran

"""Decisions in agents that ``create_agent`` builds: behind the agent, behind a model call, beside others."""

import asyncio
import json

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END
from langgraph.types import Command

from bound_middleware import SpecError
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import DecisionMiddleware, insert_decision
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "go")]}


@tool
def search(query: str) -> str:
    """Searches."""
    return f"found {query}"


def said(result):
    return [(m.type, m.text.split("\n")[0]) for m in result["messages"]]


def assert_valid(messages):
    asked = [c["id"] for m in messages for c in getattr(m, "tool_calls", ())]
    answered = [m.tool_call_id for m in messages if isinstance(m, ToolMessage)]
    assert sorted(asked) == sorted(answered)


@pytest.mark.parametrize("decision", ["RETRY", "REPLAN"])
def test_an_answer_that_is_not_good_enough_goes_back_to_the_model(run, scripted, decision):
    node = scripted(decision, "ACCEPT")
    agent = create_agent(ScriptedChatModel(["one", "two"]), [search], middleware=[DecisionMiddleware(node)])
    result = run(agent, ASK)
    assert said(result) == [("human", "go"), ("ai", "one"), ("human", f"Decision: {decision}"), ("ai", "two")]
    assert result["bound"]["decisions"]["agent"]["decision"] == "ACCEPT"
    assert result["bound"]["outcome"]["status"] == "completed"


def test_a_rollback_takes_the_answer_back(run, scripted):
    node = scripted("ROLLBACK", "ACCEPT")
    agent = create_agent(ScriptedChatModel(["one", "two"]), [search], middleware=[DecisionMiddleware(node)])
    result = run(agent, ASK)
    assert said(result) == [("human", "go"), ("human", "Decision: ROLLBACK"), ("ai", "two")]


def test_a_rollback_takes_back_what_the_tools_did(run, scripted):
    done = []

    @tool
    def book(seat: str) -> str:
        """Books a seat."""
        done.append(f"book {seat}")
        return "booked"

    node = scripted("ROLLBACK", "ACCEPT", compensations={"book": lambda effect: done.append("unbook")})
    model = ScriptedChatModel([reply("", tool_calls=[("book", {"seat": "1A"})]), "booked it", "left it"])
    result = run(create_agent(model, [book], middleware=[DecisionMiddleware(node)]), ASK)
    assert done == ["book 1A", "unbook"]
    assert said(result) == [("human", "go"), ("human", "Decision: ROLLBACK"), ("ai", "left it")]


@pytest.mark.parametrize(
    ("decision", "reason"),
    [("RETRY", "retries_exhausted"), ("REPLAN", "replans_exhausted"), ("ROLLBACK", "rolled_back")],
)
def test_an_exhausted_agent_ends_with_an_outcome(run, scripted, decision, reason):
    node = scripted(decision)
    model = ScriptedChatModel(["answer"], cycle=True)
    result = run(create_agent(model, [search], middleware=[DecisionMiddleware(node)]), ASK)
    assert model.call_count == len(node.asked) == {"RETRY": 3}.get(decision, 2)
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", reason)
    assert reason in result["messages"][-1].text
    json.dumps(result["bound"])


def test_each_new_input_has_counts_of_its_own(scripted, thread):
    node = scripted("RETRY")
    model = ScriptedChatModel(["answer"], cycle=True)
    agent = create_agent(model, [search], middleware=[DecisionMiddleware(node)], checkpointer=InMemorySaver())
    for _ in range(2):
        node.asked.clear()
        agent.invoke(ASK, thread())
        assert len(node.asked) == 3


def test_a_fork_gives_nothing_back(scripted, thread):
    node = scripted("RETRY")
    model = ScriptedChatModel(["answer"], cycle=True)
    agent = create_agent(model, [search], middleware=[DecisionMiddleware(node)], checkpointer=InMemorySaver())
    agent.invoke(ASK, thread())
    before = next(s for s in agent.get_state_history(thread()) if s.next == ("model",))
    node.asked.clear()
    again = {"messages": [("user", "again")]}
    agent.invoke(None, agent.update_state(before.config, again, as_node="DecisionMiddleware.before_agent"))
    assert node.asked == ["RETRY"]


def test_after_each_model_call_no_tool_of_a_refused_answer_runs(run, scripted):
    ran = []

    @tool
    def act(n: int) -> str:
        """Acts."""
        ran.append(n)
        return "done"

    model = ScriptedChatModel(
        [
            reply("", tool_calls=[("act", {"n": 1}), ("act", {"n": 2})]),
            reply("", tool_calls=[("act", {"n": 3})]),
            "end",
        ]
    )
    node = scripted("RETRY", "ACCEPT")
    result = run(create_agent(model, [act], middleware=[DecisionMiddleware(node, at="after_model")]), ASK)
    assert ran == [3]
    assert_valid(result["messages"])
    assert [m.status for m in result["messages"] if isinstance(m, ToolMessage)] == ["error", "error", "success"]
    assert result["messages"][-1].text == "end"
    assert len(node.asked) == 3


def test_an_exhausted_answer_with_tool_calls_leaves_a_valid_history(run, scripted):
    model = ScriptedChatModel([reply("", tool_calls=[("search", {"query": "a"})])])
    node = scripted("REPLAN", max_replans=0)
    result = run(create_agent(model, [search], middleware=[DecisionMiddleware(node, at="after_model")]), ASK)
    assert_valid(result["messages"])
    assert isinstance(result["messages"][-1], AIMessage)
    assert "replans_exhausted" in result["messages"][-1].text


def test_a_refused_answer_with_tool_calls_is_rolled_back_whole(run, scripted):
    model = ScriptedChatModel([reply("", tool_calls=[("search", {"query": "a"})]), "end"])
    node = scripted("ROLLBACK", "ACCEPT")
    result = run(create_agent(model, [search], middleware=[DecisionMiddleware(node, at="after_model")]), ASK)
    assert said(result) == [("human", "go"), ("human", "Decision: ROLLBACK"), ("ai", "end")]


def test_a_person_can_be_asked(scripted, thread):
    node = scripted("RETRY", "RETRY", "ACCEPT", max_retries=0, on_exhausted="ask")
    agent = create_agent(
        ScriptedChatModel(["one", "two"]),
        [search],
        middleware=[DecisionMiddleware(node)],
        checkpointer=InMemorySaver(),
    )
    agent.invoke(ASK, thread())
    (asked,) = agent.get_state(thread()).tasks[0].interrupts
    assert asked.value["options"] == ["accept", "retry", "replan", "rollback", "end"]
    result = agent.invoke(Command(resume={"decision": "retry"}), thread())
    assert result["messages"][-1].text == "two"


@pytest.fixture(params=["before", "after"])
def beside(request):
    """Our middleware before and behind ``BoundMiddleware`` in the list."""

    def make(decision, bound):
        return [decision, bound] if request.param == "before" else [bound, decision]

    return make


def test_beside_a_bounded_agent_both_count(run, scripted, beside):
    node = scripted("RETRY", "ACCEPT")
    model = ScriptedChatModel(["one", "two"])
    spec = {"bounds": {"iteration_limit": 5}}
    agent = create_agent(model, [search], middleware=beside(DecisionMiddleware(node), BoundMiddleware(spec)))
    result = run(agent, ASK)
    assert [text for kind, text in said(result) if kind == "ai"] == ["one", "two"]
    assert result["bound"]["decisions"]["agent"]["decision"] == "ACCEPT"
    outcome = result["bound"]["outcome"]
    assert outcome["status"] == "completed"
    assert outcome["usage"]["model_calls"] == 2


def test_beside_a_bounded_agent_exhaustion_is_the_outcome_with_its_usage(run, scripted, beside):
    node = scripted("RETRY")
    model = ScriptedChatModel(["answer"], cycle=True)
    spec = {"bounds": {"iteration_limit": 9}}
    agent = create_agent(model, [search], middleware=beside(DecisionMiddleware(node), BoundMiddleware(spec)))
    outcome = run(agent, ASK)["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "retries_exhausted")
    assert outcome["usage"]["model_calls"] == model.call_count == 3


def test_an_agent_that_a_bound_stopped_is_not_sent_back(run, scripted, beside):
    node = scripted("RETRY", max_retries=None)
    model = ScriptedChatModel(["answer"], cycle=True)
    spec = {"bounds": {"iteration_limit": 2}}
    agent = create_agent(model, [search], middleware=beside(DecisionMiddleware(node), BoundMiddleware(spec)))
    result = run(agent, ASK)
    assert model.call_count == 2
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "iteration_limit")
    assert result["bound"]["decisions"]["agent"]["decision"] == "RETRY"


def test_an_agent_that_a_bound_stopped_is_still_rolled_back(run, scripted, beside):
    node = scripted("ROLLBACK")
    model = ScriptedChatModel([reply("", tool_calls=[("search", {"query": "a"})])], cycle=True)
    spec = {"bounds": {"iteration_limit": 1}}
    agent = create_agent(model, [search], middleware=beside(DecisionMiddleware(node), BoundMiddleware(spec)))
    result = run(agent, ASK)
    assert model.call_count == 1
    assert [m.type for m in result["messages"]] == ["human", "ai"]
    assert "rolled" in result["messages"][-1].text
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "iteration_limit")
    assert outcome["detail"]["limits"] == ["iteration_limit", "rolled_back"]


def test_what_is_accepted_after_a_stop_is_still_a_stop(run, scripted, beside):
    node = scripted("RETRY", "ACCEPT")
    model = ScriptedChatModel(["answer"], cycle=True)
    spec = {"bounds": {"iteration_limit": 1}}
    agent = create_agent(model, [search], middleware=beside(DecisionMiddleware(node), BoundMiddleware(spec)))
    outcome = run(agent, ASK)["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "iteration_limit")


def test_two_decisions_in_one_agent(run, scripted):
    first, second = scripted("RETRY", "ACCEPT"), scripted("ACCEPT")
    agent = create_agent(
        ScriptedChatModel(["one", "two"]),
        [search],
        middleware=[
            DecisionMiddleware(second, node="whole"),
            DecisionMiddleware(first, at="after_model", node="each"),
        ],
    )
    result = run(agent, ASK)
    assert set(result["bound"]["decisions"]) == {"whole", "each"}
    assert result["messages"][-1].text == "two"


def test_other_middleware_goes_on_as_before(run, scripted):
    seen = []

    class Watch(AgentMiddleware):
        def after_agent(self, state, runtime):
            seen.append(len(state["messages"]))

    node = scripted("RETRY", "ACCEPT")
    agent = create_agent(
        ScriptedChatModel(["one", "two"]),
        [search],
        middleware=[Watch(), ModelRetryMiddleware(max_retries=1), DecisionMiddleware(node)],
    )
    run(agent, ASK)
    assert seen == [4]


def test_nothing_of_ours_but_the_output_is_seen(scripted, thread):
    agent = create_agent(
        ScriptedChatModel(["one"]),
        [search],
        middleware=[DecisionMiddleware(scripted("ACCEPT"))],
        checkpointer=InMemorySaver(),
    )
    assert set(agent.invoke(ASK, thread())) == {"messages", "bound"}
    assert "bound" not in agent.get_input_jsonschema()["properties"]


def test_a_decision_can_be_inserted_behind_the_tools_of_an_agent(run, scripted):
    node = scripted("RETRY", "ACCEPT", retry="model")
    calls = [reply("", tool_calls=[("search", {"query": query})]) for query in "ab"]
    agent = create_agent(ScriptedChatModel([*calls, "end"]), [search])
    result = run(insert_decision(agent, "tools", node), ASK)
    assert_valid(result["messages"])
    assert len(node.asked) == 2
    assert [m.type for m in result["messages"]] == ["human", "ai", "tool", "human", "ai", "tool", "ai"]


def test_a_decision_can_be_inserted_behind_the_model_of_an_agent(run, scripted):
    node = scripted("RETRY", "ACCEPT")
    calls = [reply("", tool_calls=[("search", {"query": query})]) for query in "ab"]
    agent = create_agent(ScriptedChatModel([*calls, "end"]), [search])
    result = run(insert_decision(agent, "model", node), ASK)
    assert_valid(result["messages"])
    assert [m.status for m in result["messages"] if isinstance(m, ToolMessage)] == ["error", "success"]
    assert len(node.asked) == 3
    assert result["messages"][-1].text == "end"


def test_an_agent_is_a_node_like_any_other(run, scripted):
    from langgraph.graph import START, MessagesState, StateGraph

    builder = StateGraph(MessagesState)
    builder.add_node("agent", create_agent(ScriptedChatModel(["one", "two"]), [search]))
    builder.add_edge(START, "agent")
    graph = insert_decision(builder, "agent", scripted("RETRY", "ACCEPT")).compile()
    assert [text for kind, text in said(run(graph, ASK)) if kind == "ai"] == ["one", "two"]


def test_the_usage_of_a_bounded_agent_in_a_node_stays_in_the_outcome(run, scripted):
    from langgraph.graph import START, MessagesState, StateGraph

    bounded = BoundMiddleware({"bounds": {"iteration_limit": 1}})
    builder = StateGraph(MessagesState)
    builder.add_node("agent", create_agent(ScriptedChatModel(["one", "two"]), [search], middleware=[bounded]))
    builder.add_edge(START, "agent")
    outcome = run(insert_decision(builder, "agent", scripted("RETRY", "ACCEPT")).compile(), ASK)["bound"]["outcome"]
    assert outcome["status"] == "completed"
    assert outcome["usage"]["model_calls"] == 1


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"at": "before_model"}, "at"),
        ({"at": None}, "at"),
        ({"node": ""}, "node"),
        ({"decide": lambda state: None}, "decide"),
    ],
)
def test_nonsense_is_an_error_at_construction(scripted, arguments, key):
    with pytest.raises(SpecError) as caught:
        DecisionMiddleware(**{"decide": scripted("ACCEPT"), **arguments})
    assert caught.value.key == key


@pytest.mark.parametrize("arguments", [{"retry": "worker"}, {"rollback": "planner"}, {"on_exhausted": "report"}])
def test_an_agent_has_no_node_to_go_to(scripted, arguments):
    node = scripted("ACCEPT", **arguments)
    with pytest.raises(SpecError) as caught:
        DecisionMiddleware(node)
    assert caught.value.key == next(iter(arguments))


def test_a_way_may_lead_to_the_end(run, scripted):
    node = scripted("REPLAN", replan=END)
    model = ScriptedChatModel(["one"])
    outcome = run(create_agent(model, [search], middleware=[DecisionMiddleware(node)]), ASK)["bound"]["outcome"]
    assert outcome["stop_reason"] == "replans_exhausted"


def test_async_evidence_works_in_an_async_agent(scripted):
    from bound_middleware.decision import ExecutionEvidence

    async def collect(state):
        assert isinstance(state["messages"][0], HumanMessage)
        return ExecutionEvidence()

    node = scripted("ACCEPT", collect=collect)
    agent = create_agent(ScriptedChatModel(["one", "two"]), [search], middleware=[DecisionMiddleware(node)])
    assert asyncio.run(agent.ainvoke(ASK))["messages"][-1].text == "one"
    with pytest.raises(SpecError, match="ainvoke"):
        agent.invoke(ASK)

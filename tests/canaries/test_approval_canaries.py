"""Undocumented behaviour of LangGraph and LangChain that approvals rest on."""

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from bound_middleware.testing import ScriptedChatModel

CONFIG = {"configurable": {"thread_id": "t"}}


def graph_of(node):
    builder = StateGraph(MessagesState)
    builder.add_node("ask", node)
    builder.add_edge(START, "ask")
    return builder.compile(checkpointer=InMemorySaver())


def test_a_task_keeps_its_id_while_it_is_asked_and_gets_its_answers_in_order():
    seen = []

    def ask(state):
        seen.append(get_config()["configurable"]["__pregel_task_id"])
        return {"messages": [f"{interrupt('one')} {interrupt('two')}"]}

    graph = graph_of(ask)
    graph.invoke({"messages": []}, CONFIG)
    graph.invoke(Command(resume="first"), CONFIG)
    result = graph.invoke(Command(resume="second"), CONFIG)
    assert result["messages"][-1].content == "first second"
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_a_state_that_is_changed_makes_another_task():
    seen = []

    def ask(state):
        seen.append(get_config()["configurable"]["__pregel_task_id"])
        return {"messages": [interrupt("one")]}

    graph = graph_of(ask)
    graph.invoke({"messages": []}, CONFIG)
    graph.update_state(CONFIG, {"messages": [HumanMessage("x", id="x")]}, as_node=START)
    graph.invoke(Command(resume="yes"), CONFIG)
    assert len(set(seen)) == 2


def test_the_checkpoint_says_what_was_shown_to_which_task():
    found = []

    def ask(state):
        configurable = get_config()["configurable"]
        if found:
            place = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": configurable["checkpoint_map"][""]}
            saved = configurable["__pregel_checkpointer"].get_tuple({"configurable": place})
            found.append([w for w in saved.pending_writes if w[1] == "__interrupt__"])
        found.append(configurable["__pregel_task_id"])
        return {"messages": [interrupt({"n": 1})]}

    graph = graph_of(ask)
    graph.invoke({"messages": []}, CONFIG)
    graph.invoke(Command(resume="yes"), CONFIG)
    ((task, _, shown),) = found[1]
    assert task == found[0]
    assert [i.value for i in shown] == [{"n": 1}]


def test_hooks_are_looked_for_on_the_class_and_named_after_it():
    class Plain(AgentMiddleware):
        pass

    middleware = Plain()
    middleware.__class__ = type("Plain", (Plain,), {"after_model": lambda self, state, runtime: None})
    agent = create_agent(ScriptedChatModel(["x"]), [], middleware=[middleware])
    assert "Plain.after_model" in agent.get_graph().nodes


def test_an_agent_sends_each_call_to_a_task_of_its_own_that_says_so():
    paths = []

    @tool
    def look() -> str:
        """Looks."""
        paths.append((get_config()["metadata"]["langgraph_path"][0], get_config()["configurable"]["checkpoint_ns"]))
        return "seen"

    calls = ScriptedChatModel.reply(tool_calls=[("look", {}), ("look", {})])
    create_agent(ScriptedChatModel([calls, "x"]), [look]).invoke({"messages": [("user", "go")]})
    assert {path for path, _ in paths} == {"__pregel_push"}
    assert len({ns for _, ns in paths}) == 2


def test_a_tools_node_says_which_calls_it_is_about_to_run():
    node = ToolNode([])
    call = {"name": "look", "args": {}, "id": "c", "type": "tool_call"}
    message = AIMessage("", tool_calls=[call])
    assert node._parse_input({"messages": [message]}) == ([call], "dict")
    assert node._parse_input([message]) == ([call], "list")
    assert node._messages_key == "messages"

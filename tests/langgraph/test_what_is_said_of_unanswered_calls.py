"""A call that ran in a node which was cut has no answer; nobody says that it was not run."""

import asyncio

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph

from bound_middleware import SpecError
from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import ScriptedChatModel

SPEC = {"bounds": {"action_surface": {"allowed": ["work"]}}}


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
def test_a_function_that_calls_tools_is_cut_between_two_of_them(colour):
    ran = []

    @tool
    def work(q: str) -> str:
        """Work."""
        ran.append(q)
        return "worked"

    @tool
    def shell(command: str) -> str:
        """Run a command."""
        ran.append(command)
        return "done"

    calls = [("work", {"q": "a"}), ("shell", {"command": "rm"})]
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=calls)])

    def agent(state):
        return {"messages": [model.invoke(state["messages"])]}

    def tools(state):
        known = {"work": work, "shell": shell}
        answers = [known[call["name"]].invoke(call["args"]) for call in state["messages"][-1].tool_calls]
        return {"messages": [ToolMessage(text, tool_call_id=str(i)) for i, text in enumerate(answers)]}

    builder = StateGraph(MessagesState).add_node("agent", agent).add_node("tools", tools)
    builder.add_edge(START, "agent").add_edge("agent", "tools").add_edge("tools", "agent")
    graph = bound_graph(builder, SPEC)
    given = {"messages": [("user", "go")]}
    result = graph.invoke(given) if colour == "invoke" else asyncio.run(graph.ainvoke(given))
    work_answer, shell_answer = (m.text for m in result["messages"] if isinstance(m, ToolMessage))
    assert ran == ["a"]
    assert "Whether it ran is not known" in work_answer
    assert "was not run" in shell_answer
    assert result["bound"]["outcome"]["stop_reason"] == "tool_refused"


def test_what_has_no_nodes_is_refused_with_what_to_do_instead():
    @entrypoint()
    def flow(question: str) -> str:
        return question

    with pytest.raises(SpecError, match=r"with BoundSession\(spec\)"):
        bound_graph(flow, SPEC)

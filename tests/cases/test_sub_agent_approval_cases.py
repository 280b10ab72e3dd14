"""I11: a gated tool of a sub-agent is asked about at the top, and the answer reaches the right child."""

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
CONFIG = {"configurable": {"thread_id": "t"}}
SPEC = {
    "bounds": {
        "iteration_limit": 20,
        "reversibility_envelope": {"reversible_by_default": ["delegate"], "requires_human_approval": ["delete"]},
    }
}


def under_middleware(model, tools, saver):
    return create_agent(model, tools, middleware=[BoundMiddleware(SPEC)], checkpointer=saver)


def in_a_graph(model, tools, saver):
    return bound_graph(create_agent(model, tools), SPEC, checkpointer=saver)


@pytest.fixture
def deleted():
    return []


@pytest.fixture(params=[under_middleware, in_a_graph])
def team(request, deleted):
    """``team("a", "b")``: an agent that gives each path to a sub-agent of its own, which deletes it."""

    @tool
    def delete(path: str) -> str:
        """Delete."""
        deleted.append(path)
        return "deleted"

    def made(*paths, saver=None):
        cleaners = {
            path: create_agent(
                ScriptedChatModel([reply(tool_calls=[("delete", {"path": path})]), f"{path} is done"]),
                [delete],
                name="cleaner",
            )
            for path in paths
        }

        @tool
        def delegate(path: str) -> str:
            """Have somebody delete it."""
            return cleaners[path].invoke({"messages": [("user", path)]})["messages"][-1].text

        calls = [("delegate", {"path": path}) for path in paths]
        model = ScriptedChatModel([reply(tool_calls=calls), "All done."])
        return request.param(model, [delegate, delete], saver or InMemorySaver())

    return made


def questions(result):
    return {i.value["action_requests"][0]["args"]["path"]: i for i in result["__interrupt__"]}


def answers(result):
    return [m.text for m in result["messages"] if m.type == "tool"]


def test_i11_the_question_at_the_top_names_the_child_and_what_it_wants(team, run, deleted):
    result = run(team("a"), {"messages": [("user", "go")]}, CONFIG)
    (question,) = result["__interrupt__"]
    assert "cleaner asks to run delete" in question.value["action_requests"][0]["description"]
    assert question.value["action_requests"][0]["args"] == {"path": "a"}
    assert deleted == []


@pytest.mark.parametrize(("decision", "happened"), [("approve", ["a"]), ("reject", [])])
def test_i11_an_approval_runs_it_once_and_a_rejection_never(team, run, deleted, decision, happened):
    agent = team("a")
    run(agent, {"messages": [("user", "go")]}, CONFIG)
    result = run(agent, Command(resume={"decisions": [{"type": decision}]}), CONFIG)
    assert deleted == happened
    assert result["messages"][-1].text == "All done."
    assert answers(result) == ["a is done"]


def test_i11_two_children_at_once_are_two_questions_with_an_answer_each(team, run, deleted):
    agent = team("a", "b")
    asked = questions(run(agent, {"messages": [("user", "go")]}, CONFIG))
    assert sorted(asked) == ["a", "b"]
    decided = {"a": "reject", "b": "approve"}
    resume = {asked[path].id: {"decisions": [{"type": decision}]} for path, decision in decided.items()}
    result = run(agent, Command(resume=resume), CONFIG)
    assert deleted == ["b"]
    assert answers(result) == ["a is done", "b is done"]


def test_i11_the_answer_finds_its_child_after_a_restart(team, deleted, tmp_path):
    def step(given):
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints")) as saver:
            return team("a", saver=saver).invoke(given, CONFIG)

    step({"messages": [("user", "go")]})
    step(Command(resume={"decisions": [{"type": "approve"}]}))
    assert deleted == ["a"]


async def test_i11_the_answer_finds_its_child_after_a_restart_async(team, deleted, tmp_path):
    async def step(given):
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints")) as saver:
            return await team("a", saver=saver).ainvoke(given, CONFIG)

    await step({"messages": [("user", "go")]})
    await step(Command(resume={"decisions": [{"type": "approve"}]}))
    assert deleted == ["a"]

"""The scenarios of reports about completion gates: A11, G5, G7 and H7, with real commands and agents."""

import asyncio
import sys

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from bound_middleware import BoundSpec
from bound_middleware.gates import Engine
from bound_middleware.gates.contract import parse
from bound_middleware.gates.digests import framed, tree_digest
from bound_middleware.langchain import BoundMiddleware, CompletionGate
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "do it")]}
NEVER = "raise SystemExit('not done')"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("BOUND_CACHE_DIR", raising=False)
    (tmp_path / "evaluations").write_text("")
    return tmp_path


def contract(code=NEVER, retries=3, watch=("work/**/*",)):
    check = {"kind": "command", "command": [sys.executable, "-c", code], "watch": list(watch)}
    return {"settings": {"max_auto_retries": retries}, "constraints": {"check": check}}


def ran(agent, colour, given=ASK, config=None):
    if colour == "sync":
        return agent.invoke(given, config)
    return asyncio.run(agent.ainvoke(given, config))


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a11_a_gate_that_never_lets_go_ends_after_its_continuations_and_tool_calls_clear_nothing(project, colour):
    """Gate always says "not done", cap 3, one tool call between: 3 continuations, 4 evaluations, no success."""
    work, count = project / "work", project / "evaluations"
    work.mkdir()

    @tool
    def edit(text: str) -> str:
        """Changes the work."""
        (work / "file").write_text(text)
        return "changed"

    counting = f"open({str(count)!r}, 'a').write('x'); {NEVER}"
    turns = [part for n in range(9) for part in ("done", reply("", tool_calls=[("edit", {"text": f"{n}"})]))]
    model = ScriptedChatModel(turns)
    gate = CompletionGate(contract(counting), project)
    agent = create_agent(model, [edit], middleware=[BoundMiddleware(BoundSpec(iterations=50)), gate])
    result = ran(agent, colour)
    assert len(count.read_text()) == 4
    assert sum("gate" in m.additional_kwargs.get("bound", {}) for m in result["messages"]) == 3
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("gate_unsatisfied", "gate_unsatisfied")


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a11_a_gate_that_crashes_is_an_error_and_no_approval(project, colour, monkeypatch):
    def crash(*args, **kwargs):
        raise RuntimeError("the gate is broken")

    monkeypatch.setattr(Engine, "run", crash)
    model = ScriptedChatModel(["done"] * 9)
    result = ran(create_agent(model, [], middleware=[CompletionGate(contract(), project)]), colour)
    assert sum(message.type == "ai" for message in result["messages"]) <= 2
    assert result["bound"]["outcome"]["status"] == "gate_unsatisfied"
    assert result["bound"]["gates"]["completion"]["state"] == "error"
    assert "the gate is broken" in result["bound"]["outcome"]["detail"]["error"]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_g5_a_second_stop_with_the_same_digest_is_still_blocked(project, colour):
    (project / "work").mkdir()
    (project / "work/file").write_text("the same")
    gate = CompletionGate(contract(), project)
    result = ran(create_agent(ScriptedChatModel(["done"] * 9), [], middleware=[gate]), colour)
    assert sum(message.type == "ai" for message in result["messages"]) == 4
    check = result["bound"]["gates"]["completion"]["results"]["check"]
    # The failure is known and not run again; it is a failure all the same.
    assert (check["verdict"], check["cached"]) == ("fail", True)
    assert result["bound"]["outcome"]["status"] == "gate_unsatisfied"


TREES = [
    ({"a": "bc"}, {"ab": "c"}),
    ({"x": "", "y": "z"}, {"x": "z", "y": ""}),
]


@pytest.mark.parametrize(("one", "two"), TREES)
def test_g7_two_trees_that_only_join_alike_share_no_evidence(project, one, two):
    import shutil

    def laid(files):
        shutil.rmtree(project / "work", ignore_errors=True)
        (project / "work").mkdir()
        for name, text in files.items():
            (project / "work" / name).write_text(text)

    counting = f"open({str(project / 'evaluations')!r}, 'a').write('x')"
    engine = Engine(parse(contract(counting)), root=project)
    laid(one)
    assert engine.run("stop")["check"].cached is False
    assert engine.run("stop")["check"].cached is True
    laid(two)
    assert engine.run("stop")["check"].cached is False
    assert (project / "evaluations").read_text() == "xx"


def test_g7_the_order_of_insertion_does_not_matter():
    digests = {name: framed(name) for name in "ab"}
    assert tree_digest(digests) == tree_digest(dict(reversed(digests.items())))


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_h7_a_new_task_has_all_its_continuations_and_an_unfinished_one_keeps_its_own(project, colour):
    gate = CompletionGate(contract(retries=2), project)
    agent = create_agent(ScriptedChatModel(["done"] * 30), [], middleware=[gate], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    before = 0
    for _ in range(3):
        result = ran(agent, colour, ASK, config)
        answers = sum(message.type == "ai" for message in result["messages"])
        assert answers - before == 3
        assert result["bound"]["outcome"]["detail"]["continuations"] == 2
        before = answers
    # The last task goes on from where it was sent back first: nothing is left for it.
    sent_back = [saved for saved in agent.get_state_history(config) if saved.next == ("model",)][1]
    again = ran(agent, colour, None, sent_back.config)
    assert again["bound"]["outcome"]["detail"]["continuations"] == 2
    assert again["bound"]["outcome"]["status"] == "gate_unsatisfied"

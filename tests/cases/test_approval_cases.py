"""Approvals: cases from bug reports of agent frameworks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from bound_middleware import BoundSession, BoundSpec, SpecError
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import FakeClock, ScriptedChatModel

reply = ScriptedChatModel.reply
GO = {"messages": [("user", "go")]}
CONFIG = {"configurable": {"thread_id": "t"}}
WORKER = Path(__file__).with_name("approval_worker.py")


def spec(*, gated, free=(), forbidden=()):
    envelope = {"reversible_by_default": list(free), "requires_human_approval": list(gated)}
    surface = {"action_surface": {"forbidden": list(forbidden)}} if forbidden else {}
    return {"bounds": {"iteration_limit": 20, "reversibility_envelope": envelope, **surface}}


def proposed(*calls, first="c"):
    return reply(
        tool_calls=[
            {"name": name, "args": args, "id": f"{first}{i}", "type": "tool_call"}
            for i, (name, args) in enumerate(calls)
        ]
    )


def resumed(*decisions):
    return Command(resume={"decisions": [d if isinstance(d, dict) else {"type": d} for d in decisions]})


@pytest.fixture
def ran():
    return []


@pytest.fixture
def tools(ran):
    def of(name):
        def act(x: float = 0) -> str:
            ran.append((name, x))
            return f"{name} {x}"

        act.__name__, act.__doc__ = name, f"Does {name}."
        return tool(act)

    return {name: of(name) for name in ("delete", "draft", "send", "pay", "log")}


def agent_of(tools, replies, given=None, **arguments):
    model = ScriptedChatModel(replies)
    middleware = [BoundMiddleware(*([] if given is None else [given]), **arguments)]
    return create_agent(model, list(tools.values()), middleware=middleware, checkpointer=InMemorySaver()), model


def answers(result):
    return {m.tool_call_id: m for m in result["messages"] if isinstance(m, ToolMessage)}


def test_f1_a_misspelt_approval_is_an_error_that_names_it(tools, run):
    agent, _ = agent_of(tools, ["x"], spec(gated=["delte"]))
    with pytest.raises(SpecError, match="delte") as caught:
        run(agent, GO, CONFIG)
    assert caught.value.nearest == "delete"
    run(agent_of(tools, ["x"], spec(gated=["delete"]))[0], GO, CONFIG)


@pytest.mark.parametrize("value", ["yes", True, {"delete": []}, [[]], [None], [""]])
def test_f1_approvals_that_are_no_list_of_tools_are_an_error(value):
    with pytest.raises(SpecError):
        BoundSpec.from_dict({"bounds": {"reversibility_envelope": {"requires_human_approval": value}}})


def test_f1_a_tool_that_no_list_names_waits_for_a_person(tools, ran, run):
    agent, _ = agent_of(tools, [proposed(("draft", {})), "done"], spec(gated=["delete"], free=["log"]))
    assert "__interrupt__" in run(agent, GO, CONFIG)
    assert ran == []
    run(agent, resumed("approve"), CONFIG)
    assert ran == [("draft", 0)]


def test_f3_a_rejected_call_is_asked_for_twice_and_then_no_more(tools, ran, run):
    turns = [proposed(("delete", {"x": 1}), first=f"t{i}-") for i in range(8)]
    agent, model = agent_of(tools, turns, spec(gated=["delete"]))
    questions, result = 1, run(agent, GO, CONFIG)
    while "__interrupt__" in (result := run(agent, resumed("reject"), CONFIG)):
        questions += 1
    assert (questions, ran) == (2, [])
    assert model.call_count <= 4
    assert result["bound"]["outcome"]["stop_reason"] == "approval_rejected"


def test_f5_an_edited_call_is_judged_from_the_start(tools, ran, run):
    def to(name):
        return {"type": "edit", "edited_action": {"name": name, "args": {"x": 1}}}

    given = spec(gated=["draft", "send"], forbidden=["delete"])
    agent, _ = agent_of(tools, [proposed(("draft", {})), "done"], given)
    run(agent, GO, CONFIG)
    result = run(agent, resumed(to("delete")), CONFIG)
    assert (ran, answers(result)["c0"].status) == ([], "error")

    agent, _ = agent_of(tools, [proposed(("draft", {})), "done"], given)
    run(agent, GO, CONFIG)
    asked = run(agent, resumed(to("send")), CONFIG)
    assert [a["name"] for a in asked["__interrupt__"][0].value["action_requests"]] == ["send"]
    result = run(agent, resumed("approve"), CONFIG)
    assert ran == [("send", 1)]
    assert answers(result)["c0"].content == "send 1.0"


def step(folder, name, ledger="memory", price="5"):
    done = subprocess.run(
        [sys.executable, str(WORKER), str(folder), name, ledger, price], capture_output=True, text=True, timeout=60
    )
    if done.returncode < 0:
        return None
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "seen.json").read_text())


def did(folder):
    file = folder / "did"
    return sorted(file.read_text().split("\n")[:-1]) if file.exists() else []


@pytest.mark.parametrize("ledger", ["memory", "sqlite"])
def test_f7_what_was_approved_happens_once_when_the_process_is_another(tmp_path, ledger):
    assert step(tmp_path, "ask", ledger)["asked"] == [{"amount": 1}, {"amount": 2}]
    assert did(tmp_path) == []
    seen = step(tmp_path, "approve", ledger)
    assert did(tmp_path) == ["log", "pay 1", "pay 2"]
    assert seen["answers"] == {"c1": "paid 1", "c2": "paid 2", "c3": "noted"}
    step(tmp_path, "on", ledger)
    assert did(tmp_path) == ["log", "pay 1", "pay 2"]


def test_f7_a_process_that_is_killed_in_a_tool_leaves_it_done_at_most_once(tmp_path):
    step(tmp_path, "ask", "sqlite")
    assert step(tmp_path, "die", "sqlite") is None
    before = did(tmp_path)
    seen = step(tmp_path, "on", "sqlite")
    assert {line: did(tmp_path).count(line) for line in did(tmp_path)} == dict.fromkeys(did(tmp_path), 1)
    assert set(before) <= set(did(tmp_path))
    assert seen["last"] == "done"
    assert any("its effect is unknown" in text for text in seen["answers"].values())


def test_f9_an_approval_under_another_specification_is_none(tmp_path):
    step(tmp_path, "ask")
    assert step(tmp_path, "approve", price="6")["asked"] == [{"amount": 1}, {"amount": 2}]
    assert did(tmp_path) == []
    step(tmp_path, "approve", price="6")
    assert did(tmp_path) == ["log", "pay 1", "pay 2"]


def test_f9_an_approval_is_bound_to_what_was_shown(tools, ran, run):
    agent, _ = agent_of(tools, [proposed(("pay", {"x": 1})), "done"], spec(gated=["pay"]))
    run(agent, GO, CONFIG)
    message = next(m for m in agent.get_state(CONFIG).values["messages"] if isinstance(m, AIMessage))
    changed = message.model_copy(update={"tool_calls": [{**message.tool_calls[0], "args": {"x": 82_000}}]})
    agent.update_state(CONFIG, {"messages": [changed]}, as_node="model")
    asked = run(agent, resumed("approve"), CONFIG)
    assert ran == []
    assert asked["__interrupt__"][0].value["action_requests"][0]["args"] == {"x": 82_000}


def test_f9_an_approval_that_is_older_than_its_time_is_asked_for_again(tools, ran, run):
    clock = FakeClock()
    agent, _ = agent_of(tools, [proposed(("pay", {"x": 1})), "done"], spec(gated=["pay"]), clock=clock)
    run(agent, GO, CONFIG)
    clock.advance(seconds=3_601)
    assert "__interrupt__" in run(agent, resumed("approve"), CONFIG)
    assert ran == []
    clock.advance(seconds=3_600)
    run(agent, resumed("approve"), CONFIG)
    assert ran == [("pay", 1)]


def _raise(error):
    raise error


@pytest.mark.parametrize(
    "approver",
    [lambda a: _raise(EOFError()), lambda a: _raise(TimeoutError()), lambda a: None, lambda a: "maybe"],
    ids=["EOFError", "TimeoutError", "None", "maybe"],
)
def test_f11_an_approver_that_fails_says_no(tools, ran, run, approver):
    agent, _ = agent_of(tools, [proposed(("pay", {"x": 1})), "done"], spec(gated=["pay"]), approver=approver)
    result = run(agent, GO, CONFIG)
    assert ran == []
    assert result["bound"]["outcome"]["detail"]["refused"] == ["approver_failed"]
    agent, _ = agent_of(tools, [proposed(("pay", {"x": 1})), "done"], spec(gated=["pay"]), approver=lambda a: True)
    run(agent, GO, CONFIG)
    assert ran == [("pay", 1)]


@pytest.mark.parametrize("ledger", ["memory", "sqlite"])
@pytest.mark.parametrize("gated", [["pay"], ["send"]], ids=["gated", "free"])
def test_h1_a_run_that_is_dispatched_twice_does_it_once_and_pays_twice(tools, ran, run, ledger, gated, tmp_path):
    kept = SqliteLedger(tmp_path / "ledger.db") if ledger == "sqlite" else None
    turn = reply(
        tool_calls=[{"name": "pay", "args": {"x": 1}, "id": "c1", "type": "tool_call"}],
        input_tokens=60,
        output_tokens=30,
    )
    end = reply("done", input_tokens=5, output_tokens=5)
    given = spec(gated=gated, free=["pay"] if gated != ["pay"] else [])
    agent, _ = agent_of(tools, [turn, end, turn, end], given, ledger=kept, approver=lambda action: True)
    first = run(agent, GO, CONFIG)
    start = next(s for s in agent.get_state_history(CONFIG) if s.metadata["source"] == "input").config
    second = run(agent, None, start)
    assert ran == [("pay", 1)]
    assert answers(first)["c1"].content == answers(second)["c1"].content == "pay 1.0"
    assert second["bound"]["outcome"]["usage"]["total_tokens"] == 200


def test_calls_that_a_server_numbers_anew_in_every_reply_are_calls_of_their_own(tools, ran, run):
    turns = [proposed(("log", {"x": 1}), first="call_")] * 3
    agent, _ = agent_of(tools, [*turns, "done"], spec(gated=["pay"], free=["log"]))
    run(agent, GO, CONFIG)
    assert ran == [("log", 1)] * 3


def test_a_session_waits_while_a_person_has_not_answered(tools, run):
    session = BoundSession(spec(gated=["pay"]))
    agent, _ = agent_of(tools, [proposed(("pay", {"x": 1})), "done"], session=session)
    run(agent, GO, CONFIG)
    assert session.outcome.status == "pending_approval"
    assert session.outcome.stop_reason is None
    result = run(agent, resumed("approve"), CONFIG)
    assert result["bound"]["outcome"]["status"] == "completed"

"""An agent is done when fresh evidence says so: with real commands, in both colours, with checkpointers."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from bound_middleware import BoundSession, BoundSpec, SpecError
from bound_middleware.gates.engine import Engine
from bound_middleware.gates.state import State
from bound_middleware.langchain import BoundMiddleware, CompletionGate
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "fix the program")]}
CHECK = "import sys; t = open('work.txt').read(); print('assert', t); sys.exit(not t.startswith('ok'))"


def contract(tests=CHECK, retries=2, **more):
    command = [sys.executable, "-c", tests]
    tests = {"kind": "command", "command": command, "watch": ["work.txt"]}
    return {"settings": {"max_auto_retries": retries}, "constraints": {"tests": tests, **more}}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("BOUND_CACHE_DIR", raising=False)
    (tmp_path / "work.txt").write_text("broken")
    return tmp_path


@pytest.fixture
def writes(project):
    @tool
    def write(text: str) -> str:
        """Writes the work."""
        (project / "work.txt").write_text(text)
        return "written"

    return write


@pytest.fixture(params=["sync", "async"])
def go(request):
    def run(agent, given, config=None):
        if request.param == "sync":
            return agent.invoke(given, config)
        return asyncio.run(agent.ainvoke(given, config))

    return run


def said(result):
    return [(message.type, message.text.split("\n")[0]) for message in result["messages"]]


def outcome(result):
    return result["bound"]["outcome"]


def test_work_that_is_done_passes_at_once(go, project, writes):
    (project / "work.txt").write_text("ok")
    agent = create_agent(ScriptedChatModel(["done"]), [writes], middleware=[CompletionGate(contract(), project)])
    result = go(agent, ASK)
    assert said(result) == [("human", "fix the program"), ("ai", "done")]
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("completed", None)
    assert result["bound"]["gates"]["completion"]["state"] == "passed"
    assert "bound_gate_task" not in result


def test_a_failure_goes_back_as_one_message_and_the_repair_passes(go, project, writes):
    model = ScriptedChatModel(["done", reply("", tool_calls=[("write", {"text": "ok"})]), "now done"])
    agent = create_agent(model, [writes], middleware=[CompletionGate(contract(), project)])
    result = go(agent, ASK)
    assert [kind for kind, _ in said(result)] == ["human", "ai", "human", "ai", "tool", "ai"]
    told = result["messages"][2].text
    assert told.startswith("The work is not done")
    assert "tests (command): fail" in told
    assert "assert broken" in told
    assert "2" not in told.replace(str(project), "")  # no limit and no count
    assert outcome(result)["status"] == "completed"
    assert result["bound"]["gates"]["completion"]["results"]["tests"]["verdict"] == "pass"


def test_an_unchanged_failure_never_passes_however_often_it_stops(go, project):
    agent = create_agent(
        ScriptedChatModel(["done"] * 9), [], middleware=[CompletionGate(contract(retries=3), project)]
    )
    result = go(agent, ASK)
    assert sum(message.type == "ai" for message in result["messages"]) == 4
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("gate_unsatisfied", "gate_unsatisfied")
    assert outcome(result)["detail"] == {
        "gate": "completion",
        "state": "blocked",
        "blocking": ["tests"],
        "unanswered": [],
        "continuations": 3,
    }


def test_the_cap_counts_continuations_and_not_snapshots(go, project, writes):
    turns = [
        part for n in range(9) for part in (reply("", tool_calls=[("write", {"text": f"try {n}"})]), f"done {n}")
    ]
    gate = CompletionGate(contract(retries=3), project)
    result = go(create_agent(ScriptedChatModel(turns), [writes], middleware=[gate]), ASK)
    assert sum(kind == "human" for kind, _ in said(result)) == 1 + 3
    assert said(result)[-1] == ("ai", "done 3")
    assert outcome(result)["status"] == "gate_unsatisfied"


def test_no_continuation_at_all_is_allowed_by_zero(go, project):
    gate = CompletionGate(contract(retries=0), project)
    result = go(create_agent(ScriptedChatModel(["done"]), [], middleware=[gate]), ASK)
    assert said(result) == [("human", "fix the program"), ("ai", "done")]
    assert outcome(result)["status"] == "gate_unsatisfied"


@pytest.mark.parametrize("first", [True, False])
def test_it_speaks_through_the_session_of_a_bound_middleware_in_any_order(go, project, first):
    events, gate = [], CompletionGate(contract(retries=1), project)
    bounds = BoundMiddleware(BoundSpec(iterations=10), sinks=[events.append])
    agent = create_agent(
        ScriptedChatModel(["done"] * 3), [], middleware=[gate, bounds] if first else [bounds, gate]
    )
    result = go(agent, ASK)
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("gate_unsatisfied", "gate_unsatisfied")
    assert outcome(result)["detail"]["blocking"] == ["tests"]
    assert outcome(result)["usage"]["model_calls"] == 2
    names = [event.name for event in events]
    assert (names.count("gate_report"), names.count("gate_unsatisfied")) == (2, 1)


@pytest.mark.parametrize("first", [True, False])
def test_a_pass_is_completed_beside_a_bound_middleware_in_any_order(go, project, writes, first):
    gate, bounds = CompletionGate(contract(), project), BoundMiddleware(BoundSpec(iterations=10))
    model = ScriptedChatModel(["done", reply("", tool_calls=[("write", {"text": "ok"})]), "now done"])
    agent = create_agent(model, [writes], middleware=[gate, bounds] if first else [bounds, gate])
    result = go(agent, ASK)
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("completed", None)
    assert outcome(result)["usage"]["model_calls"] == 3


@pytest.mark.parametrize("first", [True, False])
def test_a_run_that_a_bound_stopped_stays_stopped_and_is_not_sent_back(go, project, first):
    gate, bounds = CompletionGate(contract(retries=5), project), BoundMiddleware(BoundSpec(iterations=2))
    agent = create_agent(
        ScriptedChatModel(["done"] * 9), [], middleware=[gate, bounds] if first else [bounds, gate]
    )
    result = go(agent, ASK)
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("stopped", "iteration_limit")
    assert outcome(result)["usage"]["model_calls"] == 2


@pytest.mark.parametrize("status", ["crash", "missing", "changed", "state"])
def test_no_fault_of_the_gate_lets_a_run_pass(go, project, monkeypatch, status):
    (project / "work.txt").write_text("ok" if status != "state" else "broken")
    file = project / "bound.yml"
    file.write_text(json.dumps(contract()))
    model = ScriptedChatModel(["done"] * 9)
    agent = create_agent(model, [], middleware=[CompletionGate(file)])
    if status == "crash":
        monkeypatch.setattr(Engine, "run", lambda *_, **__: 1 / 0)
    elif status == "missing":
        file.unlink()
    elif status == "changed":
        file.write_text(json.dumps(contract("")))
    else:
        go(agent, ASK)
        for count in (project / ".bound/state/tasks").glob("*.count.json"):
            count.write_text("{")
        real = State.read
        monkeypatch.setattr(State, "read", lambda self, name: real(self, name) if "count" not in name else 1 / 0)
    result = go(agent, ASK)
    assert outcome(result)["status"] == "gate_unsatisfied"
    assert result["bound"]["gates"]["completion"]["state"] == "error"
    assert sum(kind == "ai" for kind, _ in said(result)) == 1
    words = {"crash": "ZeroDivisionError", "missing": "cannot be read", "changed": "not the one", "state": "Zero"}
    assert words[status] in outcome(result)["detail"]["error"]


def test_a_count_that_cannot_be_read_sends_nobody_back(go, project, monkeypatch):
    gate = CompletionGate(contract(), project)
    agent = create_agent(ScriptedChatModel(["done"] * 9), [], middleware=[gate])
    monkeypatch.setattr("bound_middleware.langchain.runs.uuid.uuid4", lambda: type("U", (), {"hex": "same"}))
    count = gate._gate.counted("same")
    count.take("x", most=5)
    next((project / ".bound/state/tasks").glob("*.count.json")).write_text("{")
    result = go(agent, ASK)
    assert sum(kind == "ai" for kind, _ in said(result)) == 1
    assert outcome(result)["status"] == "gate_unsatisfied"
    assert "cannot be read" in outcome(result)["detail"]["error"]


def test_a_command_that_cannot_start_sends_back_once_at_most(go, project):
    broken = {"constraints": {"tests": {"kind": "command", "command": ["no-such-program-here"]}}}
    gate = CompletionGate({**broken, "settings": {"max_auto_retries": 5}}, project)
    result = go(create_agent(ScriptedChatModel(["done"] * 9), [], middleware=[gate]), ASK)
    assert sum(kind == "ai" for kind, _ in said(result)) == 2
    assert outcome(result)["status"] == "gate_unsatisfied"


def test_a_contract_that_is_not_there_is_refused_when_the_gate_is_made(project):
    with pytest.raises(SpecError, match="no contract here"):
        CompletionGate(project)
    with pytest.raises(SpecError, match="on_exhausted"):
        CompletionGate(contract(), project, on_exhausted="go on")
    with pytest.raises(SpecError, match="root"):
        CompletionGate(contract())


def test_nothing_applicable_does_not_pass_silently(go, project):
    agent = create_agent(ScriptedChatModel(["done"]), [], middleware=[CompletionGate({}, project)])
    result = go(agent, ASK)
    assert outcome(result)["status"] == "gate_unsatisfied"
    assert outcome(result)["detail"]["state"] == "nothing_applicable"
    allowed = CompletionGate({}, project, on_nothing="pass")
    result = go(create_agent(ScriptedChatModel(["done"]), [], middleware=[allowed]), ASK)
    assert outcome(result)["status"] == "completed"
    assert result["bound"]["gates"]["completion"]["state"] == "nothing_applicable"


def test_what_is_pending_ends_at_once_or_is_waited_for(go, project):
    waits = "import sys, pathlib; p = pathlib.Path('n'); p.write_text(p.read_text() + '.' if p.exists() else '.')"
    ready = f"{waits}; sys.exit(0 if len(p.read_text()) > 2 else 75)"
    agent = create_agent(ScriptedChatModel(["done"]), [], middleware=[CompletionGate(contract(ready), project)])
    result = go(agent, ASK)
    assert (outcome(result)["status"], outcome(result)["detail"]["state"]) == ("gate_unsatisfied", "pending")
    assert len((project / "n").read_text()) == 1
    (project / "n").unlink()
    gate = CompletionGate(
        contract(ready), project, on_pending="wait", pending_seconds=1, pending_interval_seconds=0.01
    )
    result = go(create_agent(ScriptedChatModel(["done"]), [], middleware=[gate]), ASK)
    assert outcome(result)["status"] == "completed"
    assert len((project / "n").read_text()) == 3


ADVICE = {
    "kind": "command",
    "command": [sys.executable, "-c", "print('too long'); raise SystemExit(1)"],
    "enforcement": "advisory",
    "watch": ["work.txt"],
}


def test_advice_that_nobody_answers_does_not_pass(go, project):
    (project / "work.txt").write_text("ok")
    agent = create_agent(
        ScriptedChatModel(["done"] * 9), [], middleware=[CompletionGate(contract(style=ADVICE), project)]
    )
    result = go(agent, ASK)
    assert sum(kind == "ai" for kind, _ in said(result)) == 3
    assert (outcome(result)["status"], outcome(result)["detail"]["unanswered"]) == ("gate_unsatisfied", ["style"])


def test_advice_is_answered_with_a_reason_for_exactly_what_was_seen(go, project):
    (project / "work.txt").write_text("ok")
    why = {"constraint_id": "style", "reason": "the line is a URL"}
    model = ScriptedChatModel(["done", reply("", tool_calls=[("acknowledge", why)]), "done, and said why"])
    agent = create_agent(model, [], middleware=[CompletionGate(contract(style=ADVICE), project)])
    result = go(agent, ASK)
    assert "the tool acknowledge" in result["messages"][2].text
    assert "too long" in result["messages"][2].text
    assert result["messages"][4].text.startswith("Recorded for style")
    assert outcome(result)["status"] == "completed"
    assert result["bound"]["gates"]["completion"]["results"]["style"]["verdict"] == "fail"
    # Another snapshot is not answered by this.
    (project / "work.txt").write_text("ok, changed")
    model = ScriptedChatModel(["done"] * 9)
    result = go(create_agent(model, [], middleware=[CompletionGate(contract(style=ADVICE), project)]), ASK)
    assert outcome(result)["status"] == "gate_unsatisfied"


@pytest.mark.parametrize(("name", "reason"), [("style", "  "), ("tests", "because"), ("nothing", "because")])
def test_an_answer_to_no_advice_or_without_a_reason_is_none(go, project, name, reason):
    (project / "work.txt").write_text("broken" if name == "tests" else "ok")
    why = {"constraint_id": name, "reason": reason}
    model = ScriptedChatModel(["done", reply("", tool_calls=[("acknowledge", why)]), "done", "done"])
    agent = create_agent(model, [], middleware=[CompletionGate(contract(style=ADVICE), project)])
    result = go(agent, ASK)
    assert not result["messages"][4].text.startswith("Recorded")
    assert outcome(result)["status"] == "gate_unsatisfied"


def test_the_message_is_redacted_and_short(go, project):
    secret = "sk-" + "a1" * 12
    noise = "[print('noise', n) for n in range(9999)]; print('end'); raise SystemExit(1)"
    loud = f"print('{secret[:7]}' + '{secret[7:]}'); {noise}"
    agent = create_agent(ScriptedChatModel(["done"] * 3), [], middleware=[CompletionGate(contract(loud), project)])
    told = go(agent, ASK)["messages"][2].text
    assert len(told) < 3_000
    assert "noise 9998" in told
    assert told.rstrip().endswith("end")
    short = f"print('{secret[:7]}' + '{secret[7:]}'); raise SystemExit(1)"
    agent = create_agent(ScriptedChatModel(["done"] * 3), [], middleware=[CompletionGate(contract(short), project)])
    told = go(agent, ASK)["messages"][2].text
    assert "[redacted]" in told
    assert secret not in told


def test_root_causes_come_first_and_what_they_caused_is_only_named(go, project):
    later = {"kind": "command", "command": [sys.executable, "-c", ""], "needs": ["tests"]}
    gate = CompletionGate(contract(coverage=later), project)
    told = go(create_agent(ScriptedChatModel(["done"] * 3), [], middleware=[gate]), ASK)["messages"][2].text
    assert told.index("tests (command)") < told.index("Not run because of this: coverage.")
    assert "coverage (command)" not in told


def savers(kind, path):
    if kind == "memory":
        return InMemorySaver()
    import sqlite3

    return SqliteSaver(sqlite3.connect(path / "checkpoints.db", check_same_thread=False))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_new_task_has_a_new_budget_and_nothing_of_the_last_one(project, kind):
    gate = CompletionGate(contract(retries=1), project)
    agent = create_agent(ScriptedChatModel(["done"] * 9), [], middleware=[gate], checkpointer=savers(kind, project))
    config = {"configurable": {"thread_id": "t"}}
    for n in (1, 2):
        result = agent.invoke({"messages": [("user", f"task {n}")]}, config)
        assert outcome(result)["detail"]["continuations"] == 1
        assert sum(message.type == "ai" for message in result["messages"]) == 2 * n
    (project / "work.txt").write_text("ok")
    result = agent.invoke(ASK, config)
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("completed", None)
    assert outcome(result)["detail"] == {}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_fork_from_before_the_gate_gets_no_continuation_back(project, kind):
    gate = CompletionGate(contract(retries=2), project)
    model = ScriptedChatModel(["done"] * 20)
    agent = create_agent(model, [], middleware=[gate], checkpointer=savers(kind, project))
    config = {"configurable": {"thread_id": "t"}}
    agent.invoke(ASK, config)
    history = list(agent.get_state_history(config))
    begun = [saved for saved in history if saved.next and saved.next[0] == "model"][-1]
    forked = agent.update_state(begun.config, {"messages": [HumanMessage("try again")], "bound_gate_task": "mine"})
    result = agent.invoke(None, forked)
    assert outcome(result)["status"] == "gate_unsatisfied"
    # The fork's own stop was not sent back: everything had been used before.
    assert sum(message.type == "ai" for message in result["messages"]) == 1


def test_a_person_is_asked_and_lets_it_go_on_or_waives_what_was_shown(project):
    gate = CompletionGate(contract(retries=0), project, on_exhausted="ask")
    agent = create_agent(ScriptedChatModel(["done"] * 9), [], middleware=[gate], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    question = agent.invoke(ASK, config)["__interrupt__"][0].value
    assert (question["type"], question["failing"], question["options"]) == (
        "bound_gate",
        ["tests"],
        ["retry", "waive", "end"],
    )
    result = agent.invoke(Command(resume={"decision": "retry"}), config)
    assert sum(message.type == "ai" for message in result["messages"]) == 2
    question = result["__interrupt__"][0].value
    stale = {"decision": "waive", "reason": "known", "evidence": "0" * 64}
    question = agent.invoke(Command(resume=stale), config)["__interrupt__"][0].value
    assert "no answer" in question["problem"]
    waive = {"decision": "waive", "reason": "known upstream", "evidence": question["evidence"]}
    result = agent.invoke(Command(resume=waive), config)
    assert outcome(result)["status"] == "completed"
    assert result["bound"]["gates"]["completion"]["results"]["tests"]["verdict"] == "waived"


def test_a_person_may_end_it_and_it_is_no_success(project):
    gate = CompletionGate(contract(retries=0), project, on_exhausted="ask")
    agent = create_agent(ScriptedChatModel(["done"]), [], middleware=[gate], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    agent.invoke(ASK, config)
    result = agent.invoke(Command(resume={"decision": "end"}), config)
    assert outcome(result)["status"] == "gate_unsatisfied"


def test_progress_is_streamed_beside_the_outcome(project):
    (project / "work.txt").write_text("ok")
    agent = create_agent(ScriptedChatModel(["done"] * 2), [], middleware=[CompletionGate(contract(), project)])
    parts = list(agent.stream(ASK, stream_mode="custom"))
    progress = [part["bound_gate"] for part in parts if "bound_gate" in part]
    assert [(part["constraint"], part["event"]) for part in progress] == [
        ("tests", "started"),
        ("tests", "finished"),
    ]
    assert progress[-1]["verdict"] == "pass"
    assert parts[-1]["bound"]["outcome"]["status"] == "completed"

    async def collected():
        return [part async for part in agent.astream(ASK, stream_mode="custom")]

    (project / ".bound").rename(project / "old")
    assert [part["bound_gate"]["event"] for part in asyncio.run(collected()) if "bound_gate" in part]


def test_two_gates_both_have_to_pass(go, project):
    (project / "work.txt").write_text("ok")
    for order in (1, -1):
        gates = [
            CompletionGate(contract("raise SystemExit(1)", retries=0), project, name="strict"),
            CompletionGate(contract(), project),
        ]
        result = go(create_agent(ScriptedChatModel(["done"]), [], middleware=gates[::order]), ASK)
        assert outcome(result)["status"] == "gate_unsatisfied"
        assert outcome(result)["detail"]["gate"] == "strict"


def test_a_cancelled_run_ends_the_commands(project):
    slow = "import pathlib, time; pathlib.Path('pid').write_text('x'); time.sleep(60)"

    async def cancelled():
        agent = create_agent(ScriptedChatModel(["done"]), [], middleware=[CompletionGate(contract(slow), project)])
        running = asyncio.ensure_future(agent.ainvoke(ASK))
        while not (project / "pid").exists():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(cancelled(), 15))


def test_a_session_that_is_used_again_does_not_carry_the_last_failure(go, project):
    session = BoundSession(BoundSpec(iterations=20))
    gate = CompletionGate(contract(retries=0), project)
    agent = create_agent(ScriptedChatModel(["done"] * 3), [], middleware=[BoundMiddleware(session=session), gate])
    assert outcome(go(agent, ASK))["status"] == "gate_unsatisfied"
    assert session.outcome.status == "gate_unsatisfied"
    (project / "work.txt").write_text("ok")
    assert outcome(go(agent, ASK))["status"] == "completed"
    assert Path(project / ".bound").is_dir()


JUDGE = (
    "import json; print(json.dumps({'schema_version': 1, 'result': {'verdict': 'pass', 'score': 1.0,"
    " 'rationale': 'fine', 'findings': []}, 'metadata': {'cost_usd': 0.25,"
    " 'usage': {'input_tokens': 70, 'output_tokens': 30}}}))"
)


def reviewed(kind):
    evaluator = {"type": "command", "command": [sys.executable, "-c", JUDGE]}
    if kind == "model":
        evaluator = {"type": "openai", "model": "gpt-5"}
    review = {"kind": "rubric", "evaluator": "judge", "rubric": "is it good?", "include": ["work.txt"]}
    review |= {"enforcement": "advisory", "watch": ["work.txt"]}
    return {**contract(review=review), "evaluators": {"judge": evaluator}}


def test_what_a_program_that_judges_says_it_cost_is_charged_to_the_session_once(go, project):
    (project / "work.txt").write_text("ok")
    bounds = BoundMiddleware(BoundSpec(usd="9"), prices={"scripted": {"input": 0, "output": 0}})
    agent = create_agent(
        ScriptedChatModel(["done"] * 2), [], middleware=[bounds, CompletionGate(reviewed("command"), project)]
    )
    first = go(agent, ASK)
    assert outcome(first)["status"] == "completed"
    assert outcome(first)["usage"]["cost_nanousd"] == 250_000_000
    assert go(agent, ASK)["bound"]["outcome"]["usage"]["cost_nanousd"] == 0


def test_a_model_that_judges_is_charged_and_stays_out_of_the_stream(go, project):
    from bound_middleware.langchain.rubric_model import rubrics

    (project / "work.txt").write_text("ok")
    judge = ScriptedChatModel([json.dumps({"verdict": "pass", "score": 1, "rationale": "fine", "findings": []})])
    gate = CompletionGate(reviewed("model"), project, rubrics=rubrics({"judge": judge}))
    agent = create_agent(
        ScriptedChatModel(["done"]), [], middleware=[BoundMiddleware(BoundSpec(iterations=9)), gate]
    )
    result = go(agent, ASK)
    assert outcome(result)["status"] == "completed"
    assert outcome(result)["usage"]["model_calls"] == 2
    assert [kind for kind, _ in said(result)] == ["human", "ai"]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("good", [True, False])
def test_beside_a_decision_both_have_to_agree_in_any_order(go, project, first, good):
    from bound_middleware import AcceptanceCheck, BoundCriteria, EvaluationScores, ExecutionEvidence, StepContract
    from bound_middleware.langgraph import BoundDecisionNode, DecisionMiddleware

    (project / "work.txt").write_text("ok" if good else "broken")
    node = BoundDecisionNode(
        contract=StepContract(
            id="s", description="d", goal="g", acceptance_checks=[AcceptanceCheck(id="a", description="a")]
        ),
        collect=lambda state: ExecutionEvidence(),
        evaluate=lambda *_: EvaluationScores(acceptance=1.0, influence=0.0, risk=0.0, cost=0.0),
        criteria=BoundCriteria(threshold=0.6),
    )
    both = [DecisionMiddleware(node), CompletionGate(contract(retries=1), project)]
    result = go(create_agent(ScriptedChatModel(["done"] * 5), [], middleware=both[:: 1 if first else -1]), ASK)
    assert result["bound"]["decisions"]["agent"]["decision"] == "ACCEPT"
    assert outcome(result)["status"] == ("completed" if good else "gate_unsatisfied")


def test_an_agent_in_a_bounded_graph_is_gated_too(go, project):
    from langgraph.graph import START, StateGraph

    from bound_middleware.langgraph import bound_graph

    agent = create_agent(ScriptedChatModel(["done"] * 9), [], middleware=[CompletionGate(contract(), project)])
    result = go(bound_graph(agent, BoundSpec(iterations=30)), ASK)
    assert outcome(result)["status"] == "gate_unsatisfied"
    around = StateGraph(agent.builder.state_schema)
    around.add_node("agent", agent)
    around.add_edge(START, "agent")
    assert go(around.compile(), ASK)["messages"][-1].text == "done"

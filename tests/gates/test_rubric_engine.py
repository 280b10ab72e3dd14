"""Rubrics in a run of gates: after the checks, with what they showed, and never from stale evidence."""

import json
import sys

import pytest

from bound_middleware import BoundSession
from bound_middleware.gates.contract import parse
from bound_middleware.gates.engine import Engine
from bound_middleware.gates.runners.rubric import Rubrics
from bound_middleware.gates.state import State
from bound_middleware.langchain.rubric_model import rubrics
from bound_middleware.testing import ScriptedChatModel

from .rubric_help import COMMAND, Scripted, failed, put, reply


def engine_of(tmp_path, judge, *, goal=None, environment=None, **rubric):
    entry = {"kind": "rubric", "evaluator": "judge", "rubric": "names are clear", "enforcement": "advisory"}
    code = "print('checked')"
    contract = parse(
        {
            "constraints": {
                "review": {**entry, **rubric},
                "check": {"kind": "command", "command": [sys.executable, "-c", code]},
            },
            "evaluators": {"judge": COMMAND},
        }
    )
    root = tmp_path / "root"
    put(root, {"a.py": "1\n"})
    runner = Rubrics(evaluators={"judge": judge}) if isinstance(judge, Scripted) else rubrics({"judge": judge})
    return Engine(
        contract,
        root=root,
        state=State(tmp_path / "state"),
        environment={"PATH": "/usr/bin:/bin", **(environment or {})},
        rubrics=runner,
        goal=goal,
    )


@pytest.fixture(params=["run", "arun"])
def ask(request):
    async def ask(engine, phase="stop", **given):
        if request.param == "run":
            return engine.run(phase, **given)
        return await engine.arun(phase, **given)

    return ask


async def test_a_rubric_sees_what_the_checks_showed(tmp_path, ask):
    judge = Scripted(reply("pass"))
    report = await ask(engine_of(tmp_path, judge, goal="clear names"))
    assert report.state == "passed"
    (bundle,) = judge.bundles
    assert bundle["goal"] == "clear names"
    (told,) = bundle["deterministic_results"]
    assert (told["constraint_id"], told["verdict"], told["output_tail"]) == ("check", "pass", "checked")


async def test_evidence_is_reused_only_while_the_bundle_is_the_same(tmp_path, ask):
    judge = Scripted(*[reply("pass")] * 6)
    assert (await ask(engine_of(tmp_path, judge)))["review"].cached is False
    assert (await ask(engine_of(tmp_path, judge)))["review"].cached is True
    assert (await ask(engine_of(tmp_path, judge, goal="another")))["review"].cached is False
    put(tmp_path / "root", {"b.py": "2\n"})
    assert (await ask(engine_of(tmp_path, judge, watch=["a.py"])))["review"].cached is False
    assert (await ask(engine_of(tmp_path, judge, watch=["a.py"]), "ci"))["review"].cached is False
    assert len(judge.bundles) == 4


async def test_an_evaluator_that_failed_is_asked_again(tmp_path, ask):
    judge = Scripted(failed("too slow"), reply("pass"))
    first = (await ask(engine_of(tmp_path, judge)))["review"]
    second = (await ask(engine_of(tmp_path, judge)))["review"]
    assert [(r.verdict, r.cached) for r in (first, second)] == [("uncertain", False), ("pass", False)]


async def test_a_required_rubric_that_is_uncertain_blocks(tmp_path, ask):
    judge = Scripted(reply("pass"), failed("too slow"))
    report = await ask(engine_of(tmp_path, judge, enforcement="required", runs=2, pass_quorum=2))
    assert (report.state, report["review"].verdict) == ("blocked", "uncertain")


async def test_calls_belong_to_the_session_around_the_run_and_its_budget_stops_them(tmp_path, ask):
    model = ScriptedChatModel(replies=[reply("pass"), reply("pass")], cycle=True)
    with BoundSession({"bounds": {"iteration_limit": 1}}) as session:
        report = await ask(engine_of(tmp_path, model, enforcement="required", runs=2, pass_quorum=2))
    assert (report.state, report["review"].verdict) == ("blocked", "uncertain")
    assert session.usage.model_calls == 1
    assert session.outcome.stop_reason == "iteration_limit"


async def test_a_report_with_calls_survives_its_json(tmp_path, ask):
    from bound_middleware.gates.values import Report

    said = reply("fail", score=0.5, findings=[{"message": "no", "file_path": "a.py", "line": 1}])
    report = await ask(engine_of(tmp_path, Scripted(said)))
    assert report.state == "passed_with_advisories"
    assert Report.from_dict(json.loads(json.dumps(report.as_dict()))) == report

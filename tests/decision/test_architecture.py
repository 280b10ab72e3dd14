"""On the way to a decision no socket is opened, no key is read, no SDK is loaded, and nothing is drawn by lot."""

import json
import os
import subprocess
import sys

import pytest

DECIDE = """
import json, sys
{before}
from bound_middleware.decision import *
check = AcceptanceCheck(id="tests", description="tests pass", on_claimed="RETRY")
risks = [RiskCheck(id=name, description=name, severity=0.1) for name in "abcdefgh"]
step = StepContract(id="s", description="d", goal="g", acceptance_checks=[check], risk_checks=risks,
                    expected_artifacts=["x", "y", "z"], budget=StepBudget(max_tokens=10))
evidence = ExecutionEvidence(
    acceptance=[CheckEvidence(check_id="tests", passed=True, source="t"), *(
        CheckEvidence(check_id=name, passed=True, source="t") for name in ("u", "v", "w"))],
    risks=[CheckEvidence(check_id="a", passed=True, source="t")],
    unexpected_artifacts=["p", "x", "q"], token_usage=3)
result = BoundWorkflow().evaluate_step(contract=step, evidence=evidence, criteria=BoundCriteria(threshold=0.6))
signals = CodingWorkflowSignals(test_pass_rate=0.5, lint_passed=True)
action = Action(description="d", goal="g")
coded = BoundPolicy(CodingWorkflowEvaluator(signals)).evaluate(action, BoundCriteria(threshold=0.6))
flips = check_flips(step, evidence, BoundCriteria(threshold=0.6))
plan = BoundPlan(goal="g", steps=[step])
prepared = BoundWorkflow(contract_generator=StaticContractGenerator(plan)).prepare(goal="g", plan="p")
out = [result.model_dump_json(), coded.model_dump_json(), steering_text(result, audience="agent"),
       flip_text(result, flips), assess_contract(prepared).model_dump_json()]
{after}
print(json.dumps(out))
"""

GUARD = """
import os, socket
def refuse(*args, **kwargs):
    raise AssertionError("a decision reached for the network")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
class NoKeys(dict):
    def _look(self, name, *rest):
        assert "KEY" not in str(name) and "TOKEN" not in str(name), f"a decision read {name}"
        return dict.get(self, name, *rest)
    __getitem__ = get = _look
os.environ = NoKeys(os.environ)
"""


def run(before="", after="", hash_seed="0"):
    code = DECIDE.format(before=before, after=after)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_decision_touches_no_socket_and_no_key():
    assert run(before=GUARD) == run()


def test_a_decision_loads_no_sdk_and_no_framework():
    # pydantic itself loads asyncio and socket on some versions; what matters is who speaks to a model or a graph.
    names = json.loads(run(after="out = sorted({name.partition('.')[0] for name in sys.modules})"))
    forbidden = {
        "openai",
        "anthropic",
        "langchain",
        "langchain_core",
        "langgraph",
        "httpx",
        "requests",
        "tiktoken",
        "yaml",
    }
    assert forbidden.isdisjoint(names)


def test_no_layer_beside_the_core_is_loaded():
    names = json.loads(run(after="out = sorted(n for n in sys.modules if n.startswith('bound_middleware'))"))
    parts = {name.split(".")[1] for name in names if "." in name}
    assert parts == {"core", "decision"}


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_another_process_and_another_hash_seed_give_the_same_bytes(hash_seed):
    assert run(hash_seed=hash_seed) == run(hash_seed="0")


def test_the_rules_and_the_text_load_without_pydantic_and_without_the_models():
    code = (
        "import sys; from bound_middleware.decision import rules, steering\n"
        "e = rules.evaluate(rules.Scores(0.9, 0.2, 0.1, 0.2), rules.parse_criteria({'threshold': 0.6}))\n"
        "assert steering.steering_text(e).startswith('[BOUND evaluation]')\n"
        "assert e.as_json()['decision'] == 'ACCEPT'\n"
        "print(sorted(n for n in sys.modules if n.startswith(('pydantic', 'bound_middleware.'))))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert eval(done.stdout) == [
        "bound_middleware.core",
        "bound_middleware.core.errors",
        "bound_middleware.decision",
        "bound_middleware.decision.rules",
        "bound_middleware.decision.steering",
    ]


def test_every_name_of_the_package_is_there():
    import bound_middleware.decision as package

    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    assert package.__all__ == sorted(package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'BoundPolice'"):
        package.BoundPolice  # noqa: B018


def test_the_paths_of_the_seed_give_the_same_objects():
    import bound_middleware
    from bound_middleware import (
        calculator,
        contract_evaluator,
        contract_quality,
        contracts,
        decision,
        evaluator,
        evidence,
        experiment,
        llm_adapters,
        models,
        policy,
        prompt,
        workflow,
    )

    for module in (
        calculator, contract_evaluator, contract_quality, contracts, evaluator, evidence, experiment, llm_adapters,
        models, policy, prompt, workflow,
    ):  # fmt: skip
        for name in module.__all__:
            home = getattr(decision, name, None) or getattr(bound_middleware, name, None)
            assert home is None or getattr(module, name) is home
    assert models.EvaluationResult is bound_middleware.EvaluationResult
    assert prompt.MAX_WORDS == 150

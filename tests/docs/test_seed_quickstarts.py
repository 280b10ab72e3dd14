"""The quickstarts of BOUND's own document run as written, with ``bound`` replaced by ``bound_middleware``."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FIRST = """
from bound.models import Action, BoundCriteria, EvaluationScores
from bound.evaluator import StaticEvaluator
from bound.policy import BoundPolicy

action = Action(
    description="Book the direct flight",
    goal="Travel from Paris to New York",
)
scores = EvaluationScores(acceptance=0.9, influence=0.2, risk=0.1, cost=0.2)
criteria = BoundCriteria(weight=1.0, threshold=0.6)

result = BoundPolicy(StaticEvaluator(scores)).evaluate(action, criteria)

print(result.score)
print(result.decision)
"""

SECOND = """
from bound import (
    AcceptanceCheck, BoundPlan, StaticContractGenerator,
    ContractEvaluator, BoundWorkflow, StepContract,
)
from bound.evidence import CheckEvidence, ExecutionEvidence
from bound.evaluator import StaticEvaluator
from bound.policy import BoundPolicy
from bound.models import BoundCriteria, EvaluationScores

step = StepContract(
    id="write-tests",
    description="Add unit tests for the parser",
    goal="Ship the parser",
    acceptance_checks=[AcceptanceCheck(id="tests-pass", description="All tests pass")],
)
step_plan = BoundPlan(goal="Ship the parser", steps=[step])
placeholder_scores = EvaluationScores(acceptance=0.0, influence=0.0, risk=0.0, cost=0.0)
workflow = BoundWorkflow(
    contract_generator=StaticContractGenerator(step_plan),
    evaluator=ContractEvaluator(),
    policy=BoundPolicy(StaticEvaluator(placeholder_scores)),
)

plan = workflow.prepare(goal="Ship the parser", plan="1. write tests  2. ship")
evidence = ExecutionEvidence(
    acceptance=[CheckEvidence(check_id="tests-pass", passed=True, source="test-runner")],
)
result = workflow.evaluate_step(
    contract=plan.steps[0], evidence=evidence, criteria=BoundCriteria(threshold=0.6),
)
print(result.decision)
"""


@pytest.mark.parametrize(
    ("code", "output"), [(FIRST, "0.8\nACCEPT\n"), (SECOND, "ACCEPT\n")], ids=["scores", "contract"]
)
def test_a_quickstart_runs_as_written(code, output):
    ours = code.replace("from bound.", "from bound_middleware.").replace("from bound ", "from bound_middleware ")
    done = subprocess.run([sys.executable, "-W", "error", "-c", ours], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (output, "")


def test_the_example_of_the_decision_document_prints_what_it_says():
    document = (Path(__file__).parents[2] / "docs" / "decision.md").read_text()
    ((code, output),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", document, re.DOTALL)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (output, "")

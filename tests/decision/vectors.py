"""The recorded results of the reference implementation, and values that many tests need."""

import gzip
import json
import math
from pathlib import Path

from bound_middleware.decision import (
    AcceptanceCheck,
    CheckEvidence,
    ExecutionEvidence,
    RiskCheck,
    StepContract,
)

FOLDER = Path(__file__).with_name("oracle")
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _numbers(value):
    if isinstance(value, dict):
        return {key: _numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return _WORDS.get(value, value) if isinstance(value, str) else value


def cases(name):
    """The cases of one file; numbers are doubles, written with Python's shortest form."""
    read = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    assert len(read["cases"]) == read["meta"]["count"]
    return [{**case, "input": _numbers(case["input"])} for case in read["cases"]]


def finite(value):
    """Whether all numbers of a nested input are finite."""
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def rows(provenance):
    """Provenance as the vectors hold it."""
    return {
        dimension: [{"source": r.source, "value": r.value, "contribution": r.contribution} for r in found]
        for dimension, found in provenance.items()
    }


def exactly(ours, theirs):
    """Equal to the bit: minus zero is not zero."""
    return ours == theirs and repr(ours) == repr(theirs)


def step(*, checks=("tests",), risks=(), **more):
    """A contract: checks and risks by id, or as models."""
    return StepContract(
        id="step",
        description="Write the parser",
        goal="Ship the parser",
        acceptance_checks=[
            AcceptanceCheck(id=check, description=f"{check} pass") if isinstance(check, str) else check
            for check in checks
        ],
        risk_checks=[
            RiskCheck(id=risk, description=f"no {risk}", severity=0.5) if isinstance(risk, str) else risk
            for risk in risks
        ],
        **more,
    )


def record(check_id, passed=True, provenance="observed"):
    return CheckEvidence(check_id=check_id, passed=passed, source="runner", provenance=provenance)


def seen(*acceptance, risks=(), **more):
    """Evidence: ids that passed, or records."""
    made = [[record(r) if isinstance(r, str) else r for r in found] for found in (acceptance, risks)]
    return ExecutionEvidence(acceptance=made[0], risks=made[1], **more)

"""The attempts of one model call: as many as are allowed, and none after a refusal for good."""

import json

import pytest

from bound_middleware.core.events import facts_from
from bound_middleware.core.gateway import Breach, Facts, Request, as_dict, decide
from bound_middleware.core.limits import Limits

REQUEST = Request(kind="model_call", id="a")
CAPPED = Limits(attempts_per_call_max=3)


@pytest.mark.parametrize("failed", [0, 1, 2])
def test_an_attempt_within_the_limit_is_allowed(failed):
    assert decide(REQUEST, Facts(failed_attempts=failed), CAPPED).kind == "allow"


@pytest.mark.parametrize("facts", [Facts(failed_attempts=3), Facts(failed_attempts=1, failed_for_good=True)])
def test_another_one_is_refused_with_its_numbers(facts):
    verdict = decide(REQUEST, facts, CAPPED)
    assert verdict.breaches == (
        Breach(stop_reason="retries_exhausted", axis="attempts", limit=3, used=facts.failed_attempts, asked=1),
    )


def test_without_a_limit_attempts_are_not_looked_at():
    assert decide(REQUEST, Facts(failed_attempts=99, failed_for_good=True), Limits()).kind == "allow"


def test_the_facts_survive_a_file():
    facts = Facts(failed_attempts=2, failed_for_good=True)
    assert facts_from(json.loads(json.dumps(as_dict(facts)))) == facts

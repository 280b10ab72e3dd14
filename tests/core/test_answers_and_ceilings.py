"""An answer that the caller's check refuses, ceilings that were tightened outside, and names of secrets."""

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.core.gateway import Facts, Request, decide
from bound_middleware.core.ledger import Account, tightened
from bound_middleware.core.limits import Limits
from bound_middleware.core.redaction import names_a_secret


def judged(on_refused_output="refuse", **facts):
    return decide(
        Request(kind="answer", id="a", name="answer"), Facts(**facts), Limits(on_refused_output=on_refused_output)
    )


def test_an_answer_that_nothing_speaks_against_is_allowed():
    assert judged().kind == "allow"


def test_an_answer_that_is_refused_says_why():
    verdict = judged(answer_refused="it names a customer")
    assert verdict.kind == "refuse"
    assert [(b.stop_reason, b.axis, b.because) for b in verdict.breaches] == [
        ("output_refused", "outputs", "it names a customer")
    ]


@pytest.mark.parametrize(
    ("facts", "kind", "reasons"),
    [
        ({"approver": True}, "ask", []),
        ({"approval": "approved"}, "allow", []),
        ({"approval": "rejected"}, "refuse", ["approval_rejected", "output_refused"]),
        ({"approval": "expired"}, "refuse", ["approval_expired", "output_refused"]),
        ({}, "refuse", ["approver_failed", "output_refused"]),
    ],
)
def test_a_person_may_allow_an_answer_where_that_is_declared(facts, kind, reasons):
    verdict = judged("approval", answer_refused="why", **facts)
    assert (verdict.kind, [breach.stop_reason for breach in verdict.breaches]) == (kind, reasons)


def test_another_answer_to_a_refused_output_is_no_answer():
    with pytest.raises(SpecError, match="ignore"):
        Limits(on_refused_output="ignore")


def test_the_tighter_of_two_ceilings_holds():
    chain = (Account(id="root", ceilings={"tokens": 10, "calls": 3}), Account(id="leaf", ceilings={"calls": 2}))
    found = tightened(chain, {"root": {"tokens": 4, "calls": 9, "nanousd": 5}, "leaf": {"calls": 2}})
    assert [account.ceilings for account in found] == [{"tokens": 4, "calls": 3, "nanousd": 5}, {"calls": 2}]
    assert tightened(chain, {}) == chain


@pytest.mark.parametrize(("name", "secret"), [("OPENAI_API_KEY", True), ("HOME", False)])
def test_a_name_tells_of_a_secret(name, secret):
    assert names_a_secret(name) is secret

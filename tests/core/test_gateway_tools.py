"""The gateway on tool calls: each rule once where it refuses, once where the same thing passes."""

import pytest

from bound_middleware.core.events import facts_from, request_from
from bound_middleware.core.gateway import Balance, Breach, Facts, Request, Verdict, as_dict, decide
from bound_middleware.core.limits import Limits

APPROVAL = Limits(approval_tools=frozenset({"pay"}))


def _tool(limits=None, *, name="pay", amounts=(), balances=(), **facts):
    request = Request(kind="tool_call", id="t", name=name, amounts=dict(amounts))
    return decide(request, Facts(balances=tuple(balances), **facts), limits or Limits())


def _model(limits, **facts):
    return decide(Request(kind="model_call", id="m", name="m", input_tokens=1), Facts(**facts), limits)


@pytest.mark.parametrize(
    ("approval", "reason"),
    [("rejected", "approval_rejected"), ("expired", "approval_expired"), ("failed", "approver_failed")],
)
def test_an_approval_that_was_not_given_refuses_the_call(approval, reason):
    verdict = _tool(APPROVAL, approval=approval, approver=True)
    assert (verdict.kind, verdict.stop_reason) == ("refuse", reason)


def test_an_approved_call_runs_whether_or_not_somebody_can_still_be_asked():
    assert _tool(APPROVAL, approval="granted").kind == "allow"
    assert _tool(APPROVAL, approval="granted", approver=True).kind == "allow"


def test_a_call_that_nobody_was_asked_for_is_asked_for_where_somebody_can_be():
    assert _tool(APPROVAL, approver=True) == Verdict(kind="ask")
    assert _tool(APPROVAL).stop_reason == "approver_failed"


def test_nobody_is_asked_for_a_call_that_another_bound_refuses():
    verdict = _tool(APPROVAL, approver=True, outside_scope=("path: outside the roots",))
    assert (verdict.kind, verdict.stop_reason) == ("refuse", "data_scope")
    full = Balance(account_id="s", meter="tool_calls", limit=1, settled=1, held=0)
    assert _tool(APPROVAL, approver=True, balances=[full]).kind == "refuse"


def test_an_approval_opens_no_tool_that_is_not_allowed():
    limits = Limits(forbidden_tools=frozenset({"pay"}), approval_tools=frozenset({"pay"}))
    assert _tool(limits, approval="granted", approver=True).stop_reason == "tool_refused"


def test_arguments_that_break_a_rule_refuse_the_call_and_say_which():
    verdict = _tool(arguments_refused=("amount: 9 is more than 5",))
    assert verdict.breaches == (
        Breach(stop_reason="tool_refused", axis="arguments", because=("amount: 9 is more than 5",)),
    )
    assert _tool().kind == "allow"


def test_a_truncated_message_runs_none_of_its_calls():
    assert _tool(truncated=True).stop_reason == "truncated"
    assert _tool(truncated=False).kind == "allow"


@pytest.mark.parametrize(("running", "kind"), [(0, "allow"), (1, "allow"), (2, "refuse")])
def test_so_many_tools_run_at_once_and_no_more(running, kind):
    assert _tool(Limits(concurrent_tools_max=2), running_tools=running).kind == kind


def test_a_call_waits_for_running_tools_unless_none_may_ever_run():
    assert _tool(Limits(concurrent_tools_max=1), running_tools=1).may_fit_later
    assert not _tool(Limits(concurrent_tools_max=0)).may_fit_later


@pytest.mark.parametrize(
    ("limits", "facts"),
    [
        (Limits(identical_calls_max=3), {"identical_calls": 3}),
        (Limits(same_result_max=3), {"same_results": 3}),
        (Limits(cycle_window=4), {"in_cycle": True}),
    ],
)
def test_calls_that_bring_nothing_new_are_refused(limits, facts):
    assert _tool(limits, **facts).stop_reason == "no_progress"
    assert _tool(Limits(), **facts).kind == "allow"
    assert _tool(limits, **{name: n - 1 for name, n in facts.items()}).kind == "allow"
    assert _model(limits, **facts).kind == "allow"


def test_a_cycle_is_not_looked_for_in_a_window_of_nothing():
    assert _tool(Limits(cycle_window=0), in_cycle=True).kind == "allow"


@pytest.mark.parametrize(("failed", "kind"), [(1, "allow"), (2, "refuse"), (3, "refuse")])
def test_failures_in_a_row_refuse_tools_and_models_alike(failed, kind):
    limits = Limits(consecutive_failures_max=2)
    assert _tool(limits, consecutive_failures=failed).kind == kind
    assert _model(limits, consecutive_failures=failed).kind == kind


@pytest.mark.parametrize(
    "limits", [Limits(identical_calls_max=0), Limits(same_result_max=0), Limits(consecutive_failures_max=0)]
)
def test_a_bound_of_0_refuses_the_first_call(limits):
    assert _tool(limits).kind == "refuse"


def test_an_exposure_is_held_like_money_and_refused_at_its_ceiling():
    meter = "exposure:refund:amount"
    balance = Balance(account_id="s", meter=meter, limit=500, settled=300, held=100)
    assert _tool(name="refund", amounts={meter: 100}, balances=[balance]).amounts[meter] == 100
    refused = _tool(name="refund", amounts={meter: 101}, balances=[balance])
    assert refused.stop_reason == "exposure"
    assert refused.may_fit_later


def test_the_facts_of_a_tool_call_survive_their_own_json():
    facts = Facts(
        truncated=True, arguments_refused=("a", "b"), outside_scope=("c",), approval="granted", running_tools=2
    )
    request = Request(kind="tool_call", id="t", name="pay", amounts={"exposure:pay:n": 5})
    assert facts_from(as_dict(facts)) == facts
    assert request_from(as_dict(request)) == request

"""``action_surface.outputs``: what a file may say of answers, what is tighter, and what a child gets of it."""

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.core.events import limits_as_dict, limits_from
from bound_middleware.core.gateway import Facts, Request, decide
from bound_middleware.core.limits import Limits
from bound_middleware.session.within import within
from bound_middleware.spec import BoundSpec
from bound_middleware.spec.diff import diff


def surface(*outputs, **more):
    return BoundSpec.from_dict({"bounds": {"action_surface": {"outputs": list(outputs), **more}}})


FORM = {
    "name": "quote",
    "pattern": "a+",
    "required": ["b"],
    "forbidden": ["c"],
    "hosts": ["docs.example.com"],
    "hosts_once_read": ["read"],
    "length_max": 9,
    "json_schema": {"type": "string"},
}


def test_a_file_is_written_as_it_was_read_and_compiles_to_rules():
    spec = surface("polite (no swearing)", FORM, on_refused_output="retry")
    again = BoundSpec.from_dict(spec.canonical())
    assert again.fingerprint == spec.fingerprint
    limits = spec.limits()
    assert limits.outputs == {"polite", "quote"}
    assert limits.on_refused_output == "retry"
    assert [name for form, name, _ in limits.output_rules if form == "quote"] == [
        "length_max", "pattern", "required", "forbidden", "hosts_once_read", "json_schema",
    ]  # fmt: skip
    assert limits_from(limits_as_dict(limits)) == limits


@pytest.mark.parametrize(
    ("outputs", "key"),
    [
        ([{"forbiden": ["a"]}], "forbiden"),
        ([{"forbidden": ["("]}], "forbidden"),
        ([{"hosts": ["https://a.com"]}], "hosts"),
        ([{"hosts_once_read": ["read"]}], "hosts_once_read"),
        ([{"length_max": -1}], "length_max"),
        ([{"json_schema": "object"}], "json_schema"),
        ([{"hosts": None}], "hosts"),
        (["a", {"name": "a"}], "outputs"),
        ([{}, {}], "outputs"),
        ([5], "outputs"),
    ],
)
def test_what_is_no_form_is_an_error_that_names_its_key(outputs, key):
    with pytest.raises(SpecError) as caught:
        surface(*outputs)
    assert key in str(caught.value)


BASE = {"name": "a", "forbidden": ["x"], "hosts": ["a.com"], "length_max": 5}


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([BASE], [], "tightened"),
        ([BASE], [BASE, "b"], "loosened"),
        ([BASE], [{**BASE, "forbidden": ["x", "y"]}], "tightened"),
        ([BASE], [{**BASE, "forbidden": []}], "loosened"),
        ([BASE], [{**BASE, "hosts": ["a.com", "b.com"]}], "loosened"),
        ([BASE], [{**BASE, "hosts_once_read": ["read"]}], "loosened"),
        ([{**BASE, "hosts_once_read": ["read"]}], [{**BASE, "hosts_once_read": ["read", "look"]}], "tightened"),
        ([BASE], [{**BASE, "length_max": 4}], "tightened"),
        ([BASE], [{**BASE, "required": ["z"]}], "tightened"),
        ([BASE], [{**BASE, "note": "why"}], "changed"),
    ],
)
def test_a_step_from_one_to_another_is_judged(before, after, verdict):
    assert {change.verdict for change in diff(surface(*before), surface(*after))} == {verdict}


def test_a_list_that_appears_is_tighter_and_an_approver_is_looser():
    none = BoundSpec.from_dict({"bounds": {"iteration_limit": 1}})
    some = BoundSpec.from_dict({"bounds": {"iteration_limit": 1, "action_surface": {"outputs": [BASE]}}})
    assert [change.verdict for change in diff(none, some)] == ["tightened"]
    for before, after, verdict in (("refuse", "approval", "loosened"), ("approval", "retry", "tightened")):
        changes = diff(surface(BASE, on_refused_output=before), surface(BASE, on_refused_output=after))
        assert [change.verdict for change in changes] == [verdict]


def test_a_child_has_the_forms_of_both_with_the_rules_of_both():
    above = surface(BASE, "b", on_refused_output="refuse").limits()
    own = surface({**BASE, "forbidden": ["y"]}, "c", on_refused_output="approval").limits()
    joined = within(own, above)
    assert joined.outputs == {"a"}
    assert {value for _, rule, value in joined.output_rules if rule == "forbidden"} == {("x",), ("y",)}
    assert joined.on_refused_output == "refuse"
    assert within(Limits(), above).outputs == {"a", "b"}
    assert within(own, Limits()).on_refused_output == "approval"


def test_hosts_that_always_hold_above_hold_in_a_child_that_says_otherwise():
    above, own = surface(BASE).limits(), surface({**BASE, "hosts_once_read": ["read"]}).limits()
    rules = [rule for _, rule, _ in within(own, above).output_rules]
    assert {"hosts", "hosts_once_read"} <= set(rules)


@pytest.mark.parametrize(
    ("policy", "facts", "kind", "reasons"),
    [
        ("refuse", {}, "allow", []),
        ("refuse", {"answer_refused": ("a",)}, "refuse", ["output_refused"]),
        ("retry", {"answer_refused": ("a",)}, "refuse", ["output_refused"]),
        ("approval", {"answer_refused": ("a",)}, "refuse", ["approver_failed", "output_refused"]),
        ("approval", {"answer_refused": ("a",), "approver": True}, "ask", []),
        ("approval", {"answer_refused": ("a",), "approval": "granted"}, "allow", []),
        ("approval", {"answer_refused": ("a",), "approval": "rejected"}, "refuse",
         ["approval_rejected", "output_refused"]),
        ("refuse", {"answer_refused": ("a",), "approval": "granted"}, "refuse", ["output_refused"]),
    ],
)  # fmt: skip
def test_the_core_decides_about_an_answer(policy, facts, kind, reasons):
    verdict = decide(Request(kind="answer", id="1"), Facts(**facts), Limits(on_refused_output=policy))
    assert verdict.kind == kind
    assert [breach.stop_reason for breach in verdict.breaches] == reasons


def test_a_policy_that_is_none_is_an_error():
    with pytest.raises(SpecError, match="on_refused_output"):
        Limits(on_refused_output="maybe")

"""``explain``: what bounds each axis, and, in capitals, what nothing bounds."""

import json
from dataclasses import asdict

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.spec import BoundSpec
from bound_middleware.spec.explain import explain, render
from bound_middleware.spec.keys import AXES
from bound_middleware.spec.mechanisms import ENTRANCES, MECHANISMS
from bound_middleware.spec.section import walk
from bound_middleware.spec.tree import Bounds


def rows_of(spec, axis, **options):
    return [row for row in explain(spec, **options) if row.axis == axis]


def test_an_axis_that_is_absent_says_so_in_capitals():
    rows = explain(BoundSpec())
    assert [row.axis for row in rows] == list(AXES)
    assert {row.mechanism for row in rows} == {"NOT BOUND"}
    assert render(rows).count("NOT BOUND") == len(AXES)


def test_each_bound_says_its_value_its_mechanism_and_when_it_is_checked():
    row = rows_of(BoundSpec(iterations=1000), "iterations")[0]
    assert (row.key, row.value, row.unit, row.scope) == (
        "bounds.iteration_limit.max",
        "1,000",
        "model calls",
        "run",
    )
    assert (row.checked, row.overshoot) == ("before each step", "none")


def test_sentences_are_listed_as_not_enforced(coding_assistant):
    rows = [row for row in explain(BoundSpec.load(coding_assistant)) if row.mechanism == "NOT ENFORCED"]
    assert {row.value for row in rows} >= {"any network egress", "any push to remote", "per-session sandbox"}
    assert {row.axis for row in rows} == {"action surface", "data scope", "reversibility"}


def test_approval_that_is_only_prose_bounds_nothing(coding_assistant):
    rows = rows_of(BoundSpec.load(coding_assistant), "reversibility")
    assert rows[0].mechanism == "NOT BOUND"
    assert {row.mechanism for row in rows[1:]} == {"NOT ENFORCED"}


def test_the_text_of_every_key_fits_80_columns(every_key, coding_assistant):
    for spec in (BoundSpec.parse(every_key), BoundSpec.load(coding_assistant)):
        for entrance in (None, *ENTRANCES):
            lines = render(explain(spec, entrance=entrance, tools=["a"])).splitlines()
            assert max(map(len, lines)) <= 80
            assert not any(line != line.rstrip() for line in lines)


def test_every_key_that_bounds_an_axis_has_a_mechanism_and_the_other_way_round():
    keys = {
        ".".join(part for part in path if part != "*") for path, field in walk(Bounds) if field.key.axis is not None
    }
    keys = {key.replace("args.*.", "args.") for key in keys} - {"action_surface.allowed.args"}
    assert keys == set(MECHANISMS)


def test_every_key_is_explained(every_key):
    found = {row.key for row in explain(BoundSpec.parse(every_key))}
    keys = """
        bounds.exposure.refund.amount.max bounds.action_surface.allowed.refund.max_calls fleet.tenant
        bounds.action_surface.allowed.refund.args.currency.one_of agents.researcher.token_budget.total
        bounds.data_access_scope.metadata bounds.reversibility_envelope.requires_human_approval
    """
    assert set(keys.split()) <= found


def test_the_overshoot_depends_on_the_entrance():
    spec = BoundSpec(tokens=5)
    assert rows_of(spec, "tokens", entrance="BoundMiddleware")[0].overshoot == (
        "none where the provider keeps the cap, else one chunk"
    )
    assert rows_of(spec, "tokens", entrance="callback")[0].overshoot == "one chunk and hidden reasoning"


def test_an_entrance_that_cannot_enforce_a_key_says_so():
    spec = BoundSpec(approve=["pay"], tools=["pay"])
    assert rows_of(spec, "reversibility", entrance="bound_model")[0].mechanism == "NOT ENFORCED by bound_model"
    assert rows_of(spec, "action surface", entrance="bound_model")[0].mechanism == "NOT ENFORCED by bound_model"
    assert "NOT" not in rows_of(spec, "reversibility", entrance="BoundMiddleware")[0].mechanism


def test_the_forms_of_an_answer_are_not_enforced_where_nobody_holds_it():
    spec = BoundSpec.from_dict({"bounds": {"action_surface": {"outputs": [{"forbidden": ["binding"]}]}}})
    for entrance, enforced in (("bound_model", False), ("callback", False), ("BoundMiddleware", True)):
        mechanisms = {row.mechanism for row in rows_of(spec, "action surface", entrance=entrance)}
        assert (f"NOT ENFORCED by {entrance}" in mechanisms) is not enforced


def test_an_unknown_entrance_is_an_error_with_the_nearest():
    with pytest.raises(SpecError) as caught:
        explain(BoundSpec(), entrance="bound_modle")
    assert caught.value.nearest == "bound_model"


def test_a_name_that_no_tool_has_is_listed(coding_assistant):
    rows = explain(BoundSpec.load(coding_assistant), tools=["read_file", "write_file", "run_tests"])
    assert [row.value for row in rows if "no tool" in row.value] == ["no tool is called 'search_repo'"]


def test_what_differs_for_an_agent_names_the_agent():
    spec = BoundSpec.parse("{bounds: {iteration_limit: 9}, agents: {scout: {iteration_limit: 3}}}")
    assert [(row.value, row.scope) for row in rows_of(spec, "iterations")] == [
        ("9", "run"),
        ("3", "agent scout, run"),
    ]


def test_rows_are_json():
    rows = [asdict(row) for row in explain(BoundSpec(usd="0.5"))]
    assert json.loads(json.dumps(rows)) == rows


def test_a_specification_that_bounds_something_says_so():
    for text in ("{agents: {a: {iteration_limit: 1}}}", "{fleet: {all: {cost_budget: {total_usd: 1, per: day}}}}",
                 "{bounds: {action_surface: {forbidden: [a]}}}",
                 "{bounds: {data_access_scope: {roots: []}}}"):  # fmt: skip
        assert BoundSpec.parse(text).bounds_anything, text
    for text in ("{agent: a}", "{bounds: {action_surface: {forbidden: [any network egress]}}}",
                 "{bounds: {iteration_limit: {unit: action}}}", "{bounds: {stop: {strict_usage: true}}}",
                 "{bounds: {reversibility_envelope: {unknown_tools: reversible}}}"):  # fmt: skip
        assert not BoundSpec.parse(text).bounds_anything, text

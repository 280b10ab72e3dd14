"""``lint``: what is allowed and probably not meant."""

import datetime

import pytest

from bound_middleware.spec import BoundSpec
from bound_middleware.spec.lint import lint


def codes(text, **options):
    return {(item.code, item.severity, item.key) for item in lint(BoundSpec.parse(text), **options)}


FOUND = [
    # text, code, severity, key
    ("{agent: a}", "no-bound", "error", "bounds"),
    ("{bounds: {iteration_limit: 3}}", "one-axis", "warning", "bounds"),
    ("{bounds: {iteration_limit: 3, stop: {raise_max: {iterations: 3}}}}", "raise-never", "warning",
     "bounds.stop.raise_max"),
    ("{bounds: {iteration_limit: 3, stop: {raise_max: {usd: 3}}}}", "raise-never", "warning",
     "bounds.stop.raise_max"),
    ("{bounds: {iteration_limit: 3, stop: {warn_model: true}}}", "warning-never", "warning",
     "bounds.stop.warn_model"),
    ("{bounds: {cost_budget: {total_usd: 1, tool_prices_usd: {a: 2}}}}", "tool-never-affordable", "warning",
     "bounds.cost_budget.tool_prices_usd.a"),
    ("{bounds: {action_surface: {allowed: [{tool: a, args: {p: {kind: path}}}]}}}", "path-without-roots", "error",
     "bounds.action_surface.allowed.a.args.p"),
    ("{bounds: {action_surface: {forbidden: [any network egress]}}}", "prose-not-enforced", "error",
     "bounds.action_surface.forbidden.0"),
    ("{bounds: {action_surface: {allowed: [a], forbidden: [any network egress]}}}", "prose-not-enforced", "warning",
     "bounds.action_surface.forbidden.0"),
    ("{bounds: {action_surface: {allowed: [all reads]}}}", "prose-allows-nothing", "warning",
     "bounds.action_surface.allowed.0"),
    ("{bounds: {action_surface: {allowed: [a], forbidden: [a]}}}", "allowed-and-forbidden", "error",
     "bounds.action_surface.forbidden"),
    ("{bounds: {action_surface: {allowed: [a]}, reversibility_envelope: {requires_human_approval: [b]}}}",
     "approval-not-allowed", "warning", "bounds.reversibility_envelope.requires_human_approval"),
    ("{bounds: {action_surface: {forbidden: [b]}, reversibility_envelope: {requires_human_approval: [b]}}}",
     "forbidden-needs-no-approval", "warning", "bounds.reversibility_envelope.requires_human_approval"),
    ("{bounds: {reversibility_envelope: {reversible_by_default: [b], requires_human_approval: [b]}}}",
     "approval-and-reversible", "error", "bounds.reversibility_envelope.reversible_by_default"),
    ("{bounds: {action_surface: {allowed: [a]}, cost_budget: {tool_prices_usd: {b: 1}}}}", "limit-of-refused-tool",
     "warning", "bounds.cost_budget.tool_prices_usd.b"),
    ("{bounds: {action_surface: {allowed: [a]}, exposure: [{tool: b, sum_of: n, max: 1}]}}",
     "limit-of-refused-tool",
     "warning", "bounds.exposure"),
    ("{bounds: {action_surface: {allowed: [a]}, reversibility_envelope: {unknown_tools: refuse}}}",
     "unknown-tools-never", "note", "bounds.reversibility_envelope.unknown_tools"),
    ("{bounds: {cost_budget: {per_tool_call_usd_max: 0.25}}}", "cap-never-binds", "warning",
     "bounds.cost_budget.per_tool_call_usd_max"),
    ("{bounds: {cost_budget: {per_tool_call_usd_max: 0.25, tool_prices_usd: {a: 0.1}}}}", "cap-never-binds",
     "warning",
     "bounds.cost_budget.per_tool_call_usd_max"),
    ("{bounds: {cost_budget: {per_tool_call_usd_max: 0.25, tool_prices_usd: {a: 0.5}}}}", "tool-never-affordable",
     "warning", "bounds.cost_budget.tool_prices_usd.a"),
    ("{bounds: {cost_budget: {total_usd: 1}}}", "unpriced-tools-are-free", "note",
     "bounds.cost_budget.on_unpriced_tool"),
    ("{bounds: {token_budget: {total: 5, output_per_call_max: 6}}}", "limit-never-binds", "warning",
     "bounds.token_budget.output_per_call_max"),
    ("{bounds: {cost_budget: {total_usd: 5, per_model_call_usd_max: 6}}}", "limit-never-binds", "warning",
     "bounds.cost_budget.per_model_call_usd_max"),
    ("{bounds: {time_budget: {wall_clock_seconds: 5, per_tool_call_seconds_max: 6}}}", "limit-never-binds",
     "warning",
     "bounds.time_budget.per_tool_call_seconds_max"),
    ("{bounds: {iteration_limit: {max: 2, unit: tool_call}, action_surface: {allowed: [{tool: a, max_calls: 3}]}}}",
     "limit-never-binds", "warning", "bounds.action_surface.allowed.a.max_calls"),
    ("{bounds: {iteration_limit: {unit: action}}}", "no-number", "warning", "bounds.iteration_limit"),
    ("{bounds: {iteration_limit: 0}}", "zero-blocks", "warning", "bounds.iteration_limit"),
    ("{bounds: {cost_budget: {total_usd: 0}}}", "zero-blocks", "warning", "bounds.cost_budget.total_usd"),
    ("{bounds: {action_surface: {models: []}}}", "zero-blocks", "warning", "bounds.action_surface.models"),
    ("{bounds: {action_surface: {allowed: []}}}", "zero-blocks", "note", "bounds.action_surface.allowed"),
    ("{bounds: {iteration_limit: 3}, agents: {a: {iteration_limit: 4}}}", "limit-never-binds", "warning",
     "agents.a.iteration_limit"),
    ("{bounds: {iteration_limit: 3}, agents: {a: {iteration_limit: 0}}}", "zero-blocks", "warning",
     "agents.a.iteration_limit"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "severity", "key"), FOUND)
def test_what_is_probably_not_meant_is_found(text, code, severity, key):
    assert (code, severity, key) in codes(text)


SOUND = """\
bounds:
  iteration_limit: 30
  token_budget: {total: 200000, output_per_call_max: 4096}
  cost_budget: {total_usd: 2, tool_prices_usd: {search: 0.005}, on_unpriced_tool: refuse, per_tool_call_usd_max: 1}
  time_budget: {wall_clock_seconds: 180, per_tool_call_seconds_max: 30}
  action_surface: {allowed: [search, send], forbidden: [shell]}
  reversibility_envelope: {requires_human_approval: [send]}
  data_access_scope: {roots: [src]}
"""


def test_a_sound_specification_has_nothing_to_find():
    assert lint(BoundSpec.parse(SOUND), today=datetime.date(2027, 1, 1), tools=["search", "send", "shell"]) == ()


@pytest.mark.parametrize(("today", "due"), [("2027-06-30", False), ("2027-07-01", True), (None, False)])
def test_bounds_that_nobody_looked_at_again_are_found_from_the_day_after(today, due):
    day = datetime.date.fromisoformat(today) if today else None
    found = lint(BoundSpec.parse(f"review_by: 2027-06-30\n{SOUND}"), today=day)
    assert [item.code for item in found] == (["review-due"] if due else [])


def test_tools_that_do_not_fit_are_errors():
    found = lint(
        BoundSpec.parse("bounds: {action_surface: {forbidden: [shel, any network egress]}}"), tools=["shell"]
    )
    assert [(f.code, f.severity, f.key) for f in found if f.code == "does-not-fit-tools"] == [
        ("does-not-fit-tools", "error", "bounds.action_surface.forbidden.0"),
        ("does-not-fit-tools", "error", "bounds.action_surface.forbidden.1"),
    ]


def test_findings_have_lines_and_errors_come_first(coding_assistant):
    found = lint(BoundSpec.load(coding_assistant))
    assert [f.line for f in found if f.code == "prose-not-enforced"][:3] == [17, 18, 19]
    assert "error" not in {f.severity for f in found}
    order = [("error", "warning", "note").index(f.severity) for f in found]
    assert order == sorted(order)


def test_a_fault_of_the_file_is_not_told_again_for_each_agent():
    found = codes("{bounds: {iteration_limit: 0}, agents: {a: {token_budget: {total: 5}}, b: {}}}")
    assert {key for code, _, key in found if code == "zero-blocks"} == {"bounds.iteration_limit"}


def test_what_is_wider_than_the_base_is_noted_with_its_reason(write):
    write("fleet.yml", "bounds: {iteration_limit: 3}")
    mark = "loosen: [{key: bounds.iteration_limit.max, reason: long tasks}]"
    text = f"extends: fleet.yml\nbounds: {{iteration_limit: 5}}\n{mark}"
    found = [f for f in lint(BoundSpec.load(write("a.yml", text))) if f.code == "loosened"]
    assert [(f.severity, f.key) for f in found] == [("note", "bounds.iteration_limit.max")]
    assert "long tasks" in found[0].message

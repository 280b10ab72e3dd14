"""``diff``: what a change loosens and what it tightens."""

import pytest

from bound_middleware.spec import BoundSpec
from bound_middleware.spec.diff import Change, diff


def verdicts(before, after):
    return {change.key: change.verdict for change in diff(BoundSpec.parse(before), BoundSpec.parse(after))}


def in_bounds(text):
    return f"{{bounds: {{{text}}}}}"


#: below bounds: tighter side, looser side, key
ORDERED = [
    ("iteration_limit: 3", "iteration_limit: 4", "iteration_limit.max"),
    ("iteration_limit: 3", "", "iteration_limit.max"),
    ("iteration_limit: 0", "", "iteration_limit.max"),
    ("token_budget: {output_total: 3}", "token_budget: {}", "token_budget.output_total"),
    ("cost_budget: {total_usd: 0.1}", "cost_budget: {total_usd: 0.11}", "cost_budget.total_usd"),
    ("cost_budget: {on_unpriced_tool: refuse}", "cost_budget: {on_unpriced_tool: 5}",
     "cost_budget.on_unpriced_tool"),
    ("cost_budget: {on_unpriced_tool: 5}", "", "cost_budget.on_unpriced_tool"),
    ("", "cost_budget: {on_unknown_price: {input_usd_per_mtok: 1, output_usd_per_mtok: 1}}",
     "cost_budget.on_unknown_price"),
    ("", "cost_budget: {trusted_zero_models: [m]}", "cost_budget.trusted_zero_models"),
    ("cost_budget: {tool_prices_usd: {a: 2}}", "cost_budget: {tool_prices_usd: {a: 1}}",
     "cost_budget.tool_prices_usd.a"),
    ("exposure: [{tool: a, sum_of: n, max: 5}]", "exposure: [{tool: a, sum_of: n, max: 6}]", "exposure.a.n"),
    ("exposure: [{tool: a, sum_of: n, max: 5}]", "", "exposure.a.n"),
    ("time_budget: {idle_seconds_max: 0.5}", "time_budget: {idle_seconds_max: 1}", "time_budget.idle_seconds_max"),
    ("action_surface: {allowed: [a]}", "action_surface: {allowed: [a, b]}", "action_surface.allowed"),
    ("action_surface: {allowed: []}", "", "action_surface.allowed"),
    ("action_surface: {forbidden: [a]}", "", "action_surface.forbidden"),
    ("action_surface: {forbidden: [no writing at all]}", "", "action_surface.forbidden"),
    ("action_surface: {models: [m]}", "action_surface: {models: [m, n]}", "action_surface.models"),
    ("action_surface: {outputs: [answer]}", "", "action_surface.outputs"),
    ("action_surface: {concurrent_tools_max: 1}", "", "action_surface.concurrent_tools_max"),
    (
        "action_surface: {allowed: [{tool: a, max_calls: 1}]}", "action_surface: {allowed: [a]}",
        "action_surface.allowed.a.max_calls",
    ),
    (
        "action_surface: {allowed: [{tool: a, args: {p: {one_of: [x]}}}]}",
        "action_surface: {allowed: [{tool: a, args: {p: {one_of: [x, y]}}}]}",
        "action_surface.allowed.a.args.p.one_of",
    ),
    (
        "action_surface: {allowed: [{tool: a, args: {p: {min: 2}}}]}",
        "action_surface: {allowed: [{tool: a, args: {p: {min: 1}}}]}", "action_surface.allowed.a.args.p.min",
    ),
    (
        "action_surface: {allowed: [{tool: a, args: {p: path}}]}", "action_surface: {allowed: [a]}",
        "action_surface.allowed.a.args.p.kind",
    ),
    ("data_access_scope: {roots: [a/b]}", "data_access_scope: {roots: [a]}", "data_access_scope.roots"),
    ("data_access_scope: {roots: [a/../b]}", "data_access_scope: {roots: [., c]}", "data_access_scope.roots"),
    ("data_access_scope: {roots: []}", "", "data_access_scope.roots"),
    ("data_access_scope: {tenant: t}", "", "data_access_scope.tenant"),
    ("data_access_scope: {store_namespaces: [a/b]}", "data_access_scope: {store_namespaces: [a]}",
     "data_access_scope.store_namespaces"),
    ("data_access_scope: {metadata: {k: [1]}}", "data_access_scope: {metadata: {k: [1, 2]}}",
     "data_access_scope.metadata"),
    ("data_access_scope: {redact: [a, b]}", "data_access_scope: {redact: [a]}", "data_access_scope.redact"),
    ("", "data_access_scope: {cross_scope: [{to: x, reason: y}]}", "data_access_scope.cross_scope"),
    ("data_access_scope: {no_external_index_read: true}", "", "data_access_scope.no_external_index_read"),
    ("reversibility_envelope: {}", "", "reversibility_envelope.unknown_tools"),
    ("reversibility_envelope: {unknown_tools: refuse}", "reversibility_envelope: {}",
     "reversibility_envelope.unknown_tools"),
    (
        "reversibility_envelope: {approval_ttl_seconds: 5}", "reversibility_envelope: {approval_ttl_seconds: 6}",
        "reversibility_envelope.approval_ttl_seconds",
    ),
    (
        "reversibility_envelope: {}", "reversibility_envelope: {reversible_by_default: [a]}",
        "reversibility_envelope.reversible_by_default",
    ),
    ("stop: {strict_usage: true}", "", "stop.strict_usage"),
    ("stop: {truncated_retries: 0}", "", "stop.truncated_retries"),
    ("stop: {no_progress: {cycle_window: 6}}", "stop: {no_progress: {cycle_window: 5}}",
     "stop.no_progress.cycle_window"),
    ("stop: {no_progress: {exempt_tools: [a]}}", "stop: {no_progress: {exempt_tools: [a, b]}}",
     "stop.no_progress.exempt_tools"),
]  # fmt: skip


@pytest.mark.parametrize(("tight", "loose", "key"), ORDERED, ids=[f"{row[2]}: {row[0]}" for row in ORDERED])
def test_each_key_knows_its_tighter_side(tight, loose, key):
    assert verdicts(in_bounds(loose), in_bounds(tight)) == {f"bounds.{key}": "tightened"}
    assert verdicts(in_bounds(tight), in_bounds(loose)) == {f"bounds.{key}": "loosened"}


@pytest.mark.parametrize(
    ("one", "other", "key"),
    [
        ("iteration_limit: {max: 3, unit: action}", "iteration_limit: 3", "iteration_limit.unit"),
        ("action_surface: {allowed: [a]}", "action_surface: {allowed: [b]}", "action_surface.allowed"),
        ("data_access_scope: {tenant: t}", "data_access_scope: {tenant: u}", "data_access_scope.tenant"),
        ("data_access_scope: {roots: [a]}", "data_access_scope: {roots: [ab]}", "data_access_scope.roots"),
        (
            "action_surface: {allowed: [{tool: a, args: {p: {pattern: x}}}]}",
            "action_surface: {allowed: [{tool: a, args: {p: {pattern: y}}}]}",
            "action_surface.allowed.a.args.p.pattern",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_counts_as_loosened_both_ways(one, other, key):
    assert verdicts(in_bounds(one), in_bounds(other)) == {f"bounds.{key}": "loosened"}
    assert verdicts(in_bounds(other), in_bounds(one)) == {f"bounds.{key}": "loosened"}


@pytest.mark.parametrize(
    ("one", "other", "key"),
    [
        ("{agent: a}", "{agent: b}", "agent"),
        ("{review_by: 2027-01-01}", "{}", "review_by"),
        ("{bounds: {warn_at_share: 0.5}}", "{}", "bounds.warn_at_share"),
        ("{bounds: {stop: {closing_call: true}}}", "{}", "bounds.stop.closing_call"),
        ("{decision: {retry_margin: 0.5}}", "{}", "decision.retry_margin"),
        ("{settings: {a: 1}}", "{}", "settings"),
        ("{bounds: {action_surface: {allowed: [a (x)]}}}", "{bounds: {action_surface: {allowed: [a]}}}",
         "bounds.action_surface.allowed"),
        ("{bounds: {data_access_scope: {default_scope: one session}}}", "{}",
         "bounds.data_access_scope.default_scope"),
    ],
)  # fmt: skip
def test_what_bounds_nothing_is_only_changed(one, other, key):
    assert verdicts(one, other) == verdicts(other, one) == {key: "changed"}


def test_a_tool_is_judged_by_what_becomes_of_it_not_list_by_list():
    gated = in_bounds("reversibility_envelope: {requires_human_approval: [a], unknown_tools: reversible}")
    banned = in_bounds("action_surface: {forbidden: [a]}")
    assert "loosened" not in verdicts(gated, banned).values()
    assert "loosened" in verdicts(banned, gated).values()


def test_a_limit_of_a_tool_may_go_when_the_tool_goes():
    limited = in_bounds(
        "exposure: [{tool: a, sum_of: n, max: 5}], action_surface: {allowed: [b, {tool: a, max_calls: 2}]}"
    )
    assert verdicts(limited, in_bounds("action_surface: {allowed: [b]}")) == {
        "bounds.action_surface.allowed": "tightened"
    }


def test_an_agent_is_compared_by_what_holds_for_it():
    base = "{bounds: {iteration_limit: 5}, agents: {a: {iteration_limit: 9}}}"
    assert verdicts(base, "{bounds: {iteration_limit: 5}}") == {"agents.a.iteration_limit.max": "tightened"}
    both = verdicts("{bounds: {iteration_limit: 5}}", "{bounds: {iteration_limit: 4}, agents: {a: {}}}")
    assert both == {"bounds.iteration_limit.max": "tightened"}


def test_sub_agent_keys_and_fleet_windows_are_compared():
    assert verdicts("{agents: {a: {depth_max: 2}}}", "{agents: {a: {depth_max: 3}}}") == {
        "agents.a.depth_max": "loosened"
    }
    assert verdicts("{agents: {a: {child_reserve: {tokens: 5}}}}", "{agents: {a: {}}}") == {
        "agents.a.child_reserve": "loosened"
    }
    day, more = (f"{{fleet: {{tenant: {{cost_budget: {{total_usd: {n}, per: day}}}}}}}}" for n in (5, 6))
    key = "fleet.tenant.cost_budget.total_usd.per_day"
    assert verdicts(day, more) == {key: "loosened"}
    assert verdicts(more, day) == {key: "tightened"}
    assert verdicts(day, "{}") == {key: "loosened"}


@pytest.mark.parametrize(
    ("tight", "loose", "key"),
    [("threshold: 0.7", "threshold: 0.5", "threshold"), ("max_retries: 1", "max_retries: 3", "max_retries"),
     ("rollback_risk_threshold: 0.5", "", "rollback_risk_threshold"), ("risk_weight: 2", "", "risk_weight"),
     ("", "acceptance_weight: 2", "acceptance_weight")],
)  # fmt: skip
def test_decisions_have_a_tighter_side(tight, loose, key):
    assert verdicts(f"{{decision: {{{loose}}}}}", f"{{decision: {{{tight}}}}}") == {f"decision.{key}": "tightened"}
    assert verdicts(f"{{decision: {{{tight}}}}}", f"{{decision: {{{loose}}}}}") == {f"decision.{key}": "loosened"}


def test_gates_may_be_added_but_not_changed_or_dropped():
    one, two = "{constraints: {a: {k: 1}}}", "{constraints: {a: {k: 1}, b: {k: 2}}}"
    assert verdicts(one, two) == {"constraints": "tightened"}
    assert verdicts(two, one) == {"constraints": "loosened"}
    assert verdicts(one, "{constraints: {a: {k: 2}}}") == {"constraints": "loosened"}


def test_a_change_shows_its_values_as_a_person_reads_them():
    before, after = BoundSpec(usd=2, seconds=90), BoundSpec(usd="0.5", tools=["b", "a"])
    assert diff(before, after) == (
        Change(key="bounds.cost_budget.total_usd", verdict="tightened", before="$2", after="$0.5"),
        Change(key="bounds.time_budget.wall_clock_seconds", verdict="loosened", before="90", after="not bounded"),
        Change(key="bounds.action_surface.allowed", verdict="tightened", before="not bounded", after="a, b"),
    )

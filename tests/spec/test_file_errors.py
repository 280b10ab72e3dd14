"""A wrong file is one error: file, line, key path, what is allowed, the nearest valid name."""

import pickle

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.spec import BoundSpec


def error_of(text, name="bound.yml"):
    with pytest.raises(SpecError) as caught:
        BoundSpec.parse(text, file=name)
    assert caught.value.file == name
    assert "\n" not in str(caught.value)
    return caught.value


WRONG = [
    # text, line, key, part of the message, nearest
    ("agnet: x", 1, "agnet", "unknown key", "agent"),
    ("bounds:\n  iteration_limt: 3", 2, "bounds.iteration_limt", "unknown key", "iteration_limit"),
    ("bounds:\n  iteration_limit: -1", 2, "bounds.iteration_limit", "out of range", None),
    ("bounds:\n  iteration_limit:\n    max: 1.5", 3, "bounds.iteration_limit.max", "finer", None),
    ("bounds:\n  iteration_limit: '30'", 2, "bounds.iteration_limit", "not a number", None),
    ("bounds:\n  iteration_limit: yes", 2, "bounds.iteration_limit", "not a number", None),
    ("bounds:\n  iteration_limit: true", 2, "bounds.iteration_limit", "not a number", None),
    ("bounds:\n  iteration_limit: .nan", 2, "bounds.iteration_limit", "not finite", None),
    ("bounds:\n  iteration_limit: -.inf", 2, "bounds.iteration_limit", "not finite", None),
    ("bounds:\n  iteration_limit: 010", 2, "bounds.iteration_limit", "'010' is not a number", None),
    ("bounds:\n  iteration_limit: 1:30", 2, "bounds.iteration_limit", "'1:30' is not a number", None),
    ("bounds:\n  iteration_limit: [3]", 2, "bounds.iteration_limit", "not a number", None),
    ("bounds:\n  iteration_limit: {max: 3, unit: turn}", 2, "bounds.iteration_limit.unit", "'turn'", None),
    ("bounds:\n  iteration_limit: {max: 3, unit: superstp}", 2, "bounds.iteration_limit.unit", "one of",
     "superstep"),
    ("bounds: 5", 1, "bounds", "not a mapping", None),
    ("bounds:\n  token_budget: 1000", 2, "bounds.token_budget", "not a mapping", None),
    ("bounds:\n  token_budget: {totl: 3}", 2, "bounds.token_budget.totl", "unknown key", "total"),
    ("bounds:\n  token_budget:\n    total: 9007199254740992", 3, "bounds.token_budget.total", "out of range", None),
    ("bounds:\n  cost_budget:\n    total_usd: -0.01", 3, "bounds.cost_budget.total_usd", "out of range", None),
    ("bounds:\n  cost_budget:\n    total_usd: two", 3, "bounds.cost_budget.total_usd", "amount of money", None),
    ("bounds:\n  cost_budget: {total_usd: 0.0000000001}", 2, "bounds.cost_budget.total_usd", "finer", None),
    (
        "bounds:\n  cost_budget:\n    tool_prices_usd:\n      a: 1\n      b: free",
        5, "bounds.cost_budget.tool_prices_usd.b", "amount of money", None,
    ),
    (
        "bounds:\n  cost_budget:\n    on_unknown_price: reject",
        3, "bounds.cost_budget.on_unknown_price", "one of the choices", None,
    ),
    (
        "bounds:\n  cost_budget:\n    on_unknown_price:\n      input_usd_per_mtok: 3",
        4 - 1, "bounds.cost_budget.on_unknown_price.output_usd_per_mtok", "required", None,
    ),
    (
        "bounds:\n  cost_budget:\n    on_unknown_price: {input_usd_per_mtk: 3}",
        3, "bounds.cost_budget.on_unknown_price.input_usd_per_mtk", "unknown key", "input_usd_per_mtok",
    ),
    ("bounds:\n  cost_budget: {on_unpriced_tool: fre}", 2, "bounds.cost_budget.on_unpriced_tool", "choice", "free"),
    ("bounds:\n  exposure:\n    - {tool: refund, max: 3}", 3, "bounds.exposure.0.sum_of", "required", None),
    ("bounds:\n  exposure:\n    - {tool: r, sum_of: a, max: -3}", 3, "bounds.exposure.0.max", "out of range", None),
    ("bounds:\n  exposure: {tool: r}", 2, "bounds.exposure", "not a list", None),
    (
        "bounds:\n  exposure: [{tool: r, sum_of: a, max: 3}, {tool: r, sum_of: a, max: 4}]",
        2, "bounds.exposure.1", "listed twice", None,
    ),
    ("bounds:\n  time_budget: {wall_clock_seconds: 0.0001}", 2, "bounds.time_budget.wall_clock_seconds", "finer",
     None),
    ("bounds:\n  time_budget: {warn_at_share: 80}", 2, "bounds.time_budget.warn_at_share", "out of range", None),
    ("bounds:\n  action_surface: {allowed: read_file}", 2, "bounds.action_surface.allowed", "not a list", None),
    ("bounds:\n  action_surface:\n    allowed:", 3, "bounds.action_surface.allowed", "all or none", None),
    ("bounds:\n  action_surface:\n    allowed: [a, b*]", 3, "bounds.action_surface.allowed.1", "not a name", None),
    ("bounds:\n  action_surface:\n    allowed: [a, 5]", 3, "bounds.action_surface.allowed.1", "not an entry", None),
    ("bounds:\n  action_surface:\n    allowed: [a, a (again)]", 3, "bounds.action_surface.allowed", "twice", None),
    (
        "bounds:\n  action_surface:\n    allowed:\n      - a\n      - tool: b\n        max_call: 3",
        6, "bounds.action_surface.allowed.1.max_call", "unknown key", "max_calls",
    ),
    (
        "bounds:\n  action_surface:\n    allowed:\n      - {entry: some words, max_calls: 3}",
        4, "bounds.action_surface.allowed.0.max_calls", "needs a tool", None,
    ),
    (
        "bounds:\n  action_surface:\n    allowed:\n      - {tool: a, args: {p: pth}}",
        4, "bounds.action_surface.allowed.0.args.p", "one of the choices", "path",
    ),
    (
        "bounds:\n  action_surface:\n    allowed:\n      - {tool: a, args: {p: {pattern: '['}}}",
        4, "bounds.action_surface.allowed.0.args.p.pattern", "regular expression", None,
    ),
    (
        "bounds:\n  action_surface:\n    forbidden:\n      - {entry: some words, enforced_by: []}",
        4, "bounds.action_surface.forbidden.0.enforced_by", "at least one tool", None,
    ),
    (
        "bounds:\n  action_surface:\n    forbidden:\n      - {tool: a, entry: some words}",
        4, "bounds.action_surface.forbidden.0", "either a tool or a sentence", None,
    ),
    ("bounds:\n  action_surface:\n    forbidden: [{note: a}]", 3, "bounds.action_surface.forbidden.0", "either",
     None),
    ("bounds:\n  action_surface:\n    models: [a, a]", 3, "bounds.action_surface.models", "twice", None),
    (
        "bounds:\n  cost_budget: {tool_prices_usd: {a: 1}}\n  action_surface:\n    allowed:\n"
        "      - {tool: a, price_usd: 2}",
        5, "bounds.action_surface.allowed.0.price_usd", "another price", None,
    ),
    ("bounds:\n  data_access_scope: {roots: }", 2, "bounds.data_access_scope.roots", "all or none", None),
    ("bounds:\n  data_access_scope: {store_namespaces: [a.b]}", 2, "bounds.data_access_scope.store_namespaces",
     "namespace", None),
    ("bounds:\n  data_access_scope: {redact: ['(']}", 2, "bounds.data_access_scope.redact", "regular expression",
     None),
    ("bounds:\n  data_access_scope: {cross_scope: [{to: x}]}", 2, "bounds.data_access_scope.cross_scope.0.reason",
     "required", None),
    ("bounds:\n  data_access_scope: {no_external_index_read: 1}", 2,
     "bounds.data_access_scope.no_external_index_read", "true or false", None),
    ("bounds:\n  reversibility_envelope: {unknown_tools: ask}", 2, "bounds.reversibility_envelope.unknown_tools",
     "choices", None),
    (
        "bounds:\n  reversibility_envelope:\n    requires_human_approval:",
        3, "bounds.reversibility_envelope.requires_human_approval", "all or none", None,
    ),
    ("bounds:\n  stop: {closing_call: maybe}", 2, "bounds.stop.closing_call", "true or false", None),
    ("bounds:\n  stop: {no_progress: {identical_calls: 3}}", 2, "bounds.stop.no_progress.identical_calls",
     "unknown", "identical_calls_max"),
    ("agents:\n  scout:\n    iteration_limt: 3", 3, "agents.scout.iteration_limt", "unknown key",
     "iteration_limit"),
    ("agents:\n  scout: {child_reserve: 0.2}", 2, "agents.scout.child_reserve", "not a reserve", None),
    ("agents:\n  scout: {child_reserve: {token: 2}}", 2, "agents.scout.child_reserve.token", "unknown key",
     "tokens"),
    ("fleet:\n  tennant: {}", 2, "fleet.tennant", "unknown key", "tenant"),
    ("fleet:\n  tenant:\n    cost_budget: {total_usd: 5}", 3, "fleet.tenant.cost_budget.per", "required", None),
    ("fleet:\n  tenant:\n    cost_budget: {total_usd: 5, per: dya}", 3, "fleet.tenant.cost_budget.per", "choices",
     "day"),
    (
        "fleet:\n  tenant:\n    cost_budget:\n      - {total_usd: 5, per: day}\n      - {total_usd: 6, per: day}",
        5, "fleet.tenant.cost_budget.1.per", "two windows", None,
    ),
    ("decision:\n  threshold: -1", 2, "decision.threshold", "out of range", None),
    ("decision:\n  threshold: .inf", 2, "decision.threshold", "not finite", None),
    ("decision:\n  rollback_risk_threshold: 1.5", 2, "decision.rollback_risk_threshold", "out of range", None),
    ("decision:\n  max_retries: 1.5", 2, "decision.max_retries", "finer", None),
    ("decision:\n  treshold: 1", 2, "decision.treshold", "unknown key", "threshold"),
    ("constraints: [a]", 1, "constraints", "not a mapping", None),
    ("constraints:\n  a:\n    threshold: {value: .nan}", 3, "constraints.a.threshold.value", "not finite", None),
    ("version: 2", 1, "version", "not a version", None),
    ("version: true", 1, "version", "not a version", None),
    ("review_by: soon", 1, "review_by", "not a date", None),
    ("review_by: 2027-02-30", 1, "review_by", "not a date", None),
    ("extends: other.yml", 1, "extends", "relative to a file", None),
    ("bounds: {}\nloosen:\n  - {key: bounds, reason: x}", 2, "loosen", "no file", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "nearest"), WRONG, ids=[w[2] + ": " + w[3] for w in WRONG]
)
def test_a_wrong_value_is_found_with_its_line_and_its_key(text, line, key, message, nearest):
    error = error_of(text)
    assert (error.line, error.key, error.nearest) == (line, key, nearest), str(error)
    assert message in str(error)


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "nearest"), WRONG, ids=[w[2] + ": " + w[3] for w in WRONG]
)
def test_every_error_pickles(text, line, key, message, nearest):
    error = error_of(text)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


MISPLACED = [
    ("iteration_limit: 3", "iteration_limit", "bounds"),
    ("bounds:\n  wall_clock_seconds: 3", "bounds.wall_clock_seconds", "bounds.time_budget"),
    ("bounds:\n  token_budget: {total_usd: 3}", "bounds.token_budget.total_usd", "bounds.cost_budget"),
    ("bounds:\n  action_surface: {requires_human_approval: [a]}", "bounds.action_surface.requires_human_approval",
     "bounds.reversibility_envelope"),
    ("bounds:\n  decision: {}", "bounds.decision", "the top of the file"),
    ("bounds:\n  cost_budget: {total_usd: 5, per: day}", "bounds.cost_budget.per", "fleet.tenant.cost_budget"),
    ("bounds:\n  child_reserve: 0", "bounds.child_reserve", "agents"),
    ("bounds:\n  max_calls: 3", "bounds.max_calls", "bounds.action_surface.allowed"),
    ("agents:\n  a: {closing_call: true}", "agents.a.closing_call", "agents.*.stop"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key", "home"), MISPLACED)
def test_a_misplaced_key_is_told_where_it_belongs(text, key, home):
    error = error_of(text)
    assert error.key == key
    assert "misplaced" in error.message
    assert home in error.message


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("max_iterations: 3", "bounds.iteration_limit"), ("bounds: {max_cost: 3}", "cost_budget"),
     ("bounds: {recursion_limit: 25}", "iteration_limit"), ("bounds: {action_surface: {allowed_tools: [a]}}",
      "allowed")],
)  # fmt: skip
def test_the_words_of_other_libraries_are_understood(text, nearest):
    assert error_of(text).nearest == nearest


def test_of_several_faults_the_first_in_the_file_is_told():
    text = (
        "decision: {threshold: 1}\nbounds:\n  time_budget: {wall_clock_seconds: x}\n  iteration_limit: -1\nagnet: 3"
    )
    assert error_of(text).line == 3


def test_an_error_of_a_dict_has_a_key_and_no_line():
    with pytest.raises(SpecError) as caught:
        BoundSpec.from_dict({"bounds": {"iteration_limit": -1}})
    assert (caught.value.key, caught.value.line, caught.value.file) == ("bounds.iteration_limit", None, None)


@pytest.mark.parametrize("nonsense", [True, False, -1, float("nan"), float("inf"), "10", 1.5, [1], {"max": "3"}])
def test_a_dict_is_judged_like_a_file(nonsense):
    with pytest.raises(SpecError):
        BoundSpec.from_dict({"bounds": {"iteration_limit": nonsense}})


@pytest.mark.parametrize("data", [None, [], "bounds", 5])
def test_what_is_no_mapping_is_no_specification(data):
    with pytest.raises(SpecError, match="mapping"):
        BoundSpec.from_dict(data)


@pytest.mark.parametrize("pattern", ["[", "(" * 5000 + ")" * 5000, "a{99999999999999999999}", "[[a]", ""])
def test_a_pattern_that_does_not_compile_is_an_error(pattern):
    with pytest.raises(SpecError):
        BoundSpec.from_dict({"bounds": {"data_access_scope": {"redact": [pattern]}}})


def test_a_key_that_is_no_text_is_an_error():
    with pytest.raises(SpecError, match="not a text"):
        BoundSpec.from_dict({"agents": {1: {}}})


def test_a_mapping_inside_itself_is_an_error():
    loop = {}
    loop["constraints"] = loop
    with pytest.raises(SpecError, match="too deep"):
        BoundSpec.from_dict(loop)


def test_a_price_that_only_disagrees_once_an_agent_is_laid_over_is_an_error_of_the_agent():
    data = {
        "bounds": {"cost_budget": {"tool_prices_usd": {"a": 1}}},
        "agents": {"scout": {"action_surface": {"allowed": [{"tool": "a", "price_usd": 2}]}}},
    }
    with pytest.raises(SpecError, match="another price") as caught:
        BoundSpec.from_dict(data)
    assert caught.value.key == "agents.scout"

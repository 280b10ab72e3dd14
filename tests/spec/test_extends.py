"""``extends``: a file may only tighten the one it starts from, or say why not."""

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.spec import BoundSpec

FLEET = """\
agent: fleet
bounds:
  iteration_limit: {max: 50, unit: action}
  token_budget: {total: 1000}
  cost_budget: {total_usd: 5, tool_prices_usd: {pay: 1}}
  action_surface:
    allowed: [read, write, {tool: pay, max_calls: 3}]
    forbidden: [shell, any network egress]
  reversibility_envelope:
    requires_human_approval: [write]
  stop: {consecutive_failures_max: 3}
constraints:
  tests: {kind: command, command: [pytest]}
settings: {max_auto_retries: 2}
"""


@pytest.fixture
def child(write):
    """Loads a child of the fleet's file."""
    write("fleet.yml", FLEET)

    def loaded(text):
        return BoundSpec.load(write("child.yml", f"extends: fleet.yml\n{text}"))

    return loaded


def test_what_is_not_said_is_inherited(child):
    fleet = BoundSpec.parse(FLEET)
    assert child("").canonical() == fleet.canonical()
    assert child("").fingerprint == fleet.fingerprint
    assert child("agent: kid").agent == "kid"


def test_tighter_values_are_taken_key_by_key(child):
    limits = child(
        "bounds:\n  iteration_limit: 20\n  cost_budget: {total_usd: 0.5, per_model_call_usd_max: 0.1}"
    ).limits()
    assert (limits.iterations, limits.iteration_unit) == (20, "action")
    assert (limits.nanousd, limits.per_model_call_nanousd) == (500_000_000, 100_000_000)
    assert limits.tool_prices_nanousd == (("pay", 1_000_000_000),)
    assert limits.tokens == 1_000


TIGHTER = [
    "bounds: {iteration_limit: 50}",
    "bounds: {iteration_limit: 0}",
    "bounds: {token_budget: {total: 1000, input_total: 5}}",
    "bounds: {action_surface: {allowed: [read]}}",
    "bounds: {action_surface: {allowed: [read, {tool: pay, max_calls: 2}]}}",
    "bounds: {action_surface: {allowed: [{tool: write, args: {path: path}}, read]}}",
    "bounds: {action_surface: {forbidden: [shell, any network egress, sudo]}}",
    "bounds: {action_surface: {models: [m]}}",
    "bounds: {reversibility_envelope: {requires_human_approval: [write, pay]}}",
    "bounds: {stop: {consecutive_failures_max: 2, strict_usage: true}}",
    "bounds: {data_access_scope: {roots: [src]}}",
    "constraints: {lint: {kind: command, command: [ruff]}}",
    "fleet: {tenant: {cost_budget: {total_usd: 5, per: day}}}",
    "agents: {scout: {iteration_limit: 3}}",
    "bounds: {action_surface: {forbidden: [shell, any network egress, write]},"
    " reversibility_envelope: {requires_human_approval: []}}",
]


@pytest.mark.parametrize("text", TIGHTER)
def test_a_tighter_bound_needs_no_reason(child, text):
    assert child(text).loosened == ()


LOOSER = [
    # text, key, both values
    ("bounds:\n  iteration_limit: 51", 3, "bounds.iteration_limit.max", ("51", "50")),
    ("bounds:\n  iteration_limit: {max: 20, unit: superstep}", 3, "bounds.iteration_limit.unit",
     ("superstep", "action")),
    ("bounds:\n  iteration_limit: null", 3, "bounds.iteration_limit.max", ("not bounded", "50")),
    ("bounds:\n  token_budget:\n    total: 1001", 4, "bounds.token_budget.total", ("1,001", "1,000")),
    ("bounds:\n  token_budget: {total: null}", 3, "bounds.token_budget.total", ("not bounded", "1,000")),
    ("bounds:\n  cost_budget:\n    total_usd: 5.01", 4, "bounds.cost_budget.total_usd", ("$5.01", "$5")),
    (
        "bounds:\n  cost_budget:\n    tool_prices_usd: {pay: 0.5}",
        4, "bounds.cost_budget.tool_prices_usd.pay", ("$0.5", "$1"),
    ),
    (
        "bounds:\n  action_surface:\n    allowed: [read, delete]",
        4, "bounds.action_surface.allowed", ("delete, read", "pay, read, write"),
    ),
    (
        "bounds:\n  action_surface:\n    allowed: [pay]",
        4, "bounds.action_surface.allowed.pay.max_calls", ("not bounded", "3"),
    ),
    (
        "bounds:\n  action_surface:\n    forbidden: [shell]",
        4, "bounds.action_surface.forbidden", ("shell", "any network egress, shell"),
    ),
    (
        "bounds:\n  reversibility_envelope:\n    requires_human_approval: []",
        4, "bounds.reversibility_envelope.requires_human_approval", ("none", "write"),
    ),
    ("bounds:\n  stop:\n    consecutive_failures_max: 4", 4, "bounds.stop.consecutive_failures_max", ("4", "3")),
    ("agents:\n  scout: {iteration_limit: 60}", 3, "agents.scout.iteration_limit.max", ("60", "50")),
    ("constraints:\n  tests: {kind: command, command: ['true']}", 2, "constraints", ("tests", "tests")),
    ("settings: {max_auto_retries: 20}", 2, "settings", ("max_auto_retries", "max_auto_retries")),
    ("decision: {threshold: 0.1}", 2, "decision.threshold", ("0.1", "0.6")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "key", "values"), LOOSER, ids=[row[2] for row in LOOSER])
def test_a_looser_bound_is_an_error_that_names_both_values(child, text, line, key, values):
    with pytest.raises(SpecError) as caught:
        child(text)
    assert (caught.value.key, caught.value.line) == (key, line)
    assert f"{values[0]} is wider than {values[1]} in fleet.yml" in str(caught.value)
    assert caught.value.file.endswith("child.yml")


@pytest.mark.parametrize(("text", "line", "key", "values"), LOOSER, ids=[row[2] for row in LOOSER])
def test_a_looser_bound_with_a_reason_is_taken(child, text, line, key, values):
    spec = child(f"{text}\nloosen:\n  - {{key: {key}, reason: agreed in review}}")
    assert spec.loosened == ((key, "agreed in review"),)
    assert "loosen" not in spec.canonical()
    assert "extends" not in spec.canonical()
    assert spec != BoundSpec.parse(FLEET)


def test_one_reason_covers_one_key(child):
    with pytest.raises(SpecError) as caught:
        child("bounds: {iteration_limit: 60, token_budget: {total: 2000}}\n"
              "loosen: [{key: bounds.iteration_limit.max, reason: x}]")  # fmt: skip
    assert caught.value.key == "bounds.token_budget.total"


def test_a_reason_for_nothing_is_an_error(child):
    with pytest.raises(SpecError, match="not wider") as caught:
        child("bounds: {iteration_limit: 40}\nloosen:\n  - {key: bounds.iteration_limit.max, reason: x}")
    assert (caught.value.key, caught.value.line) == ("loosen.0.key", 4)


def test_a_reason_is_not_optional(child):
    with pytest.raises(SpecError, match="required"):
        child("loosen:\n  - {key: bounds.iteration_limit.max}")


def test_a_chain_is_followed_and_keeps_its_reasons(write):
    write("a.yml", "bounds: {iteration_limit: 10, token_budget: {total: 9}}")
    write("sub/b.yml", "extends: ../a.yml\nbounds: {iteration_limit: 20}\n"
          "loosen: [{key: bounds.iteration_limit.max, reason: long tasks}]")  # fmt: skip
    spec = BoundSpec.load(write("c.yml", "extends: sub/b.yml\nbounds: {iteration_limit: 15}"))
    assert (spec.limits().iterations, spec.limits().tokens) == (15, 9)
    assert spec.loosened == (("bounds.iteration_limit.max", "long tasks"),)


def test_a_circle_is_an_error(write):
    write("a.yml", "extends: b.yml")
    path = write("b.yml", "extends: a.yml")
    with pytest.raises(SpecError, match=r"a circle of files: b\.yml -> a\.yml -> b\.yml"):
        BoundSpec.load(path)
    with pytest.raises(SpecError, match="circle"):
        BoundSpec.load(write("self.yml", "extends: self.yml"))


def test_a_chain_without_an_end_is_an_error(write):
    for n in range(20):
        path = write(f"{n}.yml", f"extends: {n - 1}.yml" if n else "agent: x")
    with pytest.raises(SpecError, match="more than 10"):
        BoundSpec.load(path)


def test_a_missing_base_is_an_error_at_its_line(write):
    with pytest.raises(SpecError, match="no file") as caught:
        BoundSpec.load(write("a.yml", "agent: x\nextends: none.yml"))
    assert (caught.value.key, caught.value.line) == ("extends", 2)


def test_a_fault_in_the_base_is_told_with_the_name_of_the_base(write):
    write("fleet.yml", "\nbounds: {iteration_limt: 3}")
    with pytest.raises(SpecError) as caught:
        BoundSpec.load(write("child.yml", "extends: fleet.yml"))
    assert caught.value.file.endswith("fleet.yml")
    assert caught.value.line == 2


def test_a_dict_can_extend_a_file_when_it_says_where_from(write):
    folder = write("fleet.yml", FLEET).parent
    spec = BoundSpec.from_dict({"extends": "fleet.yml", "bounds": {"iteration_limit": 5}}, root=folder)
    assert spec.limits().iterations == 5
    with pytest.raises(SpecError, match="relative to a file"):
        BoundSpec.from_dict({"extends": "fleet.yml"})


def test_a_base_without_gates_leaves_the_child_free_to_have_any(write):
    write("fleet.yml", "bounds: {iteration_limit: 3}")
    text = "extends: fleet.yml\nconstraints: {a: {kind: command}}\nsettings: {max_auto_retries: 9}"
    assert BoundSpec.load(write("child.yml", text)).section("settings") == {"max_auto_retries": 9}


def test_a_gate_is_replaced_whole_or_inherited(child):
    spec = child(
        "constraints: {tests: {command: [tox]}}\nloosen: [{key: constraints, reason: tox runs pytest and more}]"
    )
    assert spec.section("constraints") == {"tests": {"command": ["tox"]}}

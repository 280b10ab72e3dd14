"""``bound.yml``: what loads, and what it compiles to."""

import datetime
import json

import pytest
import yaml

from bound_middleware.core.errors import SpecError
from bound_middleware.core.limits import FlatRate
from bound_middleware.spec import BoundSpec


def test_a_specification_with_notes_and_sentences_loads_as_it_is(coding_assistant):
    spec = BoundSpec.load(coding_assistant)
    limits = spec.limits()
    assert spec.agent == "coding-assistant"
    assert spec.path == coding_assistant
    assert (limits.iterations, limits.nanousd, limits.per_tool_call_nanousd) == (30, 2_000_000_000, 250_000_000)
    assert (limits.wall_clock_ms, limits.per_tool_call_ms) == (180_000, 30_000)
    assert limits.tools == {"read_file", "write_file", "run_tests", "search_repo"}
    assert limits.forbidden_tools == limits.approval_tools == frozenset()
    assert limits.no_cross_session_memory_read
    assert limits.no_external_index_read


def test_a_note_is_kept_as_a_note(coding_assistant):
    allowed = BoundSpec.load(coding_assistant).canonical()["bounds"]["action_surface"]["allowed"]
    assert allowed == [
        "read_file",
        "run_tests (sandboxed)",
        "search_repo (read-only)",
        "write_file (sandboxed working dir only)",
    ]


def test_sentences_are_kept_and_known_to_bind_nothing(coding_assistant):
    assert BoundSpec.load(coding_assistant).unenforced_prose() == (
        "any network egress",
        "any process spawn outside sandbox",
        "any write outside working dir",
        "sandbox file writes",
        "test runs",
        "any commit to a real branch",
        "any push to remote",
        "any package install",
        "per-session sandbox",
    )


def test_every_key_of_the_form_loads_and_reaches_the_limits(every_key):
    spec = BoundSpec.parse(every_key)
    limits = spec.limits()
    assert (limits.iterations, limits.iteration_unit) == (30, "action")
    assert (limits.tokens, limits.input_tokens, limits.output_tokens) == (200_000, 150_000, 50_000)
    assert (limits.input_per_call_tokens, limits.output_per_call_tokens) == (60_000, 4_096)
    assert (limits.nanousd, limits.per_model_call_nanousd) == (2_000_000_000, 100_000_000)
    assert limits.on_unknown_price == FlatRate(
        input_nanousd_per_mtok=3_000_000_000, output_nanousd_per_mtok=15_000_000_000
    )
    assert limits.on_unpriced_tool == "refuse"
    assert limits.tool_prices_nanousd == (("refund", 10_000_000), ("web_search", 5_000_000))
    assert limits.trusted_zero_models == {"local-llama"}
    assert (limits.per_model_call_ms, limits.per_tool_call_ms, limits.idle_ms) == (60_000, 500, 20_000)
    assert limits.tools == {"web_search", "refund"}
    assert limits.forbidden_tools == {"shell", "http_get"}
    assert limits.tool_calls_max == (("refund", 3),)
    assert limits.outputs == {"answer"}
    assert limits.models == {"gpt-5", "claude-sonnet-4-5"}
    assert limits.concurrent_tools_max == 4
    assert limits.exposure == (("refund", "amount", 500 * 10**9),)
    assert limits.argument_rules == (
        ("refund", "amount", "least_nano", 0),
        ("refund", "amount", "most_nano", 100_500_000_000),
        ("refund", "currency", "one_of", ("EUR", "USD")),
        ("refund", "path", "kind", "path"),
        ("refund", "text", "pattern", "[a-z]+"),
        ("refund", "text", "length_max", 80),
    )
    assert (limits.roots, limits.tenant, limits.user) == (("workspace",), "session", "ann")
    assert limits.store_namespaces == (("memories", "acme"), ("cache", "acme"))
    assert limits.metadata == (("tenant", ("acme",)), ("level", (1, 2)))
    assert limits.redact == ("sk-[a-z0-9]+",)
    assert limits.cross_scope == (("handbook", "everyone reads it"),)
    assert (limits.approval_tools, limits.reversible_tools) == ({"refund"}, {"web_search"})
    assert (limits.approval_ttl_ms, limits.unknown_tools) == (60_000, "refuse")
    assert (limits.closing_call, limits.truncated_retries, limits.consecutive_failures_max) == (True, 2, 3)
    assert (limits.identical_calls_max, limits.same_result_max, limits.cycle_window) == (4, 5, 6)
    assert limits.unwatched_tools == {"web_search"}
    assert (limits.attempts_per_call_max, limits.tool_output_chars_max) == (3, 4_000)
    assert (limits.admission_wait_ms, limits.strict_usage) == (0, True)
    assert limits.warn_at_permille == 800
    assert limits.warn_at_permille_by_axis == (("iterations", 500), ("tokens", 900), ("cost", 750), ("time", 1000))
    assert spec.tree.review_by == datetime.date(2027, 6, 30)


def test_the_limits_of_every_key_survive_the_trace(every_key):
    from bound_middleware.core.events import limits_as_dict, limits_from

    limits = BoundSpec.parse(every_key).limits("researcher")
    assert limits_from(json.loads(json.dumps(limits_as_dict(limits)))) == limits


def test_an_agent_has_the_bounds_of_the_file_with_its_own_laid_over(every_key):
    limits = BoundSpec.parse(every_key).limits("researcher")
    assert (limits.iterations, limits.iteration_unit) == (5, "action")
    assert (limits.tokens, limits.output_per_call_tokens) == (1_000, 4_096)
    assert limits.tools == {"web_search", "refund"}
    assert dict(limits.child_reserve) == {
        "iterations": 1,
        "tokens": 100,
        "nanousd": 50_000_000,
        "wall_clock_ms": 2_000,
    }
    assert (limits.depth_max, limits.spawns_max, limits.concurrent_agents_max, limits.handoffs_max) == (2, 3, 4, 5)


def test_an_agent_that_the_file_does_not_name_has_the_bounds_of_the_file(every_key):
    spec = BoundSpec.parse(every_key)
    assert spec.limits("nobody") == spec.limits()
    assert spec.agents == ("researcher",)


def test_a_value_set_for_an_agent_holds_even_where_it_is_the_default():
    spec = BoundSpec.from_dict(
        {
            "bounds": {"iteration_limit": {"max": 9, "unit": "superstep"}, "stop": {"truncated_retries": 3}},
            "agents": {
                "a": {"stop": {"truncated_retries": 1}},
                "b": {"iteration_limit": {"unit": "model_call"}},
                "c": {"iteration_limit": None},
            },
        }
    )
    again = BoundSpec.from_dict(spec.canonical())
    for each in (spec, again):
        assert each.limits("a").truncated_retries == 1
        assert (each.limits("b").iterations, each.limits("b").iteration_unit) == (9, "model_call")
        assert each.limits("c").iterations is None


def test_windows_of_the_fleet_are_ceilings_by_scope_and_period(every_key):
    windows = {(w.scope, w.meter, w.per): w.ceiling for w in BoundSpec.parse(every_key).windows}
    assert windows == {
        ("tenant", "nanousd", "day"): 50 * 10**9,
        ("user", "tokens", "minute"): 1_000,
        ("user", "input_tokens", "hour"): 90_000,
        ("user", "output_tokens", "hour"): 9_000,
        ("agent", "iterations", "week"): 100,
        ("all", "nanousd", "month"): 500 * 10**9,
    }


def test_the_decision_section_comes_with_the_defaults_of_what_it_leaves_out():
    spec = BoundSpec.from_dict({"decision": {"threshold": 0.9}})
    assert spec.section("decision") == {
        "acceptance_weight": 1,
        "influence_weight": 1,
        "risk_weight": 1,
        "cost_weight": 1,
        "threshold": 0.9,
        "retry_margin": 0.1,
        "rollback_risk_threshold": 0.8,
        "max_retries": 2,
        "max_replans": 1,
    }
    assert BoundSpec().section("decision") is None


def test_gates_are_kept_as_they_are(every_key):
    spec = BoundSpec.parse(every_key)
    assert spec.section("constraints") == {
        "tests": {"kind": "command", "command": ["python", "-m", "pytest", "-q"], "phases": ["stop", "ci"]}
    }
    assert spec.section("loops") == {"repair": {"phase": "stop", "interval_seconds": 1.5}}
    assert spec.section("settings") == {"max_auto_retries": 2}


def test_a_file_of_gates_alone_loads():
    text = """
version: 1
settings:
  max_auto_retries: 2
constraints:
  coverage:
    kind: metric
    command: [python, -m, pytest, --cov, "--cov-report=json:coverage.json"]
    parser: {type: json, source: file, file: coverage.json, path: totals.percent_covered}
    threshold: {operator: gte, value: 85}
    watch: ["src/**/*.py"]
  review:
    kind: rubric
    rubric: >
      Fail when the patch
      opens a new door.
evaluators: {judge: {type: openai, model: M}}
"""
    spec = BoundSpec.parse(text)
    assert spec.section("constraints") == yaml.safe_load(text)["constraints"]
    assert not spec.bounds_anything


def test_json_is_read_like_yaml(every_key, write):
    spec = BoundSpec.parse(every_key)
    as_json = write("bound.json", json.dumps(yaml.safe_load(every_key), default=str, indent="\t"))
    assert BoundSpec.load(as_json) == spec


@pytest.mark.parametrize("limit", [30, {"max": 30}, {"max": 30, "unit": "model_call"}])
def test_a_step_limit_has_a_short_form(limit):
    spec = BoundSpec.from_dict({"bounds": {"iteration_limit": limit}})
    assert spec.limits().iterations == 30
    assert spec.canonical() == {"bounds": {"iteration_limit": 30}}


def test_a_mapped_sentence_bans_or_gates_its_tools():
    spec = BoundSpec.from_dict(
        {
            "bounds": {
                "action_surface": {"forbidden": [{"entry": "any network egress", "enforced_by": ["http", "ftp"]}]},
                "reversibility_envelope": {
                    "requires_human_approval": [{"entry": "any push", "enforced_by": ["git_push"]}],
                    "reversible_by_default": ["read"],
                },
            }
        }
    )
    limits = spec.limits()
    assert spec.unenforced_prose() == ()
    assert [limits.tier(tool) for tool in ("http", "ftp", "git_push", "read", "new")] == [
        "refuse", "refuse", "approval", "run", "approval",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("unknown", "tier"), [("approval", "approval"), ("refuse", "refuse"), ("reversible", "run")]
)
def test_what_an_unknown_tool_does_is_said_by_the_envelope(unknown, tier):
    limits = BoundSpec.from_dict({"bounds": {"reversibility_envelope": {"unknown_tools": unknown}}}).limits()
    assert limits.tier("new") == tier


def test_without_an_envelope_an_unknown_tool_runs():
    assert BoundSpec(iterations=1).limits().tier("new") == "run"


def test_an_envelope_that_says_nothing_still_gates_unknown_tools():
    spec = BoundSpec.from_dict({"bounds": {"reversibility_envelope": {}}})
    assert spec.limits().tier("new") == "approval"
    assert BoundSpec.from_dict(spec.canonical()) == spec != BoundSpec()
    assert spec.bounds_anything


def test_forbidden_wins_over_allowed_and_approval():
    spec = BoundSpec.from_dict(
        {
            "bounds": {
                "action_surface": {"allowed": ["a"], "forbidden": ["a", "b"]},
                "reversibility_envelope": {"requires_human_approval": ["b"]},
            }
        }
    )
    assert spec.limits().tier("a") == spec.limits().tier("b") == "refuse"


def test_a_missing_file_is_one_error_that_names_it(tmp_path):
    with pytest.raises(SpecError) as caught:
        BoundSpec.load(tmp_path / "none.yml")
    assert caught.value.file == str(tmp_path / "none.yml")
    assert "cannot be read" in str(caught.value)


def test_a_file_that_is_no_text_is_one_error(tmp_path):
    (tmp_path / "bound.yml").write_bytes(b"\xff\xfe\x00b")
    with pytest.raises(SpecError, match="UTF-8"):
        BoundSpec.load(tmp_path / "bound.yml")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "."])
def test_a_path_that_cannot_be_a_file_is_one_error(path):
    with pytest.raises(SpecError, match="cannot be read"):
        BoundSpec.load(path)


def test_an_endless_file_is_not_read_to_its_end():
    with pytest.raises(SpecError, match="characters"):
        BoundSpec.load("/dev/zero")


def test_the_line_of_a_key_can_be_asked_for(coding_assistant):
    spec = BoundSpec.load(coding_assistant)
    assert spec.line("bounds.cost_budget.total_usd") == 5
    assert spec.line("bounds.action_surface.forbidden.1") == 18
    assert spec.line("bounds.cost_budget.nothing_like_it") == 4


def test_loading_leaves_what_it_was_given_alone():
    data = {
        "bounds": {"action_surface": {"allowed": ["b", "a"]}, "exposure": [{"tool": "a", "sum_of": "n", "max": 1}]}
    }
    before = json.dumps(data)
    spec = BoundSpec.from_dict(data)
    data["bounds"]["action_surface"]["allowed"].append("c")
    assert json.dumps(data) != before
    assert spec.limits().tools == {"a", "b"}

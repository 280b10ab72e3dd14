"""``check_tools``: whether a specification fits the agent it is attached to."""

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.spec import BoundSpec


def check(text, *tools, agent=None):
    BoundSpec.parse(text).check_tools(tools, agent)


def test_a_misspelt_approval_is_an_error_that_names_it_and_the_nearest_tool():
    with pytest.raises(SpecError) as caught:
        BoundSpec(approve=["delte"]).check_tools(["delete"])
    assert caught.value.value == "delte"
    assert caught.value.nearest == "delete"
    BoundSpec(approve=["delete"]).check_tools(["delete"])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("bounds: {action_surface: {allowed: [raed]}}", "bounds.action_surface.allowed.0"),
        ("bounds: {action_surface: {forbidden: [read, raed]}}", "bounds.action_surface.forbidden.1"),
        ("bounds: {action_surface: {forbidden: [{entry: all reads, enforced_by: [raed]}]}}",
         "bounds.action_surface.forbidden.0"),
        ("bounds: {reversibility_envelope: {requires_human_approval: [raed]}}",
         "bounds.reversibility_envelope.requires_human_approval.0"),
        ("bounds: {reversibility_envelope: {reversible_by_default: [raed]}}",
         "bounds.reversibility_envelope.reversible_by_default.0"),
        ("bounds: {exposure: [{tool: raed, sum_of: n, max: 1}]}", "bounds.exposure.0.tool"),
        ("bounds: {cost_budget: {tool_prices_usd: {raed: 1}}}", "bounds.cost_budget.tool_prices_usd.raed"),
        ("bounds: {stop: {no_progress: {exempt_tools: [raed]}}}", "bounds.stop.no_progress.exempt_tools"),
    ],
)  # fmt: skip
def test_a_name_that_no_tool_has_is_an_error_wherever_it_stands(text, key):
    with pytest.raises(SpecError, match="no tool is called 'raed'") as caught:
        check(text, "read", "write")
    assert (caught.value.key, caught.value.nearest) == (key, "read")
    check(text.replace("raed", "write"), "read", "write")


def test_the_error_has_the_line_of_the_name(write):
    path = write("bound.yml", "bounds:\n  action_surface:\n    allowed:\n      - read\n      - wrte")
    with pytest.raises(SpecError) as caught:
        BoundSpec.load(path).check_tools(["read", "write"])
    assert (caught.value.file, caught.value.line) == (str(path), 5)


@pytest.mark.parametrize(
    "ban",
    ["action_surface: {forbidden: [any network egress]}",
     "reversibility_envelope: {requires_human_approval: [any push to remote]}"],
)  # fmt: skip
def test_a_ban_in_prose_that_nothing_enforces_does_not_attach(ban):
    with pytest.raises(SpecError, match="nothing enforces 'any ") as caught:
        check(f"bounds: {{{ban}}}", "read")
    assert "enforced_by" in caught.value.allowed


def test_a_closed_list_of_tools_makes_prose_harmless(coding_assistant):
    BoundSpec.load(coding_assistant).check_tools(["read_file", "write_file", "run_tests", "search_repo"])
    check("bounds: {action_surface: {allowed: [], forbidden: [any network egress]}}", "read")


def test_a_mapped_sentence_attaches():
    text = "bounds: {action_surface: {forbidden: [{entry: any network egress, enforced_by: [http]}]}}"
    check(text, "read", "http")
    with pytest.raises(SpecError, match="no tool is called 'http'"):
        check(text, "read")


def test_prose_about_what_is_reversible_stops_nobody():
    check("bounds: {reversibility_envelope: {reversible_by_default: [sandbox file writes]}}", "read")
    check("bounds: {data_access_scope: {default_scope: one session}}", "read")


def test_outputs_are_not_tools():
    check("bounds: {action_surface: {outputs: [answer]}}", "read")


def test_an_agent_without_tools_says_so():
    with pytest.raises(SpecError) as caught:
        BoundSpec(tools=["read"]).check_tools([])
    assert caught.value.allowed == "no tool at all"


def test_of_a_sub_agent_only_its_own_names_are_checked():
    text = (
        "{bounds: {action_surface: {allowed: [delegate]}}, agents: {scout: {action_surface: {allowed: [serch]}}}}"
    )
    with pytest.raises(SpecError) as caught:
        check(text, "search", agent="scout")
    assert (caught.value.key, caught.value.nearest) == ("agents.scout.action_surface.allowed.0", "search")
    check(text.replace("serch", "search"), "search", agent="scout")
    check(text, "delegate")
    check(
        "{bounds: {action_surface: {allowed: [delegate]}}, agents: {scout: {iteration_limit: 3}}}",
        "x",
        agent="scout",
    )


def test_an_agent_that_the_file_does_not_name_is_checked_like_the_agent_itself():
    with pytest.raises(SpecError):
        check("{bounds: {action_surface: {allowed: [delegate]}}}", "search", agent="nobody")


def test_a_specification_without_names_attaches_to_anything():
    BoundSpec(iterations=3).check_tools([])
    BoundSpec(iterations=3).check_tools(["anything"])

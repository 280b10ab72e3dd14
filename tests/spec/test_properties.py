"""Laws of specifications, over specifications that Hypothesis makes up."""

import json
import pickle

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bound_middleware.core.errors import SpecError
from bound_middleware.core.events import limits_as_dict, limits_from
from bound_middleware.spec import BoundSpec
from bound_middleware.spec.diff import diff
from bound_middleware.spec.explain import explain, render
from bound_middleware.spec.lint import lint

TOOLS = st.sampled_from(["read", "write", "pay", "shell"])
FEW = st.integers(0, 3)
SECONDS = st.sampled_from([0, 0.5, 1, 2.25, 3])
USD = st.sampled_from([0, "0.10", "$0.5", 1, 2.5])
SHARE = st.sampled_from([0.5, 0.8, 1])
PROSE = st.sampled_from(["any network egress", "test runs", "a push to main"])


def section(**keys):
    """A mapping with any of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


def entries(*, allowed=False):
    tool = st.one_of(TOOLS, TOOLS.map("{} (a note)".format))
    if allowed:
        rule = section(
            kind=st.sampled_from(["path", "tenant"]), max=FEW, min=FEW, length_max=FEW, one_of=st.just(["a"])
        )
        limited = section(max_calls=FEW, args=st.dictionaries(st.sampled_from("xy"), rule, max_size=1))
        tool |= st.builds(lambda name, more: {"tool": name, **more}, TOOLS, limited)
    else:
        tool |= PROSE | st.builds(lambda p, t: {"entry": p, "enforced_by": [t]}, PROSE, TOOLS)
    return st.lists(tool, max_size=3, unique_by=label)


def label(entry):
    return entry.get("tool") or entry["entry"] if isinstance(entry, dict) else entry.removesuffix(" (a note)")


BOUNDS = {
    "iteration_limit": FEW | section(max=FEW, unit=st.sampled_from(["model_call", "action"]), warn_at_share=SHARE),
    "token_budget": section(total=FEW, input_total=FEW, output_per_call_max=FEW),
    "cost_budget": section(
        total_usd=USD,
        per_tool_call_usd_max=USD,
        tool_prices_usd=st.dictionaries(TOOLS, USD, max_size=2),
        on_unpriced_tool=st.sampled_from(["refuse", "free"]) | USD,
        on_unknown_price=st.just("refuse")
        | st.fixed_dictionaries({"input_usd_per_mtok": USD, "output_usd_per_mtok": USD}),
        trusted_zero_models=st.lists(st.sampled_from("mn"), unique=True),
    ),
    "exposure": st.lists(
        st.fixed_dictionaries({"tool": TOOLS, "sum_of": st.just("amount"), "max": FEW}),
        max_size=2,
        unique_by=lambda e: e["tool"],
    ),
    "time_budget": section(wall_clock_seconds=SECONDS, idle_seconds_max=SECONDS),
    "action_surface": section(
        allowed=entries(allowed=True), forbidden=entries(), models=st.lists(st.sampled_from("mn"), unique=True)
    ),
    "data_access_scope": section(
        roots=st.lists(st.sampled_from(["a", "a/b", "c", "."]), unique=True),
        tenant=st.sampled_from(["session", "acme"]),
        store_namespaces=st.lists(st.sampled_from(["m", "m/x", "n"]), unique=True),
        metadata=st.dictionaries(st.sampled_from("kl"), st.sampled_from([1, "a", [1, 2]]), max_size=2),
        no_external_index_read=st.booleans(),
        redact=st.lists(st.sampled_from(["x+", "y"]), unique=True),
    ),
    "reversibility_envelope": section(
        reversible_by_default=entries(),
        requires_human_approval=entries(),
        unknown_tools=st.sampled_from(["approval", "refuse", "reversible"]),
        approval_ttl_seconds=SECONDS,
    ),
    "stop": section(
        truncated_retries=FEW,
        strict_usage=st.booleans(),
        no_progress=section(identical_calls_max=FEW, cycle_window=FEW),
    ),
}
SPECS = section(
    agent=st.sampled_from(["a", "b"]),
    bounds=section(**BOUNDS),
    agents=st.dictionaries(
        st.sampled_from(["scout", "clerk"]),
        section(**BOUNDS, depth_max=FEW, child_reserve=st.just(0) | section(tokens=FEW, usd=USD)),
        max_size=2,
    ),
    fleet=section(
        tenant=section(
            cost_budget=st.fixed_dictionaries({"total_usd": USD, "per": st.sampled_from(["day", "hour"])})
        )
    ),
    decision=section(threshold=st.sampled_from([0.5, 0.6, 1]), max_retries=FEW),
    constraints=st.dictionaries(
        st.sampled_from("tu"), st.sampled_from([{"kind": "command"}, {"kind": "artifact"}]), max_size=2
    ),
    settings=section(max_auto_retries=FEW),
).map(BoundSpec.from_dict)

laws = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)


@laws
@given(SPECS)
def test_the_canonical_form_is_the_same_specification(spec):
    again = BoundSpec.from_dict(spec.canonical())
    assert again == spec
    assert again.canonical_bytes() == spec.canonical_bytes()
    assert again.fingerprint == spec.fingerprint
    for agent in (None, "scout", "clerk"):
        one, two = limits_as_dict(again.limits(agent)), limits_as_dict(spec.limits(agent))
        assert canon(one) == canon(two)


def canon(value):
    """Pairs of a table in one order: the form keeps none."""
    if isinstance(value, dict):
        return {k: canon(v) for k, v in value.items()}
    return sorted((canon(v) for v in value), key=repr) if isinstance(value, list | tuple) else value


@laws
@given(SPECS)
def test_yaml_json_and_pickle_keep_the_fingerprint(spec):
    data = spec.canonical()
    assert BoundSpec.parse(yaml.safe_dump(data)).fingerprint == spec.fingerprint
    assert BoundSpec.parse(json.dumps(data)).fingerprint == spec.fingerprint
    assert pickle.loads(pickle.dumps(spec)).fingerprint == spec.fingerprint


@laws
@given(SPECS)
def test_limits_survive_the_trace(spec):
    limits = spec.limits("scout")
    assert limits_from(json.loads(json.dumps(limits_as_dict(limits)))) == limits


@laws
@given(SPECS)
def test_nothing_differs_from_itself(spec):
    assert diff(spec, spec) == ()
    assert diff(spec, BoundSpec.from_dict(spec.canonical())) == ()


@laws
@given(SPECS, SPECS)
def test_there_is_a_difference_exactly_where_the_fingerprints_differ_in_what_binds(a, b):
    if diff(a, b) == ():
        for agent in (None, "scout", "clerk"):
            assert canon(limits_as_dict(a.limits(agent))) == canon(limits_as_dict(b.limits(agent))) or only_unused(
                a, b, agent
            )


def only_unused(a, b, agent):
    """Values that say nothing where they stand: a unit without a number, the time to live of no approval."""
    idle = {
        "iteration_unit",
        "unknown_tools",
        "approval_ttl_ms",
        "approval_tools",
        "reversible_tools",
        "tool_calls_max",
        "argument_rules",
        "exposure",
    }
    one, two = limits_as_dict(a.limits(agent)), limits_as_dict(b.limits(agent))
    return {k for k in one.keys() | two.keys() if canon(one.get(k)) != canon(two.get(k))} <= idle


def loosens(a, b):
    return any(change.verdict == "loosened" for change in diff(a, b))


@laws
@given(SPECS, SPECS, SPECS)
def test_only_tighter_than_is_transitive(a, b, c):
    if not loosens(a, b) and not loosens(b, c):
        assert not loosens(a, c)


def laid_over(child, folder, marks):
    """The child over ``base.json`` of the folder, or the error."""
    data = {
        **child.canonical(),
        "extends": "base.json",
        "loosen": [{"key": key, "reason": "tested"} for key in marks],
    }
    try:
        return BoundSpec.from_dict(data, root=folder)
    except SpecError as error:
        return error


@laws
@given(SPECS, SPECS)
def test_what_is_laid_over_a_file_needs_a_reason_exactly_where_it_loosens(tmp_path_factory, base, child):
    folder = tmp_path_factory.mktemp("extends")
    (folder / "base.json").write_text(json.dumps(base.canonical()))
    marks = []
    merged = laid_over(child, folder, marks)
    while isinstance(merged, SpecError) and "wider" in merged.message:
        marks.append(merged.key)
        merged = laid_over(child, folder, marks)
    if isinstance(merged, SpecError):
        assert "another price" in merged.message
    else:
        assert {change.key for change in diff(base, merged) if change.verdict == "loosened"} == set(marks)


@laws
@given(SPECS)
def test_everything_can_be_explained_and_linted_in_80_columns(spec):
    text = render(explain(spec))
    assert max(map(len, text.splitlines())) <= 80
    for axis in ("iterations", "tokens", "cost", "time", "action surface", "data scope", "reversibility"):
        assert f"{axis}\n" in text
    lint(spec, tools=["read", "write"])


NUMBERS = st.one_of(
    st.booleans(), st.text("abc.-"), st.floats(max_value=-1e-9), st.just(float("nan")), st.integers(max_value=-1)
)


@given(
    st.sampled_from(
        [("iteration_limit",), ("iteration_limit", "max"), ("token_budget", "total"), ("cost_budget", "total_usd"),
         ("time_budget", "idle_seconds_max"), ("stop", "truncated_retries"),
          ("action_surface", "concurrent_tools_max"),
         ("stop", "admission_wait_ms"), ("cost_budget", "per_tool_call_usd_max"), ("time_budget", "warn_at_share")]
    ),
    NUMBERS,
)  # fmt: skip
def test_a_nonsense_number_is_an_error_wherever_it_stands(path, nonsense):
    data = {path[-1]: nonsense}
    if len(path) > 1:
        data = {path[0]: data}
    for whole in ({"bounds": data}, {"agents": {"scout": data}}):
        with pytest.raises(SpecError) as caught:
            BoundSpec.from_dict(whole)
        assert caught.value.key.split(".")[-1] == path[-1]

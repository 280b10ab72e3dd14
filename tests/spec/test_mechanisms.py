"""The table of what enforces a key, and where: it says what the entrances do."""

import pytest

from bound_middleware import BoundSession
from bound_middleware.core.errors import BoundExceeded, SpecError
from bound_middleware.spec import BoundSpec
from bound_middleware.spec.explain import explain
from bound_middleware.spec.mechanisms import ALSO_AT, ENTRANCES, MECHANISMS, NOWHERE


def enforced(bounds, key):
    """Where ``explain`` says that a key is enforced."""
    spec = BoundSpec.from_dict({"bounds": bounds})
    return {
        entrance
        for entrance in ENTRANCES
        for row in explain(spec, entrance=entrance)
        if row.key == f"bounds.{key}" and not row.mechanism.startswith("NOT ENFORCED")
    }


def test_what_nothing_enforces_is_a_short_list():
    nowhere = {key for key, how in MECHANISMS.items() if how.entrances == NOWHERE and ".outputs" not in key}
    also = {key for key, entrances in ALSO_AT.items() if entrances == NOWHERE}
    assert nowhere == set()
    assert also == {"data_access_scope.default_scope", "fleet."}


@pytest.mark.parametrize(
    ("unit", "everywhere_but"),
    [
        ("model_call", set()),
        ("action", set()),
        ("tool_call", {"bound_model"}),
        ("superstep", set(ENTRANCES) - {"bound_graph"}),
    ],
)
def test_steps_are_counted_where_they_are_seen(unit, everywhere_but):
    where = enforced({"iteration_limit": {"max": 3, "unit": unit}}, "iteration_limit.max")
    assert where == set(ENTRANCES) - everywhere_but


def test_supersteps_are_refused_where_they_are_not_seen():
    langchain = pytest.importorskip("bound_middleware.langchain")
    with pytest.raises(SpecError, match="superstep"):
        langchain.BoundMiddleware({"bounds": {"iteration_limit": {"max": 3, "unit": "superstep"}}})


def test_both_entrances_that_run_tools_bound_their_time():
    where = enforced({"time_budget": {"per_tool_call_seconds_max": 1}}, "time_budget.per_tool_call_seconds_max")
    assert where == {"BoundMiddleware", "bound_graph"}


def test_the_scope_of_data_is_enforced_where_tools_are_seen():
    scope = {"tenant": "acme", "store_namespaces": [["cache"]], "metadata": {"level": "public"}}
    bounds = {"data_access_scope": {**scope, "no_external_index_read": True}}
    assert enforced(bounds, "data_access_scope.tenant") == set(ENTRANCES) - {"bound_model"}
    assert enforced(bounds, "data_access_scope.metadata") == set(ENTRANCES) - {"bound_model"}
    assert enforced(bounds, "data_access_scope.no_external_index_read") == set(ENTRANCES) - {"bound_model"}
    assert enforced(bounds, "data_access_scope.store_namespaces") == {"BoundMiddleware", "bound_graph"}


def test_the_caps_on_sub_agents_hold_for_a_session_of_any_entrance():
    spec = {"agent": "main", "bounds": {"iteration_limit": 9}, "agents": {"main": {"spawns_max": 1}}}
    with BoundSession(spec) as session:
        session.child("one").close()
        with pytest.raises(BoundExceeded) as caught:
            session.child("two")
    assert caught.value.stop_reason == "spawn_limit"

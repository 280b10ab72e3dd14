"""The JSON Schema for editors: drawn from what validates, and says the same."""

import json
import re

import pytest
import yaml

from bound_middleware.core.errors import SpecError
from bound_middleware.spec import BoundSpec
from bound_middleware.spec.schema import DRAFT, json_schema
from bound_middleware.spec.section import fields_of
from bound_middleware.spec.tree import SpecTree

SCHEMA = json_schema()
KEYWORDS = {
    "$ref", "anyOf", "type", "enum", "const", "properties", "additionalProperties", "required", "items",
    "uniqueItems",
    "minimum", "maximum", "exclusiveMinimum", "minLength", "pattern",
}  # fmt: skip
SAYS_NOTHING = {"$schema", "$defs", "title", "description", "default", "format"}
TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float),
    "integer": int,
}  # fmt: skip


def accepts(schema, value):
    """Whether a value is valid, by the part of draft 2020-12 that the schema uses."""
    assert set(schema) <= KEYWORDS | SAYS_NOTHING, set(schema) - KEYWORDS - SAYS_NOTHING
    if "$ref" in schema and not accepts(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], value):
        return False
    if "anyOf" in schema and not any(accepts(part, value) for part in schema["anyOf"]):
        return False
    kinds = schema.get("type", [])
    if kinds and not any(is_a(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if ("enum" in schema and value not in schema["enum"]) or ("const" in schema and value != schema["const"]):
        return False
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        if set(schema.get("required", ())) - set(value):
            return False
        for key, part in value.items():
            if key in known:
                if not accepts(known[key], part):
                    return False
            elif rest is False or (isinstance(rest, dict) and not accepts(rest, part)):
                return False
    if isinstance(value, list):
        if schema.get("uniqueItems") and len({json.dumps(item) for item in value}) < len(value):
            return False
        return all(accepts(schema.get("items", {}), item) for item in value)
    if isinstance(value, str):
        return len(value) >= schema.get("minLength", 0) and re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (
            value >= schema.get("minimum", value)
            and value <= schema.get("maximum", value)
            and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        )
    return True


def is_a(value, kind):
    return isinstance(value, TYPES[kind]) and not (isinstance(value, bool) and kind in ("number", "integer"))


def as_data(text):
    return json.loads(json.dumps(yaml.safe_load(text), default=str))


def test_the_schema_is_json_and_names_its_draft():
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == DRAFT


def test_what_loads_is_valid(every_key, coding_assistant):
    for text in (every_key, coding_assistant.read_text()):
        assert accepts(SCHEMA, as_data(text))
        assert accepts(SCHEMA, BoundSpec.parse(text).canonical())


WRONG = [
    "{agnet: x}", "{bounds: {iteration_limt: 3}}", "{bounds: {iteration_limit: -1}}",
    "{bounds: {iteration_limit: 'x'}}", "{bounds: {stop: {attempts_per_call_max: 0}}}",
    "{bounds: {iteration_limit: {max: 3, unit: turn}}}", "{bounds: {token_budget: 5}}", "{iteration_limit: 3}",
    "{bounds: {cost_budget: {total_usd: two}}}", "{bounds: {cost_budget: {on_unpriced_tool: fre}}}",
    "{bounds: {cost_budget: {on_unknown_price: {input_usd_per_mtok: 3}}}}",
    "{bounds: {time_budget: {warn_at_share: 80}}}",
    "{bounds: {action_surface: {allowed: a}}}", "{bounds: {action_surface: {allowed: [{tool: a, max_call: 3}]}}}",
    "{bounds: {action_surface: {allowed: [{tool: a, args: {p: pth}}]}}}",
    "{bounds: {exposure: [{tool: a, max: 3}]}}",
    "{bounds: {data_access_scope: {no_external_index_read: 1}}}", "{agents: {a: {token: 3}}}", "{version: 2}",
    "{agents: {a: {child_reserve: 3}}}", "{fleet: {tenant: {cost_budget: {total_usd: 5}}}}",
    "{decision: {threshold: -1}}",
    "{fleet: {tenant: {cost_budget: {total_usd: 5, per: dya}}}}", "{constraints: [a]}", "{loosen: [{key: a}]}",
    "{bounds: {reversibility_envelope: {unknown_tools: ask}}}", "{decision: {rollback_risk_threshold: 1.5}}",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_an_editor_underlines_does_not_load(text):
    assert not accepts(SCHEMA, as_data(text))
    with pytest.raises(SpecError):
        BoundSpec.parse(text)


def test_every_key_of_the_form_is_in_the_schema_with_a_sentence():
    assert set(SCHEMA["properties"]) == {field.name for field in fields_of(SpecTree)}
    for definition in [SCHEMA, *SCHEMA["$defs"].values()]:
        for part in (definition, *definition.get("anyOf", ())):
            assert part.get("additionalProperties", False) is False or "properties" not in part
            for name, prop in part.get("properties", {}).items():
                assert prop.get("description", "").endswith("."), name

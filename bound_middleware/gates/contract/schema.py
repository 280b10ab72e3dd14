"""The JSON Schema of the gates' part of ``bound.yml``, for editors, drawn from the models that validate it."""

from __future__ import annotations

from typing import Any

from .evaluators import EVALUATORS
from .kinds import KINDS
from .loops import Loop, Settings
from .model import GateContract

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Draft 2020-12. What it accepts is a superset of what loads: rules between keys are the loader's."""
    schema = GateContract.model_json_schema(mode="validation")
    for definition in schema["$defs"].values():
        definition.get("properties", {}).pop("id", None)
    for models, tag in ((KINDS, "kind"), (EVALUATORS, "type")):
        for model in models.values():
            definition = schema["$defs"][model.__name__]
            definition["required"] = sorted({*definition.get("required", ()), tag})
    assert {Loop.__name__, Settings.__name__} <= set(schema["$defs"])
    schema["properties"]["version"] = {"const": 1}
    schema["required"] = ["constraints"]
    return {"$schema": DRAFT, **schema, "title": "completion gates"}

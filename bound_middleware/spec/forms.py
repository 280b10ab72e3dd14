"""The two forms of a specification: plain data and the validated tree, each out of the other."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from .compiled import effective
from .source import Source
from .tree import SpecTree


def validated(source: Source) -> SpecTree:
    """The tree of what a file or a mapping says.

    Raises:
        SpecError: the first fault in the order of the file.
    """
    try:
        tree = SpecTree.model_validate(source.data)
    except ValidationError as error:
        from .faults import fault

        raise fault(error, SpecTree, source) from None
    for name in tree.agents:
        try:
            effective(tree, name)
        except ValidationError as error:
            from .faults import fault

            found = fault(error, type(tree.agents[name]), Source(data={}))
            found.key, found.file, found.line = f"agents.{name}", source.file, source.line(("agents", name))
            raise found from None
    return tree


def written(tree: SpecTree) -> dict[str, Any]:
    """The canonical data of a tree."""
    data: dict[str, Any] = tree.model_dump(exclude_defaults=True, exclude={"extends", "loosen", "agents"})
    if tree.agents:
        data["agents"] = {name: own.model_dump(exclude_unset=True) for name, own in tree.agents.items()}
    return {key: value for key, value in _pruned(data).items() if value != {} or key == "agents"}


#: Sections whose presence alone says something.
_DECLARED = ("reversibility_envelope", "data_access_scope")


def _pruned(data: dict[str, Any]) -> dict[str, Any]:
    bounds = data.get("bounds", {})
    for key in [k for k, v in bounds.items() if v == {} and k not in _DECLARED]:
        del bounds[key]
    return data


def as_bytes(data: dict[str, Any]) -> bytes:
    """ASCII JSON with sorted keys and no spaces."""
    import json

    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")

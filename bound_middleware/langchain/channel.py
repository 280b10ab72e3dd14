"""The output channel of a run: how it ended, and what was decided. All adapters share this reducer."""

from __future__ import annotations

from typing import Any

#: Parts that have an entry for each node.
_BY_NODE = ("decisions", "routes")


def merge(left: Any, right: Any) -> Any:
    """Later outcomes replace earlier ones; decisions are kept by node, the newest last.

    An update that carries decisions does not turn a stop into a completion, unless it decides anew on what stopped:
    of two nodes that decide in one step, the one that stopped the run is heard.
    """
    if not left or not right:
        return right or left
    merged = {**left, **right}
    for part in _BY_NODE:
        if part in merged:
            merged[part] = _newest_last(left.get(part) or {}, right.get(part) or {})
    decided = right.get("decisions")
    if decided and _status(left) == "stopped" and _status(right) == "completed":
        stopped_at = (left["outcome"].get("detail") or {}).get("node")
        merged["outcome"] = right["outcome"] if stopped_at in decided else left["outcome"]
    return merged


def _newest_last(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {**{node: entry for node, entry in old.items() if node not in new}, **new}


def _status(value: Any) -> Any:
    return (value.get("outcome") or {}).get("status")

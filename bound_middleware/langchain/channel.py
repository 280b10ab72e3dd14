"""The output channel of a run: how it ended, and what was decided. All adapters share this reducer."""

from __future__ import annotations

from typing import Any

#: Parts that have an entry for each node.
_BY_NODE = ("decisions", "routes", "gates")
#: Every report of a rollback in the run, each with an id.
ROLLBACKS = "rollbacks"


def merge(left: Any, right: Any) -> Any:
    """Later outcomes replace earlier ones; decisions are kept by node, the newest last; every rollback is kept.

    An update that carries decisions does not turn a stop into something better, unless it decides anew on what
    stopped: of two nodes that decide in one step, the one that stopped the run is heard.
    """
    if not left or not right:
        return settled(right or left)
    merged = {**left, **right}
    for part in _BY_NODE:
        if part in merged:
            merged[part] = _newest_last(left.get(part) or {}, right.get(part) or {})
    if ROLLBACKS in merged:
        every = [*(left.get(ROLLBACKS) or ()), *(right.get(ROLLBACKS) or ())]
        merged[ROLLBACKS] = list({report["id"]: report for report in every}.values())
    decided = right.get("decisions")
    if decided and _status(left) == "stopped" and _status(right) in ("completed", "running"):
        stopped_at = (left["outcome"].get("detail") or {}).get("node")
        merged["outcome"] = right["outcome"] if stopped_at in decided else left["outcome"]
    return settled(merged)


def concluded(value: Any) -> Any:
    """The value when nothing is left to run: what was running is completed, as far as that may be said."""
    if _status(value) != "running":
        return value
    return settled({**value, "outcome": {**value["outcome"], "status": "completed"}})


def settled(value: Any) -> Any:
    """The value, without a completion that is none.

    A run is not completed while a step that ran out of attempts was not accepted after all, wherever that led; nor
    when a rollback could not undo everything; nor while a completion gate did not pass. A part is never called
    success.
    """
    if _status(value) != "completed":
        return value
    value = _gated(value)
    out = {node: route for node, route in (value.get("routes") or {}).items() if route.get("way") == "exhausted"}
    reports = value.get(ROLLBACKS) or ()
    complete = all(report["complete"] for report in reports)
    if not out and complete:
        return value
    if out:
        node, route = next(reversed(out.items()))
        reason, detail = route["exhausted"], {"node": node, "route": route["route"], "counts": route["counts"]}
    else:
        node = next(report["node"] for report in reversed(reports) if not report["complete"])
        reason, detail = "rolled_back", {"node": node}
    if reports:
        detail["rollback_complete"] = complete
    outcome = value["outcome"]
    stopped = {"status": "stopped", "stop_reason": reason, "detail": {**(outcome.get("detail") or {}), **detail}}
    return {**value, "outcome": {**outcome, **stopped}}


def unsatisfied(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """What the outcome says of a gate that did not pass."""
    told = ("state", "blocking", "unanswered", "continuations", "error")
    return {"gate": name, **{key: entry[key] for key in told if key in entry}}


def _gated(value: dict[str, Any]) -> dict[str, Any]:
    """The value of a run that would be completed, as far as its completion gates let it be."""
    shut = {name: entry for name, entry in (value.get("gates") or {}).items() if entry["way"] != "passed"}
    if not shut:
        return value
    name, entry = next(reversed(shut.items()))
    outcome = value["outcome"]
    detail = {**(outcome.get("detail") or {}), **unsatisfied(name, entry)}
    ended = {"status": "gate_unsatisfied", "stop_reason": "gate_unsatisfied", "detail": detail}
    return {**value, "outcome": {**outcome, **ended}}


def _newest_last(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {**{node: entry for node, entry in old.items() if node not in new}, **new}


def _status(value: Any) -> Any:
    return ((value or {}).get("outcome") or {}).get("status")

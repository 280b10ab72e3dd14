"""Retries that a provider's client makes by itself, invisible to callbacks: each one is a request, perhaps billed.

Under a bound they are switched off, and the session retries itself, so that each attempt is held and counted.
"""

from __future__ import annotations

from typing import Any, Final

from .class_table import CLASSES, ClassFacts, facts_of

_CLIENTS: Final = (("root_client", "client"), ("root_async_client", "async_client"))
_CACHED: Final = ("_client", "_async_client")


def hidden_retries(model: Any) -> int | None:
    """How often the client of ``model`` retries by itself, as configured; ``None`` when that is not known."""
    facts = facts_of(model)
    if facts is None:
        return None
    if facts.retries == "none":
        return 0
    declared = getattr(model, "max_retries", None)
    if facts.retries == "attempts":
        return max(declared - 1, 0) if isinstance(declared, int) else facts.default_retries
    if facts.retries == "unknown":
        return None
    held = [getattr(client, "max_retries", None) for client in _held(model, facts)]
    known = [count for count in held if isinstance(count, int)]
    if known:
        return max(known)
    return declared if isinstance(declared, int) else facts.default_retries


def without_hidden_retries(model: Any) -> tuple[Any, bool]:
    """(a model that makes one request per call, whether that is certain).

    The copy shares connections with the original, which is left as it is; the model itself comes back when it never
    retries. ``False``: the class is not known, nor told by ``max_retries=0`` that it shall not; the copy may retry.
    """
    facts = facts_of(model)
    if facts is None or facts.retries == "unknown":
        return model, getattr(model, "max_retries", None) == 0
    if hidden_retries(model) == 0:
        return model, True
    if facts.retries == "attempts":
        return model.model_copy(update={"max_retries": 1}), True
    if facts.retries == "cached_clients":
        return _with_cached_clients(model), True
    update: dict[str, Any] = {}
    for root_name, resource_name in _CLIENTS:
        root = _root(model, root_name, resource_name)
        if root is None:
            continue
        if not hasattr(root, "with_options"):
            return model, False
        quiet = root.with_options(max_retries=0)
        if hasattr(model, root_name):
            update[root_name] = quiet
        update[resource_name] = quiet.chat.completions
    if not update:
        return model, False
    if "max_retries" in type(model).model_fields:
        update["max_retries"] = 0
    return model.model_copy(update=update), True


def _with_cached_clients(model: Any) -> Any:
    copy = model.model_copy(update={"max_retries": 0})
    copy.__dict__.pop("_client_params", None)
    for name in _CACHED:
        if name in copy.__dict__:
            copy.__dict__[name] = copy.__dict__[name].with_options(max_retries=0)
    return copy


def _held(model: Any, facts: ClassFacts) -> list[Any]:
    if facts.retries == "cached_clients":
        return [model.__dict__[name] for name in _CACHED if name in model.__dict__]
    roots = [_root(model, *names) for names in _CLIENTS]
    return [root for root in roots if root is not None]


def _root(model: Any, root_name: str, resource_name: str) -> Any:
    """The provider's client: held itself, or behind its ``chat.completions`` (Groq)."""
    root = getattr(model, root_name, None)
    if root is not None:
        return root
    resource = getattr(model, resource_name, None)
    return None if resource is None else getattr(resource, "_client", resource)


def may_retry_unseen(serialized: Any) -> bool:
    """Whether a model may repeat requests on its own, by what LangChain tells a callback about it."""
    told = serialized if isinstance(serialized, dict) else {}
    facts = CLASSES.get((told.get("id") or [""])[-1])
    if facts is not None and facts.retries == "none":
        return False
    return (told.get("kwargs") or {}).get("max_retries") != 0

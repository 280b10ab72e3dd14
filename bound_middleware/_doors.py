"""The only place where a lower layer reaches a framework, or a higher layer: by name, at call time."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def ambient_hook() -> None:
    """Register the handler that sees every LangChain call of the process; once, and for good."""
    import_module("bound_middleware.langchain.hook").register()


def callback(session: Any) -> Any:
    """A LangChain callback handler for one session."""
    return import_module("bound_middleware.langchain.callback").callback_for(session)


def effects() -> Any:
    """The journal of what tools did: it belongs to the graphs, and the agents' middleware needs it too."""
    return import_module("bound_middleware.langgraph.approval_effects")


def scoped(session: Any, request: Any) -> Any:
    """A tool's request whose store is the part that a session may see: stores belong to the graphs too."""
    return import_module("bound_middleware.langgraph.scoped_store").scoped_request(session, request)


def rubric_model(declared: Any, key: str) -> Any:
    """The evaluator of a provider's model, as a contract of gates declares it."""
    return import_module("bound_middleware.langchain.rubric_model").provider_evaluator(declared, key)

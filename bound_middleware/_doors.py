"""The only place where a lower layer reaches a framework: by name, at call time."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def ambient_hook() -> None:
    """Register the handler that sees every LangChain call of the process; once, and for good."""
    import_module("bound_middleware.langchain.hook").register()


def callback(session: Any) -> Any:
    """A LangChain callback handler for one session."""
    return import_module("bound_middleware.langchain.callback").callback_for(session)

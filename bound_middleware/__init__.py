"""bound-middleware: explicit limits on LLM agents, enforced from the outside by deterministic code.

Names load when they are first used, so that importing the package costs nothing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .core.errors import BoundError, BoundExceeded, LedgerError, SpecError, TraceError
    from .core.events import TraceEvent
    from .core.usage import Usage
    from .session.entry import bound, install
    from .session.outcome import Remaining, RunOutcome, SessionUsage
    from .session.session import BoundSession
    from .spec import BoundSpec

__all__ = [
    "BoundError",
    "BoundExceeded",
    "BoundSession",
    "BoundSpec",
    "LedgerError",
    "Remaining",
    "RunOutcome",
    "SessionUsage",
    "SpecError",
    "TraceError",
    "TraceEvent",
    "Usage",
    "bound",
    "install",
]

_HOMES = {
    "BoundError": "core.errors",
    "BoundExceeded": "core.errors",
    "BoundSession": "session.session",
    "BoundSpec": "spec",
    "LedgerError": "core.errors",
    "Remaining": "session.outcome",
    "RunOutcome": "session.outcome",
    "SessionUsage": "session.outcome",
    "SpecError": "core.errors",
    "TraceError": "core.errors",
    "TraceEvent": "core.events",
    "Usage": "core.usage",
    "bound": "session.entry",
    "install": "session.entry",
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("bound-middleware")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

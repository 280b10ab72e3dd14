"""Test doubles for bounded agents: a clock, a scripted chat model, a local provider server, a ledger suite.

Everything here runs without network (127.0.0.1 only) and without sleeping. Names load when first used, so
that a test which needs only `FakeClock` imports no framework.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clock import FakeClock
    from .ledger_conformance import LedgerConformance
    from .provider_records import RequestRecord
    from .provider_reply import Reply
    from .provider_server import ProviderServer
    from .red_team import RedTeam, RedTeamReport
    from .scripted_model import ScriptedChatModel
    from .scripted_reply import ScriptedReply
    from .words import token_text

_HOME = {
    "FakeClock": "clock",
    "LedgerConformance": "ledger_conformance",
    "ProviderServer": "provider_server",
    "RedTeam": "red_team",
    "RedTeamReport": "red_team",
    "Reply": "provider_reply",
    "RequestRecord": "provider_records",
    "ScriptedChatModel": "scripted_model",
    "ScriptedReply": "scripted_reply",
    "token_text": "words",
}

__all__ = [
    "FakeClock",
    "LedgerConformance",
    "ProviderServer",
    "RedTeam",
    "RedTeamReport",
    "Reply",
    "RequestRecord",
    "ScriptedChatModel",
    "ScriptedReply",
    "token_text",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

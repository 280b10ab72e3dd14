"""Settings of a single call that reach the wire, or that the callback can read from what LangChain reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .output_caps import CAP_ALIASES, CAP_FIELDS

#: Test doubles of langchain-core whose streams leave out tool calls or usage, so that a stream is no substitute.
_UNFAITHFUL_STREAMS: Final = frozenset(
    {
        "GenericFakeChatModel",
        "FakeListChatModel",
        "FakeMessagesListChatModel",
        "ParrotFakeChatModel",
        "FakeChatModel",
    }
)
#: Classes whose ``timeout`` argument of a call is honoured, for each read from the connection.
_TIMEOUT_ARGUMENT: Final = frozenset({"BaseChatOpenAI", "ChatOpenAI", "ChatAnthropic", "ChatGroq"})


def streams_faithfully(model: Any) -> bool:
    """Whether the chunks of a stream add up to what a call in one piece would have answered."""
    return not any(base.__name__ in _UNFAITHFUL_STREAMS for base in type(model).__mro__)


def caps_output(model: Any) -> bool:
    """Whether a cap on generated tokens can be put on the wire of this class."""
    declared = getattr(type(model), "model_fields", {})
    return any(name in declared for name in CAP_FIELDS)


def output_cap_in(params: Mapping[str, Any], metadata: Mapping[str, Any] | None) -> int | None:
    """The cap of a call as LangChain reports it to callbacks (``invocation_params``, ``ls_max_tokens``)."""
    found = [params.get(alias) for alias in CAP_ALIASES]
    found.append((metadata or {}).get("ls_max_tokens"))
    return min((n for n in found if isinstance(n, int) and not isinstance(n, bool) and n > 0), default=None)


def may_write_cache(messages: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the request asks the provider to write a prompt cache, which costs more than plain input.

    Anthropic "Prompt caching": ``cache_control`` on a block, a tool, or the request; Bedrock: ``cachePoint``.
    """
    if kwargs.get("cache_control") or any(_marked(tool) for tool in kwargs.get("tools") or ()):
        return True
    return any(
        isinstance(content := getattr(m, "content", None), list) and any(_marked(block) for block in content)
        for m in messages
    )


def may_have_audio(model: Any, messages: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether sound is sent or asked for; its tokens may cost more than those of text.

    OpenAI "Audio and speech": ``input_audio`` blocks, ``modalities`` with ``audio``; Gemini's
    ``response_modalities``.
    """
    settings = (kwargs, getattr(model, "model_kwargs", None) or {}, getattr(model, "__dict__", {}))
    for table in settings:
        asked = (*(table.get("modalities") or ()), *(table.get("response_modalities") or ()))
        if table.get("audio") or any("audio" in str(one).lower() for one in asked):
            return True
    return any(
        isinstance(content := getattr(m, "content", None), list) and any(_sounds(block) for block in content)
        for m in messages
    )


def _sounds(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind, mime = str(block.get("type")), str(block.get("mime_type") or block.get("mimeType") or "")
    return kind in ("audio", "input_audio", "video", "video_url") or mime.startswith(("audio/", "video/"))


def _marked(block: Any) -> bool:
    return isinstance(block, Mapping) and ("cache_control" in block or "cachePoint" in block)


def with_timeout(model: Any, kwargs: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """The arguments with the client's time-out at most ``timeout_s``, where the class honours one.

    Clients count it anew for each read, so a stream can outlast it; it only ends a wait for a silent server.
    """
    if not any(base.__name__ in _TIMEOUT_ARGUMENT for base in type(model).__mro__):
        return kwargs
    own = kwargs.get(
        "timeout", getattr(model, "request_timeout", None) or getattr(model, "default_request_timeout", None)
    )
    if own is not None and (not isinstance(own, (int, float)) or own <= timeout_s):
        return kwargs
    return {**kwargs, "timeout": max(timeout_s, 0.001)}

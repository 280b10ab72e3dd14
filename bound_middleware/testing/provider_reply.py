"""What a `ProviderServer` answers: one frozen value per reply, plain data in and out."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

UsageFault = Literal["normal", "none", "each", "cumulative"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

DEFAULT_TOKENS = 16

_OPTIONAL_COUNTS = (
    "tokens",
    "input_tokens",
    "reported_input_tokens",
    "reported_output_tokens",
    "cut_arguments_at",
    "drop_after_tokens",
    "stall_after_tokens",
    "retry_after_ms",
)
_COUNTS = ("reasoning_tokens", "cached_tokens", "token_delay_ms", "first_byte_delay_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted answer of the server.

    Text is either given (`text`) or generated (`tokens` words of one o200k_base token each; 16 when neither text
    nor tool calls are given). All token counts are inclusive: `input_tokens` includes `cached_tokens`, the output
    that is generated, recorded and reported includes `reasoning_tokens`.

    Args:
        text: the text of the answer. Its tokens are counted with o200k_base where the vocabulary is at hand.
        tokens: generate that many one-token words instead of `text`.
        tool_calls: pairs of (tool name, arguments as a dict or as JSON text).
        reasoning_tokens: hidden output, generated before the text and never sent.
        input_tokens: what the prompt counts; None counts the request's texts.
        cached_tokens: the part of the input that was read from the provider's cache.
        finish_reason: None derives it: `length` when the cap cut the answer, `tool_calls`, else `stop`. Each wire
            format translates it (`max_tokens`, `refusal`, `incomplete`...).
        usage: `normal` reports as the provider does; `none` never reports; `each` repeats the final usage on each
            streamed event; `cumulative` reports the running usage on each streamed event. The responses format has
            no usage on single events, there the last two are `normal`.
        reported_input_tokens: a wrong number to report instead of the true one. Records keep the truth.
        reported_output_tokens: the same for the output.
        ignores_max_tokens: generate everything, whatever cap the request carries.
        cut_arguments_at: end in the middle of the last tool call, after that many characters of its arguments,
            with finish reason `length`.
        chunk_tokens: tokens per streamed event, >= 1.
        token_delay_ms: time to generate one token, in whole milliseconds.
        first_byte_delay_ms: time before the first byte, in whole milliseconds.
        drop_after_tokens: close the connection, the answer unfinished, once that many tokens were generated.
        stall_after_tokens: once that many tokens were generated, wait up to 10 s for the client to hang up before
            the next one. What is generated then does not depend on how fast the machine is.
        status: an HTTP status; 400 and above answers with an error instead of a message.
        retry_after_ms: sent with an error as `retry-after-ms` (and `retry-after` when >= 1000). The SDKs ignore 0.
        error_usage: the error body carries usage: the input and the generated `tokens` were billed.

    Raises:
        ValueError: a count is negative or not an int, both `text` and `tokens` are given, or a word is not one of
            the allowed ones.
    """

    text: str | None = None
    tokens: int | None = None
    tool_calls: tuple[tuple[str, Any], ...] = ()
    reasoning_tokens: int = 0
    input_tokens: int | None = None
    cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    usage: UsageFault = "normal"
    reported_input_tokens: int | None = None
    reported_output_tokens: int | None = None
    ignores_max_tokens: bool = False
    cut_arguments_at: int | None = None
    chunk_tokens: int = 1
    token_delay_ms: int = 0
    first_byte_delay_ms: int = 0
    drop_after_tokens: int | None = None
    stall_after_tokens: int | None = None
    status: int = 200
    retry_after_ms: int | None = None
    error_usage: bool = False

    def __post_init__(self) -> None:
        if self.text is not None and self.tokens is not None:
            raise ValueError("give text or tokens, not both")
        for name in _COUNTS:
            _count(name, getattr(self, name))
        for name in _OPTIONAL_COUNTS:
            if getattr(self, name) is not None and not name.startswith("reported_"):
                _count(name, getattr(self, name))
        _count("chunk_tokens", self.chunk_tokens, least=1)
        _count("status", self.status, least=200)
        _one_of("usage", self.usage, get_args(UsageFault))
        if self.finish_reason is not None:
            _one_of("finish_reason", self.finish_reason, get_args(FinishReason))
        calls = tuple((str(name), _arguments(arguments)) for name, arguments in self.tool_calls)
        object.__setattr__(self, "tool_calls", calls)

    @property
    def is_error(self) -> bool:
        """Whether the answer is an HTTP error."""
        return self.status >= 400

    @property
    def text_tokens(self) -> int | None:
        """How many words to generate; None when `text` is given, or when only tools are called."""
        if self.text is not None:
            return None
        if self.tokens is None:
            return None if self.tool_calls else DEFAULT_TOKENS
        return self.tokens

    def to_plain(self) -> dict[str, Any]:
        """The fields that differ from the defaults, as JSON-able data."""
        plain = asdict(self)
        return {item.name: plain[item.name] for item in fields(self) if getattr(self, item.name) != item.default}

    @classmethod
    def from_plain(cls, plain: "Mapping[str, Any] | str | Reply") -> "Reply":
        """A reply from its plain data, from a text, or from itself.

        Raises:
            TypeError: a key is unknown, or `plain` is nothing of that kind.
        """
        if isinstance(plain, Reply):
            return plain
        if isinstance(plain, str):
            return cls(text=plain)
        if isinstance(plain, Mapping):
            return cls(**plain)
        raise TypeError(f"a reply is a Reply, a text or a mapping of its fields, not {plain!r}")


ReplyLike = Reply | str | Mapping[str, Any]


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _count(name: str, value: Any, *, least: int = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an int >= {least}, not {value!r}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")

"""From a reply and a request to the steps a provider generates, under the request's cap."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .provider_reply import FinishReason, Reply, UsageFault
from .words import fitting_prefix, piece_tokens, text_pieces, text_tokens, token_words

TOKENS_PER_MESSAGE = 3
"""What chat formats add per message; OpenAI's published figure for its chat models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a request asks for, whatever its wire format."""

    model: str
    stream: bool
    max_tokens: int | None
    texts: tuple[str, ...]
    messages: int
    include_usage: bool = True
    choices: int = 1
    text_format: Mapping[str, Any] | None = None

    def input_tokens(self) -> int:
        """Tokens of the prompt: its texts plus 3 per message."""
        return sum(map(text_tokens, self.texts)) + TOKENS_PER_MESSAGE * self.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A piece of output: what is sent for it and how many tokens it cost."""

    kind: Literal["reasoning", "text", "call", "arguments"]
    tokens: int
    text: str = ""
    call: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call as far as it was generated; `arguments` may be half-written JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An answer as the wire formats need it. Token counts are inclusive; `reported_*` go on the wire."""

    serial: int
    model: str
    steps: tuple[Step, ...]
    text: str
    calls: tuple[Call, ...]
    finish: FinishReason
    usage: UsageFault
    include_usage: bool
    choices: int
    text_format: Mapping[str, Any] | None
    input_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    output_tokens: int
    reported_input_tokens: int
    reported_output_tokens: int


def make_plan(reply: Reply, ask: Ask, *, serial: int, input_tokens: int) -> Plan:
    """Generates the answer of `reply` to `ask`.

    Args:
        reply: what the script says.
        ask: the request; its cap is honoured unless the reply ignores it.
        serial: the number of the request, from which all ids are made.
        input_tokens: the prompt's tokens.
    """
    room = None if reply.ignores_max_tokens else ask.max_tokens
    steps, cut_by_cap = _capped(_all_steps(reply), room)
    steps, cut_by_reply = _cut_call(steps, reply)
    steps = list(_grouped(steps, reply.chunk_tokens))
    calls = _calls(steps, serial)
    output = sum(step.tokens for step in steps) * ask.choices
    return Plan(
        serial=serial,
        model=ask.model,
        steps=tuple(steps),
        text="".join(step.text for step in steps if step.kind == "text"),
        calls=calls,
        finish=_finish(reply, cut=cut_by_cap or cut_by_reply, calls=bool(calls)),
        usage=reply.usage,
        include_usage=ask.include_usage,
        choices=ask.choices,
        text_format=ask.text_format,
        input_tokens=input_tokens,
        cached_tokens=min(reply.cached_tokens, input_tokens),
        reasoning_tokens=sum(step.tokens for step in steps if step.kind == "reasoning"),
        output_tokens=output,
        reported_input_tokens=_first(reply.reported_input_tokens, input_tokens),
        reported_output_tokens=_first(reply.reported_output_tokens, output),
    )


def _all_steps(reply: Reply) -> Iterator[Step]:
    for _ in range(reply.reasoning_tokens):
        yield Step(kind="reasoning", tokens=1)
    if reply.text is not None:
        for piece in text_pieces(reply.text):
            yield Step(kind="text", tokens=piece_tokens(piece), text=piece)
    else:
        for word in token_words(reply.text_tokens or 0):
            yield Step(kind="text", tokens=1, text=word)
    for index, (name, arguments) in enumerate(reply.tool_calls):
        yield Step(kind="call", tokens=text_tokens(name), text=name, call=index)
        for piece in text_pieces(arguments):
            yield Step(kind="arguments", tokens=piece_tokens(piece), text=piece, call=index)


def _capped(steps: Iterable[Step], room: int | None) -> tuple[list[Step], bool]:
    if room is None:
        return list(steps), False
    kept: list[Step] = []
    for step in steps:
        if step.tokens > room:
            if step.kind in ("text", "arguments") and (part := fitting_prefix(step.text, room)):
                kept.append(Step(kind=step.kind, tokens=piece_tokens(part), text=part, call=step.call))
            return kept, True
        kept.append(step)
        room -= step.tokens
    return kept, False


def _cut_call(steps: list[Step], reply: Reply) -> tuple[list[Step], bool]:
    if reply.cut_arguments_at is None or not reply.tool_calls:
        return steps, False
    last, room = len(reply.tool_calls) - 1, reply.cut_arguments_at
    kept: list[Step] = []
    for step in steps:
        if step.kind == "arguments" and step.call == last:
            part, room = step.text[:room], room - len(step.text)
            if part:
                kept.append(Step(kind=step.kind, tokens=piece_tokens(part), text=part, call=last))
            if room <= 0:
                break
        else:
            kept.append(step)
    return kept, True


def _grouped(steps: list[Step], tokens: int) -> Iterator[Step]:
    if tokens == 1:
        yield from steps
        return
    group: list[Step] = []
    for step in steps:
        if group and (group[0].kind != step.kind or step.kind == "call" or group[0].call != step.call):
            yield _joined(group)
            group = []
        group.append(step)
        if sum(item.tokens for item in group) >= tokens:
            yield _joined(group)
            group = []
    if group:
        yield _joined(group)


def _joined(group: list[Step]) -> Step:
    return Step(
        kind=group[0].kind,
        tokens=sum(step.tokens for step in group),
        text="".join(step.text for step in group),
        call=group[0].call,
    )


def _calls(steps: list[Step], serial: int) -> tuple[Call, ...]:
    return tuple(
        Call(
            id=call_id(serial, step.call),
            name=step.text,
            arguments="".join(part.text for part in steps if part.kind == "arguments" and part.call == step.call),
        )
        for step in steps
        if step.kind == "call"
    )


def call_id(serial: int, call: int) -> str:
    """The id of a tool call: unique over the life of a server."""
    return f"call_{serial}_{call}"


def _finish(reply: Reply, *, cut: bool, calls: bool) -> FinishReason:
    if cut:
        return "length"
    if reply.finish_reason is not None:
        return reply.finish_reason
    return "tool_calls" if calls else "stop"


def _first(value: int | None, fallback: int) -> int:
    return fallback if value is None else value

"""One report of usage under one set of names, and how it becomes a reading: checked, corrected upwards, flagged.

A figure that cannot be (negative, a fraction, a string, NaN, above a billion) is ignored and flagged, never
counted as 0. Contradictions are resolved to the larger figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..core.usage import Usage

#: No context window comes near; a larger count of one call is a broken server.
MAX_TOKENS_PER_CALL: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """What one call used, as far as the provider said.

    Attributes:
        usage: inclusive counts.
        estimated: something was missing, impossible or ambiguous: the charge must be flagged.
        complete: ``False`` when input or output is missing (an input of 0 is missing, no prompt is empty): the
            caller fills in its own estimate.
        notes: what was wrong, one line each.
        service_tier: as the provider reported it; it wins over what was asked for.
        model_name: as the provider reported it.
        cached_hit: LangChain's own cache answered: nothing was called and nothing is owed.
        audio_input_tokens: part of the input; priced apart.
        audio_output_tokens: part of the output.
    """

    usage: Usage
    estimated: bool = False
    complete: bool = True
    notes: tuple[str, ...] = ()
    service_tier: str | None = None
    model_name: str | None = None
    cached_hit: bool = False
    audio_input_tokens: int = 0
    audio_output_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class Report:
    """One report of a provider, made inclusive but not yet checked. ``None``: not reported.

    ``text`` says whether the chunk that carried it also carried text (``None``: not known); ``cumulative`` that the
    provider documents its reports as running totals; ``snapshot`` that it came with a whole message.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0
    service_tier: str | None = None
    free: bool = False
    text: bool | None = None
    cumulative: bool = False
    snapshot: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def unknown(self) -> bool:
        return self.input is None and self.output is None and self.total is None

    @property
    def empty(self) -> bool:
        return not (self.input or self.output or self.total)


def checked(report: Report, *, received_text: bool = False) -> UsageReading:
    """The report as a reading: contradictions resolved upwards, never downwards, and named.

    Args:
        report: of a whole call.
        received_text: the answer was not empty, so an output of 0 is missing, not measured.
    """
    notes = list(report.notes)
    read, written, hour, reasoning = report.cache_read, report.cache_write, report.cache_write_1h, report.reasoning
    total = report.total or 0
    output = report.output
    if output is None:
        output = max(total - (report.input or 0), 0) if report.input else 0
        if output:
            notes.append("output is what the total leaves")
    input_tokens = report.input
    if not input_tokens:
        input_tokens = max(total - output, 0) if report.output else 0
        if input_tokens:
            notes.append("input is what the total leaves")
    cached = read + written
    found_input = bool(input_tokens)
    exclusive = cached > input_tokens or (cached > 0 and total - input_tokens - output == cached)
    if exclusive:
        input_tokens += cached
        notes.append("cached tokens exceed the input: read as reported beside it")
    if reasoning > output:
        if total - input_tokens - output != reasoning:  # xAI reports it beside the output, and the total confirms
            notes.append("reasoning exceeds the output: read as reported beside it")
        output += reasoning
    hidden = total - input_tokens - output
    if hidden > 0:
        output += hidden
        if hidden != reasoning:
            notes.append("the total exceeds input and output: the rest counts as output")
    elif total and hidden < 0 and not exclusive:
        notes.append("the total is below input and output")
    complete = found_input and (bool(output) or (report.output is not None and not received_text))
    if not complete:
        notes.append("input or output was not reported")
    usage = Usage(
        input_tokens=input_tokens,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=hour,
        reasoning_tokens=reasoning,
    )
    return UsageReading(
        usage=usage,
        estimated=bool(notes),
        complete=complete,
        notes=tuple(notes),
        service_tier=report.service_tier,
        cached_hit=report.free,
        audio_input_tokens=min(report.audio_input, input_tokens),
        audio_output_tokens=min(report.audio_output, output),
    )


def count_of(value: Any, key: str, notes: list[str]) -> int | None:
    """``value`` when it can be a count of tokens; else ``None`` and, unless it is ``None``, a note.

    A whole float is a count: Cohere and OpenRouter write them so.
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        notes.append(f"{key} is no whole number: {str(value)[:40]!r}")
    elif value < 0:
        notes.append(f"{key} is negative: {value}")
    elif value > MAX_TOKENS_PER_CALL:
        notes.append(f"{key} is beyond any context window")
    else:
        return value
    return None


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """``value`` as a mapping: itself, or the fields of an object of a provider's client."""
    if isinstance(value, Mapping):
        return value
    if value is None or isinstance(value, (str, bytes, int, float, list, tuple)):
        return None
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        dumped = dump()
        return dumped if isinstance(dumped, Mapping) else None
    fields = getattr(value, "__dict__", None)
    return fields if isinstance(fields, Mapping) else None

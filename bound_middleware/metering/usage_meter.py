"""``UsageMeter``: one call's usage from its chunks or messages, whichever way the server counts.

Servers differ: one report at the end; the prompt on every chunk, with the output of that chunk; running totals;
increments; a split report. LangChain adds the reports of chunks when it adds chunks, so they are read before.

The rules, on the reports that are not empty, in order:

1. A whole message is a snapshot: it repeats what its siblings say (``n`` answers carry the usage of the request).
   Where they differ each has its own: the outputs add up, flagged.
2. A provider that documents running totals (Anthropic, Gemini, in their own shape): the largest of each figure.
3. The prompt is reported once: the reports are increments, LangChain's own convention: they add up. A last report
   that brings the prompt, no text, and exactly the sum of those before it is a summary, and replaces them.
4. The prompt is repeated: it counts once, and the output decides.
   a. It falls somewhere: increments; they add up.
   b. It rises with every report: running totals; the last counts.
   c. It is always the same: one token for each chunk with text; a chunk without text repeats. More than one token
      each, or chunks that nobody saw, is ambiguous and flagged: the sum, or the one report where that is nearer
      to the tokens that were received.
   d. It rises, and stays only where a chunk brought no text: running totals. Where text came without a rise it is
      ambiguous: the last if it can hold a token for each chunk with text, else the sum; flagged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from .usage_reports import Report, UsageReading, as_mapping, checked
from .usage_shapes import read_report, tier_in

_SUMMED = ("cache_read", "cache_write", "cache_write_1h", "reasoning", "audio_input", "audio_output")
_OF_OUTPUT = ("reasoning", "audio_output")
_OF_INPUT = ("cache_read", "cache_write", "cache_write_1h", "audio_input")
#: Where a message holds generated text outside of its content.
_TEXTS = ("reasoning_content", "reasoning", "thinking", "refusal", "function_call", "tool_calls", "audio")
#: What a block of content has besides what was generated.
_LABELS = frozenset({"type", "index", "id"})
_NAME_KEYS = ("model_name", "model", "model_id", "model_version")


class UsageMeter:
    """Feed every chunk or message of one call, in order; ``result`` says what the call used.

    Args:
        family: of the provider, where the keys of its reports do not tell (see ``normalise``).
    """

    __slots__ = ("_family", "_reports", "_text", "model_name", "service_tier")

    def __init__(self, family: str | None = None) -> None:
        self._family = family
        self._reports: list[Report] = []
        self._text = False
        self.model_name: str | None = None
        self.service_tier: str | None = None

    def add(self, message: Any, generation_info: Mapping[str, Any] | None = None) -> None:
        """One message, chunk, generation chunk, or raw usage of a provider as a mapping.

        Args:
            message: with ``usage_metadata``, ``response_metadata`` and ``content``, or a mapping, or an object that
                holds such a message as ``message``.
            generation_info: what came beside the message; read where the message itself says nothing.
        """
        if isinstance(message, Mapping):
            self._take(read_report(message, self._family))
            return
        inner = getattr(message, "message", None)
        if inner is not None and hasattr(inner, "content"):
            generation_info = generation_info or getattr(message, "generation_info", None)
            message = inner
        text = _has_text(message)
        self._text = self._text or text
        metadata = getattr(message, "response_metadata", None)
        if metadata:
            self._note(metadata)
        if generation_info:
            self._note(generation_info)
        report = read_report(getattr(message, "usage_metadata", None), self._family)
        if not (report.input and report.output) and not report.free:
            beside = (metadata, generation_info, getattr(message, "additional_kwargs", None))
            report = _filled(report, [read_report(place, self._family) for place in beside if place])
        report.text = text
        report.snapshot = not type(message).__name__.endswith("Chunk")
        self._take(report)

    def result(self, received_tokens: Callable[[], int] | None = None) -> UsageReading | None:
        """What the call used, or ``None`` when the provider reported nothing at all.

        Args:
            received_tokens: the caller's own count of the output, asked for only to settle what is ambiguous.
        """
        if not self._reports:
            return None
        reading = checked(_combined(self._reports, received_tokens), received_text=self._text)
        return replace(reading, service_tier=self.service_tier or reading.service_tier, model_name=self.model_name)

    def _take(self, report: Report) -> None:
        if report.free or report.notes or not report.unknown:
            self._reports.append(report)
        if report.service_tier is not None:
            self.service_tier = self.service_tier or report.service_tier

    def _note(self, metadata: Mapping[str, Any]) -> None:
        tier = metadata.get("service_tier")
        if tier is None and "serviceTier" in metadata:
            tier = (as_mapping(metadata["serviceTier"]) or {}).get("type")
        if tier is None and metadata.get("usage"):
            tier = tier_in(as_mapping(metadata["usage"]) or {})
        if isinstance(tier, str) and tier:
            self.service_tier = tier
        if self.model_name is None:
            name = next((metadata[key] for key in _NAME_KEYS if isinstance(metadata.get(key), str)), None)
            self.model_name = name or None


def _has_text(message: Any) -> bool:
    """Whether a message brings anything that was generated: content, reasoning, tool calls."""
    content = message.content
    if content if isinstance(content, str) else any(map(_is_told, content or ())):
        return True
    if getattr(message, "tool_call_chunks", None) or getattr(message, "tool_calls", None):
        return True
    extra = getattr(message, "additional_kwargs", None)
    return extra is not None and any(extra.get(key) for key in _TEXTS)


def _is_told(block: Any) -> bool:
    if isinstance(block, Mapping):
        return any(value for key, value in block.items() if key not in _LABELS)
    return bool(block)


def _filled(report: Report, others: list[Report]) -> Report:
    """The report, or a better one from beside it: clients write 0 where they do not know a provider's word."""
    for other in others:
        better = (other.input and not report.input) or (other.output and not report.output)
        if better or (report.unknown and not other.unknown):
            other.free = False  # LangChain marks what its cache answered in ``usage_metadata`` alone
            other.input = other.input or report.input
            other.output = other.output or report.output
            report = other
    return report


def _combined(reports: list[Report], received_tokens: Callable[[], int] | None) -> Report:
    notes = list(dict.fromkeys(note for report in reports for note in report.notes))
    told = [report for report in reports if not report.empty]
    if not told:
        return replace(reports[-1], notes=notes)
    whole = [report for report in told if report.snapshot]
    running = any(report.cumulative for report in told)
    if len({report.output for report in whole}) > 1:
        notes.append("answers of one request differ in what they report: the outputs add up")
        return _largest(whole, notes, output=sum(report.output or 0 for report in whole), added=whole)
    if whole or (running and all(report.cumulative or report.total is None for report in told)):
        return _largest(whole or told, notes)
    if len(told) == 1:
        return replace(told[0], notes=notes)
    repeated = sum(1 for report in told if report.input) > 1
    if not repeated:
        if _is_summary(told):
            return replace(told[-1], notes=notes)
        return _sum(told, notes)
    return _with_repeated_prompt(told, notes, received_tokens)


def _is_summary(told: list[Report]) -> bool:
    """Whether the last report repeats all before it: it came without text, with the prompt, and their exact sum."""
    last = told[-1]
    if last.text is not False or not last.input or not last.output:
        return False
    return last.output == sum(report.output or 0 for report in told[:-1])


def _is_nearer(received: int, one: int, other: int) -> bool:
    return received > 0 and received - one < other - received


def _with_repeated_prompt(
    told: list[Report], notes: list[str], received_tokens: Callable[[], int] | None
) -> Report:
    prompts = [report.input for report in told if report.input]
    if any(later < earlier for earlier, later in pairwise(prompts)):
        notes.append("the prompt shrinks from report to report: the largest counts")
    grown = [report for report in told if report.output]
    outputs = [report.output or 0 for report in grown]
    steps = [
        (later - earlier, report.text)
        for earlier, later, report in zip(outputs, outputs[1:], grown[1:], strict=False)
    ]
    with_text = [report for report in grown if report.text is not False]
    if any(step < 0 for step, _ in steps):
        if _is_summary(grown):
            return _largest(told, notes, output=outputs[-1])
        return _largest(told, notes, output=sum(outputs), added=grown)
    if all(step > 0 for step, _ in steps):
        return _largest(told, notes)
    if outputs[0] == outputs[-1]:
        if len(with_text) <= 1:
            return _largest(told, notes)
        seen = all(report.text is not None for report in grown)
        if not seen or outputs[0] != 1:
            notes.append("equal counts repeat: increments or running totals")
        total = outputs[0] * len(with_text)
        if outputs[0] > 1 and received_tokens is not None and _is_nearer(received_tokens(), outputs[0], total):
            return _largest(told, notes)
        return _largest(told, notes, output=total, added=with_text)
    if all(text is False for step, text in steps if step == 0):
        return _largest(told, notes)
    notes.append("counts rise and repeat: increments or running totals")
    if outputs[-1] >= len(with_text):
        return _largest(told, notes)
    return _largest(told, notes, output=sum(outputs), added=grown)


def _largest(
    reports: list[Report], notes: list[str], *, output: int | None = None, added: list[Report] | None = None
) -> Report:
    """Each figure at its largest; where ``output`` is given it counts instead, and ``added`` sums its details."""
    result = Report(notes=notes)
    result.input = max((r.input for r in reports if r.input is not None), default=None)
    result.output = max((r.output for r in reports if r.output is not None), default=None)
    if output is None:
        result.total = max((r.total for r in reports if r.total is not None), default=None)
    else:
        result.output = output
    for name in _SUMMED:
        figures = [getattr(report, name) for report in reports]
        if added is not None and name in _OF_OUTPUT:
            figures = [sum(getattr(report, name) for report in added)]
        setattr(result, name, max(figures))
    result.service_tier = next((r.service_tier for r in reports if r.service_tier), None)
    result.free = all(report.free for report in reports)
    return result


def _sum(reports: list[Report], notes: list[str]) -> Report:
    result = Report(notes=notes)
    for name in ("input", "output", "total"):
        figures = [getattr(report, name) for report in reports]
        known = [figure for figure in figures if figure is not None]
        setattr(result, name, sum(known) if known and (name != "total" or None not in figures) else None)
    for name in (*_OF_INPUT, *_OF_OUTPUT):
        setattr(result, name, sum(getattr(report, name) for report in reports))
    result.service_tier = next((r.service_tier for r in reports if r.service_tier), None)
    return result

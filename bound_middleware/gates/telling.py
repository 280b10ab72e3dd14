"""The one message that sends an agent back: what is in the way, root causes first, and the lines that say so.

It names no limit and no count: how often an agent may try is not its business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..core.redaction import Redactor
from .values import Report, Result

MESSAGE_CHARS_MAX = 6_000
#: How many root causes are told in full; the others by name.
ROOTS_TOLD = 3
_TAIL_CHARS, _LINES_TOLD, _LINE_CHARS, _FINDINGS_TOLD = 1_200, 8, 240, 8
_TELLING = re.compile(
    r"\b(?:fail\w*|errors?|exception|assert\w*|traceback|expected)\b|\bE\s{2,}|Error\b", re.IGNORECASE
)
_REDACT = Redactor()


def repair_text(report: Report, unanswered: Iterable[Result] = (), *, acknowledge: str | None = None) -> str:
    """What to do before the work is done; ``unanswered`` are advisory results that need an answer.

    ``acknowledge`` names the tool with which an agent can give a reason instead.
    """
    roots, open_ones = report.roots, tuple(unanswered)
    failing = [result for result in roots if result.verdict != "pending"]
    parts = []
    if failing:
        parts.append("The work is not done: a check that has to pass does not. Repair this, then finish again.")
        parts += [told(result) for result in failing[:ROOTS_TOLD]]
        parts += _others("Also failing", failing[ROOTS_TOLD:])
        parts += _others("Not run because of this", [result for result in report.blocking if result not in roots])
    if open_ones:
        way = "Repair it" if acknowledge is None else f"Repair it, or say with the tool {acknowledge} why it stays"
        parts.append(f"{'Besides, advice' if failing else 'Advice'} is not answered yet. {way}.")
        parts += [told(result) for result in open_ones[:ROOTS_TOLD]]
        parts += _others("Also open", open_ones[ROOTS_TOLD:])
    text = "\n\n".join(parts)
    return text if len(text) <= MESSAGE_CHARS_MAX else f"{text[:MESSAGE_CHARS_MAX]}\n[cut]"


def told(result: Result) -> str:
    """One result: its verdict, its findings, its telling lines, and the end of its output."""
    lines = [f"{result.constraint_id} ({result.kind}): {result.verdict}. {_REDACT(result.message)}".rstrip(". ")]
    for finding in result.findings[:_FINDINGS_TOLD]:
        place = ":".join(str(part) for part in (finding.file_path, finding.line) if part is not None)
        hint = f" ({finding.suggestion})" if finding.suggestion else ""
        lines.append(_REDACT(f"- {f'{place}: ' if place else ''}{finding.message}{hint}")[:_LINE_CHARS])
    output = _REDACT(result.output_tail or "").strip()
    tail = output[-_TAIL_CHARS:]
    before = output[: len(output) - len(tail)]
    telling = [line.strip()[:_LINE_CHARS] for line in before.splitlines() if _TELLING.search(line)]
    if telling:
        lines += ["Lines that tell:", *telling[-_LINES_TOLD:]]
    if tail:
        lines += ["Output:" if not before else "End of the output:", tail]
    return "\n".join(lines)


def _others(title: str, results: Iterable[Result]) -> list[str]:
    names = ", ".join(result.constraint_id for result in results)
    return [f"{title}: {names}."] if names else []

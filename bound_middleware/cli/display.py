"""What a person sees of a run: each axis against its ceiling, while it runs and when it has ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..session.outcome import RunOutcome
    from ..session.session import BoundSession

WIDTH = 80
#: From this share of a ceiling on, the bar is drawn in the colour of a warning.
WARN_AT = 0.8
_COLOURS = {"ok": "\x1b[32m", "warn": "\x1b[33m", "over": "\x1b[31m", "dim": "\x1b[2m"}
_PLAIN = "\x1b[0m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of a session. ``held`` is asked by calls that are running; ``limit`` is ``None`` where unbounded.

    The numbers are calls, tokens, nano-dollars or ms.
    """

    name: str
    used: int
    limit: int | None = None
    held: int = 0
    estimated: bool = False

    @property
    def text(self) -> str:
        """The numbers for a person."""
        about = "about " if self.estimated else ""
        used = f"{about}{self._shown(self.used)}"
        return f"{used}, not bounded" if self.limit is None else f"{used} of {self._shown(self.limit)}"

    def _shown(self, amount: int) -> str:
        if self.name == "money":
            return money(amount)
        return f"{amount / 1000:,.1f} s" if self.name == "time" else f"{amount:,}"


def money(nanousd: int) -> str:
    """Nano-dollars as dollars with at least two places and no zeros after those: ``$0.50``, ``$0.0005075``."""
    whole, part = divmod(abs(nanousd), 1_000_000_000)
    places = f"{part:09d}".rstrip("0").ljust(2, "0")
    return f"{'-' if nanousd < 0 else ''}${whole:,}.{places}"


def axes(session: BoundSession) -> tuple[Axis, ...]:
    """The four axes of a session, as they stand now."""
    usage, left, limits = session.usage, session.remaining(), session.declared
    settled = {"iterations": usage.iterations, "tokens": usage.total_tokens, "money": usage.cost_nanousd}
    ceilings = {"iterations": limits.iterations, "tokens": limits.tokens, "money": limits.nanousd}
    free = {
        "iterations": left.iterations,
        "tokens": left.tokens,
        "money": None if left.usd is None else int(left.usd.scaleb(9)),
    }
    found = []
    for name, used in settled.items():
        limit, room = ceilings[name], free[name]
        if name == "iterations" and limit is None:
            used = usage.model_calls
        held = 0 if limit is None or room is None else max(0, limit - used - room)
        found.append(
            Axis(name=name, used=used, limit=limit, held=held, estimated=usage.estimated and name != "iterations")
        )
    return (*found, Axis(name="time", used=session.elapsed_ms(), limit=limits.wall_clock_ms))


def bar(axis: Axis, cells: int, *, ascii_only: bool = False) -> str:
    """How full an axis is: used, held by calls that are running, free. Something used shows at least one cell."""
    marks = "#+." if ascii_only else "█▒░"
    limit = axis.limit or 0
    if limit == 0:
        return marks[0] * cells
    used = min(cells, max(int(axis.used > 0), axis.used * cells // limit))
    held = min(cells - used, -(-axis.held * cells // limit))
    return marks[0] * used + marks[1] * held + marks[2] * (cells - used - held)


def live_lines(
    session: BoundSession, title: str, *, width: int = WIDTH, colour: bool = False, ascii_only: bool = False
) -> list[str]:
    """Six lines that say how a session stands; none is wider than ``width`` cells."""
    status = session.outcome.stop_reason or "running"
    notes = [*_notes(session), f"stopped by {status}" if status != "running" else status]
    room = width - 2
    head = f"bound run {title}"[: max(0, room - len(", ".join(notes)) - 2)]
    lines = [f"{head}  {', '.join(notes)}"[:room]]
    numbers = axes(session)
    cells = max(4, room - 12 - max(len(a.text) for a in numbers) - 2)
    for axis in numbers:
        if axis.limit is None:
            lines.append(f"{axis.name:<12}{axis.text}"[:room])
            continue
        drawn = bar(axis, cells, ascii_only=ascii_only)
        if colour:
            drawn = f"{_COLOURS[_state(axis)]}{drawn}{_PLAIN}"
        lines.append(f"{axis.name:<12}{drawn}  {axis.text}")
    events = session.events
    lines.append(f"{'last event':<12}{_event(events[-1]) if events else ''}"[:room])
    if colour:
        lines[0], lines[-1] = (f"{_COLOURS['dim']}{line}{_PLAIN}" for line in (lines[0], lines[-1]))
    return lines


def summary(session: BoundSession, outcome: RunOutcome) -> str:
    """The block that stands at the end of a run, without the line that names its outcome."""
    usage = outcome.usage
    calls = f"{usage.model_calls:,} of models, {usage.tool_calls:,} of tools"
    rows = [(axis.name, axis.text) for axis in axes(session)] + [("calls", calls)]
    if outcome.overshoot:
        rows.append(("overshoot", ", ".join(_over(meter, n) for meter, n in outcome.overshoot.items())))
    if session.ledger.durable:
        rows.append(("session", session.session_id))
    return "\n".join(f"  {name:<12}{text}" for name, text in rows)


def headline(session: BoundSession, outcome: RunOutcome, note: str | None = None) -> str:
    """One line: how the run ended, and why."""
    if outcome.stop_reason is not None:
        words = f"{outcome.status} by {outcome.stop_reason}"
    else:
        words = outcome.status
    words = ", ".join([words, *_notes(session)])
    why = note or _why(outcome.detail)
    return f"bound: {words}: {why}" if why and outcome.stop_reason is not None else f"bound: {words}"


def would_have_refused(session: BoundSession) -> str | None:
    """What a session in shadow mode let pass, and what refusing it would have saved; ``None``: nothing."""
    from ..session.shadow import shadow_report

    report = shadow_report(session.events)
    return str(report) if report.refused else None


def wants_colour(environment: Mapping[str, str] | None = None) -> bool:
    """Whether colours are welcome: not where ``NO_COLOR`` is set to anything, nor on a dumb terminal."""
    env = os.environ if environment is None else environment
    return not env.get("NO_COLOR") and env.get("TERM", "") != "dumb"


def _notes(session: BoundSession) -> list[str]:
    notes = [] if session.spec.bounds_anything else ["NOT BOUND"]
    return [*notes, "SHADOW: nothing is refused"] if session.shadow else notes


def _state(axis: Axis) -> str:
    limit = axis.limit or 0
    share = (axis.used + axis.held) / limit if limit else 1.0
    return "over" if share >= 1 else "warn" if share >= WARN_AT else "ok"


def _event(event: Any) -> str:
    name = event.request.get("name") or event.detail.get("name") or ""
    kind = event.verdict.get("kind") if event.verdict else None
    words = [event.name.replace("_", " "), str(name), "refused" if kind == "refuse" else ""]
    return " ".join(word for word in words if word)


def _over(meter: str, amount: int) -> str:
    return money(amount) if meter == "nanousd" else f"{amount:,} {meter}"


def _why(detail: Mapping[str, Any]) -> str:
    name, note = detail.get("name"), detail.get("note")
    if note:
        return str(note)
    if detail.get("in_flight"):
        return f"a call of {name!r} was cut while it ran"
    if detail.get("on_the_wire"):
        return f"an answer of {name!r} was capped"
    return f"a call of {name!r} was not made" if name else ""

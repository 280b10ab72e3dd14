"""The tree of errors. Each carries values and derives its text from them; each pickles.

``SpecError`` is the developer's mistake; ``BoundExceeded`` is a run's outcome; ``LedgerError`` and
``TraceError`` say that a record cannot be trusted.
"""

from __future__ import annotations

from typing import Any


class BoundError(Exception):
    """The root of every error that this package raises on purpose."""

    code = "bound_error"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(kind: type[BoundError], args: tuple[Any, ...], values: dict[str, Any]) -> BoundError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(values)
    return error


class SpecError(BoundError, ValueError):
    """A specification, or an argument that states a bound, is wrong. Nothing was started.

    Attributes: ``message``; ``key`` (path such as ``bounds.cost_budget.total_usd``); ``value`` as given;
    ``allowed`` (what would do); ``nearest`` (the closest valid name); ``file`` and ``line`` (from 1).
    """

    code = "spec_error"

    def __init__(
        self,
        message: str,
        *,
        key: str | None = None,
        value: object = None,
        allowed: str | None = None,
        nearest: str | None = None,
        file: str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.key, self.value = message, key, value
        self.allowed, self.nearest, self.file, self.line = allowed, nearest, file, line

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        parts = [f"{where}: " if where else "", f"{self.key}: " if self.key else "", self.message]
        if self.allowed:
            parts.append(f"; allowed: {self.allowed}")
        if self.nearest:
            parts.append(f"; did you mean {self.nearest!r}?")
        return "".join(parts)


class BoundExceeded(BoundError):
    """A bound refused or cut something. What was paid for before is kept in ``outcome`` and ``partial``.

    Attributes: ``stop_reason``; ``axis``, ``limit``, ``used`` (settled), ``held`` and ``asked`` in the unit of
    the axis (tokens, nano-USD, ms, calls), ``None`` where no number applies; ``outcome``, a ``RunOutcome``;
    ``partial``, what had arrived when a stream was cut; ``session_id``, whose bound it was.
    """

    code = "bound_exceeded"

    def __init__(
        self,
        stop_reason: str,
        *,
        axis: str | None = None,
        limit: int | None = None,
        used: int | None = None,
        held: int | None = None,
        asked: int | None = None,
        note: str | None = None,
        outcome: Any = None,
        partial: Any = None,
        session_id: str | None = None,
    ) -> None:
        super().__init__(stop_reason)
        self.stop_reason, self.axis, self.note = stop_reason, axis, note
        self.limit, self.used, self.held, self.asked = limit, used, held, asked
        self.outcome, self.partial, self.session_id = outcome, partial, session_id

    def __str__(self) -> str:
        text = f"stopped by {self.stop_reason}"
        if self.limit is not None:
            numbers = [f"limit {self.limit}"]
            numbers += [f"{k} {v}" for k, v in (("used", self.used), ("held", self.held)) if v is not None]
            numbers += [f"asked {self.asked}"] if self.asked is not None else []
            axis = f"{self.axis}: " if self.axis else ""
            text += f" ({axis}{', '.join(numbers)})"
        return f"{text}: {self.note}" if self.note else text


class LedgerError(BoundError):
    """A ledger could not do what was asked, and changed nothing.

    ``reason`` is one of ``hold_closed``, ``unknown_account``, ``unknown_hold``, ``conflict``, ``unavailable``.
    """

    code = "ledger_error"

    def __init__(self, reason: str, *, id: str | None = None, note: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.id, self.note = reason, id, note

    def __str__(self) -> str:
        text = self.reason.replace("_", " ")
        text += f" {self.id!r}" if self.id is not None else ""
        return f"{text}: {self.note}" if self.note else text


class TraceError(BoundError):
    """A trace does not verify, or replays to something else.

    ``index`` is the position of the event (from 0); ``recorded`` and ``recomputed`` are what differs.
    """

    code = "trace_error"

    def __init__(self, message: str, *, index: int, recorded: object = None, recomputed: object = None) -> None:
        super().__init__(message)
        self.message, self.index, self.recorded, self.recomputed = message, index, recorded, recomputed

    def __str__(self) -> str:
        text = f"event {self.index}: {self.message}"
        if self.recorded is not None or self.recomputed is not None:
            text += f" (recorded {self.recorded!r}, recomputed {self.recomputed!r})"
        return text

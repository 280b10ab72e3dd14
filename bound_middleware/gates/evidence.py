"""What was seen before, and what a person said about it: evidence, waivers and acknowledgements.

Evidence that cannot be read is gathered again. A waiver or an acknowledgement that cannot be read is none, and is
not overwritten either: ``StateError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from .digests import evidence_digest
from .state import State, StateError
from .values import Result

WAIVERS, ACKNOWLEDGEMENTS = "waivers.json", "acknowledgements.json"
_FORM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A person accepts one exact result of one constraint, with a reason; ``created_ms`` since the epoch."""

    constraint_id: str
    input_digest: str
    contract_digest: str
    evidence_digest: str
    reason: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """Somebody has answered one exact advisory result, with a reason. Its verdict stays as it is."""

    constraint_id: str
    evidence_digest: str
    reason: str
    created_ms: int


_Note = TypeVar("_Note", Waiver, Acknowledgement)


def reusable(result: Result) -> bool:
    """Whether a result may stand for the next run: an answer, and about the constraint, not about the machine."""
    return result.category == "constraint" and result.verdict in ("pass", "fail", "uncertain")


class Evidence:
    """The store of one project."""

    def __init__(self, state: State) -> None:
        self._state = state

    def latest(self, constraint_id: str) -> tuple[str, Result] | None:
        """The last result and the key it was stored under; ``None`` where there is none that can be read."""
        try:
            data = self._state.read(_file(constraint_id))
            if not isinstance(data, Mapping) or data.get("form") != _FORM or not isinstance(data.get("key"), str):
                return None
            found = Result.from_dict(data["result"])
        except (StateError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return (data["key"], found) if found.constraint_id == constraint_id else None

    def get(self, constraint_id: str, key: str) -> Result | None:
        """The result under exactly this key, if it may be reused."""
        found = self.latest(constraint_id)
        if found is None or found[0] != key or not reusable(found[1]):
            return None
        return found[1]

    def put(self, key: str, result: Result) -> None:
        """Keeps a result in place of the last one.

        Raises:
            StateError: it cannot be written.
        """
        data = {"form": _FORM, "key": key, "result": result.as_dict()}
        self._state.write(_file(result.constraint_id), data, durable=False)

    def waivers(self) -> dict[str, Waiver]:
        """All waivers by constraint, whether they still apply or not.

        Raises:
            StateError: they cannot be read.
        """
        return self._notes(WAIVERS, Waiver)

    def waiver_for(self, result: Result) -> Waiver | None:
        """The waiver of exactly this result; an unreadable store waives nothing."""
        if result.kind == "rubric" or result.verdict in ("pass", "waived", "skipped") or not result.input_digest:
            return None
        try:
            found = self.waivers().get(result.constraint_id)
        except StateError:
            return None
        if found is None or not found.reason.strip() or found.input_digest != result.input_digest:
            return None
        return found if found.evidence_digest == evidence_digest(result) else None

    def waive(self, result: Result, *, contract_digest: str, reason: str, now_ms: int) -> Waiver:
        """Records that a person accepts this result.

        Raises:
            ValueError: a rubric, a result that passed or was not obtained, or no reason.
            StateError: the waivers cannot be read or written.
        """
        if result.kind == "rubric":
            raise ValueError("a rubric cannot be waived: acknowledge it")
        if result.verdict in ("pass", "waived", "skipped") or not result.input_digest:
            raise ValueError(f"{result.constraint_id} is {result.verdict}: there is nothing to waive")
        waiver = Waiver(
            constraint_id=result.constraint_id,
            input_digest=result.input_digest,
            contract_digest=contract_digest,
            evidence_digest=evidence_digest(result),
            reason=_reason(reason),
            created_ms=now_ms,
        )
        self._add(WAIVERS, self.waivers, waiver)
        return waiver

    def acknowledgements(self) -> dict[str, Acknowledgement]:
        """All acknowledgements by constraint.

        Raises:
            StateError: they cannot be read.
        """
        return self._notes(ACKNOWLEDGEMENTS, Acknowledgement)

    def acknowledged(self, result: Result) -> Acknowledgement | None:
        """The acknowledgement of exactly this result; an unreadable store acknowledges nothing."""
        try:
            found = self.acknowledgements().get(result.constraint_id)
        except StateError:
            return None
        return found if found is not None and found.evidence_digest == evidence_digest(result) else None

    def acknowledge(self, result: Result, *, reason: str, now_ms: int) -> Acknowledgement:
        """Records an answer to an advisory result.

        Raises:
            ValueError: a required constraint, a result that passed or was not obtained, or no reason.
            StateError: the acknowledgements cannot be read or written.
        """
        if result.enforcement != "advisory":
            raise ValueError(f"{result.constraint_id} is required: it can be waived, not acknowledged")
        if result.satisfied or not result.input_digest:
            raise ValueError(f"{result.constraint_id} is {result.verdict}: there is nothing to acknowledge")
        note = Acknowledgement(
            constraint_id=result.constraint_id,
            evidence_digest=evidence_digest(result),
            reason=_reason(reason),
            created_ms=now_ms,
        )
        self._add(ACKNOWLEDGEMENTS, self.acknowledgements, note)
        return note

    def _notes(self, name: str, kind: type[_Note]) -> dict[str, _Note]:
        data = self._state.read(name)
        if data is None:
            return {}
        try:
            if data["form"] != _FORM:
                raise ValueError("another form")
            notes = {key: kind(**item) for key, item in data["notes"].items()}
            for note in notes.values():
                _checked(note)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise StateError(str(self._state.path(name)), f"holds something else: {error}") from None
        return notes

    def _add(self, name: str, read: Callable[[], dict[str, _Note]], note: _Note) -> None:
        with self._state.lock(name):
            notes = {**read(), note.constraint_id: note}
            data: dict[str, Any] = {key: asdict(item) for key, item in notes.items()}
            self._state.write(name, {"form": _FORM, "notes": data})


def _checked(note: Waiver | Acknowledgement) -> None:
    for field in fields(note):
        expected = int if field.name == "created_ms" else str
        if type(getattr(note, field.name)) is not expected:
            raise ValueError(f"{field.name} is no {expected.__name__}")


def _reason(reason: str) -> str:
    if not reason.strip():
        raise ValueError("a reason is needed")
    return reason.strip()


def _file(constraint_id: str) -> str:
    return f"evidence/{constraint_id}.json"

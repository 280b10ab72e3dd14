"""How often an agent was sent back in one task. The count is in the state of the gates, never in that of a graph.

So a resume, a fork or a rollback gives nothing back, and neither does a change of the inputs. A task is one new
input; the next one has a budget of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .digests import framed
from .state import State, StateError
from .values import Report

Why = Literal["repair", "crash", "granted"]
_FORM, _LOCK_S = 1, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuations:
    """The continuations of one task, and the last report in it.

    An attempt has an id: asked for again, after a crash, it is the same one.
    """

    state: State
    task: str

    def take(self, attempt: str, *, most: int, why: Why = "repair") -> bool:
        """Counts one, or says that none is left and counts nothing. Of ``crash`` there is one in a task.

        Raises:
            StateError: the count cannot be read or written; nobody is sent back then.
        """
        with self.state.lock(self._file, timeout_s=_LOCK_S):
            taken = self._read()
            if attempt in taken:
                return True
            counted = [reason for reason in taken.values() if reason != "granted"]
            if len(counted) >= most or (why == "crash" and "crash" in counted):
                return False
            self._write({**taken, attempt: why})
            return True

    def grant(self, attempt: str) -> None:
        """Counts one that a person allowed, whatever is left."""
        with self.state.lock(self._file, timeout_s=_LOCK_S):
            self._write({**self._read(), attempt: "granted"})

    def used(self) -> int:
        """How many were counted, those that a person allowed included."""
        return len(self._read())

    def keep(self, report: Report) -> None:
        """Keeps the report that the agent was told of, so that it can answer it."""
        self.state.write(self._name("report"), report.as_dict(), durable=False)

    def report(self) -> Report | None:
        """The report that was kept.

        Raises:
            StateError: it cannot be read.
        """
        data = self.state.read(self._name("report"))
        try:
            return None if data is None else Report.from_dict(data)
        except (ValueError, TypeError) as error:
            raise StateError(str(self.state.path(self._name("report"))), f"holds no report: {error}") from None

    @property
    def _file(self) -> str:
        return self._name("count")

    def _name(self, part: str) -> str:
        return f"tasks/{framed(self.task)[:32]}.{part}.json"

    def _read(self) -> dict[str, str]:
        data: Any = self.state.read(self._file)
        if data is None:
            return {}
        taken = data.get("taken") if isinstance(data, dict) and data.get("form") == _FORM else None
        if not isinstance(taken, dict) or not all(isinstance(why, str) for why in taken.values()):
            raise StateError(str(self.state.path(self._file)), "holds no count of continuations")
        return taken

    def _write(self, taken: dict[str, str]) -> None:
        self.state.write(self._file, {"form": _FORM, "taken": taken})

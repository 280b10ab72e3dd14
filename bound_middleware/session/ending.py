"""How a session's run stands: what stopped it, whether its last answer is whole, when it was active."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ..core.errors import BoundExceeded
from ..core.gateway import in_order
from .outcome import Status

#: Reasons after which every later call of the run is refused too.
ENDS_THE_RUN = frozenset(
    {
        "deadline",
        "cost_budget",
        "token_budget",
        "iteration_limit",
        "no_progress",
        "consecutive_failures",
        "usage_missing",
    }
)
#: Reasons that refuse or cut one call, and leave the run free to go on without it.
_ENDS_ONE_CALL = frozenset(
    {
        "model_call_cost",
        "tool_call_cost",
        "model_call_deadline",
        "tool_call_deadline",
        "idle",
        "unpriced_model",
        "exposure",
        "truncated",
        "tool_refused",
        "data_scope",
        "approval_rejected",
        "approver_failed",
        "approval_expired",
        "retries_exhausted",
        "model_not_allowed",
        "input_per_call",
        "output_refused",
        "spawn_limit",
        "handoff_limit",
    }
)
#: How many sub-agents an outcome tells of.
SUB_AGENTS_TOLD_MAX = 64


class Ending:
    """The state from which an outcome is read. Thread-safe.

    A bound that ended something stays (``stop``). A truncated answer, and a bound that refused one call alone, are
    no ending when a later call answers in full, because the run went on; ``detail["refused"]`` still names them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: list[str] = []
        self._details: dict[str, dict[str, Any]] = {}
        self._refused: list[str] = []
        self._failed = False
        self._passed: BoundExceeded | None = None
        self._open = False
        self._closed = False
        self._truncated: tuple[bool, bool] = (False, False)
        self._retries_unseen = False
        self._forced: str | None = None
        self._waiting: set[tuple[str, str]] = set()
        self._effects_unknown: list[dict[str, Any]] = []
        self._sub_agents: dict[str, dict[str, Any]] = {}

    def end_run(self, reason: str, detail: Mapping[str, Any] | None = None) -> None:
        """A reason that otherwise ends one call ends the run, because it came once too often."""
        self.stop(reason, detail)
        self._forced = self._forced or reason

    def pending(self, thread_id: str, task: str, waits: bool) -> None:
        """Whether this task of the run waits for somebody to approve a call."""
        with self._lock:
            (self._waiting.add if waits else self._waiting.discard)((thread_id, task))

    def no_longer_pending(self, thread_id: str) -> None:
        """A thread begins with something new: what it asked before will not be answered."""
        with self._lock:
            self._waiting = {waiting for waiting in self._waiting if waiting[0] != thread_id}

    def effect_unknown(self, told: Mapping[str, Any]) -> None:
        """A tool was given up while it ran; nobody knows what it did, or is still going to do."""
        with self._lock:
            self._effects_unknown.append(dict(told))

    def sub_agent_ended(self, told: Mapping[str, Any]) -> None:
        """A sub-agent below did not come to its own end; of one that went on later, the last word counts."""
        with self._lock:
            if told["id"] in self._sub_agents or len(self._sub_agents) < SUB_AGENTS_TOLD_MAX:
                self._sub_agents[told["id"]] = dict(told)

    def sub_agent_went_on(self, id: str) -> None:
        """A sub-agent that had failed was tried again, and came to its end."""
        with self._lock:
            self._sub_agents.pop(id, None)

    def retries_unseen(self) -> None:
        """A call was made whose client may have sent it more than once on its own."""
        self._retries_unseen = True

    def stop(self, reason: str, detail: Mapping[str, Any] | None = None) -> None:
        """A bound refused or cut something."""
        with self._lock:
            if reason not in self._reasons:
                self._reasons.append(reason)
                self._details[reason] = dict(detail or {})

    def lift(self, reason: str) -> None:
        """A bound that stopped the run was raised, or somebody is asked to raise it."""
        with self._lock:
            self._reasons = [known for known in self._reasons if known != reason]
            self._details.pop(reason, None)
            self._forced = None if self._forced == reason else self._forced

    @property
    def run_stopped(self) -> str | None:
        """The bound that ended the whole run, rather than one call of it; ``None`` when none did."""
        with self._lock:
            return next((r for r in in_order(self._reasons) if r in ENDS_THE_RUN), self._forced)

    @property
    def usage_missing(self) -> bool:
        """Whether a provider reported no usage where that ends a run."""
        with self._lock:
            return "usage_missing" in self._reasons

    def answered(self, *, truncated: bool, by_us: bool) -> None:
        """A model call ended; whether its answer is cut, and whether a bound of ours cut it."""
        with self._lock:
            self._truncated = (truncated, by_us)
            if not truncated:
                survived = [r for r in self._reasons if r in _ENDS_ONE_CALL and r != self._forced]
                self._refused += [reason for reason in survived if reason not in self._refused]
                self._reasons = [reason for reason in self._reasons if reason not in survived]

    def begin(self) -> None:
        with self._lock:
            self._open, self._failed, self._passed = True, False, None

    def end(self, error: BaseException | None = None) -> None:
        """The run ended, with what left its block. A generator that is closed early has not failed."""
        with self._lock:
            self._open, self._closed = False, True
            self._passed = error if isinstance(error, BoundExceeded) else None
            self._failed = not isinstance(error, (BoundExceeded, GeneratorExit, type(None)))

    def read(self) -> tuple[Status, str | None, bool, dict[str, Any]]:
        """Status, stop reason, truncated, detail."""
        with self._lock:
            truncated, by_us = self._truncated
            reasons = in_order(self._reasons)
            if truncated and by_us and not reasons:
                reasons = ["truncated"]
            detail = dict(self._details.get(reasons[0], {})) if reasons else {}
            if not reasons and self._passed is not None:
                # The bound of another session (a child's, or one around this one) ended this run too.
                reasons, detail = [self._passed.stop_reason], {"session_id": self._passed.session_id}
            if self._retries_unseen:
                detail["hidden_retries_possible"] = True
            if self._effects_unknown:
                detail["effect_unknown"] = [dict(told) for told in self._effects_unknown]
            if self._sub_agents:
                detail["sub_agents"] = [dict(told) for told in self._sub_agents.values()]
            if self._refused:
                detail["refused"] = in_order(self._refused)
            if self._waiting and self._forced is None and not ENDS_THE_RUN.intersection(reasons):
                return "pending_approval", None, truncated, detail
            if reasons:
                detail["limits"] = reasons
                gate = reasons[0] == "gate_unsatisfied"
                return "gate_unsatisfied" if gate else "stopped", reasons[0], truncated, detail
            if self._failed:
                return "failed", None, truncated, detail
            return ("completed" if self._closed and not self._open else "running"), None, truncated, detail

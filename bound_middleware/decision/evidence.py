"""What was observed while a step ran, and where each observation comes from.

An observation that is missing is never zero and never a pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from pydantic import model_validator

from ._base import Count, Flag, Frozen, Many, Seconds, Text, Words

if TYPE_CHECKING:
    from .contracts import StepContract

EvidenceClass = Literal["observed", "verified", "attested", "evaluated", "claimed", "missing"]
"""Where a record comes from.

``observed``: code of ours saw it (an exit code, a file). ``verified``: it was checked against something independent
(a hash, a second run). ``attested``: a named person or system vouches for it. ``evaluated``: a model judged it by a
rubric. ``claimed``: the agent says so. ``missing``: somebody looked and there was nothing to see.
"""

Telemetry = Literal["retry_count", "tool_call_count", "token_usage", "runtime_seconds"]


class CheckEvidence(Frozen):
    """One record about one check of a contract.

    Of a risk check, ``passed`` means that the risk did not come true. A record that does not say where it comes
    from is a claim: it passes where the contract does not ask. ``observed_ms`` is the time, in ms since the epoch,
    and ``digest`` that of what the record rests on (``sha256:...``); the collectors give both.
    """

    check_id: Text
    passed: Flag
    source: Words
    details: Words | None = None
    provenance: EvidenceClass = "claimed"
    observed_ms: Count | None = None
    digest: Words | None = None

    @model_validator(mode="after")
    def _nothing_seen_is_nothing_passed(self) -> CheckEvidence:
        if self.passed and self.provenance == "missing":
            raise ValueError("missing evidence cannot have passed")
        return self


class ExecutionEvidence(Frozen):
    """Everything that was recorded about the run of one step.

    ``token_usage``, ``runtime_seconds`` and ``rollback_available`` are ``None`` when nobody measured them. The two
    counts are 0 unless given, as in the seed; a collector that cannot count names them in ``unmeasured``, and then
    a declared budget for them is spent in full.
    """

    acceptance: Many[CheckEvidence] = ()
    risks: Many[CheckEvidence] = ()
    produced_artifacts: Many[Words] = ()
    unexpected_artifacts: Many[Words] = ()
    retry_count: Count = 0
    tool_call_count: Count = 0
    token_usage: Count | None = None
    runtime_seconds: Seconds | None = None
    rollback_available: bool | None = None
    unmeasured: Many[Telemetry] = ()

    @model_validator(mode="after")
    def _unmeasured_has_no_value(self) -> ExecutionEvidence:
        for name in self.unmeasured:
            if getattr(self, name):
                raise ValueError(f"{name} is said to be unmeasured and has a value")
        return self

    def measured(self, name: Telemetry) -> float | None:
        """The value of one telemetry field, ``None`` when nobody measured it."""
        value: float | None = None if name in self.unmeasured else getattr(self, name)
        return value


@runtime_checkable
class EvidenceCollector(Protocol):
    """Turns what happened into evidence. What an ``execution`` is, only the collector knows."""

    def collect(self, *, contract: StepContract, execution: object) -> ExecutionEvidence: ...

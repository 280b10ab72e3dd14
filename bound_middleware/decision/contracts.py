"""What a step must achieve, agreed before it runs; and who writes it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Protocol, runtime_checkable

from pydantic import model_validator

from ._base import Count, Flag, Forced, Frozen, Many, Seconds, Text, number, unique
from .evidence import EvidenceClass


class _Check(Frozen):
    """A question about a step that evidence answers, and what the answer must rest on.

    ``accepted_provenance``: the classes of evidence that may pass this check; ``None`` is any. A record of another
    class never passes it, but may fail it. ``on_missing``: the least strict decision when there is no evidence;
    ``on_claimed``: when it rests on claims alone. Both can only make the decision stricter.
    """

    id: Text
    description: Text
    accepted_provenance: Many[EvidenceClass] | None = None
    on_missing: Forced | None = None
    on_claimed: Forced | None = None

    @model_validator(mode="after")
    def _something_can_pass(self) -> _Check:
        accepted = self.accepted_provenance
        if accepted is not None and set(accepted) <= {"missing"}:
            raise ValueError("accepted_provenance must name a class that can pass; None accepts every class")
        return self


class AcceptanceCheck(_Check):
    """One observable outcome. With ``required=False`` it is advice and does not enter the score."""

    required: Flag = True


class RiskCheck(_Check):
    """One thing that must not happen. Its ``severity``, 0 to 1, is added to the risk when it did, or when no
    evidence says that it did not.
    """

    severity: Annotated[float, number("severity")]
    required: ClassVar[bool] = True


class StepBudget(Frozen):
    """Ceilings of one step. ``None`` is no ceiling, 0 allows nothing. They price the step; they do not stop it."""

    max_retries: Count | None = None
    max_tool_calls: Count | None = None
    max_tokens: Count | None = None
    max_runtime_seconds: Seconds | None = None


class StepContract(Frozen):
    """What one step must achieve. At least one acceptance check; ids and artifacts occur once."""

    id: Text
    description: Text
    goal: Text
    acceptance_checks: Many[AcceptanceCheck]
    risk_checks: Many[RiskCheck] = ()
    expected_artifacts: Many[Text] = ()
    budget: StepBudget | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> StepContract:
        if not self.acceptance_checks:
            raise ValueError("a step needs at least one acceptance check")
        unique("acceptance check", [check.id for check in self.acceptance_checks])
        unique("risk check", [check.id for check in self.risk_checks])
        unique("expected artifact", self.expected_artifacts)
        return self


class BoundPlan(Frozen):
    """Steps in order. At least one; their ids occur once."""

    goal: Text
    steps: Many[StepContract]

    @model_validator(mode="after")
    def _is_complete(self) -> BoundPlan:
        if not self.steps:
            raise ValueError("a plan needs at least one step")
        unique("step", [step.id for step in self.steps])
        return self


@runtime_checkable
class ContractGenerator(Protocol):
    """Turns a goal and a plan in words into contracts. It may ask a model; it never decides and never scores."""

    def generate(self, *, goal: str, plan: str, context: str | None = None) -> BoundPlan: ...


class StaticContractGenerator:
    """Returns the plan it was given, whatever it is asked. Needs no model."""

    def __init__(self, plan: BoundPlan) -> None:
        if not isinstance(plan, BoundPlan):
            raise TypeError(f"a BoundPlan is needed, not {type(plan).__name__}")
        self._plan = plan

    @property
    def plan(self) -> BoundPlan:
        return self._plan

    def generate(self, *, goal: str, plan: str, context: str | None = None) -> BoundPlan:
        return self._plan

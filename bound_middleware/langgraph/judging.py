"""From a state to a result: the contract, the evidence, the scores, the policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..core.errors import SpecError
from ..decision.collectors import Collectors, StepRun
from ..decision.contract_scores import ContractEvaluator
from ..decision.contracts import StepContract
from ..decision.evidence import ExecutionEvidence
from ..decision.models import BoundCriteria, EvaluationResult, EvaluationScores
from ..decision.policy import BoundPolicy
from ..decision.workflow import with_findings
from ..session.flow import Flow
from .asking import asked

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What a decision rests on. Functions of the user's may be coroutine functions.

    ``contract``: a ``StepContract``, or state -> one. ``collect``: an ``EvidenceCollector``, or state -> evidence;
    ``Collectors`` are given the step, other collectors the state.
    ``evaluate``: an evaluator, or (contract, evidence, state) -> scores; ``None`` is ``ContractEvaluator``.
    """

    contract: Any
    collect: Any
    evaluate: Any
    influence: float | None
    criteria: BoundCriteria

    def __post_init__(self) -> None:
        if not isinstance(self.contract, StepContract) and not callable(self.contract):
            raise _wrong("contract", self.contract, "a StepContract, or a function of the state that gives one")
        if not callable(getattr(self.collect, "collect", None)) and not callable(self.collect):
            raise _wrong("collect", self.collect, "an EvidenceCollector, or a function of the state")
        scorer = self.evaluate
        if scorer is not None and not callable(getattr(scorer, "evaluate", None)) and not callable(scorer):
            raise _wrong("evaluate", scorer, "a function (contract, evidence, state) -> EvaluationScores, or None")
        if not isinstance(self.criteria, BoundCriteria):
            raise _wrong("criteria", self.criteria, "BoundCriteria(threshold=...)")
        if scorer is not None and self.influence is not None:
            raise SpecError("an evaluator of one's own scores the influence too", key="influence", allowed="None")
        ContractEvaluator(influence=self.influence)

    def judged(self, state: Any, node: str, step: StepRun | None = None) -> Flow[EvaluationResult]:
        """The result on a state, and on the ``step`` that led to it where that is known.

        Raises:
            SpecError: a function gave something else than it must, or is async in a sync call.
        """
        contract = self.contract
        if not isinstance(contract, StepContract):
            contract = _checked("contract", (yield from asked("contract", node, contract, state)), StepContract)
        given = yield from self._evidence(contract, state, node, step)
        evidence = _checked("collect", given, ExecutionEvidence)
        scores = yield from self._scores(contract, evidence, state, node)
        return BoundPolicy().decide(with_findings(scores, contract, evidence), self.criteria)

    def _evidence(self, contract: StepContract, state: Any, node: str, step: StepRun | None) -> Flow[Any]:
        collector = getattr(self.collect, "collect", None)
        if callable(collector):
            execution = step if isinstance(self.collect, Collectors) else state
            return (yield from asked("collect", node, collector, contract=contract, execution=execution))
        return (yield from asked("collect", node, self.collect, state))

    def _scores(
        self, contract: StepContract, evidence: ExecutionEvidence, state: Any, node: str
    ) -> Flow[EvaluationScores]:
        if self.evaluate is None:
            return ContractEvaluator(influence=self.influence).evaluate(contract, evidence)
        scorer: Callable[..., Any] | None = getattr(self.evaluate, "evaluate", None)
        if callable(scorer):
            given = yield from asked("evaluate", node, scorer, contract, evidence)
        else:
            given = yield from asked("evaluate", node, self.evaluate, contract, evidence, state)
        return _checked("evaluate", given, EvaluationScores)


def _checked(key: str, value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise _wrong(key, value, f"a value of {kind.__name__}")
    return value


def _wrong(key: str, value: Any, allowed: str) -> SpecError:
    return SpecError(f"{type(value).__name__} will not do", key=key, value=value, allowed=allowed)

"""BOUND: decides on a step by its scores, and scores it by evidence. No framework, no network, no model.

Names load when they are first used: ``decision.rules`` and ``decision.steering`` load without pydantic.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .calculator import BoundCalculator, ScoreComponents, calculate_bound_score, calculate_components
    from .coding import CodingWorkflowEvaluator
    from .contract_scores import ContractEvaluator
    from .contracts import (
        AcceptanceCheck,
        BoundPlan,
        ContractGenerator,
        RiskCheck,
        StaticContractGenerator,
        StepBudget,
        StepContract,
    )
    from .corpus import load_contract_corpus
    from .evaluators import Evaluator, StaticEvaluator
    from .evidence import CheckEvidence, EvidenceClass, EvidenceCollector, ExecutionEvidence
    from .experiment import (
        ExperimentResult,
        StepRecord,
        load_trajectories,
        load_trajectory,
        run_experiment,
        save_trajectory,
        summarize,
    )
    from .flips import CheckFlip, Flip, check_flips, flip_text, score_flips
    from .models import (
        Action,
        Assurance,
        BoundCriteria,
        BoundWeights,
        EvaluationResult,
        EvaluationScores,
        Reason,
        ScoreEvidence,
    )
    from .policy import BoundPolicy
    from .quality import ContractQualityReport, assess_contract, assess_step
    from .rules import Decision, NextAction
    from .signals import AgentStep, AgentTrajectory, CodingWorkflowSignals, WorkflowNormalization
    from .steering import steering_text
    from .workflow import BoundWorkflow, StepEvaluator, with_findings

__all__ = [
    "AcceptanceCheck",
    "Action",
    "AgentStep",
    "AgentTrajectory",
    "Assurance",
    "BoundCalculator",
    "BoundCriteria",
    "BoundPlan",
    "BoundPolicy",
    "BoundWeights",
    "BoundWorkflow",
    "CheckEvidence",
    "CheckFlip",
    "CodingWorkflowEvaluator",
    "CodingWorkflowSignals",
    "ContractEvaluator",
    "ContractGenerator",
    "ContractQualityReport",
    "Decision",
    "EvaluationResult",
    "EvaluationScores",
    "Evaluator",
    "EvidenceClass",
    "EvidenceCollector",
    "ExecutionEvidence",
    "ExperimentResult",
    "Flip",
    "NextAction",
    "Reason",
    "RiskCheck",
    "ScoreComponents",
    "ScoreEvidence",
    "StaticContractGenerator",
    "StaticEvaluator",
    "StepBudget",
    "StepContract",
    "StepEvaluator",
    "StepRecord",
    "WorkflowNormalization",
    "assess_contract",
    "assess_step",
    "calculate_bound_score",
    "calculate_components",
    "check_flips",
    "flip_text",
    "load_contract_corpus",
    "load_trajectories",
    "load_trajectory",
    "run_experiment",
    "save_trajectory",
    "score_flips",
    "steering_text",
    "summarize",
    "with_findings",
]

_HOMES = {
    "AcceptanceCheck": "contracts",
    "Action": "models",
    "AgentStep": "signals",
    "AgentTrajectory": "signals",
    "Assurance": "models",
    "BoundCalculator": "calculator",
    "BoundCriteria": "models",
    "BoundPlan": "contracts",
    "BoundPolicy": "policy",
    "BoundWeights": "models",
    "BoundWorkflow": "workflow",
    "CheckEvidence": "evidence",
    "CheckFlip": "flips",
    "CodingWorkflowEvaluator": "coding",
    "CodingWorkflowSignals": "signals",
    "ContractEvaluator": "contract_scores",
    "ContractGenerator": "contracts",
    "ContractQualityReport": "quality",
    "Decision": "rules",
    "EvaluationResult": "models",
    "EvaluationScores": "models",
    "Evaluator": "evaluators",
    "EvidenceClass": "evidence",
    "EvidenceCollector": "evidence",
    "ExecutionEvidence": "evidence",
    "ExperimentResult": "experiment",
    "Flip": "flips",
    "NextAction": "rules",
    "Reason": "models",
    "RiskCheck": "contracts",
    "ScoreComponents": "calculator",
    "ScoreEvidence": "models",
    "StaticContractGenerator": "contracts",
    "StaticEvaluator": "evaluators",
    "StepBudget": "contracts",
    "StepContract": "contracts",
    "StepEvaluator": "workflow",
    "StepRecord": "experiment",
    "WorkflowNormalization": "signals",
    "assess_contract": "quality",
    "assess_step": "quality",
    "calculate_bound_score": "calculator",
    "calculate_components": "calculator",
    "check_flips": "flips",
    "flip_text": "flips",
    "load_contract_corpus": "corpus",
    "load_trajectories": "experiment",
    "load_trajectory": "experiment",
    "run_experiment": "experiment",
    "save_trajectory": "experiment",
    "score_flips": "flips",
    "steering_text": "steering",
    "summarize": "experiment",
    "with_findings": "workflow",
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

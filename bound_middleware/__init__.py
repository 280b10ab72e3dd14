"""bound-middleware: explicit limits on LLM agents, enforced from the outside by deterministic code.

Names load when they are first used, so that importing the package costs nothing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .core.errors import BoundError, BoundExceeded, LedgerError, SpecError, TraceError
    from .core.events import TraceEvent
    from .core.usage import Usage
    from .decision.calculator import BoundCalculator
    from .decision.coding import CodingWorkflowEvaluator
    from .decision.contract_scores import ContractEvaluator
    from .decision.contracts import (
        AcceptanceCheck,
        BoundPlan,
        ContractGenerator,
        RiskCheck,
        StaticContractGenerator,
        StepBudget,
        StepContract,
    )
    from .decision.evaluators import Evaluator, StaticEvaluator
    from .decision.evidence import CheckEvidence, EvidenceCollector, ExecutionEvidence
    from .decision.models import (
        Action,
        BoundCriteria,
        BoundWeights,
        EvaluationResult,
        EvaluationScores,
        ScoreEvidence,
    )
    from .decision.policy import BoundPolicy
    from .decision.quality import ContractQualityReport, assess_contract
    from .decision.rules import Decision
    from .decision.signals import AgentStep, AgentTrajectory, CodingWorkflowSignals, WorkflowNormalization
    from .decision.steering import steering_text
    from .decision.workflow import BoundWorkflow
    from .session.entry import bound, install
    from .session.outcome import Remaining, RunOutcome, SessionUsage
    from .session.session import BoundSession
    from .spec import BoundSpec

__all__ = [
    "AcceptanceCheck",
    "Action",
    "AgentStep",
    "AgentTrajectory",
    "BoundCalculator",
    "BoundCriteria",
    "BoundError",
    "BoundExceeded",
    "BoundPlan",
    "BoundPolicy",
    "BoundSession",
    "BoundSpec",
    "BoundWeights",
    "BoundWorkflow",
    "CheckEvidence",
    "CodingWorkflowEvaluator",
    "CodingWorkflowSignals",
    "ContractEvaluator",
    "ContractGenerator",
    "ContractQualityReport",
    "Decision",
    "EvaluationResult",
    "EvaluationScores",
    "Evaluator",
    "EvidenceCollector",
    "ExecutionEvidence",
    "LedgerError",
    "Remaining",
    "RiskCheck",
    "RunOutcome",
    "ScoreEvidence",
    "SessionUsage",
    "SpecError",
    "StaticContractGenerator",
    "StaticEvaluator",
    "StepBudget",
    "StepContract",
    "TraceError",
    "TraceEvent",
    "Usage",
    "WorkflowNormalization",
    "assess_contract",
    "bound",
    "install",
    "steering_text",
]

_HOMES = {
    "AcceptanceCheck": "decision.contracts",
    "Action": "decision.models",
    "AgentStep": "decision.signals",
    "AgentTrajectory": "decision.signals",
    "BoundCalculator": "decision.calculator",
    "BoundCriteria": "decision.models",
    "BoundError": "core.errors",
    "BoundExceeded": "core.errors",
    "BoundPlan": "decision.contracts",
    "BoundPolicy": "decision.policy",
    "BoundSession": "session.session",
    "BoundSpec": "spec",
    "BoundWeights": "decision.models",
    "BoundWorkflow": "decision.workflow",
    "CheckEvidence": "decision.evidence",
    "CodingWorkflowEvaluator": "decision.coding",
    "CodingWorkflowSignals": "decision.signals",
    "ContractEvaluator": "decision.contract_scores",
    "ContractGenerator": "decision.contracts",
    "ContractQualityReport": "decision.quality",
    "Decision": "decision.rules",
    "EvaluationResult": "decision.models",
    "EvaluationScores": "decision.models",
    "Evaluator": "decision.evaluators",
    "EvidenceCollector": "decision.evidence",
    "ExecutionEvidence": "decision.evidence",
    "LedgerError": "core.errors",
    "Remaining": "session.outcome",
    "RiskCheck": "decision.contracts",
    "RunOutcome": "session.outcome",
    "ScoreEvidence": "decision.models",
    "SessionUsage": "session.outcome",
    "SpecError": "core.errors",
    "StaticContractGenerator": "decision.contracts",
    "StaticEvaluator": "decision.evaluators",
    "StepBudget": "decision.contracts",
    "StepContract": "decision.contracts",
    "TraceError": "core.errors",
    "TraceEvent": "core.events",
    "Usage": "core.usage",
    "WorkflowNormalization": "decision.signals",
    "assess_contract": "decision.quality",
    "bound": "session.entry",
    "install": "session.entry",
    "steering_text": "decision.steering",
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("bound-middleware")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

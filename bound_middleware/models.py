"""The values of a decision of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.models import Action, BoundCriteria, BoundWeights, EvaluationResult, EvaluationScores, ScoreEvidence
from .decision.rules import Decision
from .decision.signals import AgentStep, AgentTrajectory, CodingWorkflowSignals, WorkflowNormalization

__all__ = [
    "Action",
    "AgentStep",
    "AgentTrajectory",
    "BoundCriteria",
    "BoundWeights",
    "CodingWorkflowSignals",
    "Decision",
    "EvaluationResult",
    "EvaluationScores",
    "ScoreEvidence",
    "WorkflowNormalization",
]

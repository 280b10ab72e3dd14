"""The evaluator and the workflow of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.coding import CodingWorkflowEvaluator
from .decision.workflow import BoundWorkflow

__all__ = ["BoundWorkflow", "CodingWorkflowEvaluator"]

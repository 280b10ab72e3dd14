"""The evaluators of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.evaluators import Evaluator, StaticEvaluator

__all__ = ["Evaluator", "StaticEvaluator"]

"""The arithmetic of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.calculator import BoundCalculator, ScoreComponents, calculate_bound_score, calculate_components

__all__ = ["BoundCalculator", "ScoreComponents", "calculate_bound_score", "calculate_components"]

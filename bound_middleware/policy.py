"""The policy of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.policy import BoundPolicy

__all__ = ["BoundPolicy"]

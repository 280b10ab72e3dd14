"""The seam for contracts that a model writes.

A generator may ask a model what success, risks, artifacts and budgets are, and returns a ``BoundPlan``, validated.
It never returns a decision and never assigns A, I, R or C. Nothing here imports a model's SDK.
"""

from .decision.contracts import BoundPlan, ContractGenerator

__all__ = ["BoundPlan", "ContractGenerator"]

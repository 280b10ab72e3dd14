"""The contracts of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.contracts import (
    AcceptanceCheck,
    BoundPlan,
    ContractGenerator,
    RiskCheck,
    StaticContractGenerator,
    StepBudget,
    StepContract,
)

__all__ = [
    "AcceptanceCheck",
    "BoundPlan",
    "ContractGenerator",
    "RiskCheck",
    "StaticContractGenerator",
    "StepBudget",
    "StepContract",
]

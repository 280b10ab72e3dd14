"""The contract evaluator of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.contract_scores import ContractEvaluator

__all__ = ["ContractEvaluator"]

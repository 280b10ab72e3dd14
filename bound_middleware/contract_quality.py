"""The quality report of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.corpus import load_contract_corpus
from .decision.quality import (
    ContractQualityExperimentSummary,
    ContractQualityFinding,
    ContractQualityReport,
    assess_contract,
    assess_step,
    run_contract_quality_experiment,
    summarize_contract_quality_experiment,
)

__all__ = [
    "ContractQualityExperimentSummary",
    "ContractQualityFinding",
    "ContractQualityReport",
    "assess_contract",
    "assess_step",
    "load_contract_corpus",
    "run_contract_quality_experiment",
    "summarize_contract_quality_experiment",
]

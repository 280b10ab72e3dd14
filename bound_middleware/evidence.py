"""The evidence of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.evidence import CheckEvidence, EvidenceCollector, ExecutionEvidence

__all__ = ["CheckEvidence", "EvidenceCollector", "ExecutionEvidence"]

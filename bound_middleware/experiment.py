"""The experiment primitives of BOUND under the seed's path; their home is ``bound_middleware.decision``."""

from .decision.experiment import (
    ExperimentResult,
    StepRecord,
    load_trajectories,
    load_trajectory,
    run_experiment,
    save_trajectory,
    summarize,
)

__all__ = [
    "ExperimentResult",
    "StepRecord",
    "load_trajectories",
    "load_trajectory",
    "run_experiment",
    "save_trajectory",
    "summarize",
]

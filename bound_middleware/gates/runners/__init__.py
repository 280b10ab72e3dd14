"""One runner for every kind of constraint but the rubric, which is connected from outside."""

from .artifact import run_artifact
from .base import GateSite, Runner, found
from .command import run_command
from .metric import run_metric, run_ratchet

RUNNERS: dict[str, Runner] = {
    "command": run_command,
    "metric": run_metric,
    "ratchet": run_ratchet,
    "artifact": run_artifact,
}

__all__ = ["RUNNERS", "GateSite", "Runner", "found"]

"""Repair loops, and the settings of all gates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..values import Phase
from .base import LIST, Part, Relative, Variable, number, whole


class Loop(Part):
    """How often and how long one phase is repaired before a person decides."""

    id: str = Field(default="", exclude=True)
    phase: Phase
    interval_seconds: Annotated[float, number(above=0, most=86_400)]
    max_repair_attempts: Annotated[int, whole(1, 100)]
    max_unchanged_repairs: Annotated[int, whole(1, 100)]
    max_duration_seconds: Annotated[float, number(above=0, most=2_592_000)]
    on_pass: Literal["stop"] = "stop"
    on_failure: Literal["repair"] = "repair"
    on_pending: Literal["wait"] = "wait"
    on_budget_exhausted: Literal["human_required"] = "human_required"


class Settings(Part):
    """Settings of all gates.

    ``evidence_output_limit`` is how many bytes of output a result keeps; ``output_limit`` how many a command may
    write before the middle is dropped. ``environment`` names variables for all commands. ``baselines`` is the
    committed file of the ratchets.
    """

    max_auto_retries: Annotated[int, whole(0, 20)] = 2
    concurrency: Annotated[int, whole(1, 32)] = 4
    evidence_output_limit: Annotated[int, whole(1_024, 1_048_576)] = 65_536
    evaluation_bundle_limit: Annotated[int, whole(4_096, 2_097_152)] = 102_400
    output_limit: Annotated[int, whole(65_536, 268_435_456)] = 8_388_608
    progress_interval_seconds: Annotated[float, number(above=0, most=3_600)] = 15.0
    environment: Annotated[tuple[Variable, ...], LIST] = ()
    baselines: Relative = "bound-baselines.json"

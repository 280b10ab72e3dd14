"""The whole contract, and the rules between its parts."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any, Self

from pydantic import Field, model_validator

from ...core.errors import SpecError
from ...spec.keys import nearest
from ..values import Phase
from .base import Part
from .evaluators import Evaluator
from .kinds import Constraint, Rubric
from .loops import Loop, Settings


class GateContract(Part):
    """What must be true before work is done. ``load`` and ``parse`` make one.

    Raises (all ``SpecError``): ``needs`` of a constraint that is not there, not enabled, or does not run in a phase
    of the dependent; a circle of them; a rubric without its evaluator; a loop over a phase where nothing runs; two
    loops for the stop phase.
    """

    settings: Settings = Field(default_factory=Settings)
    constraints: dict[str, Constraint] = Field(default_factory=dict)
    evaluators: dict[str, Evaluator] = Field(default_factory=dict)
    loops: dict[str, Loop] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        for name, constraint in self.constraints.items():
            for needed in constraint.needs:
                self._need_can_be_met(name, constraint, needed)
            if isinstance(constraint, Rubric) and constraint.evaluator not in self.evaluators:
                raise SpecError(
                    f"there is no evaluator {constraint.evaluator!r}",
                    key=f"constraints.{name}.evaluator",
                    nearest=nearest(constraint.evaluator, self.evaluators),
                    allowed=", ".join(self.evaluators) or "an entry under evaluators",
                )
        self._no_circle()
        for name, loop in self.loops.items():
            if not self.applicable(loop.phase):
                raise SpecError("no enabled constraint runs in this phase", key=f"loops.{name}.phase")
        stops = [name for name, loop in self.loops.items() if loop.phase == "stop"]
        if len(stops) > 1:
            raise SpecError("a second loop for the stop phase", key=f"loops.{stops[1]}.phase")
        return self

    def _need_can_be_met(self, name: str, constraint: Constraint, needed: str) -> None:
        key, other = f"constraints.{name}.needs", self.constraints.get(needed)
        if other is None:
            close = nearest(needed, self.constraints)
            raise SpecError(f"there is no constraint {needed!r}", key=key, nearest=close)
        if not constraint.enabled:
            return
        if not other.enabled:
            raise SpecError(f"{needed!r} is not enabled", key=key)
        absent = [phase for phase in constraint.phases if phase not in other.phases]
        if absent:
            raise SpecError(f"{needed!r} does not run in the phase {absent[0]}", key=key)

    def _no_circle(self) -> None:
        done: set[str] = set()
        while len(done) < len(self.constraints):
            free = {n for n, c in self.constraints.items() if n not in done and set(c.needs) <= done}
            if not free:
                left = sorted(set(self.constraints) - done)
                raise SpecError(f"a circle of needs: {', '.join(left)}", key=f"constraints.{left[0]}.needs")
            done |= free

    def applicable(self, phase: Phase) -> dict[str, Constraint]:
        """The enabled constraints of a phase, in the order of the contract."""
        return {n: c for n, c in self.constraints.items() if c.enabled and phase in c.phases}

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """Plain data with every default filled in."""
        return self.model_dump(mode="json")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical form, in hexadecimal."""
        text = json.dumps(self.canonical, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

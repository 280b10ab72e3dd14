"""How a judge of rubrics is connected to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .values import Result

if TYPE_CHECKING:
    from .contract import Evaluator, Rubric
    from .runners.base import GateSite


class RubricCase(Protocol):
    """One rubric with everything that it is judged on.

    ``digest`` covers all of that: it joins the key of the evidence.
    """

    @property
    def digest(self) -> str: ...

    def run(self) -> Result:
        """Judges it. What is raised becomes a blocking ``error``; ``input_digest`` is the engine's."""
        ...


class RubricRunner(Protocol):
    """Prepares rubrics. Called from one thread at a time."""

    def prepare(
        self, constraint: Rubric, evaluator: Evaluator, site: GateSite, earlier: tuple[Result, ...]
    ) -> RubricCase:
        """The case of a rubric, given the results there are so far; no evaluator is called for this."""
        ...

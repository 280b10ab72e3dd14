"""The one port of rubrics: an evaluator is shown a bundle and says a text. What that means is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class EvaluatorFailed(Exception):
    """Nothing was said that could be judged: no start, no key, too slow, refused, cut off, stopped by a bound.

    ``usage`` and ``cost_usd`` are what it cost all the same, as in ``Said``.
    """

    def __init__(self, reason: str, *, usage: Mapping[str, int] | None = None, cost_usd: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.usage, self.cost_usd = reason, dict(usage or {}), cost_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What an evaluator said, word for word.

    ``usage`` counts tokens and calls by name; ``cost_usd`` is a decimal number, ``None`` where nobody knows it.
    """

    text: str
    usage: Mapping[str, int] = field(default_factory=dict)
    cost_usd: str | None = None


class Evaluator(Protocol):
    """Judges a bundle by the rubric in it.

    ``identity`` names whatever changes its judgement (its kind, model, settings): evidence from another identity is
    stale. ``concurrent`` allows several runs at the same time. Each run of a rubric is one call of ``evaluate``,
    in a thread of its own where they are concurrent, with the context of whoever runs the gates.
    """

    @property
    def identity(self) -> Mapping[str, Any]: ...

    @property
    def concurrent(self) -> bool: ...

    def evaluate(self, bundle: str) -> Said:
        """What the evaluator says about the bundle, which is one JSON object.

        Raises:
            EvaluatorFailed: there is nothing that could be judged.
        """
        ...

"""How the runs of a rubric become one verdict.

enough passes            -> pass
else anyone unsure, or without a reply -> uncertain
else                     -> fail
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..values import Finding
from .reply import Reply, Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One run: a reply, or the reason why there is none. ``call`` is its record."""

    reply: Reply | None = None
    error: str | None = None
    call: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Word:
        return "uncertain" if self.reply is None else self.reply.verdict

    @property
    def why(self) -> str:
        return self.error or "" if self.reply is None else self.reply.rationale


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The one verdict, why, what was found, and the mean of the scores that were given.

    ``reliable`` is whether every run that mattered gave a reply: without one, another try may say something else.
    """

    verdict: Word
    message: str
    findings: tuple[Finding, ...]
    score: float | None
    reliable: bool


def tally(votes: Sequence[Vote], quorum: int) -> Tally:
    """The verdict of all runs. ``quorum`` of them must pass."""
    passes = sum(vote.verdict == "pass" for vote in votes)
    verdict: Word
    if votes and passes >= quorum:
        verdict = "pass"
    elif not votes or any(vote.verdict == "uncertain" for vote in votes):
        verdict = "uncertain"
    else:
        verdict = "fail"
    deciding = next((vote for vote in votes if vote.verdict == verdict), None)
    # A run without a reply tells more than one that is unsure.
    failed = next((vote for vote in votes if vote.reply is None), None)
    if verdict == "uncertain" and failed is not None:
        deciding = failed
    replies = [vote.reply for vote in votes if vote.reply is not None]
    scores = [reply.score for reply in replies if reply.score is not None]
    runs = "1 run passes" if passes == 1 else f"{passes} runs pass"
    return Tally(
        verdict=verdict,
        message=f"{runs} of {len(votes)}, {quorum} needed" + (f": {deciding.why}" if deciding else ""),
        findings=tuple(dict.fromkeys(finding for reply in replies for finding in reply.findings)),
        score=sum(scores) / len(scores) if scores else None,
        reliable=verdict != "uncertain" or failed is None,
    )

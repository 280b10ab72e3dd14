"""Asks a person what becomes of a run whose agent was sent back often enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from langgraph.types import interrupt

from ..gates.digests import evidence_digest, framed
from ..gates.engine import Engine
from ..gates.values import Report, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a person decided: ``retry``, ``waive`` or ``end``."""

    decision: str
    reason: str = ""
    failing: tuple[Result, ...] = ()
    advice: tuple[Result, ...] = field(default=())

    def accept(self, engine: Engine) -> None:
        """Records that these exact results are accepted, for this reason and on this machine."""
        now_ms = engine.clock.now_ms()
        for result in self.failing:
            engine.evidence.waive(result, contract_digest=engine.contract.digest, reason=self.reason, now_ms=now_ms)
        for result in self.advice:
            engine.evidence.acknowledge(result, reason=self.reason, now_ms=now_ms)


def answered(name: str, text: str, report: Report, advice: tuple[Result, ...]) -> Answer:
    """The person's answer, from ``Command(resume={"decision": ...})``.

    To waive, the answer repeats ``evidence`` from the question and gives a ``reason``: what somebody accepts is
    what was shown, also when something changed meanwhile. Anything else is no answer, and is asked again. Pauses
    the graph by raising ``GraphInterrupt`` until then.
    """
    failing = report.roots
    evidence = framed(*(evidence_digest(result) for result in (*failing, *advice)))
    waivable = all(
        r.kind != "rubric" and r.input_digest and r.verdict not in ("skipped", "pending") for r in failing
    )
    options = ["retry", "waive", "end"] if waivable and all(r.input_digest for r in advice) else ["retry", "end"]
    question: dict[str, Any] = {
        "type": "bound_gate",
        "gate": name,
        "text": text,
        "failing": [result.constraint_id for result in failing],
        "advice": [result.constraint_id for result in advice],
        "evidence": evidence,
        "options": options,
    }
    payload = question
    while True:
        answer = interrupt(payload)
        given = answer if isinstance(answer, dict) else {}
        decision, reason = given.get("decision"), given.get("reason")
        if decision in options and decision != "waive" and len(given) == 1:
            return Answer(decision=decision)
        explained = isinstance(reason, str) and bool(reason.strip())
        if decision == "waive" and decision in options and explained and given.get("evidence") == evidence:
            return Answer(decision="waive", reason=str(reason), failing=failing, advice=advice)
        payload = {**question, "problem": f"{answer!r:.200} is no answer to this question"}

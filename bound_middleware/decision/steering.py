"""What to say about a result. Deterministic, at most 150 words, standard library only.

For the person: the decision with its numbers. For the agent: what failed and what to do next, without numbers,
because the agent is blind to its bounds. Ids and descriptions of checks are the contract's own words. The names of
artifacts are not: whoever makes a file names it, so what is no plain line of text is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from .rules import DIMENSIONS, NEXT_ACTIONS, Decision

MAX_WORDS = 150

FOR_THE_PERSON: dict[Decision, str] = {
    "ACCEPT": "The proposed action meets the required acceptance threshold.\n"
    "Further optimization is not required.\n"
    "Proceed with the action and continue toward the larger goal.",
    "RETRY": "The proposed action is close to the acceptance threshold.\n"
    "Keep the approach and make one focused attempt to close the gap.",
    "REPLAN": "The proposed action is too far below the acceptance threshold.\n"
    "Do not repeat it.\n"
    "Choose a materially different strategy toward the goal.",
    "ROLLBACK": "The proposed action reaches the hard risk boundary.\n"
    "Avoid it, or revert what it did, before anything else.",
}

FORCED = (
    "The score alone would say {candidate}; what the contract demands of its evidence makes it {decision}.\n"
    "Next: {action}."
)

FOR_THE_AGENT: dict[Decision, str] = {
    "ACCEPT": "This step is good enough. Stop improving it and go on to the next one.",
    "RETRY": "This step is close. Keep your approach and fix exactly what is listed; change nothing else.",
    "REPLAN": "This step does not work out this way. Do not repeat it; choose a different approach to the goal.",
    "ROLLBACK": "This step is not acceptable. Undo what it did, or leave it undone, and choose a safe way.",
}

#: What is listed, under which heading, in this order. Budgets and stray evidence are not the agent's to know.
_HEADINGS: tuple[tuple[str, str], ...] = (
    ("check_failed", "Failed checks"),
    ("check_missing", "Checks without evidence"),
    ("check_claimed", "Checks that nothing but a claim supports; show evidence"),
    ("check_unaccepted", "Checks whose evidence is not of an accepted kind"),
    ("artifact_missing", "Expected and not there"),
    ("risk_violated", "Risks that came true"),
    ("risk_missing", "Risks not shown to be averted"),
    ("risk_claimed", "Risks that nothing but a claim averts; show evidence"),
    ("risk_unaccepted", "Risks whose evidence is not of an accepted kind"),
    ("artifact_unexpected", "Not expected; remove"),
    ("rollback_unavailable", "Cannot be rolled back"),
)
_FOR_THE_PERSON_ONLY = (
    ("budget_exceeded", "Over budget"),
    ("budget_unmeasured", "Not measured, counted as spent"),
    ("evidence_undeclared", "Evidence that no check declares, ignored"),
    ("evidence_misfiled", "Evidence in the wrong list, ignored"),
)
_MORE = "- and others"


def steering_text(result: Any, *, audience: Literal["person", "agent"] = "person") -> str:
    """The text about a result.

    ``result`` is an ``EvaluationResult`` or a ``rules.Evaluation``, which has no ``reasons``. Raises ValueError
    for an unknown audience.
    """
    reasons = getattr(result, "reasons", ())
    if audience == "person":
        return _with_findings(_numbers(result), reasons, (*_HEADINGS, *_FOR_THE_PERSON_ONLY), described=False)
    if audience == "agent":
        said = f"Decision: {result.decision}\n\n{FOR_THE_AGENT[result.decision]}"
        return _with_findings(said, reasons, _HEADINGS, described=True)
    raise ValueError(f"no audience {audience!r}; there are 'person' and 'agent'")


def generate_prompt(result: Any) -> str:
    """The person's text, under the seed's name."""
    return steering_text(result)


def one_line(name: str) -> str:
    """A name as one line: control characters, line ends and what turns the direction of writing are escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def word_count(text: str) -> int:
    return len(text.split())


def _numbers(result: Any) -> str:
    terms = [f"({_value(result.weights, name)} × {_value(result.scores, name)})" for name in DIMENSIONS]
    decision: Decision = result.decision
    candidate = getattr(result, "candidate_decision", decision)
    words = FOR_THE_PERSON[decision]
    if candidate != decision:
        words = FORCED.format(candidate=candidate, decision=decision, action=NEXT_ACTIONS[decision])
    return "\n".join(
        [
            "[BOUND evaluation]",
            "",
            f"Decision: {decision}",
            "",
            "Bounded utility:",
            "S = (W_A × A) + (W_I × I) - (W_R × R) - (W_C × C)",
            f"S = {terms[0]} + {terms[1]} - {terms[2]} - {terms[3]}",
            f"S = {result.score:.2f}",
            "",
            f"Threshold: T = {result.threshold:.2f}",
            f"Distance to threshold: {result.distance_to_threshold:.2f}",
            f"Risk: {_value(result.scores, 'risk')}",
            f"Rollback threshold: {result.rollback_risk_threshold:.2f}",
            "",
            words,
        ]
    )


def _value(numbers: Any, name: str) -> str:
    return f"{getattr(numbers, name):.2f}"


def _with_findings(
    text: str, reasons: Sequence[Any], headings: Sequence[tuple[str, str]], *, described: bool
) -> str:
    """The text, and below it as many findings as the words allow."""
    left = MAX_WORDS - word_count(text)
    lines: list[str] = []
    for code, heading in headings:
        found = [reason for reason in reasons if reason.code == code]
        block = ["", f"{heading}:"]
        for reason in found:
            line = f"- {one_line(reason.subject)}" + (
                f": {reason.description}" if described and reason.description else ""
            )
            if not reason.required and code.startswith("check"):
                line += " (advice)"
            if word_count("\n".join([*block, line, _MORE])) > left:
                # A heading with nothing below it says nothing.
                kept = block if len(block) > 2 else []
                return "\n".join([text, *lines, *kept, _MORE])
            block.append(line)
        if found:
            lines += block
            left -= word_count("\n".join(block))
    return "\n".join([text, *lines])

"""The one flow that judges an answer before it leaves.

    judged = yield from judge(session, answer)
    if judged.refused is not None: something else leaves in its place

Nothing is held or booked: what the answer cost was paid when the model gave it. ``retry`` has the model asked again
once, and ``approval`` shows the answer to the approver, a function; without one it does not leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import BoundExceeded
from ...core.gateway import Facts, Request
from ...core.limits import tool_meter
from ...core.verdicts import Approval
from ..approver import Consult, policy_decision
from ..flow import Flow
from ..tools import desk_of
from .answer import Answer
from .rules import Rule, faults, readers

if TYPE_CHECKING:
    from ..session import BoundSession

#: What the approver is asked about.
ACTION = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of an answer: ``refused`` says what keeps it here, ``told`` what is wrong with it, in words for
    the model.
    """

    refused: BoundExceeded | None = None
    told: tuple[str, ...] = ()


def is_held(session: BoundSession) -> bool:
    """Whether an answer of this session is to be judged at all."""
    return session.declared.outputs is not None


def was_judged(session: BoundSession, text: str) -> bool:
    """Whether this text was let go in this session: what is let go once need not be judged again."""
    return hash(text) in desk_of(session).let_go


def tries(session: BoundSession) -> int:
    """How often the model is asked for an answer that may leave."""
    return 2 if session.limits.outputs is not None and session.limits.on_refused_output == "retry" else 1


def judge(session: BoundSession, answer: Answer) -> Flow[Judged]:
    """Decide whether an answer leaves, and write it to the trace."""
    if not is_held(session):
        return Judged()
    called = yield from _called(session)
    broken = faults(session.declared, answer, called, _rules(session))
    words = tuple(session.redact(fault.person) for fault in broken)
    request = Request(kind="answer", id=answer.id, name=ACTION, agent=session.agent)
    facts = Facts(answer_refused=words, approver=session.approver is not None)
    verdict = session.judge(request, facts)
    granted = session.granted(request, facts, verdict)
    if granted.kind == "ask":
        approval = yield from _asked(session, answer, words)
        facts = Facts(answer_refused=words, approver=True, approval=approval)
        verdict = session.judge(request, facts)
        granted = session.granted(request, facts, verdict)
    if granted.kind == "refuse":
        told = tuple(dict.fromkeys(session.redact(fault.model) for fault in broken))
        return Judged(refused=session.refuse(request, facts, verdict), told=told)
    session.decided(request, facts, verdict)
    if answer.whole or facts.approval == "granted":
        desk_of(session).let_go.update(map(hash, (answer.text, *answer.beside)))
    return Judged()


def _asked(session: BoundSession, answer: Answer, words: tuple[str, ...]) -> Flow[Approval]:
    """What the approver says; whatever is no clear yes is no."""
    assert session.approver is not None
    session.record("approval_requested", call_id=answer.id, detail={"tool": ACTION, "because": list(words)})
    action = {
        "name": ACTION,
        "args": {"text": answer.text},
        "description": f"The answer has none of the forms that it may have: {'; '.join(words)}.",
    }
    try:
        decision = policy_decision((yield Consult(session.approver, action)))
    except Exception as error:  # noqa: BLE001 - an approver that fails has not agreed
        decision = f"the approver raised {type(error).__name__}"
    kind: Approval = "failed"
    if not isinstance(decision, str):
        kind = "granted" if decision.kind == "approve" else "rejected"
    told = {"why": decision} if isinstance(decision, str) else {}
    session.record("approval_decided", call_id=answer.id, detail={"tool": ACTION, "decision": kind, **told})
    return kind


def _called(session: BoundSession) -> Flow[frozenset[str]]:
    """The tools after whose calls a rule holds, such as were called in this session or in one above it."""
    asked = readers(session.declared)
    if not asked:
        return asked
    chain = yield from session.chain()
    return frozenset(tool for tool in asked if any(account.used(tool_meter(tool)) for account in chain))


def _rules(session: BoundSession) -> dict[str, Rule]:
    """The rules in Python: the session's own, and those from above."""
    found: dict[str, Rule] = {}
    for one in reversed(session.lineage):
        found.update(desk_of(one).output_rules)
    return found

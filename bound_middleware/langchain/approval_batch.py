"""One question for all calls of a batch that need an approval, in LangChain's human-in-the-loop format.

The run pauses by LangGraph's ``interrupt`` with ``{"action_requests": [...], "review_configs": [...]}`` before any
tool of the batch runs, and goes on with ``Command(resume={"decisions": [...]})``, one decision for each request in
its order. Where the session has an ``approver``, that function is asked instead.

LangGraph hands the values of ``resume`` to a task in the order in which it asks, and knows nothing of what was
shown. So each round of questions is written down before it is shown, and an answer counts only for exactly the
question that was shown (see ``session.approvals``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from ..session import approvals
from ..session.approvals import Seat
from ..session.approver import DECISIONS, Consult, Decision, decisions_in, policy_decision
from ..session.flow import Call, Flow, Op
from ..session.session import BoundSession
from .texts import refusal_text

ToolCall = Mapping[str, Any]
#: Whether a session would let a call run if only it were approved.
WouldAsk = Callable[[BoundSession, ToolCall], Flow[bool]]

_CHECKPOINTER, _TASK, _SCRATCHPAD = "__pregel_checkpointer", "__pregel_task_id", "__pregel_scratchpad"
_INTERRUPT = "__interrupt__"
#: How often a function may edit each call of a batch; an edit to another tool is asked about again.
EDITS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What became of a batch. ``calls`` are all of them in their order, edited ones under the same id;
    ``messages`` answer those that must not run.
    """

    calls: tuple[ToolCall, ...]
    messages: tuple[ToolMessage, ...] = ()
    edited: bool = False

    @property
    def to_run(self) -> tuple[ToolCall, ...]:
        answered = {message.tool_call_id for message in self.messages}
        return tuple(call for call in self.calls if call["id"] not in answered)


def seat_of(config: Mapping[str, Any]) -> Seat:
    """Where the task of this config stands. Calls of one graph share it, whichever node asks and whichever runs."""
    configurable = config.get("configurable") or {}
    return Seat(
        thread_id=str(configurable.get("thread_id") or ""),
        graph=_graph(configurable),
        task=str(configurable.get(_TASK) or configurable.get("checkpoint_ns") or ""),
    )


def can_pause(config: Mapping[str, Any]) -> bool:
    """Whether the run can wait here and go on later."""
    configurable = config.get("configurable") or {}
    return bool(configurable.get(_CHECKPOINTER)) and configurable.get(_SCRATCHPAD) is not None


def asked(
    sessions: Sequence[BoundSession],
    calls: Sequence[ToolCall],
    config: Mapping[str, Any],
    *,
    would_ask: WouldAsk | None = None,
    decisions: Sequence[str] = DECISIONS,
) -> Flow[Answers]:
    """Ask about every call of a batch that needs it, all at once, until each has an answer.

    An edited call is looked at from the start: one that becomes a call of another tool that needs an approval is
    asked for again. An edit of the arguments alone is its own approval. ``decisions`` are those that are offered.

    Raises:
        GraphInterrupt: a person has to answer first.
    """
    return (yield from _Batch(sessions, calls, config, would_ask or _by_tier, decisions).answered())


class _Batch:
    """The calls of one message, and what is known about them so far."""

    def __init__(
        self,
        sessions: Sequence[BoundSession],
        calls: Sequence[ToolCall],
        config: Mapping[str, Any],
        ask: WouldAsk,
        allowed: Sequence[str],
    ) -> None:
        self.sessions = tuple(s for s in sessions if approvals.gates(s))
        self.calls, self.config, self.would_ask, self.allowed = list(calls), config, ask, allowed
        self.seat = seat_of(config)
        self.settled: set[int] = set()
        self.messages: dict[int, ToolMessage] = {}
        self.edited = False
        self._problem = ""
        self._edits = 0

    def answered(self) -> Flow[Answers]:
        for number in count():
            todo = yield from self._open()
            if not todo:
                break
            for session in self.sessions:
                if session.approver is None:
                    continue
                by_function = [at for at in todo if session in todo[at]]
                for at in by_function:
                    yield from self._consult(session, at)
            todo = yield from self._open()
            if todo and not can_pause(self.config):
                # Nobody is here; the call itself is refused when it is about to run.
                break
            if todo:
                yield from self._round(number, todo)
        messages = tuple(self.messages[at] for at in sorted(self.messages))
        return Answers(calls=tuple(self.calls), messages=messages, edited=self.edited)

    def _open(self) -> Flow[dict[int, tuple[BoundSession, ...]]]:
        """The calls without an answer, by place, and who wants one."""
        found: dict[int, tuple[BoundSession, ...]] = {}
        for at, call in enumerate(self.calls):
            if at in self.settled:
                continue
            asking = []
            for session in self.sessions:
                if (yield from self.would_ask(session, call)):
                    asking.append(session)
            refused = 0
            for session in asking:
                refused = max(refused, (yield from approvals.unasked(session, self.seat, call)))
            if refused:
                self._refuse_unasked(asking, at, refused)
            elif asking:
                found[at] = tuple(asking)
        return found

    def _refuse_unasked(self, sessions: Sequence[BoundSession], at: int, times: int) -> None:
        call = self.calls[at]
        for session in sessions:
            session.record(
                "approval_rejected", call_id=str(call["id"]), detail={"name": call["name"], "asked": False}
            )
            if times >= approvals.UNASKED_MAX:
                session.ending.end_run("approval_rejected", {"name": call["name"], "agent": session.agent})
            else:
                session.ending.stop("approval_rejected", {"name": call["name"], "agent": session.agent})
        self._answer(at, refusal_text(call["name"], "approval_rejected"))

    # -- a person ------------------------------------------------------------------------------------------

    def _round(self, number: int, todo: dict[int, tuple[BoundSession, ...]]) -> Flow[None]:
        """Show one question, or read the answer to the one that was shown. Raises ``GraphInterrupt``."""
        session = next(iter(todo.values()))[0]
        digests = [[self.calls[at]["id"], self._digest(at, who)] for at, who in todo.items()]
        request = _request([self._action(at, who) for at, who in todo.items()], self.allowed, self._problem)
        name = approvals.canonical([digests, self._problem])
        known = yield from approvals.shown(session, self.seat, number, name)
        around = {above.session_id: above for one in self.sessions for above in one.lineage}.values()
        for one in around:
            one.ending.pending(self.seat.thread_id, self.seat.task, True)
        if known is None:
            for at, who in todo.items():
                self._record("approval_requested", at, who, {"arguments": dict(self.calls[at]["args"])})
        answer = yield Op(lambda: interrupt(request), False)
        for one in around:
            one.ending.pending(self.seat.thread_id, self.seat.task, False)
        if known is None:
            known = yield from self._shown_before(session, request)
        asked_ms = session.clock.now_ms() if known is None else known["asked_ms"]
        decisions = decisions_in(answer, len(todo), self.allowed)
        problem = ""
        if known is None:
            problem = "the call was changed after it was shown"
        elif known["state"] == "void":
            problem = known["problem"]
        elif isinstance(decisions, str):
            problem = decisions
        elif known["state"] == "shown" and not approvals.in_time(session, asked_ms):
            problem = "it was not answered in time"
            for at, who in todo.items():
                self._record("approval_expired", at, who, {})
        if problem or isinstance(decisions, str):
            yield from approvals.round_is(session, self.seat, number, "void", asked_ms=asked_ms, problem=problem)
            self._problem = f"Asked again: {problem}."
            return
        self._problem = ""
        first = known is not None and known["state"] == "shown"
        yield from approvals.round_is(session, self.seat, number, "answered", asked_ms=asked_ms)
        for (at, who), decision in zip(todo.items(), decisions, strict=True):
            yield from self._decided(at, who, decision, asked_ms, self._who() if first else None)

    def _shown_before(self, session: BoundSession, request: dict[str, Any]) -> Flow[dict[str, Any] | None]:
        """Whether the checkpoint says that exactly this was shown: the book of a process that ended is empty."""
        configurable = self.config.get("configurable") or {}
        saver, graph = configurable.get(_CHECKPOINTER), _graph(configurable)
        place = {
            "thread_id": configurable.get("thread_id"),
            "checkpoint_ns": graph,
            "checkpoint_id": (configurable.get("checkpoint_map") or {}).get(graph),
        }
        read = {"configurable": place}
        if not saver or place["checkpoint_id"] is None:
            return None
        saved = yield Call(lambda: saver.get_tuple(read), lambda: saver.aget_tuple(read))
        writes = () if saved is None else saved.pending_writes or ()
        values = [w[2] for w in writes if w[0] == self.seat.task and w[1] == _INTERRUPT]
        before = [i.value for value in values for i in (value if isinstance(value, (list, tuple)) else (value,))]
        if request not in before:
            return None
        real_time = getattr(session.clock, "real_time", False)
        moment = datetime.fromisoformat(saved.checkpoint["ts"]).timestamp() * 1000
        return {"state": "shown", "asked_ms": int(moment) if real_time else session.clock.now_ms()}

    # -- a function ----------------------------------------------------------------------------------------

    def _consult(self, session: BoundSession, at: int) -> Flow[None]:
        """Ask the session's function about one call. What is no clear answer lets nothing run."""
        approver = session.approver
        if approver is None or at in self.settled:
            return
        now_ms, who = session.clock.now_ms(), (session,)
        self._record("approval_requested", at, who, {"arguments": dict(self.calls[at]["args"])})
        name = f"policy {getattr(approver, '__qualname__', type(approver).__name__)}"
        try:
            decision = policy_decision((yield Consult(approver, self._action(at, who))))
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - whatever goes wrong while asking, nobody has said yes
            decision = f"it raised {type(error).__name__}: {error}"
        self._edits += isinstance(decision, Decision) and decision.kind == "edit"
        if self._edits > EDITS_MAX * len(self.calls):
            decision = "it edits the calls again and again"
        if isinstance(decision, Decision):
            yield from self._decided(at, who, decision, now_ms, name)
            return
        self._record("approval_decided", at, who, {"decision": "failed", "by": name, "why": decision})
        yield from approvals.decide(session, self.seat, self.calls[at], "failed", asked_ms=now_ms)
        self.settled.add(at)

    # -- answers -------------------------------------------------------------------------------------------

    def _decided(
        self, at: int, who: Sequence[BoundSession], decision: Decision, asked_ms: int, by: str | None
    ) -> Flow[None]:
        """Do what was decided; ``by`` is ``None`` where it was written down before."""
        call = self.calls[at]
        if by is not None:
            detail: dict[str, Any] = {"decision": decision.kind, "by": by, "why": decision.message}
            if decision.kind == "edit":
                detail["edited"] = {"name": decision.name, "args": dict(decision.args)}
            self._record("approval_decided", at, who, detail)
        if decision.kind == "edit":
            same_tool = decision.name == call["name"]
            self.calls[at] = call = {**call, "name": decision.name, "args": dict(decision.args)}
            self.edited = True
            if not same_tool:
                return
        if decision.kind == "respond":
            self._answer(at, decision.message, status="success")
        for session in who:
            if decision.kind in ("approve", "edit"):
                yield from approvals.decide(session, self.seat, call, "granted", asked_ms=asked_ms)
            elif decision.kind == "reject":
                yield from approvals.decide(session, self.seat, call, "rejected", asked_ms=asked_ms)
                yield from approvals.rejected(session, self.seat, call)
                session.ending.stop("approval_rejected", {"name": call["name"], "agent": session.agent})
                if by is not None:
                    session.record("approval_rejected", call_id=str(call["id"]), detail={"name": call["name"]})
        if decision.kind == "reject":
            text = refusal_text(call["name"], "approval_rejected")
            self._answer(at, f"{text} The reason: {decision.message}" if decision.message else text)
        self.settled.add(at)

    def _answer(self, at: int, text: str, status: Any = "error") -> None:
        call = self.calls[at]
        self.messages[at] = ToolMessage(content=text, tool_call_id=call["id"], name=call["name"], status=status)
        self.settled.add(at)

    def _record(self, name: str, at: int, who: Sequence[BoundSession], detail: dict[str, Any]) -> None:
        call = self.calls[at]
        for session in who:
            digest = approvals.digest_of(session, call["name"], call["args"])
            told = {"name": call["name"], "digest": digest, **detail}
            session.record(name, call_id=str(call["id"]), detail=told)

    def _digest(self, at: int, who: Sequence[BoundSession]) -> list[str]:
        call = self.calls[at]
        return [approvals.digest_of(session, call["name"], call["args"]) for session in who]

    def _action(self, at: int, who: Sequence[BoundSession]) -> dict[str, Any]:
        """What a person sees of a call: who wants what, and the digest that an answer is bound to."""
        call = self.calls[at]
        agent = next((s.agent for s in who if s.agent), "") or self._agent_name()
        asks = f"{agent or 'The agent'} asks to run {call['name']}."
        description = f"{asks}\n\nTool: {call['name']}\nArgs: {call['args']}\n\nRequest: {self._digest(at, who)[0]}"
        return {"name": call["name"], "args": dict(call["args"]), "description": description}

    def _agent_name(self) -> str:
        """The agent that asks, and the nodes around it, from the outermost in."""
        name = (self.config.get("metadata") or {}).get("lc_agent_name") or ""
        nodes = [part.partition(":")[0] for part in self.seat.graph.split("|") if part and not part.isdigit()]
        path = " > ".join(nodes)
        return f"{name} (in {path})" if name and path else name or path

    def _who(self) -> str:
        """The person who answers, as the config of the resumed run names one."""
        metadata, configurable = self.config.get("metadata") or {}, self.config.get("configurable") or {}
        names = (
            metadata.get("user"),
            metadata.get("user_id"),
            configurable.get("bound_user"),
            configurable.get("langgraph_auth_user_id"),
        )
        return next((str(name) for name in names if name), "")


def _by_tier(session: BoundSession, call: ToolCall) -> Flow[bool]:
    return approvals.waits(session, call["name"])
    yield  # a flow that has nothing to wait for


def _request(actions: list[dict[str, Any]], allowed: Sequence[str], problem: str) -> dict[str, Any]:
    told = [{**a, "description": f"{problem}\n\n{a['description']}"} for a in actions] if problem else actions
    configs = [{"action_name": action["name"], "allowed_decisions": list(allowed)} for action in actions]
    return {"action_requests": told, "review_configs": configs}


def _graph(configurable: Mapping[str, Any]) -> str:
    """The graph that the task is in: empty for the outermost one."""
    return str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]

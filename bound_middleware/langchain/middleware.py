"""``BoundMiddleware``: the bounds of a session around ``create_agent``. It translates; the session decides.

A run is one new input: ``before_agent`` opens a session for it, under an id that is kept in a private channel,
so that a resumed run goes on with the same budget (see ``runs``). Model calls run on a bounded copy of the model;
tools are judged before they run. A bound that is reached ends the run with what it has, and the outcome in its
output and at the end of its ``custom`` stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, ModelResponse, OmitFromInput, PrivateStateAttr
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_config
from typing_extensions import TypedDict

from ..core.errors import BoundExceeded, SpecError
from ..session import approvals, arguments, closing, outputs, scope
from ..session.approver import approver_of
from ..session.flow import Call, Flow, Op, adrive, drive
from ..session.outcome import RunOutcome
from ..session.session import BoundSession
from ..session.tools import checked_rules, desk_of, would_ask
from . import capped, hook, misplaced, places, runs
from .approval import seat_of
from .approval_hooks import gated
from .closing_answer import closing_answer, hold_once
from .copies import copy_of
from .errors import bubbling
from .held_answers import Refused, answered, held_at_the_end, may_leave
from .last_word import EndingChannel, later
from .places import RUN_ID, RunChannel
from .raising import raised
from .texts import stop_message, stopped_text
from .tool_deadlines import arun_request, run_request
from .tool_seam import Execute, admitted, error_message, performed, refusal_message
from .truncated import Cut
from .turns import TURN, counted


class BoundMiddleware(AgentMiddleware[Any, Any, Any]):
    """Bounds every run of an agent that ``create_agent`` builds.

    Model calls are held, capped on the wire and cut in flight; each attempt of a retry or fallback counts,
    wherever this middleware stands in the list. What other middlewares and tools call on their own is held, capped
    and counted in the same way. Tools that are not allowed are refused at execution.

    Args:
        spec: a ``BoundSpec``, a path or a dict.
        session: one session for all runs, instead of one for each.
        ledger, clock, prices, sinks, shadow: as for ``BoundSession``; a session for each run is opened with them.
            A run goes on with its budget in another process where the ledger lasts, else in this one.
        scope: ``run`` counts each new input on its own; ``thread`` counts a ``thread_id`` as long as the ledger
            lasts.
        on_breach: ``end`` returns what the run has, with the outcome; ``raise`` raises ``BoundExceeded``.
        approver: a function or coroutine function of ``{name, args, description}`` that decides, in a person's
            place, about calls that need an approval. Without one the run pauses until a person has answered.
        argument_rules: by tool a pure function of its arguments; a call for which it returns anything but ``True``,
            or raises, is refused. A text that it returns is told to the model.
        output_rules: by form of ``action_surface.outputs`` a pure function of an answer's text, in the same way.
        key: the name of the output channel, an identifier that the state of an agent does not have yet.

    Raises:
        SpecError: an argument is wrong, the specification cannot be enforced here (``unit: superstep``), or
            ``scope="thread"`` is given no ledger that lasts; from the run, limits in its ``configurable``.
        BoundExceeded: from the run, with ``on_breach="raise"``.
    """

    def __init__(
        self,
        spec: Any = None,
        *,
        session: BoundSession | None = None,
        ledger: Any = None,
        clock: Any = None,
        prices: Any = None,
        sinks: Any = (),
        shadow: bool = False,
        scope: Literal["run", "thread"] = "run",
        on_breach: Literal["end", "raise"] = "end",
        key: str = "bound",
        approver: Any = None,
        argument_rules: Mapping[str, Any] | None = None,
        output_rules: Mapping[str, Any] | None = None,
    ) -> None:
        from ..spec import BoundSpec

        super().__init__()
        if (spec is None) == (session is None):
            raise SpecError("give either a spec or a session", key="BoundMiddleware")
        if scope not in ("run", "thread") or on_breach not in ("end", "raise"):
            raise SpecError(
                f"scope={scope!r}, on_breach={on_breach!r}",
                key="BoundMiddleware",
                allowed='scope "run" or "thread", on_breach "end" or "raise"',
            )
        session = arguments.session_of(session)
        self._spec = session.spec if session is not None else BoundSpec.of(spec)
        given = {"ledger": ledger, "clock": clock, "prices": prices, "sinks": sinks, "shadow": shadow}
        self._arguments = arguments.for_later(self._spec.limits(self._spec.agent), given)
        self._arguments["approver"] = approver_of(approver)
        if approver is not None and session is not None:
            raise SpecError("a session brings its own approver", key="approver", allowed="BoundSession(approver=)")
        if scope == "thread" and session is None and not getattr(ledger, "durable", False):
            raise SpecError(
                "counting by thread needs a ledger that lasts",
                key="scope",
                value=scope,
                allowed="ledger=SqliteLedger(path)",
            )
        if self._spec.limits(self._spec.agent).iteration_unit == "superstep":
            raise SpecError(
                "supersteps are not visible to a middleware",
                key="bounds.iteration_limit.unit",
                value="superstep",
                allowed="model_call, tool_call, action",
            )
        self._session, self._scope, self._on_breach, self._key = session, scope, on_breach, key
        self.ends_runs = on_breach == "end"
        self._rules = checked_rules(argument_rules)
        self._output_rules = outputs.checked_rules(output_rules)
        outputs.check_forms(self._spec.limits(self._spec.agent), self._output_rules)
        self.state_schema = _state_with(key, places.Newest(self))
        hook.register()
        capped.install()
        if not shadow and approvals.gating(self._spec.limits(self._spec.agent)):
            self.__class__ = gated(type(self))

    # -- a run ---------------------------------------------------------------------------------------------

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return drive(self._begin(state))

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await adrive(self._begin(state))

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return drive(self._finish(state, runtime))

    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await adrive(self._finish(state, runtime))

    _would_ask = staticmethod(would_ask)

    def _begin(self, state: Any) -> Flow[dict[str, Any] | None]:
        misplaced.check(get_config().get("configurable"))
        if self._session is not None:
            self._session.start_clock()
            self._session.ending.no_longer_pending(seat_of(get_config()).thread_id)
            places.put(self, runs.Run(self._session))
            yield from closing.hold(self._session)
            return self._anew(state, self._session)
        run = places.opened_before(self) or (yield from self.arrives(None))
        places.put(self, run)
        yield from closing.hold(run.session)
        return {RUN_ID: run.session.session_id, **(self._anew(state, run.session) or {})}

    def _anew(self, state: Any, session: BoundSession) -> dict[str, Any] | None:
        """The outcome that an earlier run left in the output is not this one's."""
        if not state.get(self._key):
            return None
        outcome = RunOutcome(status="running", fingerprint=session.spec.fingerprint)
        return {self._key: {"outcome": outcome.as_dict()}}

    def arrives(self, run_id: str | None) -> Flow[runs.Run]:
        """The run with this id, which goes on here; ``None`` opens the one that begins with this input."""
        if self._session is not None:
            return runs.Run(self._session)
        if run_id is not None:
            run = yield from self._of({RUN_ID: run_id or None})
        elif self._scope == "thread":
            run = yield from self._opened(runs.thread_id())
        else:
            new_id = yield from runs.new_id(self)
            run = runs.known(new_id) or (yield from self._opened(new_id))
        run.resume()
        run.leave()
        return run

    def bounds_streams(self) -> bool:
        """Whether a call may have to be cut while it runs."""
        limits = self._spec.limits(self._spec.agent)
        return limits.bounds_output or limits.bounds_call_time

    def _opened(self, run_id: str, *, again: bool = False) -> Flow[runs.Run]:
        configurable = get_config().get("configurable") or {}
        owner: dict[str, Any] = {"tenant": configurable.get("bound_tenant"), "user": configurable.get("bound_user")}
        blocking = bool(getattr(self._arguments["ledger"], "blocking", False))

        def make() -> BoundSession:
            return BoundSession(self._spec, session_id=run_id, **self._arguments, **owner)

        if again:
            run: runs.Run = yield runs.reopened(run_id, make, blocking)
            return run
        return runs.keep((yield Op(make, blocking)))

    def _of(self, state: Any) -> Flow[runs.Run]:
        """The run that this state belongs to; opened again after a restart."""
        if self._session is not None:
            return runs.Run(self._session)
        run_id = state.get(RUN_ID)
        if run_id is None:
            run_id = runs.thread_id() if self._scope == "thread" else (yield from runs.unknown_id())
        return runs.known(run_id) or (yield from self._opened(run_id, again=True))

    def _finish(self, state: Any, runtime: Any) -> Flow[dict[str, Any]]:
        run = yield from self._of(state)
        places.put(self, run)
        session = run.session
        yield from closing.release(session)
        self._tell_rules(session)
        update = yield from held_at_the_end(session, state)
        if self._session is None:
            yield Op(lambda: session.close(), session.ledger.blocking)
            runs.end(run)
        outcome = yield Op(lambda: session.outcome_if(ended=True), session.ledger.blocking)
        told = outcome.as_dict()
        told_later = later(session, dict(told), lambda value: runtime.stream_writer({self._key: value}))
        places.at_the_end(self._key, told_later)
        update = {self._key: {"outcome": told, "decisions": {}}, **update}
        runtime.stream_writer(update)
        return update

    # -- model calls ---------------------------------------------------------------------------------------

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        run = drive(self._of(request.state))
        with places.inside(self, run):
            return drive(self._model(run.session, request, lambda r: Call(lambda: handler(r), _never)))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        run = await adrive(self._of(request.state))
        with places.inside(self, run):
            return await adrive(self._model(run.session, request, lambda r: Call(_never, lambda: handler(r))))

    def _model(self, session: BoundSession, request: Any, ask: Callable[[Any], Call]) -> Flow[Any]:
        """Make a model call in its bounds, or end the run with its last answer."""
        yield from hold_once(session)
        yield from raised(session, None, get_config())
        while True:
            stopped = yield from self._already_stopped(session)
            if stopped is None:
                try:
                    answer = yield from answered(session, self._bounded(request, session), ask)
                    return counted(request.state, answer)
                except Cut as error:
                    return counted(request.state, self._cut(session, error))
                except Refused as error:
                    return counted(request.state, self._withheld(error))
                except BoundExceeded as error:
                    stopped = error
            ours = stopped.session_id == session.session_id
            if not ours or not (yield from raised(session, stopped, get_config())):
                break
        text = self._ended(session, stopped)
        last = yield from closing_answer(session, self._bounded(request, session), ask)
        return (yield from may_leave(session, request, last)) or text

    def _bounded(self, request: Any, session: BoundSession) -> Any:
        names = [name for tool in request.tools or () if (name := _tool_name(tool)) is not None]
        session.spec.check_tools(names)
        offered = [t for t in request.tools or () if session.limits.tier(_tool_name(t) or "") != "refuse"]
        self._tell_rules(session)
        desk_of(session).offers(filter(None, map(_tool_name, offered)))
        return request.override(model=copy_of(request.model), tools=offered)

    def _tell_rules(self, session: BoundSession) -> None:
        """The rules in Python are this middleware's own; a session that is opened again has to be told."""
        desk = desk_of(session)
        desk.rules, desk.output_rules = self._rules or desk.rules, self._output_rules or desk.output_rules

    def _already_stopped(self, session: BoundSession) -> Flow[BoundExceeded | None]:
        """A run that a bound has stopped makes no further call, whoever swallowed the stop."""
        reason = session.ending.run_stopped
        if reason is None:
            return None
        outcome = yield Op(lambda: session.outcome, session.ledger.blocking)
        return BoundExceeded(reason, session_id=session.session_id, outcome=outcome)

    def _ended(self, session: BoundSession, error: BoundExceeded) -> AIMessage:
        if self._on_breach == "raise" or error.session_id not in (None, session.session_id):
            raise bubbling(error)
        return stop_message(error.stop_reason)

    def _withheld(self, error: Refused) -> Any:
        """What takes the place of an answer that does not leave."""
        if self._on_breach == "raise":
            raise bubbling(error)
        return error.response

    def _cut(self, session: BoundSession, error: Cut) -> ModelResponse[Any]:
        """The last answer was truncated: the run ends, and its history stays valid."""
        session.ending.end_run("truncated", {"stop_reason": "truncated", "agent": session.agent})
        error.session_id = session.session_id
        return ModelResponse(result=[*error.messages, self._ended(session, error)])

    # -- tools ---------------------------------------------------------------------------------------------

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        run = drive(self._of(request.state))
        with places.inside(self, run):
            return drive(
                self._tool(
                    run.session, request, lambda r, time: Call(lambda: run_request(r, handler, time), _never)
                )
            )

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        run = await adrive(self._of(request.state))
        with places.inside(self, run):
            return await adrive(
                self._tool(
                    run.session, request, lambda r, time: Call(_never, lambda: arun_request(r, handler, time))
                )
            )

    def _tool(self, session: BoundSession, request: Any, execute: Execute) -> Flow[Any]:
        """Judge a call and run it, or answer it."""
        self._tell_rules(session)
        try:
            admission = yield from admitted(session, request)
        except BoundExceeded as error:
            if self._on_breach == "raise" and session.ending.run_stopped is not None:
                error.outcome = yield Op(lambda: session.outcome, session.ledger.blocking)
                raise bubbling(error) from None
            return refusal_message(request.tool_call, error)
        if isinstance(admission, ToolMessage):
            return admission
        try:
            return (yield from performed(session, request, admission, execute))
        except BoundExceeded as error:
            return self._stopped_inside(session, request.tool_call, error)

    def _stopped_inside(self, session: BoundSession, call: Mapping[str, Any], error: BoundExceeded) -> ToolMessage:
        """The answer to a call in which a bound stopped something; the stop of a session around ours goes on."""
        ours = error.session_id == session.session_id
        around = any(s.session_id == error.session_id for s in scope.current() if s is not session)
        if around or (ours and self._on_breach == "raise"):
            raise bubbling(error)
        return error_message(call, stopped_text(call["name"], error.stop_reason))


def _never() -> Any:
    raise AssertionError("a call was driven in the other colour")


def _tool_name(tool: Any) -> str | None:
    if isinstance(tool, dict):
        return tool.get("name") or (tool.get("function") or {}).get("name")
    return getattr(tool, "name", None)


def _state_with(key: str, newest: places.Newest) -> Any:
    """The state of an agent with our channels.

    LangGraph keeps names that begin with two underscores for itself.
    """
    taken = (*AgentState.__annotations__, RUN_ID, TURN)
    if not isinstance(key, str) or not key.isidentifier() or key.startswith("__") or key in taken:
        raise SpecError(
            f"{key!r} cannot name the output channel",
            key="key",
            value=key,
            allowed=f"an identifier such as bound, without __ in front, and none of {', '.join(taken)}",
        )
    fields: dict[str, Any] = {
        **AgentState.__annotations__,
        key: NotRequired[Annotated[dict[str, Any], OmitFromInput, EndingChannel()]],
        RUN_ID: NotRequired[Annotated[Any, PrivateStateAttr, RunChannel(Any, newest)]],
        TURN: NotRequired[Annotated[int, PrivateStateAttr]],
    }
    return TypedDict("BoundState", fields)  # type: ignore[operator]

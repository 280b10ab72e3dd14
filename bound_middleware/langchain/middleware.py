"""``BoundMiddleware``: the bounds of a session around ``create_agent``. It translates; the session decides.

A run is one new input: ``before_agent`` opens a session for it, under an id that is kept in a private channel,
so that a resumed run goes on with the same budget (see ``runs``). Model calls run on a bounded copy of the model;
tools are judged before they run. A bound that is reached ends the run with what it has, and the outcome in its
output and at the end of its ``custom`` stream.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, OmitFromInput, PrivateStateAttr
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_config
from typing_extensions import TypedDict

from ..core.errors import BoundExceeded, SpecError
from ..session import arguments, charges, scope
from ..session.flow import Flow, Op, adrive, drive
from ..session.session import BoundSession
from . import hook, runs
from .channel import merge
from .errors import bubbling
from .model import bound_model
from .texts import refusal_text, stop_text, stopped_text

#: Bounded copies of models that are kept, so that a model is copied once and not for each call.
COPIES_KEPT = 32
#: The private channel that keeps the id of a run.
RUN_ID = "bound_run_id"

_lock = threading.Lock()
_copies: OrderedDict[int, tuple[BaseChatModel, BaseChatModel]] = OrderedDict()


class BoundMiddleware(AgentMiddleware[Any, Any, Any]):
    """Bounds every run of an agent that ``create_agent`` builds.

    Model calls are held, capped on the wire and cut in flight; each attempt of a retry or fallback counts,
    wherever this middleware stands in the list. Tools that are not allowed are refused at execution.

    Args:
        spec: a ``BoundSpec``, a path or a dict.
        session: one session for all runs, instead of one for each.
        ledger, clock, prices, sinks, shadow: as for ``BoundSession``; a session for each run is opened with them.
            A run goes on with its budget in another process where the ledger lasts, else in this one.
        scope: ``run`` counts each new input on its own; ``thread`` counts a ``thread_id`` as long as the ledger
            lasts.
        on_breach: ``end`` returns what the run has, with the outcome; ``raise`` raises ``BoundExceeded``.
        key: the name of the output channel, an identifier that the state of an agent does not have yet.

    Raises:
        SpecError: an argument is wrong, the specification cannot be enforced here (``unit: superstep``), or
            ``scope="thread"`` is given no ledger that lasts.
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
        self._arguments = arguments.for_later(self._spec.limits(), given)
        if scope == "thread" and session is None and not getattr(ledger, "durable", False):
            raise SpecError(
                "counting by thread needs a ledger that lasts",
                key="scope",
                value=scope,
                allowed="ledger=SqliteLedger(path)",
            )
        if self._spec.limits().iteration_unit == "superstep":
            raise SpecError(
                "supersteps are not visible to a middleware",
                key="bounds.iteration_limit.unit",
                value="superstep",
                allowed="model_call, tool_call, action",
            )
        self._session, self._scope, self._on_breach, self._key = session, scope, on_breach, key
        self.state_schema = _state_with(key)
        hook.register()

    # -- a run ---------------------------------------------------------------------------------------------

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return drive(self._begin())

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await adrive(self._begin())

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._told(runtime, drive(self._finish(state)))

    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._told(runtime, await adrive(self._finish(state)))

    def _begin(self) -> Flow[dict[str, Any] | None]:
        if self._session is not None:
            self._session.start_clock()
            return None
        if self._scope == "thread":
            run_id, run = runs.thread_id(), None
        else:
            run_id = yield from runs.new_id(self)
            run = runs.known(run_id)
        if run is None:
            run = yield from self._opened(run_id)
        run.resume()
        run.leave()
        return {RUN_ID: run_id}

    def _opened(self, run_id: str) -> Flow[runs.Run]:
        configurable = get_config().get("configurable") or {}
        owner: dict[str, Any] = {"tenant": configurable.get("bound_tenant"), "user": configurable.get("bound_user")}
        blocking = bool(getattr(self._arguments["ledger"], "blocking", False))
        session: BoundSession = yield Op(
            lambda: BoundSession(self._spec, session_id=run_id, **self._arguments, **owner), blocking
        )
        return runs.keep(session)

    def _of(self, state: Any) -> Flow[runs.Run]:
        """The run that this state belongs to; opened again after a restart."""
        if self._session is not None:
            return runs.Run(self._session)
        run_id = state.get(RUN_ID)
        if run_id is None:
            run_id = runs.thread_id() if self._scope == "thread" else (yield from runs.unknown_id())
        return runs.known(run_id) or (yield from self._opened(run_id))

    def _finish(self, state: Any) -> Flow[dict[str, Any]]:
        run = yield from self._of(state)
        session = run.session
        if self._session is None:
            yield Op(lambda: session.close(), session.ledger.blocking)
            runs.end(run)
        outcome = yield Op(lambda: session.outcome_if(ended=True), session.ledger.blocking)
        return {self._key: {"outcome": outcome.as_dict(), "decisions": {}}}

    def _told(self, runtime: Any, update: dict[str, Any]) -> dict[str, Any]:
        """The update of the state, also as the last event of the ``custom`` stream."""
        runtime.stream_writer(update)
        return update

    # -- model calls ---------------------------------------------------------------------------------------

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        run = drive(self._of(request.state))
        with runs.inside(self, run):
            stopped = drive(self._already_stopped(run.session))
            if stopped is not None:
                return stopped
            try:
                return handler(self._bounded(request, run.session))
            except BoundExceeded as error:
                return self._ended(run.session, error)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        run = await adrive(self._of(request.state))
        with runs.inside(self, run):
            stopped = await adrive(self._already_stopped(run.session))
            if stopped is not None:
                return stopped
            try:
                return await handler(self._bounded(request, run.session))
            except BoundExceeded as error:
                return self._ended(run.session, error)

    def _bounded(self, request: Any, session: BoundSession) -> Any:
        names = [name for tool in request.tools or () if (name := _tool_name(tool)) is not None]
        session.spec.check_tools(names)
        offered = [t for t in request.tools or () if session.limits.tier(_tool_name(t) or "") != "refuse"]
        return request.override(model=_copy_of(request.model), tools=offered)

    def _already_stopped(self, session: BoundSession) -> Flow[AIMessage | None]:
        """A run that a bound has stopped makes no further call, whoever swallowed the stop."""
        reason = session.ending.run_stopped
        if reason is None:
            return None
        outcome = yield Op(lambda: session.outcome, session.ledger.blocking)
        return self._ended(session, BoundExceeded(reason, session_id=session.session_id, outcome=outcome))

    def _ended(self, session: BoundSession, error: BoundExceeded) -> AIMessage:
        if self._on_breach == "raise" or error.session_id not in (None, session.session_id):
            raise bubbling(error)
        return AIMessage(
            content=stop_text(error.stop_reason), response_metadata={"bound": {"stop_reason": error.stop_reason}}
        )

    # -- tools ---------------------------------------------------------------------------------------------

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        run = drive(self._of(request.state))
        with runs.inside(self, run):
            refused = drive(self._judged(run.session, request.tool_call))
            if refused is not None:
                return refused
            try:
                with _judged_by(run.session, request.tool_call):
                    return handler(request)
            except BoundExceeded as error:
                return self._stopped_inside(run.session, request.tool_call, error)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        run = await adrive(self._of(request.state))
        with runs.inside(self, run):
            refused = await adrive(self._judged(run.session, request.tool_call))
            if refused is not None:
                return refused
            try:
                with _judged_by(run.session, request.tool_call):
                    return await handler(request)
            except BoundExceeded as error:
                return self._stopped_inside(run.session, request.tool_call, error)

    def _judged(self, session: BoundSession, call: Mapping[str, Any]) -> Flow[ToolMessage | None]:
        """The answer to a refused call, or ``None`` for one that may run."""
        call_id = f"{call['id']}:{uuid.uuid4().hex[:8]}"
        try:
            yield from charges.tool_call(session, call_id=call_id, tool=call["name"])
        except BoundExceeded as error:
            if self._on_breach == "raise" and session.ending.run_stopped is not None:
                error.outcome = yield Op(lambda: session.outcome, session.ledger.blocking)
                raise bubbling(error) from None
            return _error_message(call, refusal_text(call["name"], error.stop_reason))
        return None

    def _stopped_inside(self, session: BoundSession, call: Mapping[str, Any], error: BoundExceeded) -> ToolMessage:
        """The answer to a call in which a bound stopped something; the stop of a session around ours goes on."""
        ours = error.session_id == session.session_id
        around = any(s.session_id == error.session_id for s in scope.current() if s is not session)
        if around or (ours and self._on_breach == "raise"):
            raise bubbling(error)
        return _error_message(call, stopped_text(call["name"], error.stop_reason))


@contextmanager
def _judged_by(session: BoundSession, call: Mapping[str, Any]) -> Iterator[None]:
    """No other seam judges this call again."""
    token = scope.judged_tool_call.set(scope.Judged(call["id"], (session,)))
    try:
        yield
    finally:
        scope.judged_tool_call.reset(token)


def _error_message(call: Mapping[str, Any], text: str) -> ToolMessage:
    return ToolMessage(content=text, tool_call_id=call["id"], name=call["name"], status="error")


def _tool_name(tool: Any) -> str | None:
    if isinstance(tool, dict):
        return tool.get("name") or (tool.get("function") or {}).get("name")
    return getattr(tool, "name", None)


def _copy_of(model: BaseChatModel) -> BaseChatModel:
    """The bounded copy of a model, for whoever is in scope when it is called."""
    with _lock:
        kept = _copies.get(id(model))
        if kept is not None and kept[0] is model:
            _copies.move_to_end(id(model))
            return kept[1]
    copy = bound_model(model)
    with _lock:
        _copies[id(model)] = (model, copy)
        while len(_copies) > COPIES_KEPT:
            _copies.popitem(last=False)
    return copy


def _state_with(key: str) -> Any:
    """The state of an agent with our channels; the reducer comes last, or LangGraph does not see it.

    LangGraph keeps names that begin with two underscores for itself.
    """
    taken = (*AgentState.__annotations__, RUN_ID)
    if not isinstance(key, str) or not key.isidentifier() or key.startswith("__") or key in taken:
        raise SpecError(
            f"{key!r} cannot name the output channel",
            key="key",
            value=key,
            allowed=f"an identifier such as bound, without __ in front, and none of {', '.join(taken)}",
        )
    fields: dict[str, Any] = {
        **AgentState.__annotations__,
        key: NotRequired[Annotated[dict[str, Any], OmitFromInput, merge]],
        RUN_ID: NotRequired[Annotated[str, PrivateStateAttr]],
    }
    return TypedDict("BoundState", fields)  # type: ignore[operator]

"""Tool calls of LangChain's tool nodes: what a request says of a call, and what becomes of its answer.

The session judges (``session.tools``); here its verdict becomes an error message under the id of the call, and the
answer of a tool becomes what the session has to know of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from .._doors import effects, scoped
from ..core.errors import BoundExceeded
from ..metering import providers
from ..session import scope, tools
from ..session.approvals import canonical
from ..session.data_scope.errors import OutsideScope
from ..session.flow import Call, Flow
from ..session.late import ToolTime
from ..session.session import BoundSession
from ..session.tools import Admission, Message, ToolCall, ToolRefused
from . import subagents
from .approval import approval_of
from .texts import refusal_text
from .turns import turn_of

_TASK = "__pregel_task_id"
#: Runs a request in so much time.
Execute = Callable[[Any, ToolTime], Call]


def call_of(session: BoundSession, request: Any, *, ahead: bool = False) -> ToolCall:
    """What a request of a tool node asks; ``ahead``: all calls of the message are judged before any runs."""
    call, tool = request.tool_call, request.tool
    runtime = request.runtime
    if tool is not None:
        # What runs is the tool, whatever the call says.
        known = {tool.name}
    else:
        shown = tools.desk_of(session).offered
        known = {one.name for one in getattr(runtime, "tools", None) or ()} | shown
    schema, unchecked = schema_of(session, tool)
    return ToolCall(
        id=str(call["id"]),
        run_id=f"{call['id']}:{uuid.uuid4().hex[:8]}",
        name=call["name"],
        args=call["args"],
        effect=effect_of(call, runtime.config),
        message=message_of(request.state, call["id"]),
        known=known,
        schema=schema,
        check_schema=unchecked,
        ahead=ahead,
    )


def schema_of(session: BoundSession, tool: Any) -> tuple[Mapping[str, Any] | None, bool]:
    """The JSON Schema of a tool's arguments where it is needed, and whether LangChain leaves it unchecked."""
    own = getattr(tool, "args_schema", None)
    if isinstance(own, dict):
        return own, True
    if tool is None or not any(row[0] == tool.name for row in session.declared.argument_rules):
        return None, False
    schema = getattr(tool, "tool_call_schema", None)
    as_json = getattr(schema, "model_json_schema", None) or getattr(schema, "schema", None)
    if as_json is None:
        return None, False
    found: Mapping[str, Any] = as_json()
    names = {*(found.get("properties") or {}), *getattr(schema, "model_fields", {})}
    if "kwargs" in names:
        # A function that takes any keyword.
        return None, False
    return {
        "properties": dict.fromkeys(names, True),
        "additionalProperties": found.get("additionalProperties"),
    }, False


def effect_of(call: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The name of a call in its task, where LangGraph gives one: the same when the task goes on after a pause."""
    task = (config.get("configurable") or {}).get(_TASK)
    return f"{task}:{call['id']}:{call['name']}:{canonical(call['args'])}" if task else ""


def message_of(state: Any, call_id: Any) -> Message | None:
    """The message in a state that proposed a call, without the calls that are answered already."""
    answered: set[Any] = set()
    for message in reversed(_messages(state)):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            if any(call["id"] == call_id for call in message.tool_calls):
                return as_message(message, answered)
            break
    return None


def as_message(message: AIMessage, answered: Any = ()) -> Message:
    """A model's message as the session sees it."""
    calls = tuple(
        {"id": str(call["id"]), "name": call["name"], "args": call["args"]}
        for call in message.tool_calls
        if call["id"] not in answered
    )
    cut = providers.stop_reason(message).kind == "truncated"
    name = message.id or canonical([[call["id"], call["name"], call["args"]] for call in calls])
    return Message(id=name, calls=calls, truncated=cut)


def _messages(state: Any) -> list[Any]:
    if isinstance(state, list):
        return state
    if isinstance(state, Mapping):
        found = state.get("messages")
        if isinstance(found, list):
            return found
        lists = [value for value in state.values() if isinstance(value, list)]
    else:
        found = getattr(state, "messages", None)
        lists = [found] if isinstance(found, list) else []
    # A tool node may be told another key.
    return next((value for value in lists if any(isinstance(one, AIMessage) for one in value)), [])


def admitted(session: BoundSession, request: Any) -> Flow[Admission | ToolMessage]:
    """Admit a call, or the answer in its place.

    Raises:
        ToolRefused: a bound refused it.
        GraphInterrupt: a person has to answer first.
    """
    call = call_of(session, request)
    desk = tools.desk_of(session)
    try:
        approved = yield from approval_of(session, request)
    except BaseException:
        desk.judged(call.message, desk.place(call))
        raise
    if isinstance(approved, ToolMessage):
        desk.judged(call.message, desk.place(call))
        return approved
    return (yield from tools.judge((session,), call, approved={session.session_id: approved}))


def performed(
    session: BoundSession,
    request: Any,
    admission: Admission,
    execute: Execute,
    turn: int | None = None,
    run: str | None = None,
) -> Flow[Any]:
    """Run an admitted call, at most once, and tell the session what became of it. ``turn`` numbers the turns of
    ``run`` where its state does not.

    Raises: what the tool raises. What leaves the data scope is answered.
    """
    call = request.tool_call
    request = scoped(session, request)
    work, ran = execute(request, admission.time), False

    def now() -> Any:
        nonlocal ran
        ran = True
        return work.run()

    async def arun() -> Any:
        nonlocal ran
        ran = True
        return await work.arun()

    admission.started()
    token = scope.judged_tool_call.set(judged_for(session, call))
    try:
        with tools.inside(admission), subagents.listening() as told:
            turn = turn_of(request.state) if turn is None else turn
            answer = yield from effects().performed(session, request, Call(now, arun), turn, run)
    except OutsideScope as error:
        answer = error_message(call, str(error))
    except GraphBubbleUp as stop:
        if isinstance(stop, BoundExceeded):
            yield from admission.finished(None)
        else:
            admission.paused()
        raise
    except Exception as error:
        yield from admission.finished(f"{type(error).__name__}: {error}", failed=True)
        if not told:
            raise
        # A sub-agent failed, or the tool did over what was left of one: the others go on.
        return error_message(call, " ".join(told))
    except BaseException:
        yield from admission.finished(None)
        raise
    finally:
        scope.judged_tool_call.reset(token)
    if not ran:
        yield from admission.did_not_run()
        return answer
    return (yield from ended(session, admission, answer))


def ended(session: BoundSession, admission: Admission, answer: Any) -> Flow[Any]:
    """Tell the session what a tool came to; the answer as it is passed on, cut where it is too long."""
    messages = list(_answers(answer))
    content = [message.content for message in messages] or repr(type(answer).__name__)
    failed = any(message.status == "error" for message in messages)
    yield from admission.finished(content[0] if len(content) == 1 else canonical(content), failed=failed)
    cut_answers(session, messages)
    return answer


def cut_answers(session: BoundSession, messages: list[ToolMessage]) -> None:
    """Cut the content of answers in place where it is longer than the session passes on."""
    most = session.limits.tool_output_chars_max
    for message in messages:
        content = tools.cut(message.content, most)
        if content is not message.content:
            message.content = content


def _answers(answer: Any) -> list[ToolMessage]:
    """The messages of an answer, also those that a command writes into the state."""
    if isinstance(answer, ToolMessage):
        return [answer]
    if isinstance(answer, (list, tuple)):
        return [message for part in answer for message in _answers(part)]
    if isinstance(answer, Command):
        update = answer.update
        values = update.values() if isinstance(update, dict) else (update,)
        return [message for value in values for message in _answers(value)]
    return []


def judged_for(session: BoundSession, call: Mapping[str, Any]) -> scope.Judged:
    """No other seam judges exactly this call again, for this session or for those that have judged it around us."""
    before, what = scope.judged_tool_call.get(), canonical([call["name"], call["args"]])
    by = before.by if before is not None and (before.id, before.what) == (call["id"], what) else ()
    return scope.Judged(call["id"], (*by, session), what)


def refusal_message(call: Mapping[str, Any], error: BoundExceeded) -> ToolMessage:
    """The answer to a call that was refused."""
    hints = error.hints if isinstance(error, ToolRefused) else None
    return error_message(call, refusal_text(call["name"], error.stop_reason, hints))


def error_message(call: Mapping[str, Any], text: str) -> ToolMessage:
    """An error under the id of a call."""
    return ToolMessage(content=text, tool_call_id=call["id"], name=call["name"], status="error")

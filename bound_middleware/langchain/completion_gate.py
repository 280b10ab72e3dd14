"""``CompletionGate``: an agent of ``create_agent`` is done when fresh evidence says so.

When the agent wants to finish, the gates of the stop phase run. A failure goes back to the model as one message, as
often as ``settings.max_auto_retries`` allows in a task, counted outside of the state; then the run ends as
``gate_unsatisfied``. Beside a ``BoundMiddleware`` it speaks through that one's session, alone for itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, OmitFromInput, PrivateStateAttr, hook_config
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.channels import LastValue
from langgraph.config import get_config
from typing_extensions import TypedDict

from ..core.errors import SpecError
from ..gates.contract import GateContract
from ..gates.evidence import Evidence
from ..gates.state import StateError
from ..gates.values import Phase
from ..session.flow import Flow, Op, adrive, drive
from . import places, runs
from .gate_outcome import ended, marked, recorded, session_here, started
from .gating import Gate, Occasion, Stop
from .last_word import EndingChannel

#: The private channel that names the task whose continuations are counted.
TASK = "bound_gate_task"
_TASK_KEY, _TASK_ID = "__bound_gate_task__", "__pregel_task_id"


class TaskChannel(LastValue[str]):
    """The name of a task; what anybody else writes into it is dropped, or it would give continuations back."""

    __slots__ = ()

    def update(self, values: Sequence[Any]) -> bool:
        ours = [value[_TASK_KEY] for value in values if isinstance(value, dict) and value.keys() == {_TASK_KEY}]
        return bool(ours) and super().update(ours[-1:])


class CompletionGate(AgentMiddleware[Any, Any, Any]):
    """Runs completion gates when an agent wants to finish.

    Of two gates in one agent each has a ``name``. Put it behind ``BoundMiddleware`` in the list, so that it looks
    before that one closes the run; the other order gives the same outcome.

    Args:
        contract: the file, its folder, plain data, or a ``GateContract``. It is read now; an agent
            that changes it meanwhile ends as ``gate_unsatisfied``.
        root: what paths are relative to; the folder of the file by default, needed where there is none.
        phase: whose constraints apply.
        on_exhausted: ``end``, or ``ask`` a person by ``interrupt`` whether to go on, to waive what is left, or
            to end.
        on_pending: ``end`` says at once that it is not satisfied; ``wait`` looks again every
            ``pending_interval_seconds``, for ``pending_seconds`` at most, and sends nobody back meanwhile.
        on_nothing: ``refuse`` or ``pass`` a run to which no constraint applies; the output says so either way.
        rubrics: judges the rubrics of the contract; without it they are ``uncertain``.
        environment: the variables there are; those of this process by default.
        key: the name of the output channel.

    Raises:
        SpecError: there is no contract, it is wrong, or an argument is.
    """

    def __init__(
        self,
        contract: GateContract | Mapping[str, Any] | str | os.PathLike[str],
        root: str | os.PathLike[str] | None = None,
        phase: Phase = "stop",
        *,
        name: str = "completion",
        on_exhausted: Literal["end", "ask"] = "end",
        on_pending: Literal["end", "wait"] = "end",
        pending_seconds: float = 60.0,
        pending_interval_seconds: float = 2.0,
        on_nothing: Literal["refuse", "pass"] = "refuse",
        rubrics: Any = None,
        environment: Mapping[str, str] | None = None,
        key: str = "bound",
    ) -> None:
        super().__init__()
        self._gate = Gate(
            contract,
            root=root,
            phase=phase,
            name=name,
            on_exhausted=on_exhausted,
            on_pending=on_pending,
            pending_seconds=pending_seconds,
            pending_interval_seconds=pending_interval_seconds,
            on_nothing=on_nothing,
            rubrics=rubrics,
            environment=environment,
        )
        self._key = key
        self._name = "CompletionGate" if name == "completion" else f"CompletionGate {name}"
        self.tools: list[BaseTool] = [_acknowledging(self._gate)] if self._gate.advises else []
        self.state_schema = _state_with(key)

    @property
    def name(self) -> str:
        return self._name

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return drive(self._begun())

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await adrive(self._begun())

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return drive(self._stopped(state, runtime))

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await adrive(self._stopped(state, runtime))

    def _begun(self) -> Flow[dict[str, Any]]:
        """A new task: a count of its own, and nothing left of how the last one ended."""
        task = yield from runs.new_id(self)
        return {TASK: {_TASK_KEY: task}, self._key: (yield from started(self._gate.name, task))}

    def _stopped(self, state: Any, runtime: Any) -> Flow[dict[str, Any]]:
        config = get_config()
        task = state.get(TASK) or (yield from runs.unknown_id())
        messages = state.get("messages") or []
        if _ended_by_a_bound(messages):
            # It makes no further call, and nobody asks what its work is worth.
            entry = {"way": "unsatisfied", "state": "not_run", "phase": self._gate.phase}
            return {
                self._key: (
                    yield from ended(self._gate.name, Stop(way="unsatisfied", entry=entry), state, self._key)
                )
            }
        # A writer asks the context which graph it writes for, and gates tell from threads of their own.
        here = copy_context()
        occasion = Occasion(
            task=task,
            attempt=str(config["configurable"].get(_TASK_ID)),
            tell=lambda told: here.run(runtime.stream_writer, {f"{self._key}_gate": told}),
            session=session_here()[0],
            goal=_goal(messages),
            may_continue=not _open_calls(messages),
        )
        tool = self.tools[0].name if self.tools else None
        stop = yield from self._gate.stopped(occasion, acknowledge=tool)
        yield from recorded(self._gate.name, stop, occasion.attempt)
        update: dict[str, Any] = {self._key: (yield from ended(self._gate.name, stop, state, self._key))}
        if stop.way == "repair":
            return {**update, "messages": [marked(self._gate.name, stop.message or "")], "jump_to": "model"}
        runtime.stream_writer(update)
        return update


def _goal(messages: Sequence[Any]) -> str | None:
    """What the person asked for last."""
    asked = (m for m in reversed(messages) if isinstance(m, HumanMessage) and "bound" not in m.additional_kwargs)
    found = next(asked, None)
    return None if found is None else found.text


def _open_calls(messages: Sequence[Any]) -> bool:
    """Whether a tool call has no answer: no message may stand behind it."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    calls = (call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls)
    return any(call["id"] not in answered for call in calls)


def _ended_by_a_bound(messages: Sequence[Any]) -> bool:
    last = messages[-1] if messages else None
    said = isinstance(last, AIMessage) and (last.response_metadata.get("bound") or {}).get("stop_reason")
    session = next(reversed(places.sessions()), None)
    return bool(said) or (session is not None and not session.shadow and session.ending.run_stopped is not None)


def _acknowledging(gate: Gate) -> BaseTool:
    """The tool with which an agent answers advice that it does not follow."""

    def acknowledge(constraint_id: str, reason: str, runtime: ToolRuntime) -> str:
        """Says why advice of a check is not followed. The check keeps its verdict, and the reason is kept with it.

        Args:
            constraint_id: the check, as the message named it.
            reason: why the work is right as it is.
        """
        return drive(answer(constraint_id, reason, runtime.state.get(TASK)))

    async def aacknowledge(constraint_id: str, reason: str, runtime: ToolRuntime) -> str:
        return await adrive(answer(constraint_id, reason, runtime.state.get(TASK)))

    def answer(constraint_id: str, reason: str, task: str | None) -> Flow[str]:
        said: str = yield Op(lambda: _acknowledged(gate, constraint_id, reason, task or ""), True)
        return said

    name = "acknowledge" if gate.name == "completion" else f"acknowledge_{gate.name}"
    return StructuredTool.from_function(acknowledge, aacknowledge, name=name, parse_docstring=True)


def _acknowledged(gate: Gate, constraint_id: str, reason: str, task: str) -> str:
    from ..decision.collectors.process import SystemClock

    try:
        counted = gate.counted(task)
        report = counted.report()
        result = next((r for r in report.results if r.constraint_id == constraint_id), None) if report else None
        if result is None:
            return f"There is no advice from {constraint_id!r} to answer."
        Evidence(counted.state).acknowledge(result, reason=reason, now_ms=SystemClock().now_ms())
    except (ValueError, StateError) as error:
        return f"This was not recorded: {error}"
    return f"Recorded for {constraint_id} as it was seen. A change of the work makes it open again."


def _state_with(key: str) -> Any:
    """The state of an agent with our channels."""
    taken = (*AgentState.__annotations__, places.RUN_ID, TASK)
    if not isinstance(key, str) or not key.isidentifier() or key.startswith("__") or key in taken:
        raise SpecError(f"{key!r} cannot name the output channel", key="key", value=key, allowed="such as bound")
    made: Any = TypedDict
    fields = {
        **AgentState.__annotations__,
        key: NotRequired[Annotated[dict[str, Any], OmitFromInput, EndingChannel()]],
        TASK: NotRequired[Annotated[str, PrivateStateAttr, TaskChannel]],
    }
    return made("GateState", fields)

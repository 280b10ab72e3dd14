"""``DecisionMiddleware``: the same decision in an agent that ``create_agent`` builds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, OmitFromInput, PrivateStateAttr, hook_config
from langchain_core.messages import AIMessage
from langgraph.config import get_config
from langgraph.graph import END
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from ..core.errors import SpecError
from ..langchain.channel import concluded, merge
from ..session.flow import Flow, adrive, drive
from .counting import RUN
from .deciding import Step, outcome
from .decision_node import BoundDecisionNode
from .fence import RunChannel, SavepointChannel, without
from .savepoints import SAVEPOINTS
from .ways import Preset, Ways

At = Literal["after_agent", "after_model"]
_MODEL = "model"
_BACK = ("retry", "replan", "rollback")


class DecisionMiddleware(AgentMiddleware[Any, Any, Any]):
    """Decides when an agent is done, or after each of its model calls.

    RETRY, REPLAN and ROLLBACK go back to the model with a message that says what to do, ACCEPT goes on, and
    exhaustion ends the run with an outcome. An agent that a bound has stopped is judged, and not sent back. Of an
    answer that is not accepted no tool call runs: each is answered. What the tools of the agent do is recorded, and
    a rollback takes it back.

    Args:
        decide: how. Its ``retry``, ``replan`` and ``rollback`` may be ``END`` and mean the model otherwise.
        at: ``after_agent`` judges the agent's answer, ``after_model`` every answer of the model.
        node: the name under which the decision is recorded, and which tells two of them apart.

    Raises:
        SpecError: ``at`` is unknown, or ``decide`` names a node; an agent has none to go to.
    """

    def __new__(cls, decide: Any = None, at: Any = "after_agent", **_: Any) -> DecisionMiddleware:
        if at not in _KINDS:
            raise SpecError(f"{at!r} is no place", key="at", value=at, allowed="after_agent or after_model")
        return super().__new__(_KINDS[at] if cls is DecisionMiddleware else cls)

    def __init__(self, decide: BoundDecisionNode, at: At = "after_agent", *, node: str = "agent") -> None:
        super().__init__()
        if not isinstance(decide, BoundDecisionNode):
            raise SpecError(
                f"{decide!r} does not decide", key="decide", value=decide, allowed="BoundDecisionNode(...)"
            )
        if not isinstance(node, str) or not node:
            raise SpecError(f"{node!r} is no name", key="node", value=node, allowed="a name")
        self._at = at
        self._decider = decide.decider(node, _ways(decide.ways))
        self._name = "DecisionMiddleware" if node == "agent" else f"DecisionMiddleware {node}"
        self.state_schema = _state_with(self._decider.key)

    @property
    def name(self) -> str:
        return self._name

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return drive(self._begun())

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await adrive(self._begun())

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return without(self._decider.rollback.wrap_tool_call(request, handler))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return without(await self._decider.rollback.awrap_tool_call(request, handler))

    def _begun(self) -> Flow[dict[str, Any]]:
        started = {"outcome": (yield from outcome("running")), "decisions": {}}
        return {self._decider.key: Overwrite(started), **(yield from self._decider.start(get_config()))}

    def _decided(self, state: Any) -> Flow[dict[str, Any]]:
        last = state["messages"][-1] if state["messages"] else None
        stopped = isinstance(last, AIMessage) and (last.response_metadata.get("bound") or {}).get("stop_reason")
        ends = self._at == "after_agent" or not (isinstance(last, AIMessage) and last.tool_calls)
        step = yield from self._decider.decided(state, get_config(), stopped=bool(stopped), ends=ends)
        if step.way == "accept" and not ends:
            # What the agent does next is another step, and nothing of ours runs before it.
            yield from self._decider.begun(get_config())
        return _jumping(step, self._at)


class _AfterAgent(DecisionMiddleware):
    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return drive(self._decided(state))

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await adrive(self._decided(state))


class _AfterModel(DecisionMiddleware):
    @hook_config(can_jump_to=["model", "end"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return drive(self._decided(state))

    @hook_config(can_jump_to=["model", "end"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await adrive(self._decided(state))

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """The end of the agent, also of one in which nothing was decided."""
        key = self._decider.key
        value = state.get(key) or {}
        ended = concluded(value)
        return None if ended is value else {key: {"outcome": ended["outcome"]}}


_KINDS: dict[str, type[DecisionMiddleware]] = {"after_agent": _AfterAgent, "after_model": _AfterModel}


def _state_with(key: str) -> Any:
    """The state of an agent with our channels; the reducer comes last, or LangGraph does not see it."""
    made: Any = TypedDict
    fields = {
        **AgentState.__annotations__,
        key: NotRequired[Annotated[dict[str, Any], OmitFromInput, merge]],
        RUN: NotRequired[Annotated[str, PrivateStateAttr, RunChannel]],
        SAVEPOINTS: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, SavepointChannel]],
    }
    return made("DecisionState", fields)


def _ways(given: Ways) -> Ways:
    back = {name: getattr(given, name) for name in _BACK}
    named = {name: way for name, way in back.items() if not isinstance(way, Preset) and way not in (END, _MODEL)}
    if given.on_exhausted not in ("end", "ask"):
        named["on_exhausted"] = given.on_exhausted
    for key, way in named.items():
        raise SpecError(f"an agent has no node {way!r} to go to", key=key, value=way, allowed="model, or END")
    return Ways(
        accept=END,
        on_exhausted=given.on_exhausted,
        **{name: END if way == END else _MODEL for name, way in back.items()},
    )


def _jumping(step: Step, at: At) -> dict[str, Any]:
    """The update of the state, with the jump."""
    if step.way in _BACK:
        return {**step.update, "jump_to": _MODEL}
    # After the agent the end comes by itself; a jump to it would come here again.
    return {**step.update, "jump_to": "end"} if step.way == "end" and at == "after_model" else step.update

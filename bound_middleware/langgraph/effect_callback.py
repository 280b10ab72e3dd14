"""Tools that a node calls itself, without a tool node: recorded, so that a rollback takes them back or lists them.

A callback cannot give a stored answer in place of a call, so such a call is not kept from happening twice when its
node runs again: each time is an effect of its own. Calls inside a tool that is journalled belong to that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import ToolMessage

from .effect_scope import Effects, Place
from .effect_tools import inside_a_journalled_tool, result_of
from .effects import Effect, EffectId, canonical, digest_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


class DirectCalls(BaseCallbackHandler):
    """Records what the tools called by one node do. On a loop LangChain runs it in a worker thread."""

    raise_error = True
    ignore_llm = ignore_chain = ignore_agent_action = ignore_retriever = ignore_custom_event = True

    def __init__(self, effects: Effects, place: Place) -> None:
        self.effects, self._place = effects, place
        self._keys: dict[UUID, str] = {}

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        inputs: dict[str, Any] | None = None,
        tool_call_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        name = str(serialized.get("name") or kwargs.get("name"))
        compensation = self.effects.compensation(name)
        if inside_a_journalled_tool() or (compensation is not None and compensation.undo is None):
            return
        args = inputs if inputs is not None else {"input": input_str}
        id = EffectId(
            thread_id=self._place.thread_id,
            checkpoint_ns=self._place.ns,
            step=self._place.step,
            tool_call_id=tool_call_id or f"direct:{run_id}",
            digest=digest_of(name, {"args": canonical(args), "run": str(run_id)}),
        )
        effect = Effect(id=id, tool=name, arguments=canonical(args), checkpoint_id=self._place.checkpoint_id)
        self._keys[run_id] = id.key
        self.effects.journal.begin(effect, again=True)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        key = self._keys.pop(run_id, None)
        if key is None:
            return
        failed = isinstance(output, ToolMessage) and output.status == "error"
        content = output.content if isinstance(output, ToolMessage) else output
        state, note = ("failed", "error") if failed else ("done", "")
        self.effects.journal.finish(key, state, result=result_of(content), answer=None, note=note)  # type: ignore[arg-type]

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        key = self._keys.pop(run_id, None)
        if key is not None:
            note = type(error).__name__
            self.effects.journal.finish(key, "failed", result="null", answer=None, note=note)

    def left(self) -> list[str]:
        """The calls whose end was never told: the node was cut off in them."""
        keys, self._keys = list(self._keys.values()), {}
        return keys


def with_direct_calls(config: Mapping[str, Any], handler: DirectCalls) -> RunnableConfig:
    """The config with the handler for all that runs below; it takes the place of one from a node around."""
    given = config.get("callbacks")
    if isinstance(given, BaseCallbackManager):
        manager = given.copy()
        for other in [h for h in manager.handlers if isinstance(h, DirectCalls) and h.effects is handler.effects]:
            manager.remove_handler(other)
        manager.add_handler(handler, inherit=True)
        return {**config, "callbacks": manager}  # type: ignore[typeddict-item]
    return {**config, "callbacks": [*(given or ()), handler]}  # type: ignore[typeddict-item]

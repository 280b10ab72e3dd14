"""The last event of a run has its outcome: LangGraph gives values out after a step that wrote to one of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from langchain_core.runnables import Runnable
from langgraph.types import Command

from . import task


class Seen(Runnable[Any, Any]):
    """A node that writes nothing to our output channels, where it writes to no channel of the output."""

    def __init__(
        self, inner: Runnable[Any, Any], keys: Callable[[], Collection[str]], outputs: Callable[[], Collection[str]]
    ) -> None:
        self.inner, self._keys, self._outputs = inner, keys, outputs
        self.name = inner.get_name()

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return self._seen(self.inner.invoke(input, config, **kwargs), config)

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return self._seen(await self.inner.ainvoke(input, config, **kwargs), config)

    def _seen(self, result: Any, config: Mapping[str, Any]) -> Any:
        if not writes_any(result, self._outputs()):
            task.write(config, [(key, {"decisions": {}}) for key in self._keys()])
        return result


def writes_any(result: Any, outputs: Collection[str]) -> bool:
    """Whether what a node returned writes to one of these channels, as far as that can be told."""
    if result is None:
        return False
    if isinstance(result, dict):
        return any(name in outputs for name in result)
    if isinstance(result, Command):
        update = result.update
        return writes_any(update, outputs) if isinstance(update, (dict, type(None))) else True
    if isinstance(result, (list, tuple)):
        return any(writes_any(part, outputs) for part in result)
    return True

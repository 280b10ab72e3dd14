"""Nodes under a rollback: a window of the workspace around them, their tools seen, a savepoint before the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.types import Command

from ..session.flow import Call, Flow, Op, adrive, drive
from . import task
from .effect_callback import DirectCalls, with_direct_calls
from .effect_scope import Place
from .savepoints import SAVEPOINTS

if TYPE_CHECKING:
    from .rollback import Rollback

Start = Callable[[Mapping[str, Any]], Flow[dict[str, Any] | None]]


class Guarded(Runnable[Any, Any]):
    """A node, watched. ``rollback`` and ``keep`` are read by a rollback from outside."""

    def __init__(
        self, inner: Any, *, rollback: Rollback, node: str, keep: frozenset[str], start: Start | None
    ) -> None:
        self.inner, self.rollback, self.node, self.keep, self._start = inner, rollback, node, keep, start
        self.name = getattr(inner, "name", None) or node

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        async def never() -> Any:
            raise AssertionError("a sync node was driven on a loop")

        watched, seen = self._watched(config)

        def run() -> Any:
            with task.current(watched):
                return self.inner.invoke(input, watched, **kwargs)

        call = Call(run, never)
        return drive(self._flow(call, config or {}, seen))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        def never() -> Any:
            raise AssertionError("an async node was driven on a thread")

        watched, seen = self._watched(config)

        async def run() -> Any:
            with task.current(watched):
                return await self.inner.ainvoke(input, watched, **kwargs)

        call = Call(never, run)
        return await adrive(self._flow(call, config or {}, seen))

    def _watched(self, config: RunnableConfig | None) -> tuple[RunnableConfig, DirectCalls]:
        seen = DirectCalls(self.rollback.effects, Place.of(config or {}))
        return with_direct_calls(config or {}, seen), seen

    def _flow(self, call: Call, config: Any, seen: DirectCalls) -> Flow[Any]:
        savepoint = (yield from self._start(config)) if self._start is not None else None
        try:
            result = yield from self._in_window(call, config)
        finally:
            journal = self.rollback.effects.journal
            for key in seen.left():
                yield Op(lambda key=key: journal.abandon(key), journal.blocking)  # type: ignore[misc]
        return result if savepoint is None else _with_write(result, {SAVEPOINTS: savepoint})

    def _in_window(self, call: Call, config: Any) -> Flow[Any]:
        workspace, place = self.rollback.workspace, Place.of(config)
        if workspace is None:
            return (yield call)
        window = {"thread_id": place.thread_id, "checkpoint_id": place.checkpoint_id, "node": self.node or place.ns}
        yield Op(lambda: workspace.enter(**window), True)
        try:
            result = yield call
        finally:
            yield Op(lambda: workspace.leave(**window), True)
        return result


def _with_write(result: Any, write: dict[str, Any]) -> Any:
    """What a node returned, and one more write; never a write alone, which would mark a failed node as done."""
    if result is None:
        return write
    if isinstance(result, dict):
        return {**result, **write}
    if isinstance(result, Command) and result.graph is None and isinstance(result.update, (dict, type(None))):
        return replace(result, update={**(result.update or {}), **write})
    if isinstance(result, (list, tuple)) and any(isinstance(part, Command) for part in result):
        return [*result, Command(update=write)]
    return [result, Command(update=write)]

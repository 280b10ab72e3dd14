"""The steps that are under way, for ``Collectors``: each begins when the decided node first starts, or starts again
after an acceptance.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.runnables import Runnable

from ..decision.collectors import Collectors, StepRun
from ..session.flow import Flow, Op, adrive, drive
from .counting import Counts

#: Steps whose beginning is kept in memory; one beyond them is judged as one whose beginning nobody knows.
STEPS_KEPT = 10_000


class Steps:
    """Where things stood when each step began, by the account that counts its attempts. Thread-safe."""

    def __init__(self, collectors: Collectors) -> None:
        self._collectors = collectors
        self._lock = threading.Lock()
        self._begun: OrderedDict[str, tuple[StepRun, int]] = OrderedDict()

    def begin(self, counts: Counts) -> Flow[None]:
        """Note where things stand, unless the step is under way: a retry goes on with it."""
        if counts.account not in self._begun:
            before = (yield from counts.used())["retries"]
            yield Op(lambda: self._begin(counts.account, before), True)

    def of(self, counts: Counts) -> Flow[StepRun | None]:
        """The step, with its retries; ``None`` when nobody saw it begin, as in another process."""
        found = self._begun.get(counts.account)
        if found is None:
            return None
        step, before = found
        return step.retried((yield from counts.used())["retries"] - before)

    def end(self, account: str) -> None:
        """The step was accepted; what the node does next is another one."""
        with self._lock:
            self._begun.pop(account, None)

    def _begin(self, account: str, retries: int) -> None:
        # Of tasks that start side by side the first one looks, before any of them has done something.
        with self._lock:
            if account in self._begun:
                return
            self._begun[account] = self._collectors.begin(), retries
            while len(self._begun) > STEPS_KEPT:
                self._begun.popitem(last=False)


def steps_of(collect: Any) -> Steps | None:
    """The steps of a collector that wants to know them; the others are given the state."""
    return Steps(collect) if isinstance(collect, Collectors) else None


class Stepped(Runnable[Any, Any]):
    """A decided node, which begins a step. ``begun`` does so in a task of the graph."""

    def __init__(self, inner: Any, begun: Callable[[Mapping[str, Any]], Flow[None]]) -> None:
        self.inner, self._begun = inner, begun
        self.name = getattr(inner, "name", None)

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        drive(self._begun(config))
        return self.inner.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        await adrive(self._begun(config))
        return await self.inner.ainvoke(input, config, **kwargs)

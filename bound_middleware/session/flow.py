"""Flows that exist once and run in both colours.

A flow is a generator that yields effects and returns a value. ``drive`` runs it on the calling thread;
``adrive`` runs it on an event loop and moves every effect that may wait for I/O to a worker thread, so that no
seam blocks the loop. ``stream`` and ``astream`` run a flow that also emits items; when their consumer leaves,
the flow is told by ``GeneratorExit`` and still performs the effects of its ``finally`` blocks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

from .waiting import Turnstile
from .workers import in_worker

T = TypeVar("T")
#: How long a stream may go on without giving the loop a turn.
TURN_NS = 20_000_000


class Effect:
    """Something that a flow asks its driver to do. ``run`` blocks the thread, ``arun`` does not."""

    __slots__ = ()
    inline = False
    """Whether ``run`` returns at once, so that a driver on a loop may call it there."""

    def run(self) -> Any:
        raise NotImplementedError

    async def arun(self) -> Any:
        raise NotImplementedError


class Op(Effect):
    """Call a function. ``blocking`` says that it may wait for I/O."""

    __slots__ = ("function", "inline")

    def __init__(self, function: Callable[[], Any], blocking: bool) -> None:
        self.function = function
        self.inline = not blocking

    def run(self) -> Any:
        return self.function()

    async def arun(self) -> Any:
        return await in_worker(self.function)


class Call(Effect):
    """Call a function that exists in both colours."""

    __slots__ = ("afunction", "function")

    def __init__(self, function: Callable[[], Any], afunction: Callable[[], Awaitable[Any]]) -> None:
        self.function, self.afunction = function, afunction

    def run(self) -> Any:
        return self.function()

    async def arun(self) -> Any:
        return await self.afunction()


class Pause(Effect):
    """Wait until the turnstile moves past ``seen``, or for ``timeout_s`` seconds."""

    __slots__ = ("seen", "timeout_s", "turnstile")

    def __init__(self, turnstile: Turnstile, seen: int, timeout_s: float) -> None:
        self.turnstile, self.seen, self.timeout_s = turnstile, seen, timeout_s

    def run(self) -> Any:
        return self.turnstile.wait(self.seen, self.timeout_s)

    async def arun(self) -> Any:
        return await self.turnstile.await_(self.seen, self.timeout_s)


class Sleep(Effect):
    """Wait for ``timeout_s`` seconds."""

    __slots__ = ("timeout_s",)

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    def run(self) -> Any:
        return threading.Event().wait(self.timeout_s)

    async def arun(self) -> Any:
        import asyncio

        return await asyncio.sleep(self.timeout_s)


class Emit(Effect):
    """Give an item to the consumer of ``stream`` or ``astream``."""

    __slots__ = ("item",)

    def __init__(self, item: Any = None) -> None:
        self.item = item


Flow = Generator[Effect, Any, T]


def every(effects: Iterable[Effect]) -> Flow[None]:
    """Perform all of them, even when one fails or the task is cancelled meanwhile; then raise the first problem."""
    problem: BaseException | None = None
    for effect in effects:
        try:
            yield effect
        except BaseException as error:  # noqa: BLE001 - raised when all are done
            problem = problem or error
    if problem is not None:
        raise problem


def drive(flow: Flow[T]) -> T:
    """Run a flow on this thread. Raises what the flow raises."""
    try:
        effect = next(flow)
        while True:
            try:
                value = effect.run()
            except BaseException as error:  # noqa: BLE001 - handed to the flow, which decides
                effect = flow.throw(error)
            else:
                effect = flow.send(value)
    except StopIteration as done:
        result: T = done.value
        return result


async def adrive(flow: Flow[T]) -> T:
    """Run a flow on the running loop. Raises what the flow raises."""
    try:
        effect = next(flow)
        while True:
            try:
                value = effect.run() if effect.inline else await effect.arun()
            except BaseException as error:  # noqa: BLE001 - handed to the flow, which decides
                effect = flow.throw(error)
            else:
                effect = flow.send(value)
    except StopIteration as done:
        result: T = done.value
        return result


def stream(flow: Flow[None]) -> Iterator[Any]:
    """The items that a flow emits, on this thread."""
    left = False
    try:
        effect = next(flow)
        while True:
            try:
                if type(effect) is not Emit:
                    value = effect.run()
                elif left:
                    value = None
                else:
                    value = yield effect.item
            except GeneratorExit as gone:
                left = True
                effect = flow.throw(gone)
            except BaseException as error:  # noqa: BLE001 - handed to the flow, which decides
                effect = flow.throw(error)
            else:
                effect = flow.send(value)
    except StopIteration:
        return


async def astream(flow: Flow[None]) -> AsyncIterator[Any]:
    """The items that a flow emits, on the running loop, which gets a turn now and then: a provider's stream that
    always has something to read would keep cancellations and timers waiting."""
    import asyncio

    left, turn_ns = False, time.monotonic_ns()
    try:
        effect = next(flow)
        while True:
            try:
                if type(effect) is not Emit:
                    value = effect.run() if effect.inline else await effect.arun()
                elif left:
                    value = None
                else:
                    value = yield effect.item
                    if time.monotonic_ns() - turn_ns > TURN_NS:
                        await asyncio.sleep(0)
                        turn_ns = time.monotonic_ns()
            except GeneratorExit as gone:
                left = True
                effect = flow.throw(gone)
            except BaseException as error:  # noqa: BLE001 - handed to the flow, which decides
                effect = flow.throw(error)
            else:
                effect = flow.send(value)
    except StopIteration:
        return

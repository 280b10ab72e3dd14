"""Cancels that a client has swallowed.

``asyncio.wait_for`` of Python 3.11, with which ``ChatOpenAI`` awaits each chunk, drops the cancel of a task when
the chunk arrives at the same moment. The call then goes on, and is paid for, to its end, and who has given it up
waits for it all the same. So a cancel that did not come through is delivered again.

Whoever asks again by himself (AnyIO does, until the task has ended) is left to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class LostCancel:
    """Watches the task of one stream for cancels that the stream swallows."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: int | None = None

    async def watching(self, begin: Callable[[], Awaitable[Any]]) -> Any:
        """The piece that is begun; a cancel that it swallows is raised by the next one.

        What the consumer does with a cancel between two pieces is his own affair.
        """
        import asyncio

        task: Any = asyncio.current_task()
        if self._asked is not None:
            await asyncio.sleep(0)
            if task.cancelling() == self._asked:
                raise asyncio.CancelledError
        before = task.cancelling()
        result = await begin()
        self._asked = task.cancelling() if task.cancelling() > before else None
        return result

    def look(self) -> None:
        """The same where nothing can be awaited: the current task, made for the stream alone, has a piece.

        A cancel that was lost by the piece before is asked for again; the task counts it as the same one.
        """
        import asyncio

        try:
            task: Any = asyncio.current_task()
        except RuntimeError:  # a thread of a model that only knows how to be called there
            return
        asked = 0 if task is None else task.cancelling()
        if asked and asked == self._asked:
            task.uncancel()
            task.cancel()
        self._asked = asked

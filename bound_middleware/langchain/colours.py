"""Event methods of a handler that are right for LangChain's sync and async managers alike."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import CO_COROUTINE
from typing import Any

from ..session.flow import Flow, adrive, drive


class BothColours:
    """An event method that is sync for sync managers and a coroutine function for async ones.

    LangChain swallows what async handlers raise under its sync APIs, and a sync handler cannot wait on an event
    loop. The manager that asks for the method is itself a coroutine exactly when it is going to await it.
    """

    def __init__(self, flow: Callable[..., Flow[None]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__

    def __get__(self, handler: Any, owner: Any = None) -> Any:
        flow = self._flow

        async def asynchronous(*args: Any, **kwargs: Any) -> None:
            await adrive(flow(handler, *args, **kwargs))

        def synchronous(*args: Any, **kwargs: Any) -> None:
            drive(flow(handler, *args, **kwargs))

        return asynchronous if sys._getframe(1).f_code.co_flags & CO_COROUTINE else synchronous

"""The shortest forms: ``bound(...)`` around some code or on a function, and ``install(spec)`` for a process."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ..core.errors import SpecError
from . import arguments, scope
from .session import BoundSession

F = TypeVar("F", bound=Callable[..., Any])
_SESSION_ARGUMENTS = ("ledger", "session_id", "clock", "prices", "sinks", "shadow", "tenant", "user")


class bound:
    """Bounds on everything inside a ``with`` block, or on each call of a decorated function.

    ``with bound(usd="$0.50", iterations=20, seconds=60) as session: ...`` opens one session; as a decorator on a
    sync or async function (or generator function) it opens a new one for each call.

    Args:
        spec: a ``BoundSpec``, a path or a dict; or none, and the short names ``usd``, ``tokens``,
            ``iterations``, ``seconds``, ``tools``, ``approve``.
        **options: those, and the arguments of ``BoundSession`` (``ledger``, ``session_id``, ``clock``,
            ``prices``, ``sinks``, ``shadow``, ``tenant``, ``user``).

    Raises:
        SpecError: at once, when a bound or another argument is wrong.
        BoundExceeded: from inside, when a bound refuses or cuts a call.
    """

    def __init__(self, spec: Any = None, **options: Any) -> None:
        from ..spec import BoundSpec

        given = {k: options.pop(k) for k in _SESSION_ARGUMENTS if k in options}
        if spec is not None and options:
            raise SpecError(f"give either a spec or short names ({', '.join(options)}), not both", key="bound")
        self._spec = BoundSpec.of(spec) if spec is not None else BoundSpec(**options)
        self._arguments = arguments.for_later(self._spec.limits(), given)
        self._sessions: list[BoundSession] = []

    def session(self) -> BoundSession:
        """A new session under these bounds, not entered."""
        return BoundSession(self._spec, **self._arguments)

    def __enter__(self) -> BoundSession:
        session = self.session()
        session.__enter__()
        self._sessions.append(session)
        return session

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._innermost().__exit__(kind, error, traceback)

    async def __aenter__(self) -> BoundSession:
        session = self.session()
        await session.__aenter__()
        self._sessions.append(session)
        return session

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        await self._innermost().__aexit__(kind, error, traceback)

    def _innermost(self) -> BoundSession:
        """The session of this context's last entry; others may have entered the same object since."""
        mine = [s for s in scope.current() if s in self._sessions] or self._sessions
        self._sessions.remove(mine[-1])
        return mine[-1]

    def __call__(self, function: F) -> F:
        if inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def agenerate(*args: Any, **kwargs: Any) -> Any:
                async with self.session() as session:
                    items = function(*args, **kwargs)
                    try:
                        async for item in items:
                            with scope.outside(session):
                                yield item
                    finally:
                        await items.aclose()

            return agenerate  # type: ignore[return-value]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def acall(*args: Any, **kwargs: Any) -> Any:
                async with self.session():
                    return await function(*args, **kwargs)

            return acall  # type: ignore[return-value]
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generate(*args: Any, **kwargs: Any) -> Any:
                with self.session() as session:
                    return (yield from _between(session, function(*args, **kwargs)))

            return generate  # type: ignore[return-value]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.session():
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]


def _between(session: BoundSession, items: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The items of a generator whose own code alone runs inside the session; what is sent and thrown reaches it."""
    resume, value = items.send, None
    while True:
        try:
            item = resume(value)
        except StopIteration as done:
            return done.value
        try:
            with scope.outside(session):
                resume, value = items.send, (yield item)
        except GeneratorExit:
            items.close()
            raise
        except BaseException as error:  # noqa: BLE001 - thrown by the consumer, for the generator
            resume, value = items.throw, error


def install(spec: Any = None, **options: Any) -> BoundSession | None:
    """Bound every LangChain call of this process that no session claims; ``install(None)`` takes it away.

    Args:
        spec: a ``BoundSpec``, a path or a dict, or a session; or none, and the short names.
        **options: those, and the arguments of ``BoundSession``.

    Returns:
        The session that now stands behind all others.

    Raises:
        SpecError: when a bound is wrong; what was installed before stays.
    """
    from .._doors import ambient_hook

    if spec is None and not options:
        scope.set_default(None)
        return None
    if isinstance(spec, BoundSession):
        if options:
            raise SpecError(f"the session is open already: {', '.join(options)} come too late", key="install")
        session = spec
    else:
        session = bound(spec, **options).session()
    ambient_hook()
    scope.set_default(session)
    return session

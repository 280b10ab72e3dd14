"""Requests that a provider's client repeats on its own, below the callbacks: each one is an attempt of the call.

The clients of OpenAI and Anthropic are made by the same generator: one method makes a request, and makes it again
when it failed. While a call is bounded from outside its model, that method is asked for one request at a time, so
that every attempt is settled, and the next one admitted, as LangChain's own retries are. Whether there is a next
one, and when, is the client's decision, as before; only a bound can say no.

A request belongs to the model call in whose frames it is made. So what a consumer of a stream, another thread or an
unbounded call asks of the same client is left alone, and while no call is open every request is.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from types import CodeType, FrameType
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun

from ..core.errors import BoundExceeded
from ..session.flow import Call, Flow, Op, adrive, drive
from ..session.model_call import ModelCall, ModelRequest
from ..session.session import BoundSession
from . import open_calls
from .attempts import past_deadline
from .open_calls import OpenCall
from .places import stopping

#: Packages whose clients have the methods below (in ``_base_client``): what the generator writes is the same.
_PACKAGES: Final = ("openai", "anthropic", "groq")
_METHODS: Final = ("request", "_should_retry", "_sleep_for_retry", "_calculate_retry_timeout", "_idempotency_key")
_LLM_RUNS: Final = (CallbackManagerForLLMRun, AsyncCallbackManagerForLLMRun)
_COUNT_HEADER: Final = "x-stainless-retry-count"

_lock = threading.Lock()
_watched: set[str] = set()
_ours: set[CodeType] = set()


def watch() -> None:
    """See to it, for each package that is there by now; for the others, and a second time, nothing happens."""
    for package in _PACKAGES:
        home = sys.modules.get(f"{package}._base_client")
        # While another thread imports it, the module is there and its classes are not.
        if package in _watched or not hasattr(home, "AsyncAPIClient"):
            continue
        with _lock:
            if package not in _watched:
                _watched.add(package)
                _wrap(sys.modules[package], home)


def _wrap(package: Any, home: Any) -> None:
    """Have both clients of a package make one request at a time; one with other methods than ours is left alone."""
    for client, wrapped in ((home.SyncAPIClient, _synchronous), (home.AsyncAPIClient, _asynchronous)):
        if all(callable(getattr(client, method, None)) for method in _METHODS):
            client.request = wrapped(client.request, package)


def _synchronous(request: Any, package: Any) -> Any:
    def one_at_a_time(self: Any, cast_to: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
        opened = _bounding()
        if not opened:
            return request(self, cast_to, options, *args, **kwargs)

        def ask(one: Any) -> Any:
            return request(self, cast_to, one, *args, **kwargs)

        return drive(_attempts(opened, self, package, options, ask))

    _ours.add(one_at_a_time.__code__)
    return functools.update_wrapper(one_at_a_time, request)


def _asynchronous(request: Any, package: Any) -> Any:
    async def one_at_a_time(self: Any, cast_to: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
        opened = _bounding()
        if not opened:
            return await request(self, cast_to, options, *args, **kwargs)

        def ask(one: Any) -> Any:
            return request(self, cast_to, one, *args, **kwargs)

        return await adrive(_attempts(opened, self, package, options, ask))

    _ours.add(one_at_a_time.__code__)
    return functools.update_wrapper(one_at_a_time, request)


def _bounding() -> tuple[OpenCall, ...]:
    """The open call in whose frames the caller's caller runs, once for each handler; empty when there is none.

    The nearest run of a model decides. A request that is made inside of another one of ours is part of that one.
    """
    if not open_calls.any_open():
        return ()
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code in _ours:
            return ()
        if any("run_manager" in names for names in (code.co_varnames, code.co_cellvars, code.co_freevars)):
            run = frame.f_locals.get("run_manager")
            if isinstance(run, _LLM_RUNS):
                return open_calls.all_of(run.run_id)
        frame = frame.f_back
    return ()


def _attempts(opened: tuple[OpenCall, ...], client: Any, package: Any, options: Any, ask: Any) -> Flow[Any]:
    """One request, repeated as the client would; each attempt admitted and settled in every call of ``opened``."""
    for one in opened:
        one.watched = True
    most = options.get_max_retries(client.max_retries)
    if not isinstance(most, int) or most < 1:
        return (yield Call(functools.partial(ask, options), functools.partial(ask, options)))
    caps = (s.limits.attempts_per_call_max for one in opened for s in one.call.sessions)
    allowed = min([most, *(cap - 1 for cap in caps if cap is not None)])
    once: dict[str, Any] = {"max_retries": 0}
    if options.idempotency_key is None and options.method.lower() != "get":
        once["idempotency_key"] = client._idempotency_key()
    first = [one.call.request for one in opened]
    for taken in count():
        if taken:
            given = options.headers if isinstance(options.headers, Mapping) else {}
            once["headers"] = {_COUNT_HEADER: str(taken), **given}
        attempt = options.model_copy(update=once)
        try:
            return (yield Call(functools.partial(ask, attempt), functools.partial(ask, attempt)))
        except Exception as error:
            again, response = _judged(client, package, error)
            if taken >= allowed or not again:
                raise
            failure = error
        yield from _settled(opened, failure)
        pause_s = client._calculate_retry_timeout(most - taken, options, getattr(response, "headers", None))
        if past_deadline([s for one in opened for s in one.call.sessions], pause_s * 1000):
            raise failure
        pausing = functools.partial(
            client._sleep_for_retry, retries_taken=taken, max_retries=most, options=options, response=response
        )
        yield Call(pausing, pausing)
        again_as = [replace(request, call_id=f"{request.call_id}#{taken + 2}") for request in first]
        yield from _admit(opened, again_as, failure)


def _judged(client: Any, package: Any, error: Exception) -> tuple[bool, Any]:
    """Whether the client would try again after this error, and the response in it."""
    ask = getattr(client, "_should_retry_exception", None)
    if ask is not None:
        again, response = ask(error)
        return again, response
    if isinstance(error, package.APIStatusError):
        return client._should_retry(error.response), error.response
    return isinstance(error, package.APIConnectionError), None


def _settled(opened: tuple[OpenCall, ...], failure: Exception) -> Flow[None]:
    """Settle a failed attempt. Raises ``BoundExceeded`` when its time was over meanwhile."""
    late: ModelCall | None = None
    for one in opened:
        reason = one.call.is_late()
        if reason is not None:
            one.call.cut(reason)
            late = late or one.call
        yield from one.failed(failure)
    if late is not None:
        raise (yield from _told(late.error(), late.sessions)) from failure


def _admit(opened: tuple[OpenCall, ...], requests: list[ModelRequest], failure: Exception) -> Flow[None]:
    """Hold room for the next attempt in every open call, or in none. Raises ``BoundExceeded`` when one refuses."""
    calls: list[ModelCall] = []
    for one, request in zip(opened, requests, strict=True):
        call = ModelCall(one.call.sessions, request)
        try:
            yield from call.admit()
        except BaseException as error:
            for admitted in calls:
                yield from admitted.settle("not_sent")
            if isinstance(error, BoundExceeded):
                raise (yield from _told(error, call.sessions)) from failure
            raise
        calls.append(call)
    for one, call in zip(opened, calls, strict=True):
        one.call = call


def _told(error: BoundExceeded, sessions: tuple[BoundSession, ...]) -> Flow[BoundExceeded]:
    """The error with the outcome of its session, in the form that passes through graphs."""
    session = next((s for s in sessions if s.session_id == error.session_id), sessions[-1])
    error.outcome = yield Op(lambda: session.outcome, session.ledger.blocking)
    return stopping(error)

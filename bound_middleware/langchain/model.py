"""``bound_model``: a chat model of the same class whose every call is held, capped, metered and settled.

The class of a copy is swapped for (seam, original class), which overrides ``_generate``, ``_agenerate``,
``_stream`` and ``_astream`` where the original implements them. So every public path is bounded (invoke,
stream, batch, events, bound tools, structured output), ``isinstance`` holds, and the cap reaches the wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables.config import var_child_runnable_config
from pydantic import PrivateAttr

from ..core.errors import SpecError
from ..metering import providers
from ..session import flow as flows
from ..session import scope
from ..session.arguments import session_of
from ..session.session import BoundSession
from .attempts import Attempts, collected
from .cached_answers import CachesWholeAnswers
from .telling import with_warnings
from .unattributed import unclaimed

Model = TypeVar("Model", bound=BaseChatModel)

#: In a run's metadata: the call is bounded inside the model, and every other seam leaves it alone.
SEAM_KEY = "bound_seam"
#: In a bounded model's metadata: the sessions that bound it, by id; they survive LangChain's rebuilding a model.
OWNERS_KEY = "bound_sessions"
_SEAMS = ("_generate", "_agenerate", "_stream", "_astream")
_PUBLIC = ("invoke", "ainvoke", "stream", "astream", "generate", "agenerate", "generate_prompt", "agenerate_prompt")


def bound_model(model: Model, session: BoundSession | None = None) -> Model:
    """A chat model of the same class whose calls are bounded; the original is untouched.

    Original and copy share their clients, never a meter. Retries that the client library makes on its own are
    switched off on the copy and made here, each admitted and counted.

    Args:
        model: any chat model. One that is bounded already is bounded by both sessions.
        session: who bounds it; ``None`` leaves it to the sessions that are entered when it is called.

    Raises:
        SpecError: not a session, not a chat model, or one whose class cannot be bounded from below (it overrides a
            public run method, or cannot be subclassed).
    """
    if not isinstance(model, BaseChatModel):
        raise SpecError(
            f"{type(model).__name__} is not a chat model",
            key="model",
            allowed="a BaseChatModel; bound the model before it is made configurable, bound to tools or chained",
        )
    session = session_of(session)
    if not isinstance(model, BoundSeam):
        check_public(type(model))
    return bound_below(model, session)


def bound_below(model: Model, session: BoundSession | None = None) -> Model:
    """The same for a model whose call is past the public methods that its class may override.

    Raises:
        SpecError: its class cannot be subclassed.
    """
    owners = (session,) if session is not None else ()
    if isinstance(model, BoundSeam):
        again = _made(model).model_copy()
        again._bound_owners = (*(o for o in again._bound_owners if o not in owners), *owners)
        again.metadata = _marked(again.metadata, again._bound_owners)
        return again
    seamed = _seamed(type(model))
    retries = providers.hidden_retries(model)
    quiet, known = providers.without_hidden_retries(model)
    copy = model.model_copy(update={"metadata": _marked(model.metadata, owners)})
    object.__setattr__(copy, "__class__", seamed)
    private = {
        "_bound_made": True,
        "_bound_owners": owners,
        "_bound_retries": (retries or 0) if known else 0,
        "_bound_known": known,
        "_bound_quiet": {k: v for k, v in quiet.__dict__.items() if v is not model.__dict__.get(k)},
        "_bound_noisy": tuple(model.__dict__.keys() - quiet.__dict__.keys()),
    }
    object.__setattr__(copy, "__pydantic_private__", {**(copy.__pydantic_private__ or {}), **private})
    return copy


def _marked(metadata: dict[str, Any] | None, owners: tuple[BoundSession, ...]) -> dict[str, Any]:
    marks: dict[str, Any] = {SEAM_KEY: "model"}
    if owners:
        marks[OWNERS_KEY] = [owner.session_id for owner in owners]
    return {**{k: v for k, v in (metadata or {}).items() if k != OWNERS_KEY}, **marks}


def _made(model: Any) -> Any:
    """The bounded model itself; one that LangChain rebuilt from its fields (``configurable_fields``) is made again.

    Raises:
        SpecError: it was bounded by a session that is gone.
    """
    if model._bound_made:
        return model
    ids = (model.metadata or {}).get(OWNERS_KEY) or []
    owners = [scope.known(session_id) for session_id in ids]
    if None in owners:
        raise SpecError(
            "this copy of a bounded model was rebuilt from its fields, and its session is gone",
            key="model",
            allowed="keep the session for as long as the model is used",
        )
    again = bound_below(_unseamed(model))
    for owner in owners:
        again = bound_below(again, owner)
    return again


class BoundSeam(CachesWholeAnswers):
    """What a bounded model's class has in front of the original's. Plain, so that pydantic leaves it alone."""

    _bound_made: bool
    _bound_owners: tuple[BoundSession, ...]
    _bound_retries: int
    _bound_known: bool
    _bound_quiet: dict[str, Any]
    """What replaces fields and clients of the model, so that its client does not retry by itself."""
    _bound_noisy: tuple[str, ...]
    """What is cached on the model and must be made anew then."""
    _bound_original: type[BaseChatModel]
    #: A native event stream would pass by ``_stream``; without one LangChain bridges from ``_stream``.
    _stream_chat_model_events = None
    _astream_chat_model_events = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (_unseamed(self), self._bound_owners))


def _rebuilt(plain: BaseChatModel, owners: tuple[BoundSession, ...]) -> BaseChatModel:
    model = bound_below(plain)
    for owner in owners:
        model = bound_below(model, owner)
    return model


def _unseamed(model: Any) -> Any:
    """The model in its original class, with the settings that it has now; its client retries as it was told to."""
    plain = model.model_copy()
    object.__setattr__(plain, "__class__", type(model)._bound_original)
    private = {k: v for k, v in (plain.__pydantic_private__ or {}).items() if not k.startswith("_bound_")}
    object.__setattr__(plain, "__pydantic_private__", private or None)
    return plain


def _without_retries(model: Any) -> Any:
    """The same, but each call is one request."""
    plain = _unseamed(model)
    plain.__dict__.update(model._bound_quiet)
    for name in model._bound_noisy:
        plain.__dict__.pop(name, None)
    return plain


def _attempts(
    model: Any, messages: list[BaseMessage], stop: list[str] | None, run_manager: Any, kwargs: dict[str, Any]
) -> Attempts | None:
    """The attempts of this call, or ``None`` when nobody bounds it."""
    model = _made(model)
    metadata = getattr(run_manager, "metadata", None) or (var_child_runnable_config.get() or {}).get("metadata")
    sessions = scope.claim_for(model._bound_owners, metadata)
    if not sessions:
        sessions = unclaimed(providers.model_name_of(model, kwargs))
        if not sessions:
            return None
    if not model._bound_known:
        for session in sessions:
            session.ending.retries_unseen()
    plain, given = providers.with_stream_usage(_without_retries(model), kwargs)
    call_id = str(run_manager.run_id) if run_manager is not None else None
    messages = with_warnings(sessions, messages)
    unseen = not model._bound_known
    return Attempts(sessions, plain, messages, stop, dict(given), call_id, model._bound_retries, unseen=unseen)


def _generate(
    self: Any, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
) -> ChatResult:
    attempts = _attempts(self, messages, stop, run_manager, kwargs)
    if attempts is None:
        return _unseamed(self)._generate(messages, stop, run_manager, **kwargs)  # type: ignore[no-any-return]
    if attempts.streams_underneath:
        return collected(list(flows.stream(attempts.stream(None))))
    return flows.drive(attempts.generate(run_manager))


async def _agenerate(
    self: Any, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
) -> ChatResult:
    attempts = _attempts(self, messages, stop, run_manager, kwargs)
    if attempts is None:
        return await _unseamed(self)._agenerate(messages, stop, run_manager, **kwargs)  # type: ignore[no-any-return]
    if attempts.streams_underneath:
        return collected([chunk async for chunk in flows.astream(attempts.stream(None))])
    return await flows.adrive(attempts.generate(run_manager))


def _stream(
    self: Any, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
) -> Iterator[ChatGenerationChunk]:
    attempts = _attempts(self, messages, stop, run_manager, kwargs)
    if attempts is None:
        yield from _unseamed(self)._stream(messages, stop, run_manager, **kwargs)
    else:
        yield from flows.stream(attempts.stream(run_manager))


async def _astream(
    self: Any, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
) -> AsyncIterator[ChatGenerationChunk]:
    attempts = _attempts(self, messages, stop, run_manager, kwargs)
    if attempts is None:
        chunks = _unseamed(self)._astream(messages, stop, run_manager, **kwargs)
    else:
        chunks = flows.astream(attempts.stream(run_manager))
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        await chunks.aclose()


_METHODS = {"_generate": _generate, "_agenerate": _agenerate, "_stream": _stream, "_astream": _astream}
_classes: dict[type, type] = {}


def _seamed(original: type[BaseChatModel]) -> type:
    """The class of a bounded copy; made once for each class."""
    if original not in _classes:
        _classes[original] = _make(original)
    return _classes[original]


def check_public(original: type[BaseChatModel]) -> None:
    """Raises ``SpecError`` for a class whose public methods may never reach a seam."""
    for method in _PUBLIC:
        if getattr(original, method) is not getattr(BaseChatModel, method):
            raise SpecError(
                f"{original.__name__} overrides {method}(), so its calls may pass by every seam below it",
                key="model",
                allowed="bound the model that it wraps, or use the ambient session",
            )


def _make(original: type[BaseChatModel]) -> type:
    name = original.__name__
    own = {m: f for m, f in _METHODS.items() if getattr(original, m) is not getattr(BaseChatModel, m, None)}
    seam = type("BoundSeam", (BoundSeam,), {"__module__": __name__, "_bound_original": original, **own})
    space: dict[str, Any] = {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "_bound_made": PrivateAttr(default=False),
        "_bound_owners": PrivateAttr(default=()),
        "_bound_retries": PrivateAttr(default=0),
        "_bound_known": PrivateAttr(default=True),
        "_bound_quiet": PrivateAttr(default_factory=dict),
        "_bound_noisy": PrivateAttr(default=()),
        "_bound_keyed_as": PrivateAttr(default=None),
    }
    try:
        metaclass: Any = type(original)
        seamed: type = metaclass(name, (seam, original), space)
    except TypeError as error:
        raise SpecError(f"{name} cannot be subclassed: {error}", key="model") from error
    return seamed

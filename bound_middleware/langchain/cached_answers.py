"""What a bounded model leaves in LangChain's cache: whole answers only.

The key of an answer does not know of our cap, so an answer that a bound cut short would be served to everybody who
asks the same, with money or without bounds. LangChain writes to the cache after the model has answered; a bounded
model is given the cache behind a door that is shut once its answer was cut.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.globals import get_llm_cache

from ..session.session import BoundSession


class Door(BaseCache):
    """A cache in front of the one in force, for one call."""

    def __init__(self, cache: BaseCache) -> None:
        self.cache, self.shut = cache, False

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        return self.cache.lookup(prompt, llm_string)

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        if not self.shut:
            self.cache.update(prompt, llm_string, return_val)

    def clear(self, **kwargs: Any) -> None:
        self.cache.clear(**kwargs)

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        return await self.cache.alookup(prompt, llm_string)

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        if not self.shut:
            await self.cache.aupdate(prompt, llm_string, return_val)

    async def aclear(self, **kwargs: Any) -> None:
        await self.cache.aclear(**kwargs)


_door: ContextVar[Door | None] = ContextVar("bound_cache_door", default=None)


def current() -> Door | None:
    """The door through which the answer of the call that runs goes to a cache."""
    return _door.get()


def from_cache(message: Any) -> bool:
    """Whether LangChain's cache answered. It marks such usage with a cost of 0."""
    return (getattr(message, "usage_metadata", None) or {}).get("total_cost") == 0


def record_hit(sessions: tuple[BoundSession, ...], run_id: Any) -> None:
    """Write an answer of the cache to the traces."""
    for session in sessions:
        session.record("cache_hit", call_id=str(run_id))


class CachesWholeAnswers:
    """The two methods of a chat model that look into the cache, on top of those of its class."""

    _bound_keyed_as: Any
    """The model whose key in the cache this copy has: the cache must not be part of it."""

    def _generate_with_cache(self, *args: Any, **kwargs: Any) -> Any:
        cache = _cache_of(self)
        if cache is None:
            return super()._generate_with_cache(*args, **kwargs)  # type: ignore[misc]
        door = Door(cache)
        token = _door.set(door)
        try:
            return super(CachesWholeAnswers, _behind(self, door))._generate_with_cache(*args, **kwargs)  # type: ignore[misc]
        finally:
            _door.reset(token)

    async def _agenerate_with_cache(self, *args: Any, **kwargs: Any) -> Any:
        cache = _cache_of(self)
        if cache is None:
            return await super()._agenerate_with_cache(*args, **kwargs)  # type: ignore[misc]
        door = Door(cache)
        token = _door.set(door)
        try:
            behind = super(CachesWholeAnswers, _behind(self, door))
            return await behind._agenerate_with_cache(*args, **kwargs)  # type: ignore[attr-defined]
        finally:
            _door.reset(token)

    def _get_llm_string(self, *args: Any, **kwargs: Any) -> Any:
        keyed_as = getattr(self, "_bound_keyed_as", None)
        return super(CachesWholeAnswers, keyed_as or self)._get_llm_string(*args, **kwargs)  # type: ignore[misc]


def _cache_of(model: Any) -> BaseCache | None:
    """The cache that LangChain is going to use, as it looks for it."""
    if model.cache is False:
        return None
    return model.cache if isinstance(model.cache, BaseCache) else get_llm_cache()


def _behind(model: Any, door: Door) -> Any:
    copy = model.model_copy(update={"cache": door})
    copy._bound_keyed_as = model
    return copy

"""A store that shows each session its own part: put between a graph and the store that it was given.

Each operation is translated to where the scope's data lies before it reaches the store, and what comes back is
looked at again: stores that search by a prefix of text also find ``anna`` below ``ann``. What is outside is refused
before anything of the batch happens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, Result, SearchOp

from ..session import scope as attribution
from ..session.data_scope.errors import OutsideScope, refused
from ..session.data_scope.namespaces import Labels, Namespaces, Place, matches
from ..session.data_scope.scope import scopes_of
from ..session.session import BoundSession

#: Where LangGraph keeps the runtime of a task in its config.
_RUNTIME = "__pregel_runtime"
#: What a store may list at most below one part; callers see what their own limit says.
LISTED_MAX = 1_000_000
Read = Callable[[list[Any]], Any]
Plan = tuple[list[Op], Read]


class ScopedStore(BaseStore):
    """The part of ``store`` that the sessions of the running call may see.

    Args:
        store: the store that has the data.
        sessions: finds the sessions that bound a call; by default those that are entered.
        required: refuse an operation that no session bounds. ``False`` lets it pass to the whole store.
    """

    def __init__(
        self,
        store: BaseStore,
        *,
        sessions: Callable[[], tuple[BoundSession, ...]] = attribution.claim,
        required: bool = True,
    ) -> None:
        # A second layer would look at the same sessions again.
        self._store: BaseStore = store._store if isinstance(store, ScopedStore) else store
        self._sessions, self._required = sessions, required
        self.supports_ttl, self.ttl_config = store.supports_ttl, store.ttl_config

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        planned, read = self._planned(list(ops))
        return read(self._store.batch(planned) if planned else [])  # type: ignore[no-any-return]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        planned, read = self._planned(list(ops))
        return read(await self._store.abatch(planned) if planned else [])  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"ScopedStore({type(self._store).__name__})"

    def _planned(self, ops: list[Op]) -> Plan:
        sessions = self._sessions()
        if not sessions and self._required:
            raise OutsideScope("no session bounds this use of the store")
        bounding = [session for session in sessions if scope_of_stores(session)]
        return _side_by_side([_plan(op, bounding) for op in ops])


def scoped_request(session: BoundSession, request: Any) -> Any:
    """A tool's request with a scoped store, also for ``get_store`` inside of the tool; as it was without a scope.

    A tool has its config from its task, so the store is replaced there, where nobody but this call sees it.
    """
    runtime = request.runtime
    if getattr(runtime, "store", None) is None or not scope_of_stores(session):
        return request
    store = ScopedStore(runtime.store)
    configurable = (runtime.config or {}).get("configurable") or {}
    around = configurable.get(_RUNTIME)
    if around is not None and around.store is not None:
        configurable[_RUNTIME] = around.override(store=ScopedStore(around.store))
    return request.override(runtime=replace(runtime, store=store))


def scope_of_stores(session: BoundSession) -> bool:
    """Whether a session declares anything about stores."""
    return scopes_of(session)[0].bounds_stores


def _plan(op: Op, sessions: list[BoundSession]) -> Plan:
    """The operation as the innermost session sees it, translated for each of them up to the store."""
    if not sessions:
        return [op], lambda results: results[0]
    *around, inner = sessions
    try:
        parts, joined = _translated(op, Namespaces(scopes_of(inner)[0]), inner)
    except OutsideScope as error:
        refused(inner, "store", error)
        if inner.shadow:
            return _plan(op, around)
        raise
    if inner.shadow:
        return _plan(op, around)
    below, read = _side_by_side([_plan(part, around) for part in parts])
    return below, lambda results: joined(read(results))


def _side_by_side(plans: list[Plan]) -> Plan:
    """Several plans as one; it reads a list with the result of each."""

    def read(results: list[Any]) -> list[Any]:
        found, at = [], 0
        for ops, read_one in plans:
            found.append(read_one(results[at : at + len(ops)]))
            at += len(ops)
        return found

    return [op for ops, _ in plans for op in ops], read


def _translated(op: Op, namespaces: Namespaces, session: BoundSession) -> Plan:
    """One operation of a session, as operations on where its data lies."""
    if isinstance(op, GetOp):
        place = _place(namespaces, op.namespace, session, read=True)
        real = place.real_of(op.namespace)
        return [op._replace(namespace=real)], lambda results: _seen(
            results[0] if results[0] is None or tuple(results[0].namespace) == real else None, place
        )
    if isinstance(op, PutOp):
        place = _place(namespaces, op.namespace, session, read=False)
        return [op._replace(namespace=place.real_of(op.namespace))], lambda results: results[0]
    if isinstance(op, SearchOp):
        return _search(op, _below(namespaces, op.namespace_prefix, session))
    if isinstance(op, ListNamespacesOp):
        wanted = _literal_prefix(op)
        return _list(op, _below(namespaces, wanted, session))
    raise OutsideScope(f"a store operation that is not known: {type(op).__name__}")


def _place(namespaces: Namespaces, named: Labels, session: BoundSession, *, read: bool) -> Place:
    place = namespaces.place_of(tuple(named), read=read)
    if place is None:
        raise _outside(named, session)
    _crossed(place, named, session)
    return place


def _below(namespaces: Namespaces, named: Labels, session: BoundSession) -> tuple[Place, ...]:
    places = namespaces.below(tuple(named))
    if not places:
        raise _outside(named, session)
    for place in places:
        _crossed(place, named, session)
    return places


def _outside(named: Labels, session: BoundSession) -> OutsideScope:
    scope = scopes_of(session)[0]
    return OutsideScope(
        *(
            scope.unknown
            or (f"the store namespace {scope.redact('/'.join(map(str, named)))!r} is not in the scope",)
        )
    )


def _crossed(place: Place, named: Labels, session: BoundSession) -> None:
    if place.agreed is not None:
        session.record("data_scope", detail=place.agreed.crossing(seam="store", namespace="/".join(named)))


def _search(op: SearchOp, places: tuple[Place, ...]) -> Plan:
    if len(places) == 1:
        ops: list[Op] = [op._replace(namespace_prefix=places[0].real)]
    else:
        ops = [op._replace(namespace_prefix=p.real, limit=op.limit + op.offset, offset=0) for p in places]

    def read(results: list[Any]) -> list[Any]:
        parts = zip(places, results, strict=True)
        found = [seen for place, items in parts for item in items if (seen := _seen(item, place)) is not None]
        if len(places) == 1:
            return found
        if any(item.score is not None for item in found):
            found.sort(key=lambda item: -1.0 if item.score is None else item.score, reverse=True)
        return found[op.offset : op.offset + op.limit]

    return ops, read


def _list(op: ListNamespacesOp, places: tuple[Place, ...]) -> Plan:
    ops: list[Op] = [
        ListNamespacesOp(
            match_conditions=(MatchCondition("prefix", place.real),) if place.real else None, limit=LISTED_MAX
        )
        for place in places
    ]

    def read(results: list[Any]) -> list[Labels]:
        parts = zip(places, results, strict=True)
        seen = {
            named for place, found in parts for real in found if (named := place.named_of(tuple(real))) is not None
        }
        kept = (
            named[: op.max_depth] if op.max_depth is not None else named
            for named in seen
            if all(matches(c.match_type, c.path, named) for c in op.match_conditions or ())
        )
        return sorted(set(kept))[op.offset : op.offset + op.limit]

    return ops, read


def _literal_prefix(op: ListNamespacesOp) -> Labels:
    """The labels that every wanted namespace begins with."""
    longest: Labels = ()
    for condition in op.match_conditions or ():
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            literal = path[: path.index("*")] if "*" in path else path
            longest = max(longest, literal, key=len)
    return longest


def _seen(item: Any, place: Place) -> Any:
    """An item under the name that its reader gave it; ``None`` when it is not in this part at all."""
    if item is None:
        return None
    named = place.named_of(tuple(item.namespace))
    if named is None:
        return None
    shown = copy.copy(item)
    shown.namespace = named
    return shown

"""Retrievers and vector stores that show each session its own documents.

The filter goes to the index with the query, and what comes back is looked at again: an index may ignore a filter,
or understand it differently. Documents without the metadata that is asked for belong to nobody and are not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStoreRetriever
from pydantic import ConfigDict

from ..core.errors import SpecError
from ..session import scope as attribution
from ..session.data_scope.conditions import Conditions, conditions_of
from ..session.data_scope.errors import OutsideScope, refused
from ..session.data_scope.indexes import inside_scope
from ..session.data_scope.scope import scopes_of
from ..session.flow import Call, Flow, adrive, drive
from ..session.session import BoundSession

Found = TypeVar("Found")
#: Makes one filter of the scope's conditions and the filter that the caller gave, in the index's own form.
AsFilter = Callable[[tuple[Conditions, ...], Any], Any]
OnOutside = Literal["drop", "refuse"]
#: Vector stores whose ``filter`` is a function of a document or of its metadata.
_FUNCTIONS = {"InMemoryVectorStore": lambda document: document.metadata, "FAISS": lambda metadata: metadata}


class Scoping:
    """How one index is put inside the scope of the sessions around a call."""

    __slots__ = ("as_filter", "keys", "on_outside")

    def __init__(self, *, on_outside: OnOutside, keys: Mapping[str, str], as_filter: AsFilter | None) -> None:
        self.on_outside, self.keys, self.as_filter = on_outside, keys, as_filter

    def bounding(self) -> list[tuple[BoundSession, Conditions]]:
        """The sessions that bound retrieval, and what each asks of documents.

        Raises:
            OutsideScope: no session is there, or one cannot say what may be read.
        """
        sessions = attribution.claim()
        if not sessions:
            raise OutsideScope("no session bounds this use of an index")
        found = []
        for session in sessions:
            (scope,) = scopes_of(session)
            try:
                if scope.no_external_index_read and not scope.bounds_retrieval:
                    raise OutsideScope("the scope opens no index")
                if scope.bounds_retrieval:
                    found.append((session, conditions_of(scope, **self.keys)))
            except OutsideScope as error:
                refused(session, "retriever", error)
                if not session.shadow:
                    raise
        return found

    def filter_for(self, index: object, bounding: list[tuple[BoundSession, Conditions]], given: Any) -> Any:
        """The caller's filter and the scope's as one."""
        conditions = tuple(asked for session, asked in bounding if not session.shadow)
        if not conditions:
            return given
        make = self.as_filter or next(
            (_as_function(read) for name, read in _FUNCTIONS.items() if _is_a(index, name)), _as_mapping
        )
        return make(conditions, given)

    def checked(self, found: Iterable[Found], bounding: list[tuple[BoundSession, Conditions]]) -> list[Found]:
        """What may be given of what an index found: documents, or pairs of a document and a score.

        Raises:
            OutsideScope: something else was among it, and ``on_outside`` is ``refuse``.
        """
        given = list(found)
        for session, conditions in bounding:
            kept = [one for one in given if conditions.hold(_document(one).metadata)]
            for line in dict.fromkeys(x for one in kept for x in conditions.crossings(_document(one).metadata)):
                session.record("data_scope", detail=line.crossing(seam="retriever"))
            if len(kept) != len(given):
                error = OutsideScope("the index found documents outside of the scope")
                if self.on_outside == "refuse":
                    refused(session, "retriever", error)
                    if not session.shadow:
                        raise error
                else:
                    session.record("data_scope", detail={"seam": "retriever", "dropped": list(error.because)})
            given = given if session.shadow else kept
        return given


class ScopedRetriever(BaseRetriever):
    """A retriever of which each session sees its own documents.

    A filter is passed on where the inner one is a ``VectorStoreRetriever``; any other is checked by what it gives,
    which can then be fewer documents than it was asked for.

    Args:
        retriever: what finds the documents.
        on_outside: ``drop`` documents outside of the scope, or ``refuse`` the whole answer. Both are in the trace.
        tenant_key, user_key: the keys of the metadata that say whose a document is.
        as_filter: makes the index's own form of a filter, where its class is not known here.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    retriever: Any
    on_outside: OnOutside = "drop"
    tenant_key: str = "tenant"
    user_key: str = "user"
    as_filter: AsFilter | None = None

    def invoke(self, input: str, config: Any = None, **kwargs: Any) -> list[Document]:
        with inside_scope():
            return super().invoke(input, config, **kwargs)

    async def ainvoke(self, input: str, config: Any = None, **kwargs: Any) -> list[Document]:
        with inside_scope():
            return await super().ainvoke(input, config, **kwargs)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return drive(self._found(query, run_manager, kwargs))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return await adrive(self._found(query, run_manager, kwargs))

    def _found(self, query: str, run_manager: Any, kwargs: dict[str, Any]) -> Flow[list[Document]]:
        scoping = Scoping(
            on_outside=self.on_outside,
            keys={"tenant_key": self.tenant_key, "user_key": self.user_key},
            as_filter=self.as_filter,
        )
        bounding = scoping.bounding()
        inner, config = self.retriever, {"callbacks": run_manager.get_child()}
        # A scoped store puts its own filter in.
        if isinstance(inner, VectorStoreRetriever) and not getattr(inner.vectorstore, "in_scope", False):
            asked = kwargs.get("filter", inner.search_kwargs.get("filter"))
            wanted = scoping.filter_for(inner.vectorstore, bounding, asked)
            if wanted is not None:
                kwargs = {**kwargs, "filter": wanted}
        found = yield Call(
            lambda: inner.invoke(query, config, **kwargs), lambda: inner.ainvoke(query, config, **kwargs)
        )
        return scoping.checked(found, bounding)


def _document(found: Any) -> Document:
    document: Document = found[0] if isinstance(found, tuple) else found
    return document


def _is_a(index: object, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(index).__mro__)


def _as_function(metadata_of: Callable[[Any], Mapping[str, Any]]) -> AsFilter:
    def make(conditions: tuple[Conditions, ...], given: Any) -> Any:
        def passes(found: Any) -> bool:
            metadata = metadata_of(found)
            if not all(asked.hold(metadata) for asked in conditions):
                return False
            if isinstance(given, Mapping):
                return all(_equal(metadata.get(key), value) for key, value in given.items())
            return given is None or bool(given(found))

        if isinstance(given, Mapping) and any(
            key.startswith("$") or isinstance(value, Mapping) for key, value in given.items()
        ):
            raise SpecError(
                "a filter with operators cannot be joined with the scope's",
                key="filter",
                allowed="keys with values, or a function",
            )
        return passes

    return make


def _equal(found: Any, wanted: Any) -> bool:
    return found in wanted if isinstance(wanted, list | tuple) else found == wanted


def _as_mapping(conditions: tuple[Conditions, ...], given: Any) -> Any:
    """The form that most servers read: ``$and`` of equalities and ``$in``."""
    parts: list[Any] = [
        {key: values[0]} if len(values) == 1 else {key: {"$in": list(values)}}
        for asked in conditions
        for key, values in asked.allowed.items()
    ]
    parts += [given] if given else []
    return parts[0] if len(parts) == 1 else {"$and": parts}

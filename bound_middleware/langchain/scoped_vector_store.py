"""A vector store of which each session sees and changes its own documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

from ..session.data_scope.conditions import Conditions
from ..session.data_scope.errors import OutsideScope
from ..session.flow import Call, Flow, adrive, drive
from ..session.session import BoundSession
from .scoped_retriever import AsFilter, OnOutside, ScopedRetriever, Scoping

Bounding = list[tuple[BoundSession, Conditions]]


class ScopedVectorStore(VectorStore):
    """The documents of ``store`` that the sessions of the running call may see.

    What is written gets the scope's metadata. An id that belongs to somebody else can be neither read, replaced nor
    deleted; where the store cannot say whose an id is, ids cannot be chosen and nothing can be deleted.

    Args:
        store: the store that has the documents.
        on_outside, tenant_key, user_key, as_filter: as for ``ScopedRetriever``.
    """

    in_scope = True

    def __init__(
        self,
        store: VectorStore,
        *,
        on_outside: OnOutside = "drop",
        tenant_key: str = "tenant",
        user_key: str = "user",
        as_filter: AsFilter | None = None,
    ) -> None:
        self._store = store
        keys = {"tenant_key": tenant_key, "user_key": user_key}
        self._scoping = Scoping(on_outside=on_outside, keys=keys, as_filter=as_filter)

    @property
    def embeddings(self) -> Embeddings | None:
        return self._store.embeddings

    def as_retriever(self, **kwargs: Any) -> Any:
        """A scoped retriever over this store."""
        found: VectorStoreRetriever = super().as_retriever(**kwargs)
        return ScopedRetriever(
            retriever=found,
            on_outside=self._scoping.on_outside,
            tenant_key=self._scoping.keys["tenant_key"],
            user_key=self._scoping.keys["user_key"],
        )

    # -- reading -------------------------------------------------------------------------------------------

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        return drive(self._search("similarity_search", query, k, kwargs))

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        return await adrive(self._search("similarity_search", query, k, kwargs))

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        return drive(self._search("similarity_search_with_score", query, k, kwargs))

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        return await adrive(self._search("similarity_search_with_score", query, k, kwargs))

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        return drive(self._search("similarity_search_by_vector", embedding, k, kwargs))

    async def asimilarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        return await adrive(self._search("similarity_search_by_vector", embedding, k, kwargs))

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        more = {"fetch_k": fetch_k, "lambda_mult": lambda_mult, **kwargs}
        return drive(self._search("max_marginal_relevance_search", query, k, more))

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        more = {"fetch_k": fetch_k, "lambda_mult": lambda_mult, **kwargs}
        return await adrive(self._search("max_marginal_relevance_search", query, k, more))

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        more = {"fetch_k": fetch_k, "lambda_mult": lambda_mult, **kwargs}
        return drive(self._search("max_marginal_relevance_search_by_vector", embedding, k, more))

    async def amax_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        more = {"fetch_k": fetch_k, "lambda_mult": lambda_mult, **kwargs}
        return await adrive(self._search("max_marginal_relevance_search_by_vector", embedding, k, more))

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return drive(self._by_ids(ids))

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return await adrive(self._by_ids(ids))

    def _select_relevance_score_fn(self) -> Any:
        return self._store._select_relevance_score_fn()

    def _search(self, method: str, what: Any, k: int, kwargs: dict[str, Any]) -> Flow[Any]:
        bounding = self._scoping.bounding()
        wanted = self._scoping.filter_for(self._store, bounding, kwargs.get("filter"))
        if wanted is not None:
            kwargs = {**kwargs, "filter": wanted}
        found = yield self._call(method, what, k, **kwargs)
        return self._scoping.checked(found, bounding)

    def _by_ids(self, ids: Sequence[str]) -> Flow[list[Document]]:
        bounding = self._scoping.bounding()
        found = yield self._call("get_by_ids", ids)
        return self._scoping.checked(found, bounding)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Call:
        return Call(
            lambda: getattr(self._store, method)(*args, **kwargs),
            lambda: getattr(self._store, f"a{method}")(*args, **kwargs),
        )

    # -- writing -------------------------------------------------------------------------------------------

    def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        return drive(self._add(documents, kwargs))

    async def aadd_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        return await adrive(self._add(documents, kwargs))

    def add_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **kwargs: Any
    ) -> list[str]:
        return drive(self._add(_documents(texts, metadatas), kwargs))

    async def aadd_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **kwargs: Any
    ) -> list[str]:
        return await adrive(self._add(_documents(texts, metadatas), kwargs))

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        return drive(self._delete(ids, kwargs))

    async def adelete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        return await adrive(self._delete(ids, kwargs))

    def _add(self, documents: Iterable[Document], kwargs: dict[str, Any]) -> Flow[list[str]]:
        bounding = self._scoping.bounding()
        given = list(documents)
        for session, conditions in bounding:
            if not session.shadow:
                given = [one.model_copy(update={"metadata": conditions.stamped(one.metadata)}) for one in given]
        chosen = [*(kwargs.get("ids") or ()), *(one.id for one in given)]
        yield from self._own([one for one in chosen if one is not None], bounding)
        added: list[str] = yield self._call("add_documents", given, **kwargs)
        return added

    def _delete(self, ids: list[str] | None, kwargs: dict[str, Any]) -> Flow[bool | None]:
        bounding = self._scoping.bounding()
        if any(not session.shadow for session, _ in bounding) and (ids is None or kwargs):
            raise OutsideScope("only documents that are named by their ids can be deleted")
        yield from self._own(ids or [], bounding)
        deleted: bool | None = yield self._call("delete", ids, **kwargs)
        return deleted

    def _own(self, ids: list[str], bounding: Bounding) -> Flow[None]:
        """Nobody else's document has one of these ids."""
        asked = [conditions for session, conditions in bounding if not session.shadow]
        if not ids or not asked:
            return
        try:
            there: list[Document] = yield self._call("get_by_ids", ids)
        except NotImplementedError:
            raise OutsideScope("the index cannot say whose these ids are") from None
        # An exception opens reads: what it opens is somebody else's all the same.
        if not all(Conditions(allowed=one.own).hold(found.metadata) for one in asked for found in there):
            raise OutsideScope("an id belongs to a document outside of the scope")

    @classmethod
    def from_texts(cls, texts: list[str], embedding: Embeddings, *args: Any, **kwargs: Any) -> Any:
        """Not here: make the store itself, and put it in."""
        raise NotImplementedError("make the store itself, then ScopedVectorStore(store)")


def _documents(texts: Iterable[str], metadatas: list[dict[str, Any]] | None) -> list[Document]:
    words = list(texts)
    with_each = metadatas if metadatas is not None else [{} for _ in words]
    return [Document(page_content=text, metadata=dict(m)) for text, m in zip(words, with_each, strict=True)]

"""Scoped retrievers and vector stores, in both colours: filtered before, looked at again afterwards."""

import asyncio

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from bound_middleware import BoundExceeded, BoundSession, BoundSpec, SpecError
from bound_middleware.langchain.scoped_retriever import ScopedRetriever
from bound_middleware.langchain.scoped_vector_store import ScopedVectorStore
from bound_middleware.session.data_scope import OutsideScope

DOCUMENTS = [
    Document(id="a1", page_content="acme one", metadata={"tenant": "acme", "level": "public", "user": "ann"}),
    Document(id="a2", page_content="acme two", metadata={"tenant": "acme", "level": "secret", "user": "bob"}),
    Document(id="g1", page_content="globex one", metadata={"tenant": "globex", "level": "public", "user": "ann"}),
    Document(id="n1", page_content="nobody's", metadata={"level": "public"}),
]


def session_of(owner=None, shadow=False, **scope):
    spec = BoundSpec.from_dict({"bounds": {"data_access_scope": scope}})
    return BoundSession(spec, shadow=shadow, **({"tenant": "acme", "user": "ann"} if owner is None else owner))


def events(session):
    return [event.detail for event in session.events if event.name == "data_scope"]


class Same(Embeddings):
    """Every text is as near as any other."""

    def embed_documents(self, texts):
        return [[1.0] for _ in texts]

    def embed_query(self, text):
        return [1.0]


class Index(InMemoryVectorStore):
    """The real store, but for the arithmetic of vectors, which needs another package."""

    def _similarity_search_with_score_by_vector(self, embedding, k=4, filter=None):
        rows = [(self.get_by_ids([id])[0], 1.0, row["vector"]) for id, row in self.store.items()]
        return [row for row in rows if filter is None or filter(row[0])][:k]

    def max_marginal_relevance_search_by_vector(self, embedding, k=4, fetch_k=20, lambda_mult=0.5, **kwargs):
        return self.similarity_search_by_vector(embedding, k=k, **kwargs)


class Leaky(BaseRetriever):
    """Gives everything, whatever it is asked for."""

    def _get_relevant_documents(self, query, *, run_manager):
        return list(DOCUMENTS)


@pytest.fixture
def index():
    store = Index(Same())
    store.add_documents(DOCUMENTS)
    return store


WAYS = ("invoke", "ainvoke", "batch", "abatch", "stream", "astream", "in a chain", "in an async chain")


@pytest.fixture(params=WAYS)
def ask(request):
    """The documents of a retriever, by each way to run it."""

    async def astreamed(retriever, query):
        return [part async for part in retriever.astream(query)][-1]

    def go(retriever, query="q"):
        chain = RunnableLambda(lambda text: text) | retriever
        found = {
            "invoke": lambda: retriever.invoke(query),
            "ainvoke": lambda: asyncio.run(retriever.ainvoke(query)),
            "batch": lambda: retriever.batch([query, query])[1],
            "abatch": lambda: asyncio.run(retriever.abatch([query, query]))[1],
            "stream": lambda: list(retriever.stream(query))[-1],
            "astream": lambda: asyncio.run(astreamed(retriever, query)),
            "in a chain": lambda: chain.invoke(query),
            "in an async chain": lambda: asyncio.run(chain.ainvoke(query)),
        }[request.param]()
        return sorted(document.id for document in found)

    return go


def test_each_tenant_gets_its_own_documents_and_nobodys_are_given_to_nobody(ask, index):
    for retriever in (
        ScopedRetriever(retriever=Leaky()),
        ScopedRetriever(retriever=index.as_retriever(search_kwargs={"k": 10})),
        ScopedVectorStore(index).as_retriever(search_kwargs={"k": 10}),
    ):
        with session_of(tenant="session"):
            assert ask(retriever) == ["a1", "a2"]
        with session_of({"tenant": "globex"}, tenant="session"):
            assert ask(retriever) == ["g1"]
        with session_of(tenant="session", user="session"):
            assert ask(retriever) == ["a1"]
        with session_of(metadata={"level": "public"}):
            assert ask(retriever) == ["a1", "g1", "n1"]
        with session_of(tenant="session", metadata={"level": ["public", "internal"]}):
            assert ask(retriever) == ["a1"]
        with session_of():
            assert ask(retriever) == ["a1", "a2", "g1", "n1"]


def test_the_filter_goes_to_the_index_so_that_a_small_k_is_not_used_up_by_others(ask, index):
    retriever = ScopedRetriever(retriever=index.as_retriever(search_kwargs={"k": 1}))
    with session_of({"tenant": "globex"}, tenant="session") as session:
        assert ask(retriever) == ["g1"]
    assert events(session) == []


def test_the_filter_of_the_caller_narrows_and_never_widens(ask, index):
    def secret(document):
        return document.metadata["level"] == "secret"

    with session_of(tenant="session"):
        for store in (index, ScopedVectorStore(index)):
            inner = store.as_retriever(search_kwargs={"k": 10, "filter": secret})
            assert ask(ScopedRetriever(retriever=inner)) == ["a2"]
            inner = store.as_retriever(search_kwargs={"k": 10, "filter": {"tenant": "globex"}})
            assert ask(ScopedRetriever(retriever=inner)) == []


def test_what_an_index_gives_from_outside_is_dropped_and_in_the_trace_or_refused(ask):
    with session_of(tenant="session") as session:
        assert ask(ScopedRetriever(retriever=Leaky())) == ["a1", "a2"]
    assert events(session)[0] == {
        "seam": "retriever",
        "dropped": ["the index found documents outside of the scope"],
    }
    with session_of(tenant="session"), pytest.raises(OutsideScope, match="outside of the scope"):
        ask(ScopedRetriever(retriever=Leaky(), on_outside="refuse"))
    with session_of(metadata={"level": ["public", "secret"]}) as session:
        assert len(ask(ScopedRetriever(retriever=Leaky(), on_outside="refuse"))) == 4
    assert events(session) == []


def test_an_agreed_exception_lets_documents_through_and_is_named(ask, index):
    session = session_of(tenant="session", cross_scope=[{"to": "tenant:globex", "reason": "they merged"}])
    with session:
        assert ask(ScopedRetriever(retriever=index.as_retriever(search_kwargs={"k": 10}))) == ["a1", "a2", "g1"]
    assert {"crossed": "tenant:globex", "reason": "they merged", "seam": "retriever"} in events(session)


def test_without_a_session_or_with_a_tenant_that_is_not_known_nothing_is_read(ask):
    retriever = ScopedRetriever(retriever=Leaky())
    with pytest.raises(OutsideScope, match="no session"):
        ask(retriever)
    with session_of({}, tenant="session"), pytest.raises(OutsideScope, match="no tenant"):
        ask(retriever)
    with session_of({"tenant": "globex"}, tenant="acme"), pytest.raises(OutsideScope, match="another tenant"):
        ask(retriever)


def test_sessions_around_each_other_all_have_to_allow_a_document(ask):
    with session_of(metadata={"level": "public"}), session_of(tenant="session"):
        assert ask(ScopedRetriever(retriever=Leaky())) == ["a1"]


def test_in_shadow_mode_everything_is_given_and_the_trace_says_what_would_not_have_been(ask, index):
    with session_of(tenant="session", shadow=True) as session:
        assert len(ask(ScopedRetriever(retriever=index.as_retriever(search_kwargs={"k": 10})))) == 4
    assert "outside of the scope" in events(session)[0]["dropped"][0]


def test_where_no_external_index_may_be_read_a_retriever_without_conditions_is_refused(ask):
    with session_of(no_external_index_read=True) as session, pytest.raises(OutsideScope, match="opens no index"):
        ask(ScopedRetriever(retriever=Leaky()))
    assert events(session)
    with session_of(no_external_index_read=True, tenant="session"):
        assert ask(ScopedRetriever(retriever=Leaky())) == ["a1", "a2"]


def test_a_retriever_in_no_scope_is_refused_before_it_runs_where_no_external_index_may_be_read(ask):
    asked = []

    class Counting(Leaky):
        def _get_relevant_documents(self, query, *, run_manager):
            asked.append(query)
            return []

    with pytest.raises(BoundExceeded) as error, session_of(no_external_index_read=True) as session:
        ask(Counting())
    assert error.value.stop_reason == error.value.outcome.stop_reason == "data_scope"
    assert asked == []
    assert events(session)
    with session_of():
        assert ask(Counting()) == []
    with session_of(no_external_index_read=True, tenant="session"):
        assert ask(ScopedRetriever(retriever=Counting())) == []
        assert ask(ScopedVectorStore(Index(Same())).as_retriever()) == []
    with session_of(no_external_index_read=True, shadow=True) as session:
        assert ask(Counting()) == []
    assert events(session)


# -- vector stores -------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "async"])
def store(request, index):
    class Uses:
        def __getattr__(self, name):
            if request.param == "sync":
                return getattr(ScopedVectorStore(index), name)
            method = getattr(ScopedVectorStore(index), f"a{name}")

            def call(*args, **kwargs):
                async def go():
                    return await method(*args, **kwargs)

                return asyncio.run(go())

            return call

    return Uses()


def ids(found):
    return sorted((one[0] if isinstance(one, tuple) else one).id for one in found)


def test_every_search_of_a_vector_store_is_scoped(store, index):
    vector = index.embeddings.embed_query("q")
    with session_of(tenant="session"):
        assert ids(store.similarity_search("q", k=10)) == ["a1", "a2"]
        assert ids(store.similarity_search_with_score("q", k=10)) == ["a1", "a2"]
        assert ids(store.similarity_search_by_vector(vector, k=10)) == ["a1", "a2"]
        assert ids(store.similarity_search("q", k=10, filter=lambda d: d.metadata["level"] == "secret")) == ["a2"]
        assert ids(store.search("q", "similarity", k=10)) == ["a1", "a2"]
        assert ids(store.get_by_ids(["a1", "g1", "n1"])) == ["a1"]
        assert ids(store.max_marginal_relevance_search("q", k=10)) == ["a1", "a2"]


def test_a_filter_with_operators_that_cannot_be_joined_is_an_error(store):
    with session_of(tenant="session"), pytest.raises(SpecError, match="operators"):
        store.similarity_search("q", filter={"level": {"$ne": "public"}})


def test_what_is_written_belongs_to_the_scope(store, index):
    with session_of(tenant="session"):
        (new,) = store.add_documents([Document(page_content="new", metadata={"level": "public"})])
        (text,) = store.add_texts(["text"], metadatas=[{"k": 1}])
        with pytest.raises(OutsideScope, match="not the scope's"):
            store.add_documents([Document(page_content="x", metadata={"tenant": "globex"})])
        assert new in ids(store.similarity_search("q", k=10))
    assert index.get_by_ids([new])[0].metadata == {"level": "public", "tenant": "acme"}
    assert index.get_by_ids([text])[0].metadata == {"k": 1, "tenant": "acme"}
    assert len(index.store) == len(DOCUMENTS) + 2


def test_somebody_elses_document_is_neither_replaced_nor_deleted_even_where_it_may_be_read(store, index):
    agreed = [{"to": "tenant:globex", "reason": "they merged"}]
    for scope in ({}, {"cross_scope": agreed}):
        with session_of(tenant="session", **scope):
            for refused in (
                lambda: store.add_documents([Document(id="g1", page_content="mine")]),
                lambda: store.add_texts(["mine"], ids=["g1"]),
                lambda: store.add_documents([Document(id="n1", page_content="mine")]),
                lambda: store.delete(["a1", "g1"]),
                lambda: store.delete(),
            ):
                with pytest.raises(OutsideScope):
                    refused()
    assert ids(index.get_by_ids(["a1", "g1", "n1"])) == ["a1", "g1", "n1"]
    assert index.get_by_ids(["g1"])[0].page_content == "globex one"
    with session_of(tenant="session"):
        store.delete(["a1"])
        store.add_documents([Document(id="a2", page_content="changed")])
    assert index.get_by_ids(["a1"]) == []
    assert index.get_by_ids(["a2"])[0].page_content == "changed"


def test_a_server_gets_the_conditions_in_the_form_that_most_read():
    asked = []

    class Other:
        embeddings = None

        def similarity_search(self, query, k=4, **kwargs):
            asked.append(kwargs)
            return list(DOCUMENTS)

    with session_of(tenant="session", metadata={"level": ["public", "internal"]}):
        assert ids(ScopedVectorStore(Other()).similarity_search("q")) == ["a1"]
        assert ids(ScopedVectorStore(Other()).similarity_search("q", filter={"x": {"$gt": 1}})) == ["a1"]
    with session_of(tenant="session"):
        ScopedVectorStore(Other()).similarity_search("q")
        ScopedVectorStore(Other(), as_filter=lambda conditions, given: "mine").similarity_search("q")
    with session_of():
        ScopedVectorStore(Other()).similarity_search("q")
    level, tenant = {"level": {"$in": ["public", "internal"]}}, {"tenant": "acme"}
    assert asked == [
        {"filter": {"$and": [level, tenant]}},
        {"filter": {"$and": [level, tenant, {"x": {"$gt": 1}}]}},
        {"filter": tenant},
        {"filter": "mine"},
        {},
    ]


def test_a_store_is_made_by_itself_and_then_put_in():
    with pytest.raises(NotImplementedError, match="make the store itself"):
        ScopedVectorStore.from_texts(["a"], Same())

"""A scoped store: each operation, in both colours, sees the part of its session and nothing else."""

import asyncio

import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from typing_extensions import TypedDict

from bound_middleware import BoundSession, BoundSpec
from bound_middleware.langgraph.scoped_store import ScopedStore
from bound_middleware.session.data_scope import OutsideScope


def session_of(owner=None, **scope):
    return BoundSession(BoundSpec.from_dict({"bounds": {"data_access_scope": scope}}), **(owner or {}))


def acme(**scope):
    return session_of({"tenant": "acme", "user": "ann"}, tenant="session", **scope)


def globex(**scope):
    return session_of({"tenant": "globex"}, tenant="session", **scope)


def events(session):
    return [event.detail for event in session.events if event.name == "data_scope"]


class Uses:
    """The operations of a store, in one colour."""

    def __init__(self, store, colour):
        self.store, self.colour = ScopedStore(store), colour

    def __getattr__(self, name):
        if self.colour == "sync":
            return getattr(self.store, name)
        method = getattr(self.store, f"a{name}")

        def call(*args, **kwargs):
            async def go():
                return await method(*args, **kwargs)

            return asyncio.run(go())

        return call

    def found(self, prefix=(), **more):
        return {(item.namespace, item.key): item.value["v"] for item in self.search(prefix, **more)}


@pytest.fixture
def inner():
    return InMemoryStore()


@pytest.fixture(params=["sync", "async"])
def store(request, inner):
    return Uses(inner, request.param)


def test_each_tenant_sees_its_own_under_the_names_it_gave(store, inner):
    for session, value in ((acme(), "A"), (globex(), "G")):
        with session:
            store.put(("notes",), "k", {"v": value})
    assert sorted(item.namespace for item in inner.search(())) == [("acme", "notes"), ("globex", "notes")]
    with acme():
        item = store.get(("notes",), "k")
        assert (item.value, item.namespace) == ({"v": "A"}, ("notes",))
        assert store.found() == {(("notes",), "k"): "A"}
        assert store.found(("notes",)) == {(("notes",), "k"): "A"}
        assert store.list_namespaces() == [("notes",)]
        store.delete(("notes",), "k")
        assert store.get(("notes",), "k") is None
    with globex():
        assert store.get(("notes",), "k").value == {"v": "G"}


def test_data_of_the_application_is_found_under_the_own_tenant_and_never_under_another(store, inner):
    inner.put(("acme", "notes"), "k", {"v": "A"})
    inner.put(("globex", "notes"), "k", {"v": "G"})
    with acme():
        item = store.get(("acme", "notes"), "k")
        assert (item.value, item.namespace) == ({"v": "A"}, ("acme", "notes"))
        assert store.get(("notes",), "k").value == {"v": "A"}
        assert store.get(("globex", "notes"), "k") is None
        assert store.found(("globex",)) == {}
        assert store.found(("globex", "notes")) == {}
        store.put(("globex", "notes"), "k", {"v": "taken over"})
        store.delete(("globex", "notes"), "k")
    assert inner.get(("globex", "notes"), "k").value == {"v": "G"}


def test_a_user_of_a_tenant_sees_neither_another_user_nor_the_tenant(store, inner):
    inner.put(("acme", "notes"), "k", {"v": "all"})
    inner.put(("acme", "bob", "notes"), "k", {"v": "bob"})
    inner.put(("acme", "ann", "notes"), "k", {"v": "ann"})
    with acme(user="session"):
        assert store.found() == {(("notes",), "k"): "ann"}
        assert store.get(("acme", "notes"), "k") is None
        assert store.get(("acme", "bob", "notes"), "k") is None
        assert store.get(("bob", "notes"), "k") is None
        assert store.get(("acme", "ann", "notes"), "k").value == {"v": "ann"}


def test_every_operation_of_a_batch_is_scoped_and_keeps_its_place(store, inner):
    inner.put(("globex", "notes"), "k", {"v": "G"})
    inner.put(("acme", "notes"), "k", {"v": "A"})
    with acme():
        results = store.batch(
            [
                SearchOp(()),
                ListNamespacesOp(),
                GetOp(("notes",), "k"),
                GetOp(("globex", "notes"), "k"),
                PutOp(("notes",), "new", {"v": "N"}),
            ]
        )
    assert [item.value["v"] for item in results[0]] == ["A"]
    assert results[1] == [("notes",)]
    assert results[2].value == {"v": "A"}
    assert results[3:] == [None, None]
    assert inner.get(("acme", "notes"), "new").value == {"v": "N"}


def test_where_namespaces_are_declared_there_is_nothing_else(store, inner):
    inner.put(("memories", "acme"), "k", {"v": "m"})
    inner.put(("cache",), "k", {"v": "c"})
    inner.put(("secrets",), "k", {"v": "s"})
    session = session_of(store_namespaces=["memories/acme", "cache"])
    with session:
        assert store.get(("memories", "acme"), "k").value == {"v": "m"}
        assert store.found() == {(("memories", "acme"), "k"): "m", (("cache",), "k"): "c"}
        assert store.found(("memories",)) == {(("memories", "acme"), "k"): "m"}
        assert store.list_namespaces() == [("cache",), ("memories", "acme")]
        store.put(("cache", "deep"), "k", {"v": "d"})
        for refused in (
            lambda: store.get(("secrets",), "k"),
            lambda: store.put(("secrets",), "new", {"v": 1}),
            lambda: store.delete(("secrets",), "k"),
            lambda: store.search(("secrets",)),
            lambda: store.get(("memories", "acme2"), "k"),
            lambda: store.put(("memories",), "k", {"v": 1}),
            lambda: store.list_namespaces(prefix=("secrets",)),
        ):
            with pytest.raises(OutsideScope):
                refused()
    assert len(events(session)) == 7
    assert inner.get(("secrets",), "k").value == {"v": "s"}
    assert inner.get(("secrets",), "new") is None
    assert inner.get(("cache", "deep"), "k").value == {"v": "d"}


def test_a_batch_with_one_refused_operation_changes_nothing(store, inner):
    with session_of(store_namespaces=["cache"]), pytest.raises(OutsideScope):
        store.batch([PutOp(("cache",), "k", {"v": 1}), PutOp(("secrets",), "k", {"v": 2})])
    assert inner.search(()) == []


def test_declared_namespaces_of_different_tenants_are_different_places(store, inner):
    for session, value in (
        (acme(store_namespaces=["memories"]), "A"),
        (globex(store_namespaces=["memories"]), "G"),
    ):
        with session:
            store.put(("memories",), "k", {"v": value})
            assert store.found() == {(("memories",), "k"): value}
    assert {item.namespace for item in inner.search(())} == {("acme", "memories"), ("globex", "memories")}


def test_a_placeholder_keeps_the_order_of_a_layout_that_exists(store, inner):
    inner.put(("memories", "ann"), "k", {"v": "ann"})
    inner.put(("memories", "bob"), "k", {"v": "bob"})
    scope = {"user": "session", "store_namespaces": ["memories/{user}"]}
    with session_of({"user": "ann"}, **scope):
        assert store.get(("memories", "ann"), "k").value == {"v": "ann"}
        assert store.found(("memories",)) == {(("memories", "ann"), "k"): "ann"}
        with pytest.raises(OutsideScope):
            store.get(("memories", "bob"), "k")
    with session_of({"user": "{user}"}, **scope), pytest.raises(OutsideScope):
        store.get(("memories", "bob"), "k")
    with session_of(store_namespaces=["memories/{user}"]), pytest.raises(OutsideScope):
        store.get(("memories", "{user}"), "k")


def test_a_fixed_tenant_may_stand_anywhere_in_a_declared_namespace(store, inner):
    inner.put(("memories", "acme"), "k", {"v": "A"})
    with session_of(tenant="acme", store_namespaces=["memories/acme"]):
        assert store.get(("memories", "acme"), "k").value == {"v": "A"}


def test_memory_of_other_sessions_is_closed_and_a_child_shares_its_parents(store, inner):
    first, second = (session_of(no_cross_session_memory_read=True) for _ in range(2))
    with first:
        store.put(("notes",), "k", {"v": 1})
        assert store.found() == {(("notes",), "k"): 1}
        with first.child("helper"):
            assert store.found() == {(("notes",), "k"): 1}
    inner.put(("notes",), "old", {"v": 0})
    with second:
        assert store.found() == {}
        assert store.list_namespaces() == []
        assert store.get(("notes",), "k") is None
        assert store.get(("notes",), "old") is None
    with first:
        assert store.found() == {(("notes",), "k"): 1}


def test_a_tenant_that_is_declared_and_not_known_reads_and_writes_nothing(store, inner):
    inner.put(("notes",), "k", {"v": 1})
    for session in (session_of(tenant="session"), session_of({"tenant": "globex"}, tenant="acme")):
        with session:
            for refused in (
                lambda: store.get(("notes",), "k"),
                lambda: store.search(()),
                lambda: store.list_namespaces(),
                lambda: store.put(("notes",), "k", {"v": 2}),
            ):
                with pytest.raises(OutsideScope, match="opened for"):
                    refused()
    assert inner.get(("notes",), "k").value == {"v": 1}


def test_an_agreed_exception_opens_reads_alone_and_each_is_in_the_trace_with_its_reason(store, inner):
    inner.put(("shared", "handbook"), "k", {"v": "H"})
    inner.put(("globex", "notes"), "k", {"v": "G"})
    agreed = [
        {"to": "namespace:shared/handbook", "reason": "everyone reads it"},
        {"to": "tenant:globex", "reason": "they merged"},
    ]
    session = acme(cross_scope=agreed, store_namespaces=["notes"])
    with session:
        store.put(("notes",), "k", {"v": "A"})
        assert events(session) == []
        assert store.get(("shared", "handbook"), "k").value == {"v": "H"}
        assert store.found(("globex",)) == {(("globex", "notes"), "k"): "G"}
        assert store.found() == {(("notes",), "k"): "A"}
        for namespace in (("shared", "handbook"), ("globex", "notes")):
            with pytest.raises(OutsideScope):
                store.put(namespace, "k", {"v": "changed"})
        with pytest.raises(OutsideScope):
            store.get(("shared", "other"), "k")
    used = [(d["crossed"], d["reason"], d["namespace"]) for d in events(session) if "crossed" in d]
    assert used == [
        ("namespace:shared/handbook", "everyone reads it", "shared/handbook"),
        ("tenant:globex", "they merged", "globex"),
    ]
    assert inner.get(("shared", "handbook"), "k").value == {"v": "H"}


def test_search_over_several_places_keeps_limit_offset_and_filter(store, inner):
    for place in ("a", "b", "hidden"):
        for n in range(4):
            inner.put((place,), f"{place}{n}", {"v": n, "even": n % 2 == 0})
    with session_of(store_namespaces=["a", "b"]):
        everything = [item.key for item in store.search((), limit=100)]
        assert sorted(everything) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]
        assert [item.key for item in store.search((), limit=3, offset=3)] == everything[3:6]
        assert {item.key for item in store.search((), filter={"even": True})} == {"a0", "a2", "b0", "b2"}


def test_namespaces_are_listed_by_the_callers_own_conditions(store, inner):
    for labels in (("acme", "a", "x", "v1"), ("acme", "a", "y", "v1"), ("acme", "b", "v2"), ("globex", "a", "v1")):
        inner.put(labels, "k", {"v": 1})
    with acme():
        assert store.list_namespaces() == [("a", "x", "v1"), ("a", "y", "v1"), ("b", "v2")]
        assert store.list_namespaces(prefix=("a",)) == [("a", "x", "v1"), ("a", "y", "v1")]
        assert store.list_namespaces(prefix=("*", "x")) == [("a", "x", "v1")]
        assert store.list_namespaces(prefix=("acme", "a")) == [("acme", "a", "x", "v1"), ("acme", "a", "y", "v1")]
        assert store.list_namespaces(suffix=("v2",)) == [("b", "v2")]
        assert store.list_namespaces(max_depth=1) == [("a",), ("b",)]
        assert store.list_namespaces(limit=1, offset=1) == [("a", "y", "v1")]
        only = ListNamespacesOp(match_conditions=(MatchCondition("suffix", ("globex",)),))
        assert store.batch([only]) == [[]]


def test_a_tenant_whose_name_begins_like_another_one_is_another_one():
    """SQL stores search by a prefix of text."""
    with SqliteStore.from_conn_string(":memory:") as inner:
        inner.setup()
        store = ScopedStore(inner)
        for name in ("ann", "anna", "a_n"):
            with session_of({"tenant": name}, tenant="session"):
                store.put(("notes",), "k", {"v": name})
        with session_of({"tenant": "ann"}, tenant="session"):
            assert [item.value["v"] for item in store.search(())] == ["ann"]
            assert store.list_namespaces() == [("notes",)]
        with session_of({"tenant": "a_n"}, tenant="session"):
            assert [item.value["v"] for item in store.search(())] == ["a_n"]


@pytest.mark.parametrize("name", ["acme.com", "langgraph", "ann@example.com", "a%2Eb", "x\0y"])
def test_any_name_is_one_label_of_its_own(store, name):
    other = {"acme.com": "acme%2Ecom", "a%2Eb": "a.b"}.get(name, "other")
    for owner in (name, other):
        with session_of({"tenant": owner}, tenant="session"):
            store.put(("notes",), "k", {"v": owner})
    with session_of({"tenant": name}, tenant="session"):
        assert store.found() == {(("notes",), "k"): name}


def test_what_a_store_gives_that_was_not_asked_for_is_not_given_on(store, inner):
    class Wrong(InMemoryStore):
        def batch(self, ops):
            inner.put(("globex", "notes"), "k", {"v": "G"})
            return [
                list(inner.search(()))
                if isinstance(op, SearchOp)
                else inner.get(("globex", "notes"), "k")
                if isinstance(op, GetOp)
                else [("globex", "notes")]
                for op in ops
            ]

        async def abatch(self, ops):
            return self.batch(ops)

    wrong = Uses(Wrong(), store.colour)
    with acme():
        assert wrong.search(()) == []
        assert wrong.get(("notes",), "k") is None
        assert wrong.list_namespaces() == []


def test_sessions_around_each_other_are_all_kept(store, inner):
    inner.put(("acme", "notes"), "k", {"v": "A"})
    with acme(), session_of(store_namespaces=["notes"]) as closed:
        assert store.found() == {(("notes",), "k"): "A"}
        with pytest.raises(OutsideScope):
            store.get(("other",), "k")
        assert events(closed)
    with session_of(store_namespaces=["globex"]), acme(), pytest.raises(OutsideScope):
        store.get(("notes",), "k")


def test_without_a_session_the_store_is_closed_and_without_a_scope_it_is_as_it_was(store, inner):
    inner.put(("notes",), "k", {"v": 1})
    with pytest.raises(OutsideScope, match="no session"):
        store.get(("notes",), "k")
    assert ScopedStore(inner, required=False).get(("notes",), "k").value == {"v": 1}
    with BoundSession({}):
        assert store.get(("notes",), "k").value == {"v": 1}
        assert store.found() == {(("notes",), "k"): 1}


def test_in_shadow_mode_everything_passes_and_the_trace_says_what_would_not_have(store, inner):
    inner.put(("secrets",), "k", {"v": "s"})
    spec = BoundSpec.from_dict({"bounds": {"data_access_scope": {"store_namespaces": ["cache"]}}})
    with BoundSession(spec, shadow=True) as session:
        assert store.get(("secrets",), "k").value == {"v": "s"}
        store.put(("cache",), "k", {"v": 1})
    assert [detail["seam"] for detail in events(session)] == ["store"]
    assert inner.get(("cache",), "k").value == {"v": 1}


def test_a_scoped_store_of_a_scoped_store_is_one(inner):
    assert ScopedStore(ScopedStore(inner))._store is inner


class State(TypedDict, total=False):
    seen: list


def test_in_a_graph_the_store_of_a_node_is_the_scoped_one(inner):
    """Put in by ``compiled.copy``: nodes get it as ``runtime.store`` and by ``get_store``, in both colours."""
    from langgraph.config import get_store

    inner.put(("globex", "notes"), "k", {"v": "G"})

    def node(state, runtime: Runtime):
        runtime.store.put(("notes",), "k", {"v": "A"})
        return {"seen": [item.value["v"] for item in get_store().search(())]}

    builder = StateGraph(State).add_node("node", node).add_edge(START, "node")
    compiled = builder.compile(store=inner)
    graph = compiled.copy({"store": ScopedStore(compiled.store)})
    with acme():
        assert graph.invoke({}) == {"seen": ["A"]}
        assert asyncio.run(graph.ainvoke({})) == {"seen": ["A"]}
    assert inner.get(("acme", "notes"), "k").value == {"v": "A"}

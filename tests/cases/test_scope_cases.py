"""E: the data scope. Scenarios from bug reports and their siblings, with real agents, graphs, files and stores."""

import asyncio
import json

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.store.memory import InMemoryStore

from bound_middleware import BoundSession, BoundSpec
from bound_middleware.core.limits import Limits
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langchain.scoped_retriever import ScopedRetriever
from bound_middleware.session import scope
from bound_middleware.session.data_scope import faults, open_scoped, scope_of
from bound_middleware.testing import ScriptedChatModel

RULES = (("read", "path", "kind", "path"),)
SECRET_TEXT = "password=hunter2 token: abc123 Authorization: Bearer zzz"
SECRETS = ("hunter2", "abc123", "zzz")


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "r"
    (root / "app" / "[...slug]").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "a..b.txt", "..hidden", "notes (1).md", "app/[...slug]/page.tsx"):
        (root / name).write_text(f"inside {name}")
    (tmp_path / "r2").mkdir()
    (tmp_path / "r2" / "x").write_text("outside")
    (tmp_path / "x").write_text("outside")
    return root


def refused(root, path):
    return faults(Limits(roots=(str(root),), argument_rules=RULES), {}, "read", {"path": path})


@pytest.fixture(params=["invoke", "ainvoke", "stream", "astream"])
def run(request):
    """The messages of an agent, by each way to run it."""

    async def astreamed(agent, value, config):
        return [part async for part in agent.astream(value, config, stream_mode="values")][-1]

    def go(agent, config=None):
        value = {"messages": [HumanMessage("go")]}
        if request.param == "invoke":
            return agent.invoke(value, config)
        if request.param == "stream":
            return list(agent.stream(value, config, stream_mode="values"))[-1]
        if request.param == "ainvoke":
            return asyncio.run(agent.ainvoke(value, config))
        return asyncio.run(astreamed(agent, value, config))

    return go


def calls(name, *arguments):
    """A model that calls a tool once with each of these arguments, and then is done."""
    asked = [{"name": name, "args": args, "id": f"c{i}"} for i, args in enumerate(arguments)]
    return ScriptedChatModel([*(AIMessage("", tool_calls=[one]) for one in asked), "done"])


def answers(state):
    return [(m.content, m.status) for m in state["messages"] if isinstance(m, ToolMessage)]


def agent(model, tools, *, store=None, sinks=(), **declared):
    spec = BoundSpec.from_dict({"bounds": {"data_access_scope": declared}})
    middleware = BoundMiddleware(spec, sinks=list(sinks))
    return create_agent(model, tools, middleware=[middleware], checkpointer=InMemorySaver(), store=store)


def thread(name="t", **owner):
    return {"configurable": {"thread_id": name, **{f"bound_{kind}": who for kind, who in owner.items()}}}


# -- E1, E3 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc/hosts", "../x", "a/../../x", "ROOT2/x", "C:\\x", "~/x"])
def test_e1_a_path_outside_of_the_root_is_refused_however_it_is_written(root, path):
    assert refused(root, path.replace("ROOT", str(root)))


@pytest.mark.parametrize("path", ["a.txt", "./a/../b.txt", "ROOT/a.txt"])
def test_e1_a_path_inside_of_the_root_is_allowed_however_it_is_written(root, path):
    assert refused(root, path.replace("ROOT", str(root))) == ()


@pytest.mark.parametrize("path", ["app/[...slug]/page.tsx", "a..b.txt", "..hidden", "notes (1).md"])
def test_e3_legal_names_with_dots_and_brackets_are_read(root, path):
    assert refused(root, path) == ()
    with BoundSession({"bounds": {"data_access_scope": {"roots": [str(root)]}}}), open_scoped(path) as file:
        assert file.read() == f"inside {path}"


def test_e3_what_leads_out_is_refused_beside_them(root):
    assert refused(root, "app/../../x")


def test_e1_in_an_agent_a_tool_that_opens_scoped_files_reads_nothing_outside_and_the_run_goes_on(root, run):
    @tool
    def read(path: str) -> str:
        """Read a file."""
        with open_scoped(path) as file:
            return file.read()

    events = []
    (root / "link").symlink_to("../r2")
    outside = ["/etc/hosts", "../x", "a/../../x", f"{root}2/x", "C:\\x", "~/x", "link/x"]
    paths = ["a.txt", *outside, f"{root}/b.txt"]
    model = calls("read", *({"path": path} for path in paths))
    state = run(agent(model, [read], sinks=[events.append], roots=[str(root)]), thread())
    said = answers(state)
    assert (said[0], said[-1]) == (("inside a.txt", "success"), ("inside b.txt", "success"))
    assert {status for _, status in said[1:-1]} == {"error"}
    assert not any(text == "outside" for text, _ in said)
    assert sum(event.name == "data_scope" for event in events) == len(outside)
    assert state["messages"][-1].content == "done"
    assert state["bound"]["outcome"]["status"] == "completed"


# -- whose data ----------------------------------------------------------------------------------------------------


def test_a_tool_takes_the_tenant_from_the_scope_and_the_model_cannot_give_it(run):
    orders = {"acme": ["anvil"], "globex": ["secret plan"]}

    @tool
    def list_orders(status: str, runtime: ToolRuntime) -> str:
        """List the orders."""
        return ", ".join(orders[scope_of(runtime).owner("tenant")])

    assert set(list_orders.tool_call_schema.model_json_schema()["properties"]) == {"status"}
    forged = {"status": "open", "tenant": "globex", "runtime": {"tenant": "globex"}}
    for tenant, expected in (("acme", "anvil"), ("globex", "secret plan")):
        model = calls("list_orders", {"status": "open"}, forged)
        state = run(agent(model, [list_orders], tenant="session"), thread(tenant, tenant=tenant))
        assert answers(state) == [(expected, "success")] * 2
    state = run(agent(calls("list_orders", {"status": "open"}), [list_orders], tenant="session"), thread("nobody"))
    ((text, status),) = answers(state)
    assert status == "error"
    assert "opened for no tenant" in text


def test_the_store_of_a_tool_is_the_tenants_however_the_tool_gets_it(run):
    store = InMemoryStore()
    store.put(("globex", "notes"), "k", {"v": "secret plan"})

    @tool
    def search(where: str, runtime: ToolRuntime) -> str:
        """Search the notes."""
        found = [*runtime.store.search((where,)), *get_store().search((where,)), *get_store().search(())]
        runtime.store.put(("notes",), "mine", {"v": "written"})
        return " ".join(item.value["v"] for item in found)

    for tenant, seen in (("acme", "written written written"), ("globex", "secret plan")):
        model = calls("search", {"where": "notes"}, {"where": "notes"}, {"where": "globex"})
        made = agent(model, [search], store=store, tenant="session")
        first, second, other = (text for text, _ in answers(run(made, thread(tenant, tenant=tenant))))
        if tenant == "acme":
            assert (first, second) == ("", seen)
            assert "secret" not in other
        else:
            assert seen in first
            assert seen in other
    assert store.get(("acme", "notes"), "mine").value == {"v": "written"}


def test_a_tool_that_leaves_its_namespaces_is_answered_and_changes_nothing(run):
    store = InMemoryStore()
    store.put(("secrets",), "k", {"v": "s"})

    @tool
    def write(where: str, runtime: ToolRuntime) -> str:
        """Write a note."""
        runtime.store.put((where,), "k", {"v": "new"})
        return "written"

    made = agent(
        calls("write", {"where": "secrets"}, {"where": "cache"}), [write], store=store, store_namespaces=["cache"]
    )
    said = answers(run(made, thread()))
    assert [status for _, status in said] == ["error", "success"]
    assert store.get(("secrets",), "k").value == {"v": "s"}
    assert store.get(("cache",), "k").value == {"v": "new"}


def test_a_retriever_in_a_tool_gives_the_tenants_documents_and_without_a_scope_none_where_indexes_are_closed(run):
    class Everything(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return [Document(page_content=t, metadata={"tenant": t}) for t in ("acme", "globex")]

    def tool_over(retriever):
        @tool
        def search(query: str) -> str:
            """Search the index."""
            return " ".join(document.page_content for document in retriever.invoke(query))

        return search

    declared = {"tenant": "session", "no_external_index_read": True}
    for retriever, expected in (
        (ScopedRetriever(retriever=Everything()), ("acme", "success")),
        (Everything(), None),
    ):
        made = agent(calls("search", {"query": "q"}), [tool_over(retriever)], **declared)
        (said,) = answers(run(made, thread(tenant="acme")))
        assert said == expected if expected else said[1] == "error"
        assert "globex" not in said[0]


# -- E7 ------------------------------------------------------------------------------------------------------------


def test_e7_secrets_in_a_tools_output_reach_the_model_and_nothing_that_is_kept(run, tmp_path):
    audit = tmp_path / "audit.jsonl"
    seen = []

    def to_file(event):
        seen.append(event)
        with audit.open("a") as file:
            file.write(json.dumps(event.as_dict()) + "\n")

    @tool
    def run_tests() -> str:
        """Run the tests."""
        session = scope.current()[-1]
        session.record("warning", detail={"output": SECRET_TEXT})
        session.charge(usd="0", note=SECRET_TEXT)
        return SECRET_TEXT

    spec = BoundSpec.from_dict({"bounds": {"cost_budget": {"total_usd": 1}}})
    middleware = BoundMiddleware(spec, sinks=[to_file], prices={"scripted": {"input": 0, "output": 0}})
    model = calls("run_tests", {})
    state = run(create_agent(model, [run_tests], middleware=[middleware], checkpointer=InMemorySaver()), thread())
    assert answers(state) == [(SECRET_TEXT, "success")]
    kept = [audit.read_text(), repr(middleware), repr(seen), json.dumps(state["bound"])]
    assert "[redacted]" in kept[0]
    assert not [secret for secret in SECRETS for text in kept if secret in text]


def test_e7_the_text_of_what_we_raise_holds_no_secret(root):
    with BoundSession({"bounds": {"data_access_scope": {"roots": [str(root)]}}}) as session:
        with pytest.raises(PermissionError) as error:
            open_scoped(f"/x/{SECRET_TEXT}")
        texts = [str(error.value), repr(error.value), repr(session.outcome), repr(session.events)]
    assert not [secret for secret in SECRETS for text in texts if secret in text]
    assert "password=[redacted]" in texts[0]

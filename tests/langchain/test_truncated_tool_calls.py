"""A truncated step has failed: none of its tool calls runs. The tool's real body is counted."""

import json

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool

from bound_middleware import BoundSession
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.testing import Reply, ScriptedChatModel

PATH = "/srv/data/archive/2024" + "/01/02/03/04/05/06/07/08/09/10/11/12" * 3
ROOMY = {"bounds": {"iteration_limit": 3, "token_budget": {"total": 5_000}}}


@pytest.fixture
def deleted():
    return []


@pytest.fixture
def tools(deleted):
    @tool
    def delete_tree(path: str) -> str:
        """Deletes a folder."""
        deleted.append(path)
        return "deleted"

    @tool
    def list_all() -> str:
        """Lists everything."""
        deleted.append("list_all")
        return "nothing"

    return [delete_tree, list_all]


def through_bare_model(model, tools, spec, run):
    session = BoundSession(spec)
    agent = create_agent(bound_model(model, session), tools)
    return run(agent), session.usage


def through_middleware(model, tools, spec, run):
    result = run(create_agent(model, tools, middleware=[BoundMiddleware(spec)]))
    return result, None


@pytest.fixture(params=[through_bare_model, through_middleware], ids=["bare model", "middleware"])
def way(request):
    return request.param


ASK = {"messages": [("user", "clean up")]}


@pytest.fixture(params=["invoke", "ainvoke", "stream messages", "astream messages"])
def run_agent(request):
    import asyncio

    async def alast(agent):
        last = None
        async for mode, part in agent.astream(ASK, stream_mode=["messages", "values"]):
            last = part if mode == "values" else last
        return last

    def last(agent):
        parts = [p for mode, p in agent.stream(ASK, stream_mode=["messages", "values"]) if mode == "values"]
        return parts[-1]

    return {
        "invoke": lambda agent: agent.invoke(ASK),
        "ainvoke": lambda agent: asyncio.run(agent.ainvoke(ASK)),
        "stream messages": last,
        "astream messages": lambda agent: asyncio.run(alast(agent)),
    }[request.param]


def assert_nothing_ran(result, deleted):
    assert deleted == []
    for message in result["messages"]:
        assert not getattr(message, "tool_calls", None)
    assert not [m for m in result["messages"] if isinstance(m, ToolMessage) and m.status != "error"]


def test_arguments_that_the_server_cut(server, client, tools, deleted, way, run_agent):
    server.script([Reply(tool_calls=[("delete_tree", {"path": PATH})], cut_arguments_at=28), "ok", "ok"])
    result, _ = way(client, tools, ROOMY, run_agent)
    assert_nothing_ran(result, deleted)


def test_complete_calls_before_the_cut(server, client, tools, deleted, way, run_agent):
    calls = [("list_all", {}), ("delete_tree", {"path": PATH})]
    server.script([Reply(tool_calls=calls, cut_arguments_at=28), "ok", "ok"])
    result, _ = way(client, tools, ROOMY, run_agent)
    assert_nothing_ran(result, deleted)


def test_arguments_that_a_bound_cuts_in_flight(server, client, tools, deleted, way, run_agent):
    spec = {"bounds": {"iteration_limit": 3, "token_budget": {"total": 5_000, "output_per_call_max": 16}}}
    server.script(
        [Reply(tool_calls=[("delete_tree", {"path": PATH})], ignores_max_tokens=True, token_delay_ms=2), "ok", "ok"]
    )
    result, _ = way(client, tools, spec, run_agent)
    assert_nothing_ran(result, deleted)


def test_arguments_that_are_cut_by_the_cap_on_the_wire(server, client, tools, deleted, way, run_agent):
    spec = {"bounds": {"iteration_limit": 3, "token_budget": {"total": 5_000, "output_per_call_max": 16}}}
    server.script([Reply(tool_calls=[("delete_tree", {"path": PATH})]), "ok", "ok"])
    result, _ = way(client, tools, spec, run_agent)
    assert_nothing_ran(result, deleted)


def test_a_whole_call_runs(server, client, tools, deleted, way, run_agent):
    server.script([Reply(tool_calls=[("delete_tree", {"path": PATH}), ("list_all", {})]), "ok"])
    result, _ = way(client, tools, ROOMY, run_agent)
    assert sorted(deleted) == [PATH, "list_all"]
    assert result["messages"][-1].text == "ok"


HALF = '{"path":"/srv/data","body":"xx'


@pytest.mark.parametrize("spec", [ROOMY, {"bounds": {"iteration_limit": 3}}], ids=["streamed", "in one piece"])
@pytest.mark.parametrize(
    ("arguments", "finish"),
    [("{}", "length"), (HALF, "tool_calls"), (HALF, "length"), ("", "length"), ('{"path":"/', "length")],
)
def test_a_reply_of_a_scripted_server(tools, deleted, way, run_agent, arguments, finish, spec):
    def half(messages, kwargs):
        try:
            args = json.loads(arguments)
        except ValueError:
            args = None
        message = AIMessage(
            content="",
            response_metadata={"finish_reason": finish},
            usage_metadata={"input_tokens": 5, "output_tokens": 9, "total_tokens": 14},
        )
        if args is None:
            message.invalid_tool_calls = [
                {"type": "invalid_tool_call", "id": "c1", "name": "delete_tree", "args": arguments, "error": None}
            ]
        else:
            message.tool_calls = [{"type": "tool_call", "id": "c1", "name": "list_all", "args": args}]
        return message

    model = ScriptedChatModel([half, "ok", "ok"], strict=False)
    result, _ = way(model, tools, spec, run_agent)
    assert_nothing_ran(result, deleted)


@pytest.mark.parametrize("spec", [ROOMY, {"bounds": {"iteration_limit": 3}}], ids=["streamed", "in one piece"])
def test_empty_arguments_of_a_tool_without_arguments_run(tools, deleted, way, run_agent, spec):
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("list_all", {})]), "ok"])
    way(model, tools, spec, run_agent)
    assert deleted == ["list_all"]
    model.assert_exhausted()


@pytest.mark.parametrize("spec", [ROOMY, {"bounds": {"iteration_limit": 3}}], ids=["streamed", "in one piece"])
def test_arguments_that_are_repaired_from_broken_json_do_not_run(tools, deleted, way, run_agent, spec):
    """Finish reason ``tool_calls``, half-written arguments in the chunks: LangChain would repair and run them."""
    from langchain_core.messages import AIMessageChunk
    from langchain_core.messages.tool import tool_call_chunk

    def chunk(args, **kwargs):
        call = tool_call_chunk(name=kwargs.pop("name", None), args=args, id=kwargs.pop("id", None), index=0)
        return AIMessageChunk(content="", tool_call_chunks=[call], **kwargs)

    chunks = [
        chunk('{"path": "/srv/', name="delete_tree", id="c1"),
        chunk("data/archive/20"),
        AIMessageChunk(content="", response_metadata={"finish_reason": "tool_calls"}),
    ]
    model = ScriptedChatModel([ScriptedChatModel.reply(chunks=chunks), "ok", "ok"], strict=False)
    result, _ = way(model, tools, spec, run_agent)
    assert_nothing_ran(result, deleted)

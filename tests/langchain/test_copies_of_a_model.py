"""The bounded copy is a model of the same class; the original is untouched."""

import asyncio
import copy
import pickle
import subprocess
import sys

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from bound_middleware import BoundExceeded, BoundSession, SpecError
from bound_middleware.langchain import bound_model
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import Reply, ScriptedChatModel

ROOMY = {"bounds": {"iteration_limit": 9, "token_budget": {"total": 9_000}}}


def look(query: str) -> str:
    """Look."""
    return query


def comparable(message):
    metadata = {k: v for k, v in message.response_metadata.items() if k not in ("id", "created_at")}
    content = message.content
    if isinstance(content, list):
        content = [
            {k: v for k, v in b.items() if k not in ("id", "call_id", "annotations", "status")} for b in content
        ]
    calls = [{k: v for k, v in call.items() if k != "id"} for call in message.tool_calls]
    return {
        "type": type(message),
        "content": content,
        "calls": calls,
        "usage": message.usage_metadata,
        "finish": metadata.get("finish_reason") or metadata.get("stop_reason") or metadata.get("status"),
        "model": metadata.get("model_name"),
        "provider": metadata.get("model_provider"),
        "extra": {k: v for k, v in message.additional_kwargs.items() if v},
        "id": (message.id or "").rstrip("0123456789abcdef-")[:8],
    }


@pytest.mark.parametrize("spec", [ROOMY, {"bounds": {"iteration_limit": 9}}], ids=["streamed", "in one piece"])
@pytest.mark.parametrize(
    ("reply", "tools"),
    [
        (Reply(text="one two three"), []),
        (Reply(text="one two three"), [look]),
        (Reply(tool_calls=[("look", {"query": "a b"})]), [look]),
    ],
    ids=["text", "text with tools", "tool call"],
)
def test_the_answer_is_the_unbounded_one(server, client, run, spec, reply, tools):
    server.default(reply)
    plain = run(client.bind_tools(tools) if tools else client, "hello")
    bounded = bound_model(client, BoundSession(spec))
    answer = run(bounded.bind_tools(tools) if tools else bounded, "hello")
    assert comparable(answer) == comparable(plain)


def test_several_generations_are_made_in_one_piece(server, openai_client, colour):
    server.default(Reply(tokens=5))
    session = BoundSession(ROOMY)
    model = bound_model(openai_client.model_copy(update={"n": 3}), session)
    if colour == "sync":
        result = model.generate([[HumanMessage("hello")]])
    else:
        result = asyncio.run(model.agenerate([[HumanMessage("hello")]]))
    assert len(result.generations[0]) == 3
    assert not server.requests[-1].streamed
    assert session.usage.total_tokens == server.total_tokens


@pytest.mark.parametrize("update", [{"disable_streaming": True}, {"disable_streaming": "tool_calling"}])
def test_a_model_that_must_not_stream_does_not(server, client, run, update):
    session = BoundSession(ROOMY)
    model = bound_model(client.model_copy(update=update), session).bind_tools([look])
    run(model, "hello")
    server.wait_idle()
    assert not server.requests[-1].streamed
    assert session.usage.total_tokens == server.total_tokens


def test_a_model_without_streaming_is_called_in_one_piece(run):
    model = ScriptedChatModel(["one two"], streams=False)
    session = BoundSession(ROOMY)
    assert run(bound_model(model, session), "hello").content == "one two"
    assert not model.records[0].streamed
    assert session.usage.output_tokens == model.output_tokens == 2


class OnlyGenerates(BaseChatModel):
    """The least that a chat model must implement."""

    @property
    def _llm_type(self):
        return "only"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=AIMessage("one two three"))])


def test_the_least_model_is_bounded_in_every_api(call, request):
    if "v3" in request.node.name:
        with pytest.raises(NotImplementedError):
            call(OnlyGenerates())
        return
    session = BoundSession({"bounds": {"iteration_limit": 1}})
    model = bound_model(OnlyGenerates(), session)
    assert call(model).content in ("one two three", [{"type": "text", "text": "one two three", "index": 0}])
    assert session.usage.model_calls == 1
    assert session.usage.estimated
    with pytest.raises(BoundExceeded):
        call(model)


def test_a_class_that_goes_its_own_way_is_refused():
    class Invokes(OnlyGenerates):
        def invoke(self, *args, **kwargs):
            return AIMessage("free")

    class Final(OnlyGenerates):
        def __init_subclass__(cls, **kwargs):
            raise TypeError("this class is final")

    for model, why in ((Invokes(), "invoke"), (Final(), "final"), ("gpt-4o", "not a chat model")):
        with pytest.raises(SpecError, match=why):
            bound_model(model, BoundSession(ROOMY))


def test_it_is_the_same_class_to_everybody_else(client):
    copy_ = bound_model(client, BoundSession(ROOMY))
    assert isinstance(copy_, type(client))
    assert type(copy_).__name__ == type(client).__name__
    assert copy_._get_llm_string() == client._get_llm_string()
    assert copy_._llm_type == client._llm_type
    assert copy_.lc_id() == client.lc_id()
    assert dumps(copy_) == dumps(client)
    assert copy_.get_name() == client.get_name()
    assert copy_._get_ls_params() == client._get_ls_params()
    assert copy_.model_dump(exclude={"metadata"}) == client.model_dump(exclude={"metadata"})


def test_the_original_is_untouched(server, client):
    class Handler(BaseCallbackHandler):
        pass

    handler = Handler()
    client.callbacks = [handler]
    client.invoke("hello")
    fields, kind = dict(client.__dict__), type(client)
    session = BoundSession(ROOMY)
    copy_ = bound_model(client, session)
    copy_.invoke("hello")
    assert type(client) is kind
    assert "bound_seam" not in client.metadata
    assert client.callbacks == copy_.callbacks == [handler]
    assert {k: v for k, v in client.__dict__.items() if k in fields} == fields
    client.invoke("hello")
    assert session.usage.model_calls == 1


def test_two_copies_share_a_client_and_no_meter(server, openai_client):
    first, second = BoundSession(ROOMY), BoundSession(ROOMY)
    one, other = bound_model(openai_client, first), bound_model(openai_client, second)
    assert one.root_client._client is other.root_client._client is openai_client.root_client._client
    one.invoke("hello")
    one.invoke("hello")
    other.invoke("hello")
    assert (first.usage.model_calls, second.usage.model_calls) == (2, 1)


@pytest.mark.parametrize(
    "copied", [copy.copy, lambda m: m.model_copy(), lambda m: m.model_copy(deep=True), copy.deepcopy]
)
def test_a_copy_of_the_copy_has_the_same_budget(copied):
    session = BoundSession({"bounds": {"iteration_limit": 1}})
    model = copied(bound_model(ScriptedChatModel(["one", "two"]), session))
    model.invoke("hello")
    with pytest.raises(BoundExceeded):
        model.invoke("hello")
    assert session.usage.model_calls == 1


def test_settings_changed_on_the_copy_reach_the_provider(server, openai_client, run):
    model = bound_model(openai_client, BoundSession(ROOMY)).model_copy(update={"temperature": 0.25})
    run(model.with_config(tags=["x"]), "hello")
    run(model.bind(temperature=0.5), "hello")
    server.wait_idle()
    assert [r.body["temperature"] for r in server.requests] == [0.25, 0.5]


def test_a_pickled_scripted_model_keeps_its_seam():
    again = pickle.loads(pickle.dumps(bound_model(OnlyGenerates())))
    session = BoundSession({"bounds": {"iteration_limit": 1}})
    with session:
        again.invoke("hello")
        with pytest.raises(BoundExceeded):
            again.invoke("hello")
    assert session.usage.model_calls == 1


def test_a_session_in_memory_cannot_be_pickled():
    with pytest.raises(TypeError, match="SqliteLedger"):
        pickle.dumps(bound_model(OnlyGenerates(), BoundSession(ROOMY)))


CHILD = """
import pickle, sys
from langchain_core.language_models import FakeListChatModel
model = pickle.load(open(sys.argv[1], "rb"))
model.invoke("hello")
"""


def test_a_session_on_a_file_is_the_same_account_in_another_process(tmp_path):
    from langchain_core.language_models import FakeListChatModel

    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        session = BoundSession({"bounds": {"iteration_limit": 2}}, ledger=ledger, session_id="job")
        model = bound_model(FakeListChatModel(responses=["one"]), session)
        (tmp_path / "model").write_bytes(pickle.dumps(model))
        model.invoke("hello")
        subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD, str(tmp_path / "model")], check=True)
        assert session.usage.model_calls == 2
        with pytest.raises(BoundExceeded):
            model.invoke("hello")


def test_a_model_bounded_twice_is_charged_to_both():
    outer, inner = BoundSession(ROOMY), BoundSession({"bounds": {"iteration_limit": 1}})
    model = bound_model(bound_model(ScriptedChatModel(["one", "two"]), outer), inner)
    model.invoke("hello")
    with pytest.raises(BoundExceeded) as caught:
        model.invoke("hello")
    assert caught.value.session_id == inner.session_id
    assert outer.usage.model_calls == inner.usage.model_calls == 1


def test_a_model_that_nobody_bounds_keeps_the_retries_of_its_client(server, client, run):
    server.fail_first(2, status=500)
    assert run(bound_model(client), "hello").content
    server.wait_idle()
    assert server.requests_count == 3


def test_a_model_that_nobody_bounds_goes_its_way(run):
    model = bound_model(ScriptedChatModel(["one two"]))
    assert run(model, "hello").content == "one two"
    assert not model.records[0].streamed

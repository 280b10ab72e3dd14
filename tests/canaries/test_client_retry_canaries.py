"""What counting a client's own retries relies on. When one fails after an upgrade, see ``client_retries``."""

import inspect
import subprocess
import sys

import anthropic
import anthropic._base_client
import openai
import openai._base_client
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, BaseCallbackHandler, CallbackManagerForLLMRun
from langchain_openai import ChatOpenAI

from bound_middleware.langchain import client_retries
from bound_middleware.testing import ProviderServer, Reply

PACKAGES = pytest.mark.parametrize("package", [openai, anthropic], ids=["openai", "anthropic"])
CLIENTS = pytest.mark.parametrize("name", ["SyncAPIClient", "AsyncAPIClient"])


@pytest.fixture
def server():
    with ProviderServer(default=Reply(tokens=3)) as server:
        yield server


def original(method):
    return inspect.unwrap(method)


@PACKAGES
@CLIENTS
def test_both_clients_have_the_methods_that_are_used(package, name):
    client = getattr(package._base_client, name)
    for method in client_retries._METHODS:
        assert callable(getattr(client, method))
    assert inspect.iscoroutinefunction(original(client.request)) == name.startswith("Async")
    assert inspect.iscoroutinefunction(client._sleep_for_retry) == name.startswith("Async")
    assert list(inspect.signature(original(client.request)).parameters)[:3] == ["self", "cast_to", "options"]
    pause = inspect.signature(client._sleep_for_retry).parameters
    assert {"retries_taken", "max_retries", "options", "response"} <= set(pause)


@PACKAGES
def test_no_client_has_a_request_method_of_its_own(package):
    names = [name for name in dir(package) if inspect.isclass(getattr(package, name))]
    homes = (package._base_client.SyncAPIClient, package._base_client.AsyncAPIClient)
    clients = [kind for name in names if issubclass(kind := getattr(package, name), homes)]
    assert clients
    assert all("request" not in vars(kind) for kind in clients if kind not in homes)


@PACKAGES
def test_options_say_how_often_a_request_is_repeated_and_can_be_copied(package):
    options = package._base_client.FinalRequestOptions(method="post", url="/", headers={"a": "b"})
    assert options.get_max_retries(7) == 7
    once = options.model_copy(update={"max_retries": 0})
    assert (once.get_max_retries(7), options.get_max_retries(7)) == (0, 7)
    assert (once.idempotency_key, once.method, once.headers) == (None, "post", {"a": "b"})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 500])
def test_an_error_without_repeats_has_its_whole_body_also_where_a_stream_was_asked_for(server, stream, status):
    failed = Reply(status=status, error_usage=True, tokens=3)
    server.script([failed, failed])
    chat = openai.OpenAI(base_url=server.openai_url, api_key="none", max_retries=0)
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    asked = {"messages": [{"role": "user", "content": "x"}], "stream": stream}
    with pytest.raises(openai.APIStatusError) as caught:
        chat.chat.completions.create(model="gpt-4o", **asked)
    assert caught.value.response.json()["usage"]["completion_tokens"] == 3
    with pytest.raises(anthropic.APIStatusError) as caught:
        claude.messages.create(model="claude-sonnet-4-6", max_tokens=9, **asked)
    assert caught.value.response.json()["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", ["chat", "responses", "anthropic"])
async def test_the_run_of_a_model_is_in_the_frames_of_its_request(server, monkeypatch, kind, streaming):
    started, found = [], []

    class Seeing(BaseCallbackHandler):
        run_inline = True

        def on_chat_model_start(self, *args, run_id, **kwargs):
            started.append(run_id)

    def look(run):
        frame = sys._getframe(2)
        while frame is not None:
            manager = frame.f_locals.get("run_manager")
            if isinstance(manager, (CallbackManagerForLLMRun, AsyncCallbackManagerForLLMRun)):
                found.append(manager.run_id)
                return
            frame = frame.f_back

    for package in (openai, anthropic):
        for name in ("SyncAPIClient", "AsyncAPIClient"):
            client = getattr(package._base_client, name)
            request = client.request

            def seen(self, *args, _request=request, **kwargs):
                look(self)
                return _request(self, *args, **kwargs)

            async def aseen(self, *args, _request=request, **kwargs):
                look(self)
                return await _request(self, *args, **kwargs)

            monkeypatch.setattr(client, "request", aseen if name.startswith("Async") else seen)
    if kind == "anthropic":
        model = ChatAnthropic(model="claude-sonnet-4-6", base_url=server.url, api_key="none", streaming=streaming)
    else:
        model = ChatOpenAI(
            model="gpt-4o",
            base_url=server.openai_url,
            api_key="none",
            streaming=streaming,
            use_responses_api=kind == "responses",
        )
    config = {"callbacks": [Seeing()]}
    model.invoke("hello", config)
    list(model.stream("hello", config))
    await model.ainvoke("hello", config)
    async for _ in model.astream("hello", config):
        pass
    assert found == started
    assert len(found) == 4


def test_the_clients_are_neither_imported_nor_changed_before_a_call_is_bounded():
    code = (
        "import sys, bound_middleware as b, bound_middleware.langchain.callback\n"
        "from bound_middleware.testing import ScriptedChatModel\n"
        "b.BoundSession({}).__enter__()\n"
        "ScriptedChatModel(['x']).invoke('hello')\n"
        "assert not {'openai', 'anthropic', 'groq'} & set(sys.modules)\n"
        "import openai._base_client as home\n"
        "assert not hasattr(home.SyncAPIClient.request, '__wrapped__')\n"
        "ScriptedChatModel(['x']).invoke('hello')\n"
        "assert hasattr(home.SyncAPIClient.request, '__wrapped__')\n"
        "assert not hasattr(home.SyncAPIClient.request.__wrapped__, '__wrapped__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

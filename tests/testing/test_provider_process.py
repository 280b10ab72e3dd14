"""The server in a child process answers, counts and ends like the one in this process."""

import os

import pytest

from bound_middleware.testing import ProviderServer, Reply, token_text


@pytest.fixture(scope="module")
def child():
    with ProviderServer.in_subprocess() as running:
        yield running


@pytest.fixture
def remote(child):
    child.reset()
    return child


def test_it_runs_in_another_process_and_plays_its_script(make_client):
    with ProviderServer.in_subprocess(["scripted"], default=Reply(tokens=5, input_tokens=8)) as child:
        assert child.pid != os.getpid()
        model = make_client("openai_chat", child)
        assert [model.invoke("x").text for _ in range(2)] == ["scripted", token_text(5)]
        child.wait_idle()
        first, second = child.requests
    assert (second.input_tokens, second.output_tokens, second.status) == (8, 5, 200)
    assert second.finished_ns > second.started_ns > first.started_ns
    assert second.body["messages"] == [{"content": "x", "role": "user"}]


async def test_all_clients_work_with_it(kind, way, remote, make_client, ask, tools):
    remote.script([Reply(tokens=30), Reply(tool_calls=[("search", {"query": "x"})])])
    model = make_client(kind, remote).bind_tools(tools)
    assert (await ask(way, model, max_tokens=20)).text == token_text(20)
    assert (await ask(way, model)).tool_calls[0]["args"] == {"query": "x"}
    assert remote.paid_calls == remote.requests_count == 2
    assert remote.cost_nanousd(1, 1) == remote.total_tokens * 1000


def test_faults_and_waiting_work_across_the_process_border(remote, make_client):
    remote.fail_first(1, status=429, retry_after_ms=1)
    remote.override(usage="none")
    model = make_client("openai_chat", remote, max_retries=1)
    assert model.invoke("x").usage_metadata is None
    remote.wait_requests(2)
    assert [record.status for record in remote.requests] == [429, 200]
    with pytest.raises(TimeoutError):
        remote.wait_requests(3, timeout_s=0.01)
    with pytest.raises(TypeError):
        remote.override(tokns=1)


def test_a_hang_up_is_recorded_across_the_process_border(remote, make_client):
    remote.script([Reply(tokens=2000, token_delay_ms=10)])
    stream = make_client("openai_chat", remote).stream("x")
    for _ in range(5):
        next(stream)
    stream.close()
    remote.wait_idle()
    (record,) = remote.requests
    assert record.hung_up
    assert record.hung_up_after_tokens < 60


def test_it_can_be_started_again_but_not_twice():
    server = ProviderServer.in_subprocess()
    with pytest.raises(RuntimeError):
        _ = server.url
    with server:
        first = server.pid
        with pytest.raises(RuntimeError):
            server.start()
    server.stop()
    with pytest.raises(RuntimeError):
        _ = server.pid
    with server:
        assert server.pid != first

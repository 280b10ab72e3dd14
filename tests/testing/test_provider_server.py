"""The server itself: replies in order, books, waiting, and nothing left behind."""

import contextlib
import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from bound_middleware.testing import ProviderServer, Reply, token_text


def post(server, path="/v1/chat/completions", body=None, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        default = {"model": "gpt-4o", "messages": [{"role": "user", "content": "x"}]}
        raw = body if isinstance(body, bytes) else json.dumps(default if body is None else body)
        connection.request(method, path, raw)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def text_of(answer):
    return answer[1]["choices"][0]["message"]["content"]


def test_replies_come_from_the_script_then_the_function_then_the_default(server):
    server.default("default")
    server.script(["one", Reply(text="two")])
    assert [text_of(post(server)) for _ in range(3)] == ["one", "two", "default"]
    server.respond(lambda record: f"request {record.number} to {record.path}")
    server.script(["three"])
    assert [text_of(post(server)) for _ in range(2)] == ["three", "request 5 to /v1/chat/completions"]
    server.respond(None)
    assert text_of(post(server)) == "default"


def test_a_reset_forgets_all_but_the_default(server):
    server.default("default")
    server.script(["one", "two"])
    server.fail_first(1)
    server.override(usage="none")
    post(server)
    server.reset()
    assert server.requests == []
    assert text_of(post(server)) == "default"
    assert post(server)[1]["usage"]["completion_tokens"] > 0


def test_totals_and_costs_are_exact_integers(server):
    server.default(Reply(tokens=7, input_tokens=13))
    for _ in range(3):
        post(server)
    assert (server.requests_count, server.paid_calls) == (3, 3)
    assert (server.input_tokens, server.output_tokens, server.total_tokens) == (39, 21, 60)
    assert server.cost_nanousd("2.5", 10) == 39 * 2_500 + 21 * 10_000
    assert server.cost_nanousd(Decimal("0.0375"), 0) == 1462
    assert server.cost_nanousd(0.1, 0.3) == 39 * 100 + 21 * 300
    for price in (-1, "NaN", float("inf")):
        with pytest.raises(ValueError):
            server.cost_nanousd(price, 0)


def test_parallel_requests_are_all_counted_and_the_script_is_used_once(server):
    server.script([Reply(text=f"reply {number}") for number in range(40)])
    with ThreadPoolExecutor(16) as pool:
        texts = [text_of(answer) for answer in pool.map(lambda _: post(server), range(40))]
    assert sorted(texts) == sorted(f"reply {number}" for number in range(40))
    assert sorted(record.number for record in server.requests) == list(range(1, 41))
    assert server.paid_calls == 40


def test_records_tell_what_was_asked(server):
    post(server, "/v1/chat/completions?beta=true")
    (record,) = server.requests
    assert (record.method, record.path, record.status) == ("POST", "/v1/chat/completions", 200)
    assert record.body["messages"] == [{"role": "user", "content": "x"}]
    assert int(record.headers["content-length"]) > 0


def test_requests_are_snapshots(server):
    post(server)
    before = server.requests
    before[0].output_tokens = 10**6
    before.clear()
    assert server.output_tokens == 16


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/v1/embeddings", "POST", None, 404),
        ("/v1/chat/completions", "GET", None, 404),
        ("/v1/chat/completions", "POST", b"{", 400),
        ("/v1/chat/completions", "POST", b"[]", 400),
        ("/v1/chat/completions", "POST", b"{}", 400),
        ("/v1/chat/completions", "POST", b'{"messages": ["x"]}', 400),
        ("/v1/chat/completions", "POST", b'{"messages": [{"role": "user"}], "max_tokens": 0}', 400),
        ("/v1/responses", "POST", b"{}", 400),
        ("/v1/messages", "POST", b'{"messages": [{"role": "user", "content": "x"}]}', 400),
    ],
)
def test_a_request_that_is_wrong_is_refused_and_costs_nothing(path, method, body, status, server):
    assert post(server, path, body, method)[0] == status
    (record,) = server.requests
    assert record.problem
    assert (server.paid_calls, server.total_tokens) == (0, 0)


def test_waiting_for_more_than_happens_is_an_error(server):
    server.wait_idle()
    server.wait_requests(0)
    with pytest.raises(TimeoutError, match="0 of 1"):
        server.wait_requests(1, timeout_s=0.01)
    server.default(Reply(tokens=1, first_byte_delay_ms=60_000))
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/responses", b'{"input": "x"}')
    server.wait_requests(1)
    with pytest.raises(TimeoutError, match="in flight"):
        server.wait_idle(timeout_s=0.01)
    connection.close()
    server.wait_idle()


def test_a_connection_is_used_again_only_when_kept_alive():
    for keep_alive, connections in ((False, 2), (True, 1)):
        with ProviderServer(keep_alive=keep_alive) as server:
            client = http.client.HTTPConnection("127.0.0.1", server.port)
            ports = set()
            for _ in range(2):
                client.request("POST", "/v1/responses", b'{"input": "x"}')
                ports.add(client.sock.getsockname()[1])
                client.getresponse().read()
            client.close()
            assert len(ports) == connections


def test_a_stopped_server_leaves_no_thread_and_no_listening_port():
    before = set(threading.enumerate())
    with ProviderServer(keep_alive=True) as server:
        client = http.client.HTTPConnection("127.0.0.1", server.port)
        client.request("POST", "/v1/responses", b'{"input": "x"}')
        client.getresponse().read()
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) <= before
    client.close()
    with pytest.raises(ConnectionRefusedError):
        post(server)
    server.stop()


def test_a_server_can_be_started_again_but_not_twice():
    server = ProviderServer(["one"])
    with pytest.raises(RuntimeError):
        _ = server.url
    with server:
        with pytest.raises(RuntimeError):
            server.start()
        assert text_of(post(server)) == "one"
    with server:
        assert text_of(post(server)) == token_text(16)
    assert server.requests_count == 2


def test_nonsense_on_the_wire_closes_the_connection_and_harms_nobody(server):
    for nonsense in (b"\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nbroken\r\n\r\n", b"\x00" * 100_000):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock, contextlib.suppress(OSError):
            sock.sendall(nonsense)
            while sock.recv(4096):
                pass
    assert post(server)[0] == 200


def test_a_chunked_request_body_is_read(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    parts = iter([b'{"input": ', b'"x"}'])
    connection.request(
        "POST", "/v1/responses", parts, encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
    )
    assert connection.getresponse().status == 200
    connection.close()
    assert server.requests[0].body == {"input": "x"}

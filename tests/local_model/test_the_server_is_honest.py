"""The local server behaves as a provider does: it refuses nonsense, counts everything, and forgets no call."""

import json
from http.client import HTTPConnection

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from openai import BadRequestError

CALL = {"name": "look", "args": {}, "id": "call_a", "type": "tool_call"}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([HumanMessage("x"), AIMessage("", tool_calls=[CALL])], "tool calls without an answer: call_a"),
        ([HumanMessage("x"), ToolMessage("y", tool_call_id="call_b")], "an answer without its call: call_b"),
        ([HumanMessage("river " * 5000)], "the context has 4096"),
    ],
)
def test_what_a_provider_would_refuse_is_refused_and_costs_nothing(messages, problem, client, counted):
    with pytest.raises(BadRequestError, match=problem):
        client().invoke(messages)
    (seen,) = counted().calls
    assert problem in seen.problem
    assert (seen.prompt_tokens, seen.generated_tokens) == (0, 0)


def test_another_model_is_not_there(client):
    with pytest.raises(BadRequestError, match="no model 'gpt-4o'".replace("'", '"')):
        client().model_copy(update={"model_name": "gpt-4o"}).invoke("hello")


def test_the_usage_of_a_stream_is_what_the_server_counted(client, counted):
    total = None
    for chunk in client(max_tokens=12, stream_usage=True).stream("Name a river."):
        total = chunk if total is None else total + chunk
    (seen,) = counted().calls
    usage = total.usage_metadata
    assert (usage["input_tokens"], usage["output_tokens"]) == (seen.prompt_tokens, seen.generated_tokens)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_that_must_be_called_is_called_with_arguments_of_its_schema(stream, client, counted):
    def write_file(path: str, lines: int) -> str:
        """Write a file."""

    model = client(max_tokens=120).bind_tools([write_file], tool_choice="any")
    given = "Write ten lines to notes.txt."
    message = sum_of(model.stream(given)) if stream else model.invoke(given)
    (call,) = message.tool_calls
    assert call["name"] == "write_file"
    assert {name: type(value) for name, value in call["args"].items()} == {"path": str, "lines": int}
    assert counted().calls[0].finish_reason == "tool_calls"


def sum_of(chunks):
    first, *rest = list(chunks)
    return sum(rest, first)


def test_a_client_that_leaves_the_queue_costs_nothing(local_model, counted, story):
    """Two answers are computed at a time: the third waits, and its client hangs up."""
    body = {"model": local_model.name, "max_tokens": 60, "messages": [{"role": "user", "content": story}]}
    connections = [HTTPConnection(local_model.url.removeprefix("http://")) for _ in range(3)]
    for connection in connections:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
    connections[-1].close()
    done = [json.loads(c.getresponse().read())["usage"]["completion_tokens"] for c in connections[:2]]
    for connection in connections:
        connection.close()
    calls = counted().calls
    assert done == [60, 60]
    assert sorted(call.generated_tokens for call in calls) == [0, 60, 60]
    assert [call.hung_up for call in calls if call.generated_tokens == 0] == [True]

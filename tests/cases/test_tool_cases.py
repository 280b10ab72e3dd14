"""A1, A7, D1, D3, D5, D7 and D9 against ``create_agent``, in both colours. Bodies of tools are counted."""

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.tools import tool

from bound_middleware.langchain import BoundMiddleware
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "go")]}


def invoked(run, tools, replies, bounds, **model):
    scripted = ScriptedChatModel(replies, **model)
    result = run(create_agent(scripted, tools, middleware=[BoundMiddleware({"bounds": bounds})]), ASK)
    return scripted, result


def test_a1_the_same_call_with_the_same_result_stops_early_with_a_name(run):
    ran = []

    @tool
    def search(q: str) -> str:
        """Searches."""
        ran.append(q)
        return "none"

    bounds = {"iteration_limit": 50, "stop": {"no_progress": {"identical_calls_max": 3}}}
    model, result = invoked(run, [search], [reply(tool_calls=[("search", {"q": "a"})])] * 50, bounds)
    assert ran == ["a"] * 3
    assert len(model.records) == 4
    last = result["messages"][-1]
    assert isinstance(last, AIMessage)
    assert not last.tool_calls
    assert result["bound"]["outcome"]["stop_reason"] == "no_progress"


@pytest.mark.parametrize("part", ["distinct items", "polling", "the same error"])
def test_a7_only_calls_that_bring_nothing_new_are_stopped(run, part):
    ran = []

    @tool
    def process(id: int) -> str:
        """Processes."""
        ran.append(id)
        return f"error at {id}" if part == "the same error" else f"done {id}"

    @tool
    def poll(job: str) -> str:
        """Polls."""
        ran.append(job)
        return f"{len(ran) * 10}%"

    calls = {
        "distinct items": [("process", {"id": n}) for n in range(1, 21)],
        "polling": [("poll", {"job": "x"})] * 10,
        "the same error": [("process", {"id": 1})] * 20,
    }[part]
    settings = {"no_progress": {"identical_calls_max": 3, "same_result_max": 5, "cycle_window": 4}}
    _, result = invoked(
        run, [process, poll], [*(reply(tool_calls=[call]) for call in calls), "done"], {"stop": settings}
    )
    expected = {"distinct items": 20, "polling": 10, "the same error": 3}[part]
    assert len(ran) == expected
    assert result["bound"]["outcome"]["status"] == ("stopped" if part == "the same error" else "completed")


def test_a7_holds_within_one_message_too(run):
    ran = []

    @tool
    def process(id: int) -> str:
        """Processes."""
        ran.append(id)
        return "error"

    calls = [("process", {"id": 1})] * 8
    bounds = {"stop": {"no_progress": {"identical_calls_max": 3}}}
    _, result = invoked(run, [process], [reply(tool_calls=calls), "done"], bounds)
    assert len(ran) == 3
    assert len([m for m in result["messages"] if isinstance(m, ToolMessage)]) == 8


def truncated(arguments, finish, used):
    def answer(messages, kwargs):
        call = {"name": "write", "args": arguments, "id": f"c{len(messages)}"}
        whole = isinstance(arguments, dict)
        return AIMessage(
            content="",
            response_metadata={"finish_reason": finish},
            usage_metadata={"input_tokens": 5, "output_tokens": used, "total_tokens": 5 + used},
            tool_calls=[call] if whole else [],
            invalid_tool_calls=[] if whole else [invalid_tool_call(**call, error="no JSON")],
        )

    return answer


@pytest.fixture
def written():
    return []


@pytest.fixture
def write(written):
    @tool
    def write(path: str = "", body: str = "") -> str:
        """Writes."""
        written.append(path)
        return "ok"

    return write


@pytest.mark.parametrize(
    ("arguments", "finish"),
    [({}, "length"), ('{"path":"a","body":"xx', "tool_calls"), ({"path": "/"}, "length")],
)
def test_d5_a_truncated_call_never_runs_and_is_answered_and_the_run_ends(run, write, written, arguments, finish):
    replies = [truncated(arguments, finish, 4_096)] * 5
    bounds = {"iteration_limit": 10, "token_budget": {"total": 100_000}}
    model, result = invoked(run, [write], replies, bounds)
    assert written == []
    answers = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    proposed = [m for m in result["messages"] if isinstance(m, AIMessage) and m.invalid_tool_calls]
    assert [m.tool_call_id for m in answers] == [m.invalid_tool_calls[0]["id"] for m in proposed]
    assert all(m.status == "error" and "truncated" in m.text for m in answers)
    assert 1 <= len(model.records) <= 2
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "truncated")
    assert isinstance(result["messages"][-1], AIMessage)


def test_d5_control_a_whole_call_without_arguments_runs(run, write, written):
    _, result = invoked(run, [write], [truncated({}, "tool_calls", 20), "done"], {"iteration_limit": 10})
    assert written == [""]
    assert result["messages"][-1].text == "done"


def test_d5_a_run_goes_on_when_the_next_answer_is_whole(run, write, written):
    replies = [truncated('{"path":"a', "length", 4_096), truncated({"path": "a"}, "tool_calls", 20), "done"]
    _, result = invoked(run, [write], replies, {"iteration_limit": 10})
    assert written == ["a"]
    assert result["bound"]["outcome"]["status"] == "completed"


def test_d9_a_long_answer_keeps_head_and_tail_and_says_how_long_it_was(run):
    @tool
    def big(kind: str) -> str | list[dict[str, str]]:
        """Answers at length."""
        text = "\N{GREEK SMALL LETTER ALPHA}" + "x" * 999_998 + "\N{GREEK SMALL LETTER OMEGA}"
        if kind == "blocks":
            return [{"type": "text", "text": text[:500_000]}, {"type": "text", "text": text[500_000:]}]
        return text if kind == "text" else "y" * 3_999

    calls = [("big", {"kind": kind}) for kind in ("text", "blocks", "short")]
    bounds = {"stop": {"tool_output_chars_max": 4_000}}
    _, result = invoked(run, [big], [reply(tool_calls=calls), "done"], bounds)
    text, blocks, short = (m for m in result["messages"] if isinstance(m, ToolMessage))
    joined = "".join(block["text"] for block in blocks.content)
    for answer in (text.content, joined):
        assert len(answer) <= 4_200
        assert "1000000" in answer
        assert (answer[0], answer[-1]) == ("\N{GREEK SMALL LETTER ALPHA}", "\N{GREEK SMALL LETTER OMEGA}")
    assert short.content == "y" * 3_999

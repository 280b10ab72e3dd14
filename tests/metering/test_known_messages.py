"""Messages that were counted before: the same count, and a new one for what changed."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from bound_middleware.metering import known_messages
from bound_middleware.metering.known_messages import KnownMessages
from bound_middleware.metering.tokens import counter_for

COUNTER = counter_for("gpt-4o")
HISTORY = [
    SystemMessage("You are terse."),
    HumanMessage("What is the weather?"),
    AIMessage("Looking.", tool_calls=[{"name": "look", "args": {"q": "weather"}, "id": "1", "type": "tool_call"}]),
    ToolMessage("Rain.", tool_call_id="1"),
    AIMessage([{"type": "text", "text": "It rains."}]),
    ("user", "Thanks"),
    "more",
    {"role": "user", "content": "and more"},
]


def told(count):
    """The counted messages, and the function that tells."""
    seen = []

    def one(message):
        seen.append(message)
        return count

    return seen, one


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "another"])
def test_a_history_counts_the_same_again(model):
    counter, known = counter_for(model), KnownMessages()
    for most in (*range(len(HISTORY)), len(HISTORY)):
        assert counter.count_input(HISTORY[:most], (), None, known) == counter.count_input(HISTORY[:most])


def test_a_message_is_counted_once():
    known = KnownMessages()
    seen, one = told(7)
    message = HumanMessage("hi")
    assert [known.total(COUNTER, [message], one) for _ in range(3)] == [7, 7, 7]
    assert seen == [message]


def test_each_counter_has_its_own_count():
    known, message = KnownMessages(), HumanMessage("hi")
    assert known.total(COUNTER, [message], lambda m: 1) == 1
    assert known.total(counter_for("claude-3"), [message], lambda m: 2) == 2


@pytest.mark.parametrize("change", [{"content": "other"}, {"tool_calls": []}])
def test_a_message_that_is_changed_is_counted_anew(change):
    known = KnownMessages()
    message = HISTORY[2].model_copy()
    known.total(COUNTER, [message], lambda m: 1)
    for name, value in change.items():
        setattr(message, name, value)
    assert known.total(COUNTER, [message], lambda m: 2) == 2


@pytest.mark.parametrize(
    "message",
    [
        AIMessage([{"type": "text", "text": "x"}]),
        AIMessage("x", additional_kwargs={"refusal": "no"}),
        ("user", "x"),
        "x",
    ],
)
def test_what_may_change_inside_is_counted_each_time(message):
    known = KnownMessages()
    assert [known.total(COUNTER, [message], lambda m, n=n: n) for n in (1, 2)] == [1, 2]


def test_another_message_in_the_place_of_one_that_is_gone_is_another_message():
    known = KnownMessages()
    first = HumanMessage("hi")
    known.total(COUNTER, [first], lambda m: 1)
    twin = first.model_copy()
    assert known.total(COUNTER, [twin], lambda m: 2) == 2


def test_the_oldest_go_first(monkeypatch):
    monkeypatch.setattr(known_messages, "MESSAGES_KEPT", 2)
    known = KnownMessages()
    messages = [HumanMessage(str(i)) for i in range(3)]
    for message in messages:
        known.total(COUNTER, [message], lambda m: 1)
    assert [known.total(COUNTER, [m], lambda m: 2) for m in reversed(messages)] == [1, 1, 2]

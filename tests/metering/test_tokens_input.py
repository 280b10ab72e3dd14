"""The input estimate of a request: tight for plain OpenAI chats, above everything else, and never an error."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from bound_middleware.metering.tokens import counter_for

COUNTER = counter_for("gpt-4o")
FRAME = COUNTER.count_input([""]) - COUNTER.count_input([])


def added(message: Any) -> int:
    """Tokens of one message without its framing."""
    return COUNTER.count_input([message]) - COUNTER.count_input([]) - FRAME


def cookbook(messages: list[dict[str, str]]) -> int:
    """OpenAI's cookbook for chat models: 3 a message, role and content, 3 for the start of the reply."""
    return 3 + sum(3 + COUNTER.count(message["role"]) + COUNTER.count(message["content"]) for message in messages)


CHAT = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Why is the sky blue?"},
    {"role": "assistant", "content": "Rayleigh scattering."},
    {"role": "user", "content": "And sunsets? " * 50},
]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text(max_size=50)), max_size=8))
def test_a_plain_chat_is_counted_as_openai_documents_it(pairs: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": content} for role, content in pairs]
    assert cookbook(messages) <= COUNTER.count_input(messages) <= cookbook(messages) + 2


def test_a_chat_with_gpt_5_is_one_above_what_was_billed() -> None:
    """Billed in 354 recorded prompts: 4 a message, 2 more for one of the assistant, 2 for the reply's start."""
    counter = counter_for("gpt-5-mini")
    contents = sum(counter.count(message["content"]) for message in CHAT)
    assert counter.count_input(CHAT) == contents + 4 * 4 + 2 + 2 + 1
    assert counter.count_input(CHAT[:2]) == sum(counter.count(m["content"]) for m in CHAT[:2]) + 10 + 1


def test_every_form_of_the_same_chat_counts_alike() -> None:
    langchain: list[BaseMessage] = [
        SystemMessage(CHAT[0]["content"]),
        HumanMessage(CHAT[1]["content"]),
        AIMessage(CHAT[2]["content"]),
        HumanMessage(CHAT[3]["content"]),
    ]
    want = COUNTER.count_input(CHAT)
    assert COUNTER.count_input(langchain) == want
    assert COUNTER.count_input([langchain]) == want
    assert COUNTER.count_input(tuple(langchain)) == want
    assert COUNTER.count_input(iter(langchain)) == want
    assert COUNTER.count_input([(m["role"], m["content"]) for m in CHAT]) == want
    assert COUNTER.count_input([SimpleNamespace(type=m["role"], content=m["content"]) for m in CHAT]) == want
    assert (
        COUNTER.count_input(
            [{"role": m["role"], "content": [{"type": "text", "text": m["content"]}]} for m in CHAT]
        )
        == want
    )


def test_one_message_needs_no_list() -> None:
    want = COUNTER.count_input(["hello"])
    assert want == cookbook([{"role": "user", "content": "hello"}])
    assert COUNTER.count_input("hello") == want
    assert COUNTER.count_input(HumanMessage("hello")) == want
    assert COUNTER.count_input({"role": "user", "content": "hello"}) == want


def test_no_prompt_counts_as_nothing() -> None:
    for model in ("gpt-4o", "gpt-4", "claude-sonnet-4-5", "gemini-3-pro", None):
        assert counter_for(model).count_input([]) > 0
        assert 60 <= counter_for(model).count_input("word " * 80) <= 200


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-7", "gemini-3-pro", "llama-3"])
def test_other_families_are_counted_above_openai(model: str) -> None:
    assert counter_for(model).count_input(CHAT) > COUNTER.count_input(CHAT)


def test_names_roles_and_ids_count() -> None:
    assert added(HumanMessage("hi", name="alice")) >= added("hi") + 1 + COUNTER.count("alice")
    assert added(ChatMessage(role="critic of the plan", content="hi")) > added("hi")
    assert added(ToolMessage("ok", tool_call_id="call_8Jp2")) > added("ok") + COUNTER.count("call_8Jp2")
    assert added(FunctionMessage("ok", name="search")) > added("ok")


CALL = {"name": "search", "args": {"query": "weather in Oslo", "days": 3}, "id": "call_abc", "type": "tool_call"}
ARGUMENTS = json.dumps(CALL["args"], separators=(",", ":"))


def test_tool_calls_count_once_in_whatever_form_they_come() -> None:
    content = COUNTER.count("search") + COUNTER.count(ARGUMENTS) + COUNTER.count("call_abc")
    openai_call = {"id": "call_abc", "type": "function", "function": {"name": "search", "arguments": ARGUMENTS}}
    block = {"type": "tool_use", "id": "call_abc", "name": "search", "input": CALL["args"]}
    forms: list[Any] = [
        AIMessage("", tool_calls=[CALL]),
        AIMessage("", tool_calls=[CALL], additional_kwargs={"tool_calls": [openai_call]}),
        AIMessage("", additional_kwargs={"tool_calls": [openai_call]}),
        AIMessage([block], tool_calls=[CALL]),
        {"role": "assistant", "content": None, "tool_calls": [openai_call]},
        {"role": "assistant", "content": [block]},
        {"type": "function_call", "call_id": "call_abc", "name": "search", "arguments": ARGUMENTS},
    ]
    for form in forms:
        assert content < added(form) <= content + 16, form


def test_invalid_tool_calls_and_function_calls_count() -> None:
    broken = {
        "name": "search",
        "args": '{"query": "wea',
        "id": "call_x",
        "error": None,
        "type": "invalid_tool_call",
    }
    assert added(AIMessage("", invalid_tool_calls=[broken])) > COUNTER.count('{"query": "wea')
    old = {"name": "search", "arguments": ARGUMENTS}
    assert added(AIMessage("", additional_kwargs={"function_call": old})) > COUNTER.count(ARGUMENTS)
    assert added({"role": "assistant", "content": None, "function_call": old}) > COUNTER.count(ARGUMENTS)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}},
        {"type": "image_url", "image_url": "https://example.com/cat.png"},
        {"type": "input_image", "image_url": "https://example.com/cat.png", "detail": "low"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000}},
        {"type": "image", "base64": "A" * 400_000, "mime_type": "image/png"},
        {"type": "media", "mime_type": "image/jpeg", "data": "A" * 400_000},
        {"inline_data": {"mime_type": "image/jpeg", "data": "A" * 400_000}},
    ],
)
def test_an_image_counts_flat_whatever_its_size(block: dict[str, Any]) -> None:
    assert added(HumanMessage([block])) == 85 + 8 * 170
    assert counter_for("gpt-4o-mini").count_input([HumanMessage([block])]) > 2_833 + 8 * 5_667
    assert counter_for("claude-opus-4-7").count_input([HumanMessage([block])]) > 3_750_000 / 750
    assert counter_for("gemini-3-pro").count_input([HumanMessage([block])]) > 2_240


def test_an_image_in_original_detail_costs_more() -> None:
    block = {"type": "input_image", "image_url": "https://example.com/cat.png", "detail": "original"}
    assert added({"role": "user", "content": [block]}) == 10_000


def test_sound_and_files_count_by_their_size() -> None:
    data = base64.b64encode(b"\0" * 240_000).decode()  # a minute of speech at 32 kbit/s
    sound = {"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}}
    assert 60 * 32 <= added(HumanMessage([sound])) <= 3 * 60 * 32
    assert added(HumanMessage([{"type": "audio", "base64": data, "mime_type": "audio/mp3"}])) >= 60 * 32
    document = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + data}}
    assert 60_000 <= added(HumanMessage([document])) <= 61_000
    assert added(HumanMessage([{"type": "file", "file_id": "file-123"}])) == 5_000
    text = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hello world"}}
    assert added(HumanMessage([text])) < 20


def test_reasoning_counts_by_its_text_and_blobs_by_their_size() -> None:
    thought = "First look at the weather, then decide. " * 10
    block = {"type": "thinking", "thinking": thought, "signature": "A" * 400}
    assert added(AIMessage([block])) == COUNTER.count(thought) + 100
    assert added(AIMessage("", additional_kwargs={"reasoning_content": thought})) == COUNTER.count(thought)
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "A" * 400}
    assert 100 <= added(item) <= 110
    assert added(AIMessage([{"type": "redacted_thinking", "data": "A" * 400}])) == 100


def test_tool_results_inside_content_count() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "sunny " * 30}]}
    assert added({"role": "user", "content": [result]}) > COUNTER.count("sunny " * 30)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny " * 30}
    assert added(output) > COUNTER.count("sunny " * 30)


@tool
def search(query: str, days: int = 3) -> str:
    """Search the weather of a place for some days ahead."""
    return query * days


class Answer(BaseModel):
    """A structured answer."""

    place: str
    degrees: list[float]


def openai_tools(definitions: list[dict[str, Any]]) -> int:
    """The rule of OpenAI's cookbook for tool definitions of gpt-4o."""
    total = 12 if definitions else 0
    for definition in definitions:
        function = definition["function"]
        total += 7 + COUNTER.count(f"{function['name']}:{function['description'].rstrip('.')}")
        properties = function["parameters"]["properties"]
        total += 3 if properties else 0
        for key, value in properties.items():
            total += 3 + COUNTER.count(f"{key}:{value['type']}:{value.get('description', '').rstrip('.')}")
    return total


def test_tool_definitions_are_counted_above_what_openai_renders() -> None:
    definition = convert_to_openai_tool(search)
    base = COUNTER.count_input(CHAT)
    for definitions in ([definition], [definition] * 5):
        assert openai_tools(definitions) < COUNTER.count_input(CHAT, definitions) - base


def test_tools_may_be_objects_classes_functions_or_dicts() -> None:
    definition = convert_to_openai_tool(search)
    base = COUNTER.count_input(CHAT)
    anthropic = {"name": "search", "description": "Search.", "input_schema": definition["function"]["parameters"]}
    for form in (definition, search, [search], Answer, [Answer], search.func, anthropic, [anthropic]):
        assert COUNTER.count_input(CHAT, form) > base + 40, form
    as_dict = COUNTER.count_input(CHAT, [definition])
    assert as_dict <= COUNTER.count_input(CHAT, [search]) <= as_dict + 60
    assert COUNTER.count_input(CHAT, []) == COUNTER.count_input(CHAT, None) == base


def test_claudes_system_prompt_for_tools_counts() -> None:
    for model, prompt in (("claude-sonnet-4-5", 588), ("claude-opus-4-7", 804)):
        counter = counter_for(model)
        assert counter.count_input(CHAT, [search]) - counter.count_input(CHAT) > prompt


def test_a_response_format_counts() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "Answer", "schema": Answer.model_json_schema()}}
    base = COUNTER.count_input(CHAT)
    assert COUNTER.count_input(CHAT, extra=schema) > base + COUNTER.count(json.dumps(schema, separators=(",", ":")))
    assert COUNTER.count_input(CHAT, extra=Answer) > base + 20
    assert COUNTER.count_input(CHAT, extra=None) == base


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")


def nonsense() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    loop: dict[str, Any] = {"role": "user"}
    loop["content"] = loop
    deep: Any = "x"
    for _ in range(2_000):
        deep = [deep]
    return [
        *[3, 2.5, None, True, b"bytes", object(), float("nan"), Hostile(), [Hostile()], ring, [ring], loop, [loop]],
        *[[3, None, b"x", ()], [{"role": "user", "content": Hostile()}], [{"role": Hostile(), "content": ring}]],
        *[
            [{("a", 1): 1}],
            {"role": 5, "content": 7},
            [{"content": {"a": {1, 2}}}],
            {"type": "image"},
            deep,
            [deep],
        ],
        *[
            {"role": "user", "content": deep},
            {"tool_calls": 5, "content": 3},
            {"role": "user", "tool_calls": [Hostile()]},
        ],
        *[iter(lambda: 1 // 0, 2), (n for n in [1]), {"role": "user", "content": [{"type": ["x"], "text": 5}]}],
        *["\ud800", [{"role": "user", "content": "\ud800"}], [{"role": "assistant", "content": [["x"]]}]],
    ]


@pytest.mark.parametrize("value", nonsense(), ids=lambda value: type(value).__name__)
def test_nonsense_is_counted_and_never_raises(value: Any) -> None:
    assert COUNTER.count_input(value) >= 3
    assert COUNTER.count_input(["hello"], value, value) >= COUNTER.count_input(["hello"])


def test_what_cannot_be_read_does_not_hide_the_text_beside_it() -> None:
    text = "a long text beside a hostile object " * 20
    message = {"role": "user", "content": [{"type": "odd", "value": Hostile(), "text": text}]}
    assert COUNTER.count_input([message]) > COUNTER.count(text)


def test_a_long_history_seen_before_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from bound_middleware.metering import vocabulary

    history = [HumanMessage(f"message {number} of this history " * 20) for number in range(20)]
    want = COUNTER.count_input(history)
    encoded: list[str] = []
    monkeypatch.setattr(vocabulary.Vocabulary, "count", lambda self, text: encoded.append(text) or 1)
    assert COUNTER.count_input(history) == want
    history[3].content = "changed in place"
    assert COUNTER.count_input(history) != want
    assert encoded == ["changed in place"]

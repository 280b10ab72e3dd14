"""The scripted model refuses the histories that a provider would refuse."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from bound_middleware.testing import ScriptedChatModel

CALL = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1", "type": "tool_call"}])
TWO_CALLS = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": name} for name in ("1", "2")])
HALF_CALL = AIMessage("", invalid_tool_calls=[{"name": "f", "args": "{", "id": "1", "error": None}])
SAME_ID = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}] * 2)


def answer(call_id="1"):
    return ToolMessage("done", tool_call_id=call_id)


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([CALL], "end of the history have no answer: '1'"),
        ([CALL, HumanMessage("go on")], "message 1: tool calls before it have no answer: '1'"),
        ([TWO_CALLS, answer("2"), HumanMessage("x")], "no answer: '1'"),
        ([CALL, answer("9")], "answers '9', which was not called"),
        ([answer()], "answers '1', which was not called"),
        ([CALL, answer(), answer()], "'1' is answered twice"),
        ([CALL, answer(), HumanMessage("x"), answer()], "answers '1', which was not called"),
        ([HALF_CALL, HumanMessage("x")], "no answer: '1'"),
        ([SAME_ID, answer()], "two tool calls have the same id"),
    ],
)
async def test_a_history_that_a_provider_would_refuse_is_refused(history, problem, way, ask):
    model = ScriptedChatModel(["unused"])
    with pytest.raises(AssertionError, match=problem):
        await ask(way, model, history)
    assert problem in model.problems[0]
    with pytest.raises(AssertionError, match="invalid history"):
        model.assert_exhausted()
    assert ScriptedChatModel(["fine"], strict=False).invoke(history).text == "fine"


@pytest.mark.parametrize(
    "history",
    [
        [CALL, answer()],
        [CALL, answer(), CALL, answer(), HumanMessage("x")],
        [TWO_CALLS, answer("2"), answer("1"), HumanMessage("x")],
        [HALF_CALL, answer()],
    ],
)
def test_a_valid_history_is_answered(history):
    assert ScriptedChatModel(["fine"]).invoke(history).text == "fine"

"""What of LangChain is wrapped for the process, in the shape in which the wrappers expect it."""

import inspect

import pytest
from langchain_core.language_models import BaseChatModel, chat_models


@pytest.mark.parametrize("name", ["chunks_to_events", "achunks_to_events"])
def test_the_bridge_of_the_v3_protocol_takes_chunks_first_and_is_found_by_its_module(name):
    bridge = inspect.unwrap(getattr(chat_models, name))
    assert next(iter(inspect.signature(bridge).parameters)) == "chunks"


@pytest.mark.parametrize("name", ["_iter_v2_events", "_aiter_v2_events"])
def test_the_bridge_is_called_where_the_run_is_known(name):
    code = getattr(BaseChatModel, name).__code__
    assert "run_manager" in code.co_varnames
    assert code.co_names.count("achunks_to_events" if name.startswith("_a") else "chunks_to_events") == 1


def test_whether_to_stream_is_asked_with_the_handlers_of_the_run():
    asked = inspect.unwrap(BaseChatModel._should_stream)
    names = set(inspect.signature(asked).parameters)
    assert {"async_api", "run_manager", "kwargs"} <= names

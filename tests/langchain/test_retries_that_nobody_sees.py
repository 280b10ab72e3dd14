"""A client that may repeat requests on its own: the outcome says so, and strict mode refuses it."""

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.testing import ScriptedChatModel

STRICT = {"bounds": {"stop": {"strict_usage": True}, "iteration_limit": 5}}
LAX = {"bounds": {"iteration_limit": 5}}
ENTRANCES = ["bound_model", "ambient", "callback"]


class Unknown(BaseChatModel):
    """Of a class that no table has."""

    model_name: str = "gpt-4o"
    max_retries: int | None = None

    @property
    def _llm_type(self):
        return "unknown"

    @classmethod
    def is_lc_serializable(cls):
        return True

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("yes", usage_metadata=usage))])


def possible(session):
    return session.outcome.detail.get("hidden_retries_possible", False)


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(("retries", "said"), [(None, True), (2, True), (0, False)])
def test_the_outcome_says_it_of_an_unknown_class_unless_it_was_told_not_to(seams, entrance, retries, said, run):
    session = BoundSession(LAX)
    seams[entrance](Unknown(max_retries=retries), session, lambda m, c=None: run(m, "hi", c))
    assert session.usage.model_calls == 1
    assert possible(session) == said


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_the_outcome_does_not_say_it_of_a_known_client(server, seams, entrance, run):
    session = BoundSession(LAX)
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none")
    seams[entrance](model, session, lambda m, c=None: run(m, "hi", c))
    assert session.usage.model_calls == server.requests_count == 1
    assert not possible(session)


def test_strict_mode_refuses_an_unknown_class_before_anything_is_sent(seams, run):
    session = BoundSession(STRICT)
    with pytest.raises(BoundExceeded, match="max_retries=0") as caught:
        seams["bound_model"](Unknown(), session, lambda m, c=None: run(m, "hi", c))
    assert caught.value.stop_reason == session.outcome.stop_reason == "usage_missing"
    assert caught.value.outcome.status == "stopped"
    assert (session.usage.model_calls, session.remaining().iterations) == (0, 5)


@pytest.mark.parametrize("kind", ["told", "known"])
def test_strict_mode_lets_through_what_makes_one_request_for_each_call(seams, kind, run):
    session = BoundSession(STRICT)
    model = Unknown(max_retries=0) if kind == "told" else ScriptedChatModel(["yes"])
    seams["bound_model"](model, session, lambda m, c=None: run(m, "hi", c))
    assert session.usage.model_calls == 1
    assert session.outcome.stop_reason is None

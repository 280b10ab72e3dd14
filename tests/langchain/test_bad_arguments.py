"""The adapters refuse nonsense at construction, before an agent is built or a call is made."""

import pytest
from langchain.agents import create_agent

from bound_middleware import BoundSession, SpecError, bound
from bound_middleware.langchain import BoundCallback, BoundMiddleware, bound_model
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.session.clock import SystemClock
from bound_middleware.testing import ScriptedChatModel

SPEC = {"bounds": {"iteration_limit": 5}}
ENTRANCES = {
    "bound_model": lambda session: bound_model(ScriptedChatModel(["a"]), session),
    "bound_model again": lambda session: bound_model(bound_model(ScriptedChatModel(["a"])), session),
    "BoundCallback": BoundCallback,
    "BoundMiddleware": lambda session: BoundMiddleware(session=session),
}


@pytest.mark.parametrize("entrance", list(ENTRANCES))
@pytest.mark.parametrize(
    "value", [5, 0, "", "bound.yml", SPEC, {}, BoundSession, bound(SPEC)], ids=lambda v: type(v).__name__
)
def test_what_is_no_session_is_an_error_that_says_how_to_make_one(entrance, value):
    with pytest.raises(SpecError, match=r"BoundSession\(spec\)") as caught:
        ENTRANCES[entrance](value)
    assert (caught.value.key, caught.value.value) == ("session", value)


@pytest.mark.parametrize("entrance", list(ENTRANCES))
def test_a_session_is_taken(entrance):
    assert ENTRANCES[entrance](BoundSession(SPEC)) is not None


@pytest.mark.parametrize(
    "key",
    [
        *("messages", "jump_to", "structured_response", "bound_run_id"),
        *("", " ", "a b", "2nd", "a.b", "__start__", "__interrupt__", 5, None, True, b"bound", []),
    ],
)
def test_a_key_that_cannot_be_a_channel_of_its_own_is_an_error(key):
    with pytest.raises(SpecError) as caught:
        BoundMiddleware(SPEC, key=key)
    assert (caught.value.key, caught.value.value) == ("key", key)
    assert "structured_response" in caught.value.allowed


@pytest.mark.parametrize("key", ["bound", "budget", "_x"])
def test_any_other_identifier_is_the_output_channel(key):
    middleware = BoundMiddleware(SPEC, key=key)
    agent = create_agent(ScriptedChatModel(["done"], model_name="gpt-4o"), [], middleware=[middleware])
    assert agent.invoke({"messages": "hello"})[key]["outcome"]["status"] == "completed"


@pytest.mark.parametrize("scope", ["run", "thread"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ledger", 5),
        ("ledger", SqliteLedger),
        ("clock", 5),
        ("clock", SystemClock),
        ("prices", 5),
        ("prices", {"m": {"input": -1, "output": 1}}),
        ("sinks", 5),
        ("sinks", [5]),
        ("shadow", "x"),
    ],
)
def test_a_wrong_argument_of_the_sessions_to_come_is_an_error_now(tmp_path, scope, name, value):
    with SqliteLedger(tmp_path / "l.db") as ledger:
        with pytest.raises(SpecError) as caught:
            BoundMiddleware(SPEC, scope=scope, **{"ledger": ledger, name: value})
        assert caught.value.key.split(".")[0] == name


def test_sinks_that_can_be_read_only_once_get_the_events_of_every_run():
    seen = []
    agent = create_agent(
        ScriptedChatModel(["done"], cycle=True, model_name="gpt-4o"),
        [],
        middleware=[BoundMiddleware(SPEC, sinks=iter([seen.append]))],
    )
    for _ in range(2):
        agent.invoke({"messages": "hello"})
    assert [event.name for event in seen].count("session_opened") == 2

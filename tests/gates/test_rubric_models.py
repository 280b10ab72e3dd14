"""Chat models as evaluators: real clients against a local provider, charged like every other call."""

import asyncio
import builtins
import json
from contextvars import Context
from decimal import Decimal

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph

from bound_middleware import BoundSession, SpecError
from bound_middleware.gates.contract import AnthropicEvaluator, OpenAIEvaluator
from bound_middleware.gates.rubrics import EvaluatorFailed
from bound_middleware.gates.runners.rubric import Rubrics
from bound_middleware.langchain.rubric_model import ChatModelEvaluator, provider_evaluator, rubrics
from bound_middleware.testing import ProviderServer, Reply, ScriptedChatModel

from .rubric_help import contract_of, judged, put, reply, site_of

PRICES = {"gpt-4o": {"input": "2", "output": "10"}, "claude-sonnet-4-6": {"input": "2", "output": "10"}}
P, F = reply("pass"), reply("fail")


@pytest.fixture(scope="module")
def shared():
    with ProviderServer() as server:
        yield server


@pytest.fixture
def server(shared):
    shared.reset()
    shared.default(P)
    yield shared
    shared.wait_idle()


CLIENTS = {
    "openai chat": lambda s: ChatOpenAI(model="gpt-4o", base_url=s.openai_url, api_key="none"),
    "openai responses": lambda s: ChatOpenAI(
        model="gpt-4o", base_url=s.openai_url, api_key="none", use_responses_api=True
    ),
    "anthropic": lambda s: ChatAnthropic(model="claude-sonnet-4-6", base_url=s.url, api_key="none"),
}


@pytest.fixture(params=list(CLIENTS))
def client(request, server):
    return CLIENTS[request.param](server)


def of(server, kind="openai", **declared):
    made = {"openai": OpenAIEvaluator, "anthropic": AnthropicEvaluator}[kind]
    model = {"openai": "gpt-4o", "anthropic": "claude-sonnet-4-6"}[kind]
    url = {"openai": server.openai_url, "anthropic": server.url}[kind]
    return provider_evaluator(made(**{"id": "judge", "model": model, **declared}), "the-key", base_url=url)


def test_any_chat_model_judges(tmp_path, client, server):
    put(tmp_path, {"a.py": "text of a\n"})
    server.script([P, F, f"```json\n{P}\n```"])
    found = judged(tmp_path, ChatModelEvaluator(client), runs=3, pass_quorum=2)
    assert (found.verdict, len(server.requests)) == ("pass", 3)
    for call, request in zip(found.evaluator_calls, server.requests, strict=True):
        assert call["usage"] == {
            "model_calls": 1,
            "input_tokens": request.input_tokens,
            "output_tokens": request.output_tokens,
        }
        assert "text of a" in json.dumps(request.body)
        assert "exactly one JSON object" in json.dumps(request.body)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Reply(text=P, finish_reason="content_filter"), "the model refused"),
        (Reply(text=P, finish_reason="length"), "the answer was cut off"),
        (Reply(text="I will not", finish_reason="stop"), "no JSON"),
        (Reply(text=P + P), "no JSON"),
        (Reply(tool_calls=(("submit", {"verdict": "pass"}),)), "the model called a tool"),
        (Reply(status=400), "scripted status 400"),
    ],
)
def test_whatever_is_no_reply_is_uncertain(tmp_path, client, server, answer, reason):
    server.default(answer)
    found = judged(tmp_path, ChatModelEvaluator(client))
    assert (found.verdict, found.category) == ("uncertain", "environment")
    assert reason in found.message


@pytest.mark.parametrize("ambient", [True, False])
def test_calls_are_charged_to_the_session_like_any_model_call(tmp_path, client, server, ambient):
    session = BoundSession(prices=PRICES)
    if ambient:
        with session:
            found = judged(tmp_path, ChatModelEvaluator(client), runs=2, pass_quorum=2)
    else:
        found = judged(tmp_path, ChatModelEvaluator(client, session=session), runs=2, pass_quorum=2)
    billed = sum(2 * r.input_tokens + 10 * r.output_tokens for r in server.requests)
    assert (found.verdict, session.usage.model_calls) == ("pass", 2)
    assert session.usage.total_tokens == sum(r.input_tokens + r.output_tokens for r in server.requests)
    assert session.usage.cost_usd == Decimal(billed) / 1_000_000
    assert sum(Decimal(call["cost_usd"]) for call in found.evaluator_calls) == session.usage.cost_usd


def test_a_budget_stops_the_judgement_and_is_in_the_trace(tmp_path, client, server):
    session = BoundSession({"bounds": {"iteration_limit": 2}}, prices=PRICES)
    with session:
        found = judged(tmp_path, ChatModelEvaluator(client), runs=3, pass_quorum=3)
    assert (found.verdict, found.category, len(server.requests)) == ("uncertain", "environment", 2)
    assert [call["verdict"] for call in found.evaluator_calls] == ["pass", "pass", "uncertain"]
    assert "stopped by iteration_limit" in found.evaluator_calls[2]["error"]
    assert session.outcome.stop_reason == "iteration_limit"
    refused = [event for event in session.events if event.verdict.get("kind") == "refuse"]
    assert [event.name for event in refused] == ["model_call"]


def test_a_budget_for_money_caps_the_call_on_the_wire(tmp_path, client, server):
    server.default(Reply(tokens=500))
    session = BoundSession({"bounds": {"token_budget": {"output_per_call_max": 20}}}, prices=PRICES)
    with session:
        found = judged(tmp_path, ChatModelEvaluator(client))
    assert (found.verdict, server.requests[0].output_tokens) == ("uncertain", 20)
    assert "cut off" in found.message
    assert found.evaluator_calls[0]["usage"]["output_tokens"] == 20


def test_a_call_that_nobody_claims_is_not_hidden_from_a_session_that_bounds_money(tmp_path, client, server):
    import threading

    sessions = [BoundSession({"bounds": {"cost_budget": {"total_usd": 1}}}, prices=PRICES) for _ in range(2)]
    entered, leave = threading.Barrier(3, timeout=10), threading.Event()

    def live(session):
        with session:
            entered.wait()
            leave.wait(10)

    threads = [threading.Thread(target=live, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    entered.wait()
    try:
        found = judged(tmp_path, ChatModelEvaluator(client))
    finally:
        leave.set()
        for thread in threads:
            thread.join()
    assert (found.verdict, len(server.requests)) == ("uncertain", 0)
    assert "cost_budget" in found.message


def test_an_unknown_price_is_no_price(tmp_path):
    model = ScriptedChatModel(replies=[P], model_name="nobody-knows-it")
    found = judged(tmp_path, ChatModelEvaluator(model))
    assert (found.verdict, found.evaluator_calls[0]["cost_usd"]) == ("pass", None)


def test_a_judgement_stays_out_of_the_streams_of_the_agent(tmp_path, client, server):
    def node(state):
        found = judged(tmp_path, ChatModelEvaluator(client))
        return {"messages": [AIMessage(found.verdict)]}

    graph = StateGraph(MessagesState).add_node("gate", node).add_edge(START, "gate").compile()
    given = {"messages": [("user", "go")]}
    pieces = [part for part, _ in graph.stream(given, stream_mode="messages")]
    assert [part.content for part in pieces if part.type == "AIMessageChunk"] == []
    assert [part.content for part in pieces] == ["pass"]

    async def events():
        return [event["event"] async for event in graph.astream_events(given, version="v2")]

    seen = asyncio.run(events())
    assert not [name for name in seen if "chat_model" in name]
    assert len(server.requests) == 2


def test_runs_that_overlap_are_charged_to_the_session_around(tmp_path, client, server):
    session, other, elsewhere = BoundSession(prices=PRICES), BoundSession(), Context()
    # Two sessions are live, so that only the context says to which of them a call belongs.
    elsewhere.run(other.__enter__)
    try:
        with session:
            found = judged(tmp_path, ChatModelEvaluator(client, concurrent=True), runs=4, pass_quorum=4)
    finally:
        elsewhere.run(other.__exit__, None, None, None)
    assert (found.verdict, session.usage.model_calls, len(server.requests)) == ("pass", 4, 4)
    assert other.usage.model_calls == 0
    by_call = sum(call["usage"]["output_tokens"] for call in found.evaluator_calls)
    assert by_call == session.usage.output_tokens == sum(r.output_tokens for r in server.requests)


def test_every_run_is_a_call_of_its_own_whatever_is_cached(tmp_path, client, server):
    set_llm_cache(InMemoryCache())
    try:
        server.script([P, F, F])
        found = judged(tmp_path, ChatModelEvaluator(client), runs=3, pass_quorum=2)
    finally:
        set_llm_cache(None)
    assert (found.verdict, len(server.requests)) == ("fail", 3)


@pytest.mark.parametrize("model", ["gpt-4o", None, RunnableLambda(str)])
def test_what_is_no_chat_model_is_refused_at_once(model):
    with pytest.raises(SpecError):
        ChatModelEvaluator(model)


# -- providers by name ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_provider_by_name_is_asked_with_what_the_contract_declares(tmp_path, server, kind):
    evaluator = of(server, kind, max_output_tokens=333)
    found = judged(tmp_path, evaluator)
    (request,) = server.requests
    assert (found.verdict, request.body["model"]) == ("pass", evaluator.identity["model"])
    assert 333 in (request.body.get("max_completion_tokens"), request.body.get("max_tokens"))
    sent = {name.lower(): value for name, value in dict(request.headers).items()}
    assert "the-key" in (sent.get("x-api-key", "") or sent["authorization"])
    assert found.evaluator_calls[0]["identity"]["max_output_tokens"] == 333
    assert "the-key" not in json.dumps(found.as_dict())


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        ({"model": "gpt-5-mini"}, "minimal"),
        ({"model": "o3"}, "minimal"),
        ({"model": "gpt-4o"}, None),
        ({"model": "my-own", "reasoning_effort": "high"}, "high"),
    ],
)
def test_the_reasoning_effort_goes_to_models_that_reason(tmp_path, server, declared, sent):
    judged(tmp_path, of(server, **declared))
    assert server.requests[0].body.get("reasoning_effort") == sent


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("attempts", "failures", "verdict"), [(2, 1, "pass"), (1, 1, "uncertain"), (3, 3, "uncertain")]
)
def test_a_provider_that_fails_is_asked_again_as_often_as_declared(
    tmp_path, server, kind, attempts, failures, verdict
):
    server.fail_first(failures, status=503)
    session = BoundSession(prices=PRICES)
    with session:
        found = judged(tmp_path, of(server, kind, max_attempts=attempts))
    assert found.verdict == verdict
    assert len(server.requests) == session.usage.model_calls == min(attempts, failures + 1)
    assert found.evaluator_calls[0]["usage"]["model_calls"] == len(server.requests)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_provider_that_is_too_slow_is_uncertain(tmp_path, server, kind):
    server.default(Reply(text=P, first_byte_delay_ms=3_000))
    found = judged(tmp_path, of(server, kind, timeout_seconds=0.1, max_attempts=1))
    assert (found.verdict, found.category) == ("uncertain", "environment")
    assert "ime" in found.message


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_missing_integration_is_one_line_with_the_command_to_install_it(monkeypatch, kind):
    import sys

    name = f"langchain_{kind}"
    for loaded in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, loaded)
    real = builtins.__import__

    def blocked(wanted, *args, **kwargs):
        if wanted.split(".")[0] == name:
            raise ImportError(f"No module named {wanted!r}")
        return real(wanted, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", blocked)
    made = {"openai": OpenAIEvaluator, "anthropic": AnthropicEvaluator}[kind]
    with pytest.raises(EvaluatorFailed) as caught:
        provider_evaluator(made(id="judge", model="m"), "key")
    assert str(caught.value) == f"the evaluator 'judge' needs {kind}: pip install langchain-{kind}"


def test_a_contract_finds_its_provider_without_anybody_naming_the_framework(tmp_path, server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
    monkeypatch.setenv("OPENAI_API_BASE", server.openai_url)
    contract = contract_of(evaluator={"type": "openai", "model": "gpt-4o", "api_key_env": "SOME_KEY"})
    site = site_of(tmp_path, contract, environment={"SOME_KEY": "the-key"})
    for runner in (Rubrics(), rubrics({})):
        case = runner.prepare(contract.constraints["review"], contract.evaluators["judge"], site, ())
        assert (case.problem, case.run().verdict) == ("", "pass")
    assert len(server.requests) == 2


def test_models_are_given_for_the_evaluators_of_a_contract(tmp_path):
    contract = contract_of()
    session = BoundSession()
    given = rubrics({"judge": ScriptedChatModel(replies=[F])}, session=session)
    site = site_of(tmp_path, contract)
    case = given.prepare(contract.constraints["review"], contract.evaluators["judge"], site, ())
    assert (case.run().verdict, session.usage.model_calls) == ("fail", 1)


def test_gates_load_without_a_framework():
    import subprocess
    import sys

    code = "import sys, bound_middleware.gates.runners.rubric as r; print([m for m in sys.modules if 'lang' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

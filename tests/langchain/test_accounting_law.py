"""The law of accounting, on random programs: what a session books is what the provider counted, never less.

A program is a client, an entrance, a budget and some calls; the server answers at random: whole, with usage in odd
places or none, with errors that cost something or nothing, or it drops the connection. The server's own count
decides. Seeds are fixed, so a program that fails fails again.
"""

import asyncio
import contextlib
import gc
from dataclasses import replace
from random import Random

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.caches import InMemoryCache
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnableParallel
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph

from bound_middleware import BoundSession
from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import Reply

PROGRAMS_PER_TEST = 5
INPUT_USD, OUTPUT_USD = "2.50", "10"
ON_THE_WIRE = ("bound_model", "bound_model in with", "bound_graph")
"""Entrances at which a provider that honours its cap cannot bill more than the budget."""

CLIENTS = {
    "chat": lambda s: ChatOpenAI(model="gpt-4o", base_url=s.openai_url, api_key="none", stream_usage=True),
    "responses": lambda s: ChatOpenAI(
        model="gpt-4o", base_url=s.openai_url, api_key="none", use_responses_api=True
    ),
    "anthropic": lambda s: ChatAnthropic(model="claude-sonnet-4-6", base_url=s.url, api_key="none"),
}


async def _each(chunks):
    return [chunk async for chunk in chunks]


def _cached(model, config):
    kept = model.model_copy(update={"cache": InMemoryCache()})
    return [kept.invoke("x", config), kept.invoke("x", config), list(kept.stream("x", config))]


def _configured(model, config):
    made = model.configurable_fields(temperature=ConfigurableField("t"))
    return made.with_config(configurable={"t": 0.5}).invoke("hi", config)


def _alternative(model, config):
    made = model.configurable_alternatives(ConfigurableField("w"), default_key="a", b=model)
    return made.with_config(configurable={"w": "b"}).invoke("hi", config)


CALLS = {
    "invoke": lambda m, c: m.invoke("hi", c),
    "ainvoke": lambda m, c: asyncio.run(m.ainvoke("hi", c)),
    "stream": lambda m, c: list(m.stream("hi", c)),
    "astream": lambda m, c: asyncio.run(_each(m.astream("hi", c))),
    "events": lambda m, c: asyncio.run(_each(m.astream_events("hi", c, version="v2"))),
    "v3 events": lambda m, c: list(m.stream_events("hi", c, version="v3")),
    "transform": lambda m, c: list((RunnableLambda(lambda x: x) | m).transform(iter(["hi"]), c)),
    "batch": lambda m, c: m.batch(["a", "b"], c, return_exceptions=True),
    "abatch": lambda m, c: asyncio.run(m.abatch(["a", "b"], c, return_exceptions=True)),
    "as completed": lambda m, c: list(m.batch_as_completed(["a", "b"], c, return_exceptions=True)),
    "parallel": lambda m, c: RunnableParallel(a=m, b=m).invoke("hi", c),
    "retry": lambda m, c: m.with_retry(stop_after_attempt=2, wait_exponential_jitter=False).invoke("hi", c),
    "fallbacks": lambda m, c: m.with_fallbacks([m]).invoke("hi", c),
    "afallbacks": lambda m, c: asyncio.run(m.with_fallbacks([m]).ainvoke("hi", c)),
    "cached": _cached,
    "configured": _configured,
    "alternative": _alternative,
    "no streaming": lambda m, c: m.model_copy(update={"disable_streaming": True}).invoke("hi", c),
}


def _graph(model, session, call):
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda state: call(model) and {})
    builder.add_edge(START, "ask")
    return bound_graph(builder.compile(), session=session).invoke({"messages": "go"})


def random_reply(dice):
    tokens = dice.randint(0, 30) if dice.random() < 0.9 else 150
    kind = dice.random()
    if kind < 0.55:
        reasoning, chunk = dice.choice((0, 0, 5)), dice.choice((1, 1, 3))
        return Reply(tokens=tokens, reasoning_tokens=reasoning, chunk_tokens=chunk)
    if kind < 0.65:
        return Reply(tokens=tokens, usage="none", chunk_tokens=dice.choice((1, 3)))
    if kind < 0.75:
        return Reply(tool_calls=(("look", {"query": "a" * dice.randint(0, 9)}),))
    if kind < 0.93:
        status, paid = dice.choice((400, 429, 500, 503, 529)), dice.random() < 0.3
        return Reply(status=status, retry_after_ms=1, error_usage=paid, tokens=dice.randint(0, 9))
    return Reply(tokens=20, drop_after_tokens=dice.randint(0, 15))


def run_program(seed, server, seams, prices):
    dice, replies = Random(seed), []
    server.reset()
    entrance = dice.choice([*ON_THE_WIRE, "ambient bound_model", "ambient", "callback", "ambient callback"])
    client, usd = dice.choice(list(CLIENTS)), dice.choice(("1", "1", "0.0005", "0.0012"))

    def respond(request):
        reply = random_reply(dice)
        if usd == "1" and reply.usage == "normal" and reply.drop_after_tokens is None and dice.random() < 0.3:
            # A prompt that is longer than it looks: only a report can tell.
            reply = replace(reply, input_tokens=40, cached_tokens=0 if reply.is_error else 30)
        replies.append(reply)
        return reply

    server.respond(respond)
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": usd}}}, prices=prices)
    enter, done = {**seams, "bound_graph": _graph}[entrance], []
    for name in dice.choices(list(CALLS), k=dice.randint(1, 3)):
        done.append(name)
        # Errors of the provider and stops of the budget reach the caller; here it counts what they cost.
        with contextlib.suppress(Exception):
            enter(CLIENTS[client](server), session, lambda m, c=None, name=name: CALLS[name](m, c))
    gc.collect()
    server.wait_idle()
    return session, replies, f"seed {seed}: {client}, {entrance}, ${usd}, {', '.join(done)}", entrance


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
@pytest.mark.filterwarnings("ignore:Received unexpected tool content block")
@pytest.mark.parametrize("number", range(6))
def test_a_session_books_what_the_provider_counted_and_never_less(number, server, seams, prices):
    exact = 0
    for seed in range(number * PROGRAMS_PER_TEST, (number + 1) * PROGRAMS_PER_TEST):
        session, replies, program, entrance = run_program(seed, server, seams, prices)
        used, records = session.usage, server.requests
        billed = server.cost_nanousd(INPUT_USD, OUTPUT_USD)
        assert used.model_calls == len(records) == len(replies), program
        assert not session.ledger.holds(session.session_id), program
        if entrance in ON_THE_WIRE:
            assert billed <= session.spec.limits().nanousd, program
        settled = [event.detail["how"] for event in session.events if event.name == "model_call_settled"]
        if {"cut", "aborted"} & {*settled} or any(record.dropped for record in records):
            # What was generated and never arrived, nobody on this side of the connection can know.
            assert used.estimated, program
            assert used.cost_nanousd >= sum(r.input_tokens for r in records) * 2_500, program
        elif any(reply.usage == "none" for reply in replies):
            assert used.estimated, program
            assert used.cost_nanousd >= billed, program
        else:
            exact += 1
            assert (used.input_tokens, used.output_tokens) == (server.input_tokens, server.output_tokens), program
            assert (used.cost_nanousd, used.estimated) == (billed, False), program
    assert exact >= 1

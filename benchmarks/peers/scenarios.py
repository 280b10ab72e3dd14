"""The columns of the table: what is called, what the server answers, and what the caller does about errors."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware
from langchain_core.caches import InMemoryCache
from langchain_core.tools import tool

from bound_middleware.testing import Reply

from . import lives
from .entrances import NONE, Guard, client, ending
from .terms import (
    AMPLE_NANOUSD,
    BUDGET_NANOUSD,
    BUDGET_TOKENS,
    INPUT_NANOUSD,
    OUTPUT_NANOUSD,
    TOKEN_DELAY_MS,
    Cell,
    Column,
    Entrance,
    Terms,
    Trial,
)

TEXT = "Count."
ROUNDS = 15
PARALLEL = 20
TIMES = 5
FAILED_TOKENS, STREAM_TOKENS, LEFT_AFTER_TOKENS = 500, 100, 60


def reply(share: float, *, look: int | None = None, name: str = "look", **more: Any) -> Reply:
    """An answer that costs this share of the budget in output; with ``look``, one that calls the tool."""
    calls = () if look is None else ((name, {"query": str(look)}),)
    spoken = round(share * BUDGET_TOKENS) - 7 * len(calls)
    return Reply(tokens=spoken, tool_calls=calls, token_delay_ms=TOKEN_DELAY_MS, **more)


@tool
def look(query: str) -> str:
    """Look something up."""
    return "nothing"


class Bench:
    """A cell at work: the server, the guard, the models that are called, and what the caller gets."""

    def __init__(self, server: Any, entrance: Entrance, guard: Guard, pool: Callable[[], Any]) -> None:
        self.server, self.entrance, self.guard, self.pool = server, entrance, guard, pool
        self.trial = Trial()

    def client(self, **options: Any) -> Any:
        """A real client of the local server, guarded where the guard does that."""
        return self.guard.model(client(self.server.openai_url, **options))

    def agent(self, tools: tuple[Any, ...] = (look,), *first: Any, inner: bool = False, **options: Any) -> Any:
        middleware = [*first, *self.guard.middleware(inner=inner)]
        return create_agent(self.client(**options), list(tools), middleware=middleware)

    def caller(self, **options: Any) -> Any:
        """The model itself, or an agent without tools where the guard needs one."""
        return self.agent((), **options) if self.entrance.agents_only else self.client(**options)

    @property
    def given(self) -> Any:
        return {"messages": TEXT} if self.entrance.agents_only else TEXT

    @property
    def config(self) -> dict[str, Any]:
        return {**self.guard.config(), "recursion_limit": 200}

    def attempt(self, act: Callable[[], Any]) -> bool:
        """Whether it went well; an exception is what the caller got."""
        try:
            self.trial.outputs.append(act())
        except Exception as error:  # noqa: BLE001 - every guard has exceptions of its own
            self.trial.errors.append(error)
            return False
        return True

    def repeat(self, times: int, act: Callable[[], Any]) -> None:
        """Until it fails."""
        for _ in range(times):
            if not self.attempt(act):
                return


def streamed(runnable: Any, given: Any, config: Any, *, agent: bool) -> Any:
    """Reads a stream to its end; the final state of an agent."""
    if not agent:
        return list(runnable.stream(given, config))[-1]
    last = None
    for mode, part in runnable.stream(given, config, stream_mode=["messages", "values"]):
        last = part if mode == "values" else last
    return last


def pieces(runnable: Any, given: Any, config: Any, *, agent: bool) -> Iterator[str]:
    """The texts of a stream as they arrive."""
    if agent:
        for message, _ in runnable.stream(given, config, stream_mode="messages"):
            yield message.text
    else:
        for chunk in runnable.stream(given, config):
            yield chunk.text


def single_invoke(bench: Bench) -> None:
    bench.server.default(reply(10))
    bench.attempt(lambda: bench.client().invoke(TEXT, bench.config))


def single_stream(bench: Bench) -> None:
    bench.server.default(reply(10))
    bench.attempt(lambda: streamed(bench.client(), TEXT, bench.config, agent=False))


def agent_invoke(bench: Bench) -> None:
    bench.server.default(reply(10))
    bench.attempt(lambda: bench.agent().invoke({"messages": TEXT}, bench.config))


def agent_stream(bench: Bench) -> None:
    bench.server.default(reply(10))
    bench.attempt(lambda: streamed(bench.agent(), {"messages": TEXT}, bench.config, agent=True))


def cap_ignored(bench: Bench) -> None:
    bench.server.default(reply(10, ignores_max_tokens=True))
    agent = bench.entrance.agents_only
    bench.attempt(lambda: streamed(bench.caller(), bench.given, bench.config, agent=agent))


def loop(bench: Bench) -> None:
    bench.server.script([*(reply(0.2, look=n) for n in range(ROUNDS - 1)), reply(0.2)])
    bench.attempt(lambda: bench.agent().invoke({"messages": TEXT}, bench.config))


def parallel(bench: Bench, run: Callable[[Any, list[Any], dict[str, Any]], list[Any]]) -> None:
    bench.server.default(reply(0.2 - 0.015))
    found = run(bench.caller(), [bench.given] * PARALLEL, {**bench.config, "max_concurrency": PARALLEL})
    bench.trial.errors.extend(item for item in found if isinstance(item, BaseException))
    bench.trial.outputs.extend(item for item in found if not isinstance(item, BaseException))


def parallel_sync(bench: Bench) -> None:
    parallel(bench, lambda caller, given, config: caller.batch(given, config, return_exceptions=True))


def parallel_async(bench: Bench) -> None:
    parallel(
        bench,
        lambda caller, given, config: asyncio.run(caller.abatch(given, config, return_exceptions=True)),
    )


def with_retry(bench: Bench) -> None:
    bench.server.default(reply(2))
    retrying = bench.caller().with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    bench.attempt(lambda: retrying.invoke(bench.given, bench.config))


def model_retry(bench: Bench) -> None:
    bench.server.script([*(reply(2, look=n) for n in range(3)), reply(2)])
    bench.server.default(reply(2))
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    bench.attempt(lambda: bench.agent((look,), retry).invoke({"messages": TEXT}, bench.config))


def swallowed(bench: Bench) -> None:
    bench.server.default(reply(0.6))
    caller = bench.caller()
    for _ in range(TIMES):
        bench.attempt(lambda: caller.invoke(bench.given, bench.config))
    bench.trial.errors.clear()


def unknown_model(bench: Bench) -> None:
    bench.server.default(reply(0.6))
    caller = bench.caller(model="house-model-of-2031")
    bench.repeat(TIMES, lambda: caller.invoke(bench.given, bench.config))


def no_usage(bench: Bench) -> None:
    bench.server.default(reply(0.6, usage="none"))
    caller, agent = bench.caller(), bench.entrance.agents_only
    bench.repeat(TIMES, lambda: streamed(caller, bench.given, bench.config, agent=agent))


def sub_agent(bench: Bench, within: Callable[[Callable[[], Any]], Any] = lambda act: act()) -> None:
    inner = bench.agent(inner=True)

    @tool
    def ask(question: str) -> str:
        """Ask a colleague."""
        return str(within(lambda: inner.invoke({"messages": question}))["messages"][-1].text)

    call = Reply(tool_calls=(("ask", {"question": TEXT}),))
    bench.server.script([call, *(reply(0.2, look=n) for n in range(ROUNDS - 1)), reply(0.2), reply(0.2)])
    bench.attempt(lambda: bench.agent((ask,)).invoke({"messages": TEXT}, bench.config))


def in_a_thread(act: Callable[[], Any]) -> Any:
    """Runs it in a thread that knows nothing of the caller's context."""
    found: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(act())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


def sub_agent_thread(bench: Bench) -> None:
    sub_agent(bench, in_a_thread)


def failed(bench: Bench) -> None:
    """The caller tries again."""
    lost = Reply(status=500, error_usage=True, tokens=FAILED_TOKENS, retry_after_ms=1)
    bench.server.script([lost, lost, Reply(tokens=FAILED_TOKENS)])
    retrying = bench.caller(max_retries=0).with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    bench.attempt(lambda: retrying.invoke(bench.given, bench.config))


def client_retries(bench: Bench) -> None:
    """The client library tries again on its own, as it does where nobody says otherwise."""
    lost = Reply(status=500, error_usage=True, tokens=FAILED_TOKENS, retry_after_ms=1)
    bench.server.script([lost, lost, Reply(tokens=FAILED_TOKENS)])
    bench.attempt(lambda: bench.caller().invoke(bench.given, bench.config))


def abandoned(bench: Bench) -> None:
    bench.server.default(Reply(tokens=STREAM_TOKENS, token_delay_ms=TOKEN_DELAY_MS))
    caller, agent = bench.caller(), bench.entrance.agents_only

    def leave() -> None:
        seen = 0
        for text in pieces(caller, bench.given, bench.config, agent=agent):
            seen += bool(text)
            if seen == LEFT_AFTER_TOKENS:
                break

    bench.repeat(TIMES, leave)


def cache_hit(bench: Bench) -> None:
    bench.server.default(Reply(tokens=STREAM_TOKENS))
    caller = bench.caller(cache=InMemoryCache())
    bench.repeat(2, lambda: caller.invoke(bench.given, bench.config))


def restart(bench: Bench) -> None:
    """One life in this process, the others in one that knows the store and the checkpoints only."""
    bench.server.script(reply(0.2, look=n, name="ask_person") for n in range(lives.STEPS * lives.LIVES))
    given = (bench.entrance.name, bench.guard.terms, bench.server.openai_url)
    here = lives.live(*given, lives.Saved(), lives.LIVES_HERE)
    there = bench.pool().submit(lives.live, *given, here, lives.LIVES_THERE).result()
    bench.trial.told, bench.trial.figure = there.told, there.figure


COLUMNS: tuple[Column, ...] = (
    Column(name="single-invoke", head="single call, invoke", run=single_invoke, model=True),
    Column(name="single-stream", head="single call, stream", run=single_stream, model=True),
    Column(name="agent-invoke", head="agent, invoke", run=agent_invoke, one_run=True),
    Column(name="agent-stream", head="agent, stream", run=agent_stream, one_run=True),
    Column(name="cap-ignored", head="server ignores the cap", run=cap_ignored, chunks_over=1),
    Column(name="loop", head="loop", run=loop, one_run=True),
    Column(name="parallel-sync", head="20 parallel, sync", run=parallel_sync),
    Column(name="parallel-async", head="20 parallel, async", run=parallel_async),
    Column(name="with-retry", head="with_retry(3)", run=with_retry),
    Column(name="model-retry", head="ModelRetryMiddleware", run=model_retry, one_run=True),
    Column(name="swallowed", head="swallowed 5x", run=swallowed),
    Column(name="restart", head="restart and resume", run=restart, one_run=True, keeps=True),
    Column(name="unknown-model", head="unknown model", run=unknown_model, refused=True),
    Column(name="no-usage", head="no usage in streams", run=no_usage),
    Column(name="sub-agent", head="sub-agent", run=sub_agent, one_run=True),
    Column(name="sub-agent-thread", head="sub-agent in a thread", run=sub_agent_thread, one_run=True),
    Column(name="failed", head="says: failed attempts", run=failed, asks_figure=True),
    Column(name="client-retries", head="says: client's retries", run=client_retries, asks_figure=True),
    Column(name="abandoned", head="says: left streams", run=abandoned, asks_figure=True, tolerance=0.05),
    Column(name="cache-hit", head="says: cache hit", run=cache_hit, asks_figure=True),
)


class Runner:
    """Runs cells, one after the other, against one server.

    A full collection of all that is imported stops this process for 200 ms, in which a server generates 70 tokens
    that nobody reads. So what is there already is never collected, and each cell begins with a collection.
    """

    def __init__(self, server: Any) -> None:
        self.server = server
        gc.collect()
        gc.freeze()
        self._pool: ProcessPoolExecutor | None = None

    def pool(self) -> ProcessPoolExecutor:
        """One process for the second lives of all cells; it was not there in their first."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def cell(self, column: Column, entrance: Entrance) -> Cell | None:
        """The cell of a column and a row; ``None`` where the guard has no such place."""
        if column.model and entrance.agents_only:
            return None
        gc.collect()
        began = time.perf_counter()
        self.server.reset()
        budget = AMPLE_NANOUSD if column.asks_figure else BUDGET_NANOUSD
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder, "store.sqlite") if column.keeps else None
            terms = Terms(nanousd=budget, one_run=column.one_run, store=store)
            guard = (NONE if column.keeps else entrance).open(terms)
            bench = Bench(self.server, entrance, guard, self.pool)
            with guard:
                column.run(bench)
            self.server.wait_idle()
            records = self.server.requests
            figure = bench.trial.figure or guard.figure(bench.trial)
        tokens_in, tokens_out = sum(r.input_tokens for r in records), sum(r.output_tokens for r in records)
        return Cell(
            column=column.name,
            entrance=entrance.name,
            spent_nanousd=tokens_in * INPUT_NANOUSD + tokens_out * OUTPUT_NANOUSD,
            budget_nanousd=budget,
            asks_figure=column.asks_figure,
            ending=bench.trial.told or ending(bench.trial, guard),
            figure=figure,
            calls=sum(r.billed for r in records),
            output_tokens=tokens_out,
            seconds=time.perf_counter() - began,
        )

"""One recorded run through a bounded agent, and where a budget must stop it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.tools import BaseTool

from bound_middleware import BoundSession
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.metering.prices import PriceBook
from bound_middleware.testing import ScriptedChatModel

from .records import Run, Tokens, Turn

#: The prices of a day: the last of the recorded runs is from January 2026.
BOOK = PriceBook(today=date(2026, 1, 31))
#: The longest answer that any of the recorded models gives (GPT-5), so that nothing but the budget cuts one.
LONGEST_ANSWER_TOKENS = 128_000


class RecordedTool(BaseTool):
    """A tool that gives the recorded results for the same arguments, in their order."""

    description: str = "Answers as it did when the run was recorded."
    args_schema: Any = {"type": "object", "properties": {}}  # noqa: RUF012 - a field of a pydantic model
    results: dict[str, list[str]]

    def _run(self, **arguments: Any) -> str:
        return self.results[_key(arguments)].pop(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of a run.

    ``calls`` is what the session settled for each call, ``estimates`` what it expected of each prompt before the
    call, also before one that it refused. ``provider_tokens`` (input, output) and ``provider_calls`` are from the
    scripted provider's own books.
    """

    status: str
    stop_reason: str | None
    truncated: bool
    overshoot: Mapping[str, int]
    calls: tuple[Mapping[str, int], ...]
    estimates: tuple[int, ...]
    cost_nanousd: int
    estimated_calls: int
    tool_calls: int
    provider_calls: int
    provider_tokens: tuple[int, int]
    problems: tuple[str, ...]

    @property
    def tokens(self) -> tuple[int, int]:
        """Input and output that the session settled."""
        return self._sum("input_tokens"), self._sum("output_tokens")

    def _sum(self, meter: str) -> int:
        return sum(call.get(meter, 0) for call in self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The call, from 1, at which a budget ends a run, and whether it is ``refused`` or ``cut``."""

    call: int
    how: str


def replay(run: Run, budget_nanousd: int, *, reasoning: bool = True) -> Replay:
    """The run through an agent that ``BoundMiddleware`` bounds by a budget.

    Args:
        run: with texts.
        budget_nanousd: of the whole run.
        reasoning: whether the usage says how much of the output was reasoning. The record cannot tell that of an
            answer that is cut.
    """
    model = ScriptedChatModel(
        [_message(turn, number, reasoning=reasoning) for number, turn in enumerate(run.turns)], model_name=run.model
    )
    bounds = {
        "cost_budget": {"total_usd": Decimal(budget_nanousd).scaleb(-9)},
        "token_budget": {"output_per_call_max": LONGEST_ANSWER_TOKENS},
    }
    session = BoundSession({"bounds": bounds}, prices=BOOK)
    agent = create_agent(model, _tools(run), middleware=[BoundMiddleware(session=session)])
    opening: Any = {"messages": list(run.opening)}
    result = agent.invoke(opening, {"recursion_limit": 10 * len(run.turns) + 100})
    session.close()
    outcome, usage = result["bound"]["outcome"], session.usage
    return Replay(
        status=outcome["status"],
        stop_reason=outcome["stop_reason"],
        truncated=outcome["truncated"],
        overshoot=outcome["overshoot"],
        calls=tuple(event.detail["used"] for event in session.events if event.name == "model_call_settled"),
        estimates=tuple(event.request["input_tokens"] for event in session.events if event.name == "model_call"),
        cost_nanousd=usage.cost_nanousd,
        estimated_calls=usage.estimated_calls,
        tool_calls=usage.tool_calls,
        provider_calls=model.call_count,
        provider_tokens=(model.input_tokens, model.output_tokens),
        problems=tuple(model.problems),
    )


def stop_by_rule(run: Run, budget_nanousd: int, prompts: Iterable[int]) -> Stop | None:
    """Where the budget ends the run when the prompts are expected to be so long; ``None``: it does not.

    A call is the last when its prompt, none of it cached, and its reply cost more than what is left.
    """
    left, prices = budget_nanousd, run.prices
    for number, (call, prompt) in enumerate(zip(run.calls, prompts, strict=False), start=1):
        room = left - prompt * prices.fresh
        if room < call.output * prices.output:
            return Stop(call=number, how="refused" if room < prices.output else "cut")
        left -= call.cost(prices)
    return None


def stop_seen(run: Replay) -> Stop | None:
    """Where the budget did end it; ``None``: it did not."""
    if run.stop_reason != "cost_budget":
        return None
    if run.truncated:
        return Stop(call=run.provider_calls, how="cut")
    return Stop(call=run.provider_calls + 1, how="refused")


def _message(turn: Turn, number: int, *, reasoning: bool) -> AIMessage:
    calls = [
        {"name": use.name, "args": dict(use.arguments), "id": f"call-{number}-{place}", "type": "tool_call"}
        for place, use in enumerate(turn.tools)
    ]
    usage = None if turn.tokens is None else _usage(turn.tokens, reasoning=reasoning)
    return AIMessage(turn.text, tool_calls=calls, usage_metadata=usage)


def _usage(tokens: Tokens, *, reasoning: bool) -> UsageMetadata:
    usage = UsageMetadata(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        total_tokens=tokens.input + tokens.output,
        input_token_details={"cache_read": tokens.cached},
    )
    if reasoning:
        usage["output_token_details"] = {"reasoning": tokens.reasoning}
    return usage


def _tools(run: Run) -> list[RecordedTool]:
    results: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for turn in run.turns:
        for use in turn.tools:
            results[use.name][_key(use.arguments)].append(use.result)
    return [RecordedTool(name=name, results=dict(given)) for name, given in results.items()]


def _key(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True)

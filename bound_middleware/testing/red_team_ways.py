"""How an agent is run while it is attacked, and how its questions are answered."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, get_args

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool

from ..session import BoundSession
from .red_team_attacks import Attack
from .red_team_world import World
from .scripted_model import ScriptedChatModel

Way = Literal["invoke", "stream", "ainvoke", "sub_agent"]
WAYS: tuple[Way, ...] = get_args(Way)
_CONFIG: dict[str, Any] = {"configurable": {"thread_id": "attacked"}, "recursion_limit": 10_000}
_INPUT = {"messages": [("user", "go")]}


def played(
    build: Callable[..., Any], model: BaseChatModel, world: World, session: BoundSession, attack: Attack, way: Way
) -> str:
    """Runs the attack, answers while there are answers, and comes back once more after the end.

    Returns:
        the exception that ended it, in words; empty when there was none.
    """
    run = _runs[way]
    ended = ""
    try:
        agent = _agent(build, model, world, session, way)
        asked = run(agent, _INPUT)
        for answer in attack.answers:
            if not asked:
                break
            if attack.tamper:
                _tampered(agent, attack.tamper)
            asked = run(agent, _resume(answer))
        if attack.axis in ("cost", "iterations"):
            run(agent, _INPUT)
    except Exception as error:  # noqa: BLE001 what is raised is the agent's answer, whatever it is
        ended = f"{type(error).__name__}: {error}"
    return ended


def _agent(build: Callable[..., Any], model: BaseChatModel, world: World, session: BoundSession, way: Way) -> Any:
    tools = world.tools()
    if way != "sub_agent":
        return build(model, tools, session)
    return build(ScriptedChatModel([_delegating, "Done."], strict=False), _delegated(model, tools), session)


def _delegated(model: BaseChatModel, tools: list[BaseTool]) -> list[BaseTool]:
    """The tools, one of which is now the hostile agent with the tools that there were."""
    from langchain.agents import create_agent

    agent: Any = create_agent(model, tools)

    def run_tests() -> str:
        """Give the work to somebody else, whom nothing of its own bounds."""
        return str(agent.invoke(_INPUT, {"recursion_limit": 10_000})["messages"][-1].text)

    return [StructuredTool.from_function(run_tests), *(tool for tool in tools if tool.name != "run_tests")]


def _delegating(messages: Any, kwargs: Any) -> Any:
    return ScriptedChatModel.reply(tool_calls=[("run_tests", {})], output_tokens=3)


def _resume(answer: dict[str, Any]) -> Any:
    from langgraph.types import Command

    return Command(resume=answer)


def _tampered(agent: Any, call: tuple[str, dict[str, Any]]) -> None:
    last = next(m for m in reversed(agent.get_state(_CONFIG).values["messages"]) if isinstance(m, AIMessage))
    name, args = call
    calls = [{**old, "name": name, "args": args} for old in last.tool_calls]
    agent.update_state(_CONFIG, {"messages": [last.model_copy(update={"tool_calls": calls})]})


def _invoke(agent: Any, given: Any) -> bool:
    return "__interrupt__" in agent.invoke(given, _CONFIG)


def _ainvoke(agent: Any, given: Any) -> bool:
    return "__interrupt__" in asyncio.run(agent.ainvoke(given, _CONFIG))


def _stream(agent: Any, given: Any) -> bool:
    return any("__interrupt__" in part for part in agent.stream(given, _CONFIG, stream_mode="updates"))


_runs: dict[Way, Callable[[Any, Any], bool]] = {
    "invoke": _invoke,
    "stream": _stream,
    "ainvoke": _ainvoke,
    "sub_agent": _invoke,
}

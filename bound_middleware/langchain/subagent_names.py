"""What a sub-agent is called, and which account it has: the same whenever its task runs again."""

from __future__ import annotations

import json
import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config

from ..session import scope
from ..session.session import BoundSession

#: Tasks whose sub-agents are numbered.
TASKS_KEPT = 4_096
_TASK, _SCRATCHPAD = "__pregel_task_id", "__pregel_scratchpad"
_NAMELESS = ("", "LangGraph")
_NAMESPACE = uuid.UUID("0c2a8a5e-6a0b-5f0e-8f3a-3f2c1d7b9e64")

_lock = threading.Lock()
#: By task attempt: its scratchpad, kept so that its id stays its own, and the numbers that are taken.
_tasks: OrderedDict[int, tuple[Any, dict[str, set[int]]]] = OrderedDict()


class Visit:
    """One start of a sub-agent: its name, and an id that is the same when its task runs again."""

    __slots__ = ("_key", "_number", "_task", "agent", "id")

    def __init__(self, agent: str, task: Any, key: str) -> None:
        self.agent, self._task, self._key = agent, task, key
        with _lock:
            taken = _numbers(task).setdefault(key, set())
            self._number = next(n for n in range(len(taken) + 1) if n not in taken)
            taken.add(self._number)
        self.id = uuid.uuid5(_NAMESPACE, f"{key}\n{self._number}").hex[:16]

    def failed(self) -> None:
        """It failed: another attempt in the same task goes on with its account."""
        with _lock:
            _numbers(self._task).get(self._key, set()).discard(self._number)


def is_inside(config: Any) -> bool:
    """Whether a graph that is run here runs inside the task of another one."""
    return bool(_around(config))


def visit_of(graph: Any, config: Any, parents: tuple[BoundSession, ...]) -> Visit:
    """The start of a graph inside of another one's task."""
    around = _around(config)
    configurable = around.get("configurable") or {}
    node = str((around.get("metadata") or {}).get("langgraph_node") or "")
    call = scope.judged_tool_call.get()
    tool = _tool_of(call) if node == "tools" else ""
    own = graph.get_name()
    given = _given_name(getattr(graph, "config", None)) or _given_name(config)
    if given == _given_name(around):
        # Inherited: that is the agent around it.
        given = ""
    names = [name for name in (given, own, tool, node) if name.strip() not in _NAMELESS] or ["graph"]
    declared = {name for parent in parents for above in parent.lineage for name in above.spec.agents}
    agent = next((name for name in names if name in declared), names[0])
    id = "" if call is None or node != "tools" else _call_id(call, configurable)
    key = "\n".join((str(configurable.get("thread_id")), str(configurable.get("checkpoint_ns")), id, agent))
    return Visit(agent, configurable.get(_SCRATCHPAD), key)


def _given_name(config: Any) -> str:
    """The name that LangChain's agents, and whoever configures a graph as one, leave in the metadata."""
    return str(((config or {}).get("metadata") or {}).get("lc_agent_name") or "")


def _around(config: Any) -> Mapping[str, Any]:
    """The config of the task around; of the context before that which is given, which may name another thread."""
    for one in (var_child_runnable_config.get(), config):
        if one is not None and _TASK in (one.get("configurable") or {}):
            return one
    return {}


def _call_id(call: scope.Judged, configurable: Mapping[str, Any]) -> str:
    """The id of a tool call, which a model gave it; run ids are others in each attempt."""
    return call.id if isinstance(call.id, str) else ""


def _tool_of(call: scope.Judged | None) -> str:
    if call is None or not call.what:
        return ""
    try:
        return str(json.loads(call.what)[0])
    except (ValueError, LookupError, TypeError):
        return ""


def _numbers(task: Any) -> dict[str, set[int]]:
    kept = _tasks.setdefault(id(task), (task, {}))
    _tasks.move_to_end(id(task))
    while len(_tasks) > TASKS_KEPT:
        _tasks.popitem(last=False)
    return kept[1]

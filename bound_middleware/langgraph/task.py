"""What a running node can learn from its config. LangGraph documents none of it; the canaries watch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.config import get_config
from langgraph.graph._branch import BranchSpec
from langgraph.pregel._write import ChannelWriteEntry

_READ, _CALL, _TASK, _SEND = "__pregel_read", "__pregel_call", "__pregel_task_id", "__pregel_send"
_CLOSED = "__bound_closed"
#: Our channels that no user sees, of decisions and of bounds.
_PRIVATE = frozenset(
    (
        "bound_decision_run",
        "bound_held",
        "bound_savepoints",
        "bound_run_id",
        "bound_turn",
        "bound_gate_task",
        "bound_graph_run",
        "bound_graph_steps",
        "bound_graph_since",
    )
)
_EDGES = ("branch:", "join:", "__")


def _conf(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = config.get("configurable") or {}
    return found


def _metadata(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = config.get("metadata") or {}
    return found


def configurable() -> Mapping[str, Any]:
    """The ``configurable`` part of the config of this context."""
    return _conf(get_config())


def step(config: Mapping[str, Any]) -> str:
    """The step that this task belongs to, by the checkpoint from which it starts: a fork makes another one."""
    around = namespace(config).rpartition("|")[0]
    return f"{(_conf(config).get('checkpoint_map') or {}).get(around)}:{_metadata(config)['langgraph_step']}"


def write(config: Mapping[str, Any], entries: list[tuple[str, Any]]) -> None:
    """Write to channels beside what the node returns."""
    _conf(config)[_SEND](entries)


def close_edges(config: Mapping[str, Any], instead: tuple[str, Any] | None) -> None:
    """Let nothing follow this task: it still writes to the state, and one entry stands for all of its edges.

    What it does then is not to be remembered by a cache.
    """
    configurable: Any = _conf(config)
    send = configurable[_SEND]
    known = set(channels(config))

    def to_state(entries: Iterable[tuple[str, Any]]) -> None:
        send([(name, value) for name, value in entries if name in known and not name.startswith(_EDGES)])

    configurable[_SEND], configurable[_CLOSED] = to_state, True
    running = _running(config)
    if running is not None:
        object.__setattr__(running, "cache_key", None)
    if instead is not None:
        send([instead])


def is_cached(config: Mapping[str, Any]) -> bool:
    """Whether a cache keeps what this task writes."""
    return getattr(_running(config), "cache_key", None) is not None


def is_closed(config: Mapping[str, Any]) -> bool:
    """Whether nothing is to follow this task."""
    return _CLOSED in _conf(config)


def is_running(config: Mapping[str, Any]) -> bool:
    """Whether this is a task of a run, and not somebody's ``update_state``."""
    return "__pregel_scratchpad" in _conf(config)


def thread(config: Mapping[str, Any]) -> str:
    """The thread, empty when there is none."""
    return str(_conf(config).get("thread_id") or "")


def task_id(config: Mapping[str, Any]) -> str:
    """The id of this task: the same when it is dispatched again, another one in a fork."""
    return str(_conf(config)[_TASK])


def node(config: Mapping[str, Any]) -> str:
    """The name of the node that runs."""
    return str(_metadata(config)["langgraph_node"])


def namespace(config: Mapping[str, Any]) -> str:
    """Where this task is: ``node:task``, in a sub-graph after those around it and ``|``."""
    return str(_conf(config).get("checkpoint_ns") or "")


def names_of_graph(config: Mapping[str, Any]) -> frozenset[str]:
    """What a ``ParentCommand`` may call the graph that this task belongs to."""
    here = namespace(config)
    without_ids = "|".join(part.partition(":")[0] for part in here.split("|"))
    return frozenset((here, without_ids, node(config)))


def sent_as(config: Mapping[str, Any]) -> str:
    """Which of the tasks that were sent in a step this is: the same in each dispatch; empty for others."""
    return repr(_metadata(config)["langgraph_path"]) if was_sent(config) else ""


def was_sent(config: Mapping[str, Any]) -> bool:
    """Whether this task was started by a ``Send``, with an input of its own."""
    path: tuple[Any, ...] = _metadata(config).get("langgraph_path") or ()
    return bool(path) and path[0] == "__pregel_push"


def are_sent(channels: Mapping[str, Any]) -> bool:
    """Whether tasks that were sent in the last step wait for their turn."""
    sent = channels.get("__pregel_tasks")
    return sent is not None and sent.is_available()


def channels(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """All channels of the graph, by name, as they stand in this step. Not to be changed."""
    found: Mapping[str, Any] = _conf(config)[_READ].args[1]
    return found


def read(config: Mapping[str, Any], names: Iterable[str], *, fresh: bool = False) -> dict[str, Any]:
    """The values of channels that have one; ``fresh`` with what this task has written."""
    known = channels(config)
    found: dict[str, Any] = _conf(config)[_READ]([name for name in names if name in known], fresh)
    return found


def state(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all channels that a user knows."""
    hidden = ("__", "branch:", "join:")
    return read(config, [name for name in channels(config) if not name.startswith(hidden) and name not in _PRIVATE])


def has_node(config: Mapping[str, Any], name: str) -> bool:
    """Whether the graph has such a node."""
    return f"branch:to:{name}" in channels(config)


def nodes(config: Mapping[str, Any]) -> list[str]:
    """The names of the graph's nodes."""
    return [name.removeprefix("branch:to:") for name in channels(config) if name.startswith("branch:to:")]


def has_branches(config: Mapping[str, Any]) -> bool:
    """Whether conditional edges leave this node."""
    return any(
        isinstance(getattr(getattr(writer, "func", None), "__self__", None), BranchSpec)
        for writer in _writers(config)
    )


def static_edges(config: Mapping[str, Any]) -> list[str]:
    """Where edges lead that are taken whatever this node says."""
    entries = (entry for writer in _writers(config) for entry in getattr(writer, "writes", ()))
    channels = (entry.channel for entry in entries if isinstance(entry, ChannelWriteEntry))
    return [name.rpartition(":")[2] for name in channels if name.startswith(("branch:to:", "join:"))]


def _writers(config: Mapping[str, Any]) -> Any:
    return getattr(_running(config), "writers", ())


def _running(config: Mapping[str, Any]) -> Any:
    """The task itself; ``None`` where LangGraph hides it, in a node with a time limit."""
    call = _conf(config)[_CALL]
    return call.args[0]() if hasattr(call, "args") else None


@contextmanager
def current(config: RunnableConfig) -> Iterator[None]:
    """Make a config the one that ``get_config`` finds; LangGraph does so for nodes, and not for edges."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)

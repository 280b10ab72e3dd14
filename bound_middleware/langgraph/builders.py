"""Copies of graphs that may be edited, with our channels in them. The original is never touched.

What is edited (``nodes``, ``edges``, ``branches``, ``waiting_edges``, ``schemas``) is not documented by LangGraph;
the canaries watch it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, get_type_hints

from langgraph.channels import BinaryOperatorAggregate, LastValue
from langgraph.channels.base import BaseChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel, create_model
from typing_extensions import TypedDict

from ..core.errors import SpecError
from ..langchain.channel import merge
from .decided_channel import DecidedChannel
from .fence import fence_edges

#: What a compiled graph knows beyond the arguments of ``compile``, and keeps.
_KEPT = ("config", "step_timeout", "stream_mode", "stream_eager", "retry_policy", "cache_policy")
_DEFAULT_HANDLER = "__default_error_handler__"
_PASSING = ("branch:", "join:", "__")


#: What the builder of a graph with decisions knows: channels that nobody sees, nodes that we added, our output
#: channels; and the node that stands for each decided one on acceptance, and has its edges.
_SETS = ("private", "ours", "outputs")
_AFTER = "after"
#: Our branches at the start: they go nowhere and give each new input its run, for decisions and for bounds.
ENTRY, BOUNDED_ENTRY = "bound#run", "bound#start"
#: What is done to each graph that a builder compiles: functions from a compiled graph to the one that is given out.
_ATTACHED = "attached"


@cache
def _decided(kind: Any) -> Any:
    """The class of a builder in which decisions stand: what is wired later is gated too, and no channel shows."""
    if hasattr(kind, "_bound_decided"):
        return kind

    class Decided(kind):  # type: ignore[misc]
        __slots__ = ()
        _bound_decided = True

        def compile(self, *args: Any, **kwargs: Any) -> Any:
            for node, stands_for_it in self.after.items():
                move_edges(self, node, stands_for_it)
            fence_edges(self)
            compiled = super().compile(*args, **kwargs)
            compiled.stream_channels = [one for one in compiled.stream_channels if one not in self.private]
            for attach in self.attached:
                compiled = attach(compiled)
            return compiled

        def validate(self, *args: Any, **kwargs: Any) -> Any:
            # Our branches are no way into the graph.
            ours = {name: self.branches[START].pop(name) for name in _entries(self)}
            if not self.branches[START]:
                del self.branches[START]
            try:
                return super().validate(*args, **kwargs)
            finally:
                self.branches[START].update(ours)

    Decided.__name__, Decided.__qualname__ = kind.__name__, kind.__qualname__
    return Decided


def _entries(builder: Any) -> list[str]:
    return [name for name in (ENTRY, BOUNDED_ENTRY) if name in builder.branches[START]]


def editable(graph: Any) -> Any:
    """A builder that may be edited, from a builder or a compiled graph.

    Raises:
        SpecError: it is neither, or its state has no keys.
    """
    if isinstance(graph, CompiledStateGraph):
        made = _copy(graph.builder)
        for name, spec in made.nodes.items():
            # A node that was wrapped after compiling stays wrapped.
            if graph.nodes[name].bound is not spec.runnable:
                spec.runnable = graph.nodes[name].bound
        return made
    if isinstance(graph, StateGraph):
        return _copy(graph)
    raise SpecError(
        f"a {type(graph).__name__} has no nodes of its own",
        key="graph",
        value=graph,
        allowed="a StateGraph, or what its compile() or create_agent gave; for anything else that calls models, "
        "an entrypoint for example: with BoundSession(spec): ...",
    )


def _copy(builder: Any) -> Any:
    if "__root__" in builder.channels:
        raise SpecError(
            "the state has no keys, so no output channel can be added", key="graph", allowed="named keys"
        )
    made = copy.copy(builder)
    made.edges, made.waiting_edges = set(builder.edges), set(builder.waiting_edges)
    made.branches = defaultdict(dict, {name: dict(found) for name, found in builder.branches.items()})
    made.channels, made.managed = dict(builder.channels), dict(builder.managed)
    made.schemas = {schema: dict(found) for schema, found in builder.schemas.items()}
    # compile() leaves its defaults in the nodes; they are applied again to the copy.
    made.nodes = {
        name: dataclasses.replace(
            spec,
            error_handler_node=None if spec.error_handler_node == _DEFAULT_HANDLER else spec.error_handler_node,
        )
        for name, spec in builder.nodes.items()
        if name != _DEFAULT_HANDLER
    }
    made.compiled = False
    kind: Any = type(builder)
    made.__class__ = _decided(kind)
    for name in _SETS:
        setattr(made, name, getattr(builder, name, frozenset()))
    setattr(made, _AFTER, dict(getattr(builder, _AFTER, {})))
    setattr(made, _ATTACHED, tuple(getattr(builder, _ATTACHED, ())))
    return made


def compiled_like(builder: Any, graph: CompiledStateGraph[Any, Any, Any, Any]) -> Any:
    """The builder, compiled as a graph was: its checkpointer, store, cache, interrupts, config, hidden channels."""
    made = builder.compile(
        checkpointer=graph.checkpointer,
        cache=graph.cache,
        store=graph.store,
        interrupt_before=graph.interrupt_before_nodes,
        interrupt_after=graph.interrupt_after_nodes,
        debug=graph.debug,
        name=graph.name,
        transformers=graph.stream_transformers,
    )
    for name in _KEPT:
        setattr(made, name, getattr(graph, name))
    hidden = {k: v for k, v in graph.channels.items() if k not in made.channels and not k.startswith(_PASSING)}
    made.channels.update(hidden)
    return made


def move_edges(builder: Any, source: str, target: str) -> None:
    """Everything that leaves ``source`` leaves ``target`` instead: edges, conditional edges and arms of joins."""
    keep = {(source, f"{source}#decide")}
    out = {edge for edge in builder.edges if edge[0] == source} - keep
    builder.edges = (builder.edges - out) | {(target, end) for _, end in out}
    builder.waiting_edges = {
        (tuple(target if one == source else one for one in starts), end) for starts, end in builder.waiting_edges
    }
    branches = builder.branches.pop(source, None) or {}
    if branches:
        whole = builder.nodes[source].input_schema is builder.state_schema
        for name, branch in branches.items():
            # The reader of a branch takes the schema of its node, which the node that stands for it may not have.
            schema = branch.input_schema if whole else (branch.input_schema or builder.nodes[source].input_schema)
            builder.branches[target][name] = branch._replace(input_schema=schema)


# -- channels ------------------------------------------------------------------------------------------------


def add_private(builder: Any, name: str, channel: BaseChannel[Any, Any, Any]) -> None:
    """A channel that is checkpointed and that no schema shows.

    Raises:
        SpecError: the state has a key of that name, which is not ours.
    """
    known = builder.channels.get(name)
    reducer = getattr(known, "operator", None)
    same = isinstance(known, type(channel)) or (
        reducer is not None and reducer is getattr(channel, "operator", None)
    )
    if name not in builder.private and known is not None and not same:
        raise SpecError("the state has a key that is ours", key=name, value=name, allowed="another name")
    channel.key = name
    builder.channels.setdefault(name, channel)
    builder.private = builder.private | {name}


def last_value() -> BaseChannel[Any, Any, Any]:
    return LastValue(str)


def merging(reducer: Callable[[Any, Any], Any]) -> BaseChannel[Any, Any, Any]:
    return BinaryOperatorAggregate(dict, reducer)


def add_output(builder: Any, key: str, entrance: str = "insert_decision") -> None:
    """The output channel: in the state that nodes and edges see, in the output, and not in the input.

    Raises:
        SpecError: the state has a key of that name that is not ours.
    """
    known = builder.channels.get(key) or builder.managed.get(key)
    if known is not None and getattr(known, "operator", None) is not merge:
        raise SpecError(
            "the state has a key of this name already",
            key="key",
            value=key,
            allowed=f"another name: {entrance}(..., key=...)",
        )
    channel = builder.channels.setdefault(key, DecidedChannel())
    channel.key = key
    state, output = builder.state_schema, builder.output_schema
    new_state = _with_key(builder, state, key, channel)
    new_output = new_state if output is state else _with_key(builder, output, key, channel)
    builder.state_schema, builder.output_schema = new_state, new_output
    for spec in builder.nodes.values():
        if spec.input_schema is state:
            spec.input_schema = new_state
    for found in builder.branches.values():
        for name, branch in found.items():
            if branch.input_schema is state:
                found[name] = branch._replace(input_schema=new_state)


def _with_key(builder: Any, schema: Any, key: str, channel: Any) -> Any:
    if key in builder.schemas[schema]:
        return schema
    extended = _extended(schema, key)
    builder.schemas[extended] = {**builder.schemas[schema], key: channel}
    return extended


def _extended(schema: Any, key: str) -> Any:
    """A schema with one more key: of a model or a data class a subclass."""
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        field: Any = {key: (dict[str, Any] | None, None)}
        return create_model(schema.__name__, __base__=schema, __module__=schema.__module__, **field)
    if dataclasses.is_dataclass(schema) and isinstance(schema, type):
        frozen = schema.__dataclass_params__.frozen  # type: ignore[attr-defined]
        extra: Any = (key, dict[str, Any], dataclasses.field(default_factory=dict))
        return dataclasses.make_dataclass(schema.__name__, [extra], bases=(schema,), frozen=frozen, kw_only=True)
    hints: Mapping[str, Any] = get_type_hints(schema, include_extras=True)
    fields = {**hints, key: Annotated[dict[str, Any], merge]}
    return TypedDict(getattr(schema, "__name__", "State"), fields, total=False)  # type: ignore[operator]

"""How each key is enforced: by what, at which moment, at which entrances, and how far it can be passed.

A table, because ``explain`` and the reference page both show it. The entrances differ in one thing: those that own
the model's request can put a cap on the wire, the others can only cut a stream while it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

#: Entrances that own the request, and can cap it on the wire.
ON_THE_WIRE = ("bound_model", "BoundMiddleware", "bound_graph")
#: Entrances that watch a request which the framework sends.
AROUND = ("with bound", "callback", "bound run")
#: Entrances that run the tools of an agent themselves.
AGENTS = ("BoundMiddleware", "bound_graph")
_GRAPHS = ("bound_graph",)
#: Keys that load and are compared, and that no entrance of this version enforces. ``explain`` says so.
NOWHERE: tuple[str, ...] = ()
ENTRANCES = (*ON_THE_WIRE, *AROUND)
_TOOL_SEAMS = (*AGENTS, *AROUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """What enforces a key. ``around`` is the overshoot at an entrance without a cap on the wire."""

    by: str
    checked: str
    overshoot: str = "none"
    around: str = ""
    entrances: tuple[str, ...] = ENTRANCES
    scope: str = "run"

    def overshoot_at(self, entrance: str | None) -> str:
        """The worst overshoot at an entrance; of all of them when none is named."""
        if not self.around or entrance in ON_THE_WIRE:
            return self.overshoot
        return self.around if entrance is not None else f"{self.overshoot}; {self.around} without a cap on the wire"


_HELD = "what a call can use at most is held before it starts and settled by what was billed"
_CHUNK = "one chunk and hidden reasoning"
_CAPPED = "none where the provider keeps the cap, else one chunk"
_BEFORE_MODEL = "before each model call"
_IN_FLIGHT = "before each model call and at each chunk"
_BEFORE_TOOL = "before each tool call"


def _held(scope: str = "run") -> Mechanism:
    return Mechanism(by=_HELD, checked=_IN_FLIGHT, overshoot=_CAPPED, around=_CHUNK, scope=scope)


def _tool(by: str, *, scope: str = "run", entrances: tuple[str, ...] = _TOOL_SEAMS) -> Mechanism:
    return Mechanism(by=by, checked=_BEFORE_TOOL, entrances=entrances, scope=scope)


def _read(by: str, *, entrances: tuple[str, ...]) -> Mechanism:
    return Mechanism(by=by, checked="before each read and on its result", entrances=entrances, scope="call")


_RULE = _tool("the arguments of the call", scope="call")
_OWNER = _read(
    "arguments of its kind; the store, where tools run in our hands; retrievers that are scoped",
    entrances=_TOOL_SEAMS,
)
_FORM = Mechanism(
    by="an answer of no such form is replaced", checked="before an answer leaves", entrances=AGENTS, scope="call"
)

MECHANISMS: Mapping[str, Mechanism] = {
    "iteration_limit.max": Mechanism(by="a counter outside the agent", checked="before each step"),
    "token_budget.total": _held(),
    "token_budget.input_total": Mechanism(
        by=_HELD, checked=_BEFORE_MODEL, overshoot="the error of the estimate, on one call"
    ),
    "token_budget.output_total": _held(),
    "token_budget.input_per_call_max": Mechanism(
        by="an estimate of the request", checked=_BEFORE_MODEL, overshoot="the error of the estimate", scope="call"
    ),
    "token_budget.output_per_call_max": Mechanism(
        by="a cap on the request and a count of what arrives",
        checked="at each chunk",
        overshoot=_CAPPED,
        around=_CHUNK,
        scope="call",
    ),
    "cost_budget.total_usd": _held(),
    "cost_budget.per_model_call_usd_max": _held("call"),
    "cost_budget.per_tool_call_usd_max": _tool("the declared price of the tool", scope="call"),
    "exposure.max": _tool("the argument is held before the call, like money"),
    "time_budget.wall_clock_seconds": Mechanism(
        by="a deadline",
        checked="before each model and tool call, at each chunk",
        overshoot="one chunk, or the tool that runs",
        around="one wait of the client, or the tool that runs",
    ),
    "time_budget.per_model_call_seconds_max": Mechanism(
        by="a deadline of the call", checked="at each chunk", overshoot="one chunk", scope="call"
    ),
    "time_budget.per_tool_call_seconds_max": Mechanism(
        by="a thread of its own, or cancellation",
        checked="while the tool runs",
        entrances=AGENTS,
        scope="call",
        overshoot="a thread that cannot be stopped is abandoned, its result dropped",
    ),
    "time_budget.idle_seconds_max": Mechanism(
        by="the time since the last chunk", checked="while a stream is silent", scope="call"
    ),
    "action_surface.allowed": _tool("refusal at execution; the model is not shown other tools", scope="call"),
    "action_surface.allowed.max_calls": _tool("a counter per tool"),
    "action_surface.allowed.args.kind": _RULE,
    "action_surface.allowed.args.one_of": _RULE,
    "action_surface.allowed.args.min": _RULE,
    "action_surface.allowed.args.max": _RULE,
    "action_surface.allowed.args.pattern": _RULE,
    "action_surface.allowed.args.hosts": _RULE,
    "action_surface.allowed.args.length_max": _RULE,
    "action_surface.forbidden": _tool("refusal at execution", scope="call"),
    "action_surface.outputs": _FORM,
    "action_surface.outputs.pattern": _FORM,
    "action_surface.outputs.required": _FORM,
    "action_surface.outputs.forbidden": _FORM,
    "action_surface.outputs.hosts": _FORM,
    "action_surface.outputs.length_max": _FORM,
    "action_surface.outputs.json_schema": _FORM,
    "action_surface.models": Mechanism(by="refusal of the call", checked=_BEFORE_MODEL, scope="call"),
    "action_surface.concurrent_tools_max": _tool("a count of running tools"),
    "data_access_scope.roots": _RULE,
    "data_access_scope.tenant": _OWNER,
    "data_access_scope.user": _OWNER,
    "data_access_scope.store_namespaces": _read("a scoped store", entrances=AGENTS),
    "data_access_scope.metadata": _read(
        "a filter on what is retrieved, by the retrievers and vector stores that are scoped", entrances=_TOOL_SEAMS
    ),
    "data_access_scope.no_cross_session_memory_read": _read("a scoped store", entrances=AGENTS),
    "data_access_scope.no_external_index_read": _read(
        "refusal of retrievers that are not scoped", entrances=_TOOL_SEAMS
    ),
    "reversibility_envelope.requires_human_approval": _tool(
        "a question before the call; refusal where nobody can be asked", scope="call"
    ),
    "reversibility_envelope.unknown_tools": _tool("as for the tools that are named", scope="call"),
}

#: Where steps of a unit are seen, other than at every entrance.
STEPS_AT: Mapping[str, tuple[str, ...]] = {"tool calls": _TOOL_SEAMS, "supersteps": _GRAPHS}

#: Where the keys are seen to that bound no axis by themselves, by the beginning of the key.
ALSO_AT: Mapping[str, tuple[str, ...]] = {
    "warn_at_share": ENTRANCES,
    "iteration_limit.": ENTRANCES,
    "token_budget.": ENTRANCES,
    "time_budget.": ENTRANCES,
    "cost_budget.tool_prices_usd": _TOOL_SEAMS,
    "cost_budget.on_unpriced_tool": _TOOL_SEAMS,
    "cost_budget.": ENTRANCES,
    "action_surface.allowed.price_usd": _TOOL_SEAMS,
    "action_surface.on_refused_output": AGENTS,
    "action_surface.outputs.": AGENTS,
    "data_access_scope.default_scope": NOWHERE,
    "data_access_scope.redact": ENTRANCES,
    "data_access_scope.cross_scope": _TOOL_SEAMS,
    "reversibility_envelope.approval_ttl_seconds": _TOOL_SEAMS,
    "reversibility_envelope.": _TOOL_SEAMS,
    "stop.attempts_per_call_max": ENTRANCES,
    "stop.admission_wait_ms": ENTRANCES,
    "stop.strict_usage": ENTRANCES,
    "stop.warn_model": ON_THE_WIRE,
    "stop.no_progress": _TOOL_SEAMS,
    "stop.consecutive_failures_max": ENTRANCES,
    "stop.truncated_retries": ("BoundMiddleware",),
    "stop.tool_output_chars_max": AGENTS,
    "stop.raise_max": AGENTS,
    "stop.closing_call": AGENTS,
    "agents.": ENTRANCES,
    "fleet.": NOWHERE,
}


def mechanism_of(key: str, unit: str) -> Mechanism:
    """What enforces a key whose values are in this unit."""
    how = MECHANISMS[key]
    return replace(how, entrances=STEPS_AT.get(unit, how.entrances)) if key == "iteration_limit.max" else how

"""What a specification compiles to: one plain, frozen value with the limit of each axis.

``None`` means not bounded. ``0`` means nothing allowed. Every number is an integer in the unit of its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Literal

from .errors import SpecError
from .usage import HANDOFFS, INPUT_TOKENS, ITERATIONS, NANOUSD, OUTPUT_TOKENS, SPAWNS, TOKENS, count

Plain = str | int | float | bool
ArgumentLimit = Plain | tuple[Plain, ...]
IterationUnit = Literal["model_call", "tool_call", "action", "superstep"]

#: What one call may generate when the specification does not say: the default of the Anthropic client.
DEFAULT_OUTPUT_PER_CALL_TOKENS = 4_096

#: What a field takes, by its annotation.
_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "frozenset[str]": (frozenset,),
    "frozenset[str] | None": (frozenset, NoneType),
}

#: The fields whose rows end with a number.
_TABLES = (
    "tool_prices_nanousd",
    "tool_calls_max",
    "exposure",
    "child_reserve",
    "raise_max",
    "warn_at_permille_by_axis",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRate:
    """What an unlisted model is charged, in nano-dollars per million tokens.

    Raises:
        SpecError: a rate is not an integer of at least 0.
    """

    input_nanousd_per_mtok: int
    output_nanousd_per_mtok: int

    def __post_init__(self) -> None:
        for f in fields(self):
            count(getattr(self, f.name), f.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one session, all axes.

    Raises:
        SpecError: a limit is not an integer of at least 0 (attempts: 1), or another value is not one of its kind.
    """

    iterations: int | None = None
    iteration_unit: IterationUnit = "model_call"
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    nanousd: int | None = None
    input_per_call_tokens: int | None = None
    output_per_call_tokens: int | None = None
    per_model_call_nanousd: int | None = None
    per_tool_call_nanousd: int | None = None
    wall_clock_ms: int | None = None
    per_model_call_ms: int | None = None
    per_tool_call_ms: int | None = None
    idle_ms: int | None = None

    on_unknown_price: Literal["refuse"] | FlatRate = "refuse"
    trusted_zero_models: frozenset[str] = frozenset()
    on_unpriced_tool: Literal["refuse", "free"] | int = "free"
    tool_prices_nanousd: tuple[tuple[str, int], ...] = ()

    tools: frozenset[str] | None = None
    forbidden_tools: frozenset[str] = frozenset()
    tool_calls_max: tuple[tuple[str, int], ...] = ()
    models: frozenset[str] | None = None
    outputs: frozenset[str] | None = None
    """The names of the forms that an answer may have."""
    output_rules: tuple[tuple[str, str, ArgumentLimit], ...] = ()
    """(form, rule, value): ``length_max``, ``pattern`` (of the whole answer), ``required`` and ``forbidden``
    (patterns), ``hosts`` of its links, and as JSON ``hosts_once_read`` ({hosts, tools}) and ``json_schema``."""
    on_refused_output: Literal["refuse", "retry", "approval"] = "refuse"
    concurrent_tools_max: int | None = None
    exposure: tuple[tuple[str, str, int], ...] = ()
    """(tool, argument, largest sum over the run in thousand-millionths of its unit)."""
    argument_rules: tuple[tuple[str, str, str, ArgumentLimit], ...] = ()
    """(tool, argument, rule, value): ``kind`` (path, tenant or user), ``one_of``, ``pattern`` (of the whole
    text), ``hosts``, ``length_max``, and ``least_nano`` and ``most_nano`` in thousand-millionths."""

    roots: tuple[str, ...] | None = None
    tenant: str | None = None
    user: str | None = None
    store_namespaces: tuple[tuple[str, ...], ...] | None = None
    metadata: tuple[tuple[str, tuple[Plain, ...]], ...] = ()
    redact: tuple[str, ...] = ()
    cross_scope: tuple[tuple[str, str], ...] = ()
    no_cross_session_memory_read: bool = False
    no_external_index_read: bool = False

    approval_tools: frozenset[str] = frozenset()
    reversible_tools: frozenset[str] = frozenset()
    unknown_tools: Literal["approval", "refuse", "reversible"] = "reversible"
    approval_ttl_ms: int = 3_600_000

    closing_call: bool = False
    truncated_retries: int = 1
    consecutive_failures_max: int | None = None
    identical_calls_max: int | None = None
    same_result_max: int | None = None
    cycle_window: int | None = None
    unwatched_tools: frozenset[str] = frozenset()
    attempts_per_call_max: int | None = None
    tool_output_chars_max: int | None = None

    child_reserve: tuple[tuple[str, int], ...] = ()
    depth_max: int | None = None
    spawns_max: int | None = None
    concurrent_agents_max: int | None = None
    handoffs_max: int | None = None

    strict_usage: bool = False
    admission_wait_ms: int = 30_000
    warn_at_permille: int | None = None
    warn_at_permille_by_axis: tuple[tuple[str, int], ...] = ()
    warn_model: bool = False
    raise_max: tuple[tuple[str, int], ...] = ()
    """(meter, the most that a person may raise its bound to); ``wall_clock_ms`` for the time of the run."""
    ceilings: tuple[tuple[str, int], ...] = field(init=False, default=())
    """The limits that a ledger enforces over the whole session, as (meter, ceiling)."""

    def __post_init__(self) -> None:
        self._check_kinds()
        if self.iteration_unit not in ("model_call", "tool_call", "action", "superstep"):
            raise SpecError(
                f"{self.iteration_unit!r} is no unit of iterations",
                key="iteration_limit.unit",
                value=self.iteration_unit,
                allowed="model_call, tool_call, action, superstep",
            )
        pairs = (
            (ITERATIONS, self.iterations),
            (TOKENS, self.tokens),
            (INPUT_TOKENS, self.input_tokens),
            (OUTPUT_TOKENS, self.output_tokens),
            (NANOUSD, self.nanousd),
            (SPAWNS, self.spawns_max),
            (HANDOFFS, self.handoffs_max),
            *((tool_meter(tool), most) for tool, most in self.tool_calls_max),
            *((exposure_meter(tool, argument), most) for tool, argument, most in self.exposure),
        )
        object.__setattr__(self, "ceilings", tuple((k, v) for k, v in pairs if v is not None))

    def _check_kinds(self) -> None:
        for f in fields(self):
            value, allowed = getattr(self, f.name), _KINDS.get(str(f.type), (object,))
            if f.type == "int" or (f.type == "int | None" and value is not None):
                count(value, f.name)
            if not isinstance(value, allowed):
                words = " or ".join(kind.__name__ for kind in allowed)
                raise SpecError(f"{value!r} is no value of its kind", key=f.name, value=value, allowed=words)
        for table in _TABLES:
            rows = getattr(self, table)
            for i, (*names, number) in enumerate(rows):
                key = ".".join((table, *names))
                count(number, key)
                if any(row[:-1] == tuple(names) for row in rows[:i]):
                    raise SpecError("is listed twice", key=key, value=number)
        if self.attempts_per_call_max == 0:
            raise SpecError(
                "0 is out of range: a call has at least one attempt",
                key="attempts_per_call_max",
                value=0,
                allowed="1, 2, 3, ... (None: not bounded); to allow no call use iteration_limit: 0",
            )
        if self.on_unpriced_tool not in ("refuse", "free"):
            count(self.on_unpriced_tool, "on_unpriced_tool")
        if self.on_unknown_price != "refuse" and not isinstance(self.on_unknown_price, FlatRate):
            raise SpecError(
                f"{self.on_unknown_price!r} is no answer to an unknown price",
                key="on_unknown_price",
                value=self.on_unknown_price,
                allowed="refuse, or a FlatRate",
            )
        if self.on_refused_output not in ("refuse", "retry", "approval"):
            raise SpecError(
                f"{self.on_refused_output!r} is no answer to an output that is refused",
                key="on_refused_output",
                value=self.on_refused_output,
                allowed="refuse, retry, approval",
            )
        if self.unknown_tools not in ("approval", "refuse", "reversible"):
            raise SpecError(
                f"{self.unknown_tools!r} is no answer to an unknown tool",
                key="unknown_tools",
                value=self.unknown_tools,
                allowed="approval, refuse, reversible",
            )

    def tier(self, tool: str) -> Literal["run", "approval", "refuse"]:
        """What a call of a tool does before any other bound is looked at.

        ``forbidden_tools`` wins over all, a closed ``tools`` over the rest; a tool that the specification names
        nowhere follows ``unknown_tools``.
        """
        if tool in self.forbidden_tools or (self.tools is not None and tool not in self.tools):
            return "refuse"
        if tool in self.approval_tools:
            return "approval"
        if self.tools is not None or tool in self.reversible_tools or self.unknown_tools == "reversible":
            return "run"
        return "approval" if self.unknown_tools == "approval" else "refuse"

    @property
    def bounds_money(self) -> bool:
        return any(v is not None for v in (self.nanousd, self.per_model_call_nanousd))

    @property
    def bounds_output(self) -> bool:
        """Whether a single model call needs an output cap at all."""
        return self.bounds_money or any(
            v is not None for v in (self.tokens, self.output_tokens, self.output_per_call_tokens)
        )

    @property
    def bounds_call_time(self) -> bool:
        """Whether a model call may have to be cut because its time is over."""
        return any(v is not None for v in (self.wall_clock_ms, self.per_model_call_ms, self.idle_ms))


def tool_meter(tool: str) -> str:
    """The meter that counts the calls of one tool."""
    return f"tool_calls:{tool}"


def exposure_meter(tool: str, argument: str) -> str:
    """The meter that sums an argument of a tool, in thousand-millionths of its unit."""
    return f"exposure:{tool}:{argument}"


def field_names() -> tuple[str, ...]:
    """The names of all limits, in order."""
    return tuple(f.name for f in fields(Limits))

"""What a specification compiles to: one plain, frozen value with the limit of each axis.

``None`` means not bounded. ``0`` means nothing allowed. Every number is an integer in the unit of its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from .errors import SpecError
from .usage import INPUT_TOKENS, ITERATIONS, NANOUSD, OUTPUT_TOKENS, TOKENS, count

IterationUnit = Literal["model_call", "tool_call", "action", "superstep"]

#: What one call may generate when the specification does not say: the default of the Anthropic client.
DEFAULT_OUTPUT_PER_CALL_TOKENS = 4_096

_COUNTS = (
    "iterations",
    "tokens",
    "input_tokens",
    "output_tokens",
    "nanousd",
    "input_per_call_tokens",
    "output_per_call_tokens",
    "per_model_call_nanousd",
    "per_tool_call_nanousd",
    "wall_clock_ms",
    "per_model_call_ms",
    "per_tool_call_ms",
    "idle_ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRate:
    """What an unlisted model is charged, in nano-dollars per million tokens."""

    input_nanousd_per_mtok: int
    output_nanousd_per_mtok: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one session, all axes.

    Raises:
        SpecError: a limit is not an integer of at least 0.
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

    strict_usage: bool = False
    admission_wait_ms: int = 30_000
    warn_at_permille: int | None = None
    ceilings: tuple[tuple[str, int], ...] = field(init=False, default=())
    """The limits that a ledger enforces over the whole session, as (meter, ceiling)."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None:
                count(value, name)
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
            *((tool_meter(tool), most) for tool, most in self.tool_calls_max),
        )
        object.__setattr__(self, "ceilings", tuple((k, v) for k, v in pairs if v is not None))

    @property
    def bounds_money(self) -> bool:
        return any(v is not None for v in (self.nanousd, self.per_model_call_nanousd))

    @property
    def bounds_output(self) -> bool:
        """Whether a single model call needs an output cap at all."""
        return self.bounds_money or any(
            v is not None for v in (self.tokens, self.output_tokens, self.output_per_call_tokens)
        )


def tool_meter(tool: str) -> str:
    """The meter that counts the calls of one tool."""
    return f"tool_calls:{tool}"


def field_names() -> tuple[str, ...]:
    """The names of all limits, in order."""
    return tuple(f.name for f in fields(Limits))

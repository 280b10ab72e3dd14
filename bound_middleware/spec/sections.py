"""The sections under ``bounds:``, one class each, one line a key.

``None`` means not bounded and ``0`` nothing allowed; every number is read exactly and kept as an integer of the
smallest unit that counts (tokens, nano-dollars, milliseconds, thousandths).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, SerializerFunctionWrapHandler, model_serializer, model_validator

from ..core.limits import FlatRate
from .entries import IN_ORDER, AllowedTool, Entry, check_distinct
from .keys import (
    ATTEMPTS,
    COUNT,
    FLAG,
    NAME,
    NAMES,
    SECONDS,
    SHARE,
    SUM,
    TEXT,
    TEXTS,
    USD,
    Axis,
    Key,
    Order,
    choice,
    mapping_of,
)
from .outputs import OutputForm, check_forms
from .section import Section
from .shapes import METADATA, NAMESPACES, ON_UNKNOWN_PRICE, ON_UNPRICED_TOOL, PATTERNS, RESERVE

Count = int | None
Entries = Annotated[tuple[Entry, ...] | None, AfterValidator(check_distinct), IN_ORDER]


def _limit(meaning: str, axis: Axis, tighter: Order = "lower", *, unit: str = "") -> Key:
    return Key(meaning=meaning, tighter=tighter, axis=axis, unit=unit)


def _closed(meaning: str, axis: Axis, *, default: str = "not bounded", tighter: Order = "special") -> Key:
    return Key(meaning=meaning, tighter=tighter, axis=axis, default=default, nullable=False)


def _stop(meaning: str, *, default: str = "not bounded", tighter: Order = "lower", unit: str = "") -> Key:
    return Key(meaning=meaning, tighter=tighter, default=default, unit=unit)


_WARN = Key(meaning="share of a limit at which one warning is recorded", tighter="free", default="no warning")


class IterationLimit(Section):
    """``iteration_limit``: how many steps a run may take. Written short as a number."""

    max: Annotated[Count, COUNT, _limit("steps in a run", "iterations", unit="steps")] = None
    unit: Annotated[
        Literal["model_call", "tool_call", "action", "superstep"],
        choice("model_call", "tool_call", "action", "superstep"),
        Key(meaning="what one step is; superstep at bound_graph alone", tighter="fixed", default="model_call"),
    ] = "model_call"
    warn_at_share: Annotated[Count, SHARE, _WARN] = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return value if isinstance(value, dict | cls) else {"max": value}

    @model_serializer(mode="wrap")
    def _shortest(self, handler: SerializerFunctionWrapHandler) -> Any:
        written = handler(self)
        return written["max"] if set(written) == {"max"} and self.max is not None else written

    short_schema: ClassVar[dict[str, Any]] = {"type": "integer", "minimum": 0}


class TokenBudget(Section):
    """``token_budget``: provider tokens; input includes cache reads and writes, output includes reasoning."""

    total: Annotated[
        Count,
        COUNT,
        _limit("input and output tokens of all calls", "tokens", unit="tokens"),
    ] = None
    input_total: Annotated[Count, COUNT, _limit("input tokens of all calls", "tokens", unit="tokens")] = None
    output_total: Annotated[Count, COUNT, _limit("output tokens of all calls", "tokens", unit="tokens")] = None
    input_per_call_max: Annotated[
        Count,
        COUNT,
        _limit("input tokens of one call", "tokens", unit="tokens"),
    ] = None
    output_per_call_max: Annotated[
        Count,
        COUNT,
        _limit("output tokens of one call", "tokens", unit="tokens"),
    ] = None
    warn_at_share: Annotated[Count, SHARE, _WARN] = None


class CostBudget(Section):
    """``cost_budget``: money of model calls and of paid tools."""

    total_usd: Annotated[Count, USD, _limit("cost of all calls", "cost")] = None
    per_model_call_usd_max: Annotated[Count, USD, _limit("cost of one model call", "cost")] = None
    per_tool_call_usd_max: Annotated[Count, USD, _limit("price of one tool call", "cost")] = None
    tool_prices_usd: Annotated[
        tuple[tuple[str, int], ...],
        mapping_of(USD, "tools"),
        Key(meaning="price of one call, by tool", tighter="special", default="none"),
    ] = ()
    on_unknown_price: Annotated[
        Literal["refuse"] | FlatRate,
        ON_UNKNOWN_PRICE,
        Key(meaning="what a call to a model without a known price does", tighter="special", default="refuse"),
    ] = "refuse"
    on_unpriced_tool: Annotated[
        Literal["refuse", "free"] | int,
        ON_UNPRICED_TOOL,
        Key(meaning="what a call of a tool without a price does", tighter="special", default="free"),
    ] = "free"
    trusted_zero_models: Annotated[
        tuple[str, ...],
        NAMES,
        Key(meaning="models whose price of 0 is believed", tighter="fewer", default="none", nullable=False),
    ] = ()
    warn_at_share: Annotated[Count, SHARE, _WARN] = None


class Exposure(Section):
    """One line of ``exposure``: the sum of an argument of a tool over a run, held like money."""

    tool: Annotated[str, NAME, Key(meaning="a tool", tighter="special", default="required")]
    sum_of: Annotated[
        str,
        NAME,
        Key(meaning="the argument that is summed", tighter="special", default="required"),
    ]
    max: Annotated[
        int,
        SUM,
        Key(meaning="largest sum", tighter="lower", axis="cost", default="required"),
    ]


class TimeBudget(Section):
    """``time_budget``: seconds of the wall clock; fractions down to a millisecond."""

    wall_clock_seconds: Annotated[Count, SECONDS, _limit("the whole run", "time")] = None
    per_model_call_seconds_max: Annotated[Count, SECONDS, _limit("one model call", "time")] = None
    per_tool_call_seconds_max: Annotated[Count, SECONDS, _limit("one tool call", "time")] = None
    idle_seconds_max: Annotated[Count, SECONDS, _limit("silence between two chunks of a stream", "time")] = None
    warn_at_share: Annotated[Count, SHARE, _WARN] = None


class ActionSurface(Section):
    """``action_surface``: what may be called. A list that is given is closed."""

    allowed: Annotated[
        tuple[AllowedTool, ...] | None,
        AfterValidator(check_distinct),
        IN_ORDER,
        Key(
            meaning="the only tools, besides those that need approval",
            tighter="special",
            axis="action surface",
            nullable=False,
        ),
    ] = None
    forbidden: Annotated[
        Entries,
        Key(
            meaning="tools that are never run",
            tighter="special",
            axis="action surface",
            default="none",
            nullable=False,
        ),
    ] = None
    outputs: Annotated[
        tuple[OutputForm, ...] | None,
        AfterValidator(check_forms),
        IN_ORDER,
        _closed("the only forms of an answer", "action surface"),
    ] = None
    on_refused_output: Annotated[
        Literal["refuse", "retry", "approval"],
        choice("refuse", "retry", "approval"),
        Key(
            meaning="what becomes of another answer: replaced, asked for once more, or the approver decides",
            tighter="special",
            default="refuse",
        ),
    ] = "refuse"
    models: Annotated[
        tuple[str, ...] | None,
        NAMES,
        _closed("the only models", "action surface", tighter="fewer"),
    ] = None
    concurrent_tools_max: Annotated[
        Count, COUNT, _limit("tools that run at the same time", "action surface", unit="tools")
    ] = None


class CrossScope(Section):
    """One line of ``cross_scope``: a read outside the scope that was agreed on."""

    to: Annotated[str, TEXT, Key(meaning="the other scope", tighter="special", default="required")]
    reason: Annotated[str, TEXT, Key(meaning="why", tighter="free", default="required")]


class DataAccessScope(Section):
    """``data_access_scope``: what may be read and written. Each list that is given is closed."""

    default_scope: Annotated[
        str | None, TEXT, Key(meaning="a sentence; not enforced", tighter="free", default="none")
    ] = None
    roots: Annotated[
        tuple[str, ...] | None,
        TEXTS,
        Key(
            meaning="the only folders for arguments of kind path",
            tighter="special",
            axis="data scope",
            nullable=False,
        ),
    ] = None
    tenant: Annotated[
        str | None,
        TEXT,
        _limit("the only tenant; session: the one the session is opened for", "data scope", "fixed"),
    ] = None
    user: Annotated[
        str | None, TEXT, _limit("the only user; session: the one the session is opened for", "data scope", "fixed")
    ] = None
    store_namespaces: Annotated[
        tuple[tuple[str, ...], ...] | None,
        NAMESPACES,
        Key(
            meaning="the only store namespaces, with all below them",
            tighter="special",
            axis="data scope",
            nullable=False,
        ),
    ] = None
    metadata: Annotated[
        tuple[tuple[str, tuple[Any, ...]], ...],
        METADATA,
        Key(
            meaning="values that retrieved documents must have",
            tighter="special",
            axis="data scope",
            default="none",
        ),
    ] = ()
    redact: Annotated[
        tuple[str, ...],
        PATTERNS,
        Key(
            meaning="patterns removed from what is stored or shown", tighter="more", default="none", nullable=False
        ),
    ] = ()
    cross_scope: Annotated[
        tuple[CrossScope, ...],
        IN_ORDER,
        Key(meaning="agreed exceptions", tighter="special", default="none", nullable=False),
    ] = ()
    no_cross_session_memory_read: Annotated[
        bool, FLAG, Key(meaning="no memory of other sessions", tighter="true", axis="data scope", default="false")
    ] = False
    no_external_index_read: Annotated[
        bool,
        FLAG,
        Key(meaning="no retriever outside the scope", tighter="true", axis="data scope", default="false"),
    ] = False


class ReversibilityEnvelope(Section):
    """``reversibility_envelope``: what runs freely and what waits for a person."""

    reversible_by_default: Annotated[
        Entries, Key(meaning="tools that run without approval", tighter="special", default="none", nullable=False)
    ] = None
    requires_human_approval: Annotated[
        Entries,
        Key(
            meaning="tools that wait for a person",
            tighter="special",
            axis="reversibility",
            default="none",
            nullable=False,
        ),
    ] = None
    approval_ttl_seconds: Annotated[
        int, SECONDS, Key(meaning="how long an approval can be used", tighter="lower", default="3600")
    ] = 3_600_000
    unknown_tools: Annotated[
        Literal["approval", "refuse", "reversible"],
        choice("approval", "refuse", "reversible"),
        Key(
            meaning="what a tool does that the specification names nowhere",
            tighter="special",
            axis="reversibility",
            default="approval",
        ),
    ] = "approval"


class NoProgress(Section):
    """``stop.no_progress``: signs that a run goes in circles."""

    identical_calls_max: Annotated[
        Count, COUNT, _stop("calls in a row with the same tool and arguments", unit="calls")
    ] = None
    same_result_max: Annotated[Count, COUNT, _stop("calls in a row with the same result", unit="calls")] = None
    cycle_window: Annotated[
        Count, COUNT, _stop("longest cycle of calls that is looked for", tighter="higher", unit="calls")
    ] = None
    exempt_tools: Annotated[
        tuple[str, ...],
        NAMES,
        Key(meaning="tools that are not watched", tighter="fewer", default="none", nullable=False),
    ] = ()


class Stop(Section):
    """``stop``: when a run ends short of its limits, and how."""

    closing_call: Annotated[
        bool, FLAG, _stop("keep room for one last answer without tools", default="false", tighter="free")
    ] = False
    truncated_retries: Annotated[
        int, COUNT, _stop("retries, with more room, of a truncated step", default="1", unit="retries")
    ] = 1
    consecutive_failures_max: Annotated[Count, COUNT, _stop("failed steps in a row", unit="steps")] = None
    no_progress: Annotated[
        NoProgress | None, Key(meaning="signs of going in circles", tighter="special", default="none")
    ] = None
    attempts_per_call_max: Annotated[
        Count, ATTEMPTS, _stop("attempts of one call, retries included", unit="attempts")
    ] = None
    tool_output_chars_max: Annotated[
        Count, COUNT, _stop("characters of a tool's answer that are passed on", unit="characters")
    ] = None
    admission_wait_ms: Annotated[
        int, COUNT, _stop("how long a call may wait for room", default="30000", tighter="free", unit="ms")
    ] = 30_000
    warn_model: Annotated[
        bool,
        FLAG,
        _stop("the model hears of each warning, once, in its next request", default="false", tighter="free"),
    ] = False
    raise_max: Annotated[
        tuple[tuple[str, int], ...],
        RESERVE,
        Key(meaning="bounds that a person may raise, and to how much", tighter="special", default="none"),
    ] = ()
    strict_usage: Annotated[
        bool, FLAG, _stop("stop when a provider withholds usage", default="false", tighter="true")
    ] = False

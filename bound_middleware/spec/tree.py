"""The whole of ``bound.yml``: the sections put together, and what only one of them is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field as PydanticField
from pydantic import SerializerFunctionWrapHandler, WrapSerializer, model_validator
from pydantic.functional_validators import BeforeValidator

from ..core.errors import SpecError
from .entries import IN_ORDER
from .keys import (
    COUNT,
    DATE,
    SHARE,
    TEXT,
    USD,
    Key,
    Kind,
    choice,
    number,
    refused,
)
from .section import Section
from .sections import (
    ActionSurface,
    CostBudget,
    Count,
    DataAccessScope,
    Exposure,
    IterationLimit,
    ReversibilityEnvelope,
    Stop,
    TimeBudget,
    TokenBudget,
)
from .shapes import GATES, RESERVE

Period = Literal["minute", "hour", "day", "week", "month"]
PERIODS = ("minute", "hour", "day", "week", "month")


def _part(meaning: str) -> Key:
    return Key(meaning=meaning, tighter="special", default="not bounded")


class Bounds(Section):
    """``bounds``: the six axes, and when a run stops."""

    iteration_limit: Annotated[IterationLimit | None, _part("steps")] = None
    token_budget: Annotated[TokenBudget | None, _part("tokens")] = None
    cost_budget: Annotated[CostBudget | None, _part("money")] = None
    exposure: Annotated[
        tuple[Exposure, ...], IN_ORDER, Key(meaning="business effect by tool", tighter="special", nullable=False)
    ] = ()
    time_budget: Annotated[TimeBudget | None, _part("time")] = None
    action_surface: Annotated[ActionSurface | None, _part("tools and models")] = None
    data_access_scope: Annotated[DataAccessScope | None, _part("data")] = None
    reversibility_envelope: Annotated[ReversibilityEnvelope | None, _part("approvals")] = None
    stop: Annotated[Stop | None, _part("when a run ends early")] = None
    warn_at_share: Annotated[
        Count, SHARE, Key(meaning="warning share for all limits", tighter="free", default="no warning")
    ] = None

    @model_validator(mode="after")
    def _prices_agree(self) -> Bounds:
        budget, surface = self.cost_budget, self.action_surface
        listed = dict(budget.tool_prices_usd) if budget is not None else {}
        for position, tool in enumerate(surface.allowed or () if surface is not None else ()):
            if tool.price_usd is not None and listed.get(str(tool.tool), tool.price_usd) != tool.price_usd:
                raise SpecError(
                    "the tool has another price in cost_budget.tool_prices_usd",
                    key=f"action_surface.allowed.{position}.price_usd",
                    value=USD.text(tool.price_usd),
                    allowed=USD.text(listed[str(tool.tool)]),
                )
        pairs = [(e.tool, e.sum_of) for e in self.exposure]
        for position, pair in enumerate(pairs):
            if pair in pairs[:position]:
                raise SpecError(f"{pair[1]!r} of {pair[0]!r} is listed twice", key=f"exposure.{position}")
        return self


def _agent(meaning: str, unit: str) -> Key:
    return Key(meaning=meaning, tighter="lower", unit=unit)


class AgentBounds(Bounds):
    """One line of ``agents``: what differs for a (sub-)agent from ``bounds``."""

    child_reserve: Annotated[
        tuple[tuple[str, int], ...],
        RESERVE,
        Key(meaning="what this agent keeps back when it hands work on", tighter="special", default="0"),
    ] = ()
    depth_max: Annotated[Count, COUNT, _agent("depth of sub-agents below this one", "levels")] = None
    spawns_max: Annotated[Count, COUNT, _agent("sub-agents started in a run", "agents")] = None
    concurrent_max: Annotated[Count, COUNT, _agent("sub-agents at the same time", "agents")] = None
    handoffs_max: Annotated[Count, COUNT, _agent("hand-offs to another agent", "hand-offs")] = None


_PER = Key(meaning="length of the window", tighter="special", default="required")
_PERIOD = choice(*PERIODS)


def _fleet(meaning: str) -> Key:
    return Key(meaning=meaning, tighter="lower", default="not bounded", unit="tokens")


class FleetIterations(Section):
    """``iteration_limit`` of a fleet window."""

    max: Annotated[
        int, COUNT, Key(meaning="model calls in the window", tighter="lower", default="required", unit="calls")
    ]
    per: Annotated[Period, _PERIOD, _PER]


class FleetTokens(Section):
    """``token_budget`` of a fleet window."""

    total: Annotated[Count, COUNT, _fleet("tokens in the window")] = None
    input_total: Annotated[Count, COUNT, _fleet("input tokens in the window")] = None
    output_total: Annotated[Count, COUNT, _fleet("output tokens in the window")] = None
    per: Annotated[Period, _PERIOD, _PER]


class FleetCost(Section):
    """``cost_budget`` of a fleet window."""

    total_usd: Annotated[int, USD, Key(meaning="cost in the window", tighter="lower", default="required")]
    per: Annotated[Period, _PERIOD, _PER]


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, Mapping) else value


def _unwrapped(windows: Any, handler: SerializerFunctionWrapHandler) -> Any:
    written = sorted(handler(windows), key=lambda window: PERIODS.index(window["per"]))
    return written[0] if len(written) == 1 else written


class _OneOrMore:
    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        array = handler(schema)
        return {"anyOf": [array["items"], array]}


_WINDOWS = (BeforeValidator(_one_or_more), WrapSerializer(_unwrapped), _OneOrMore())
_WINDOW = Key(meaning="a window, or a list of windows", tighter="special", default="not bounded", nullable=False)


class FleetScope(Section):
    """One line of ``fleet``: windows that many sessions share."""

    iteration_limit: Annotated[tuple[FleetIterations, ...], *_WINDOWS, _WINDOW] = ()
    token_budget: Annotated[tuple[FleetTokens, ...], *_WINDOWS, _WINDOW] = ()
    cost_budget: Annotated[tuple[FleetCost, ...], *_WINDOWS, _WINDOW] = ()

    @model_validator(mode="after")
    def _one_window_per_period(self) -> FleetScope:
        for name in ("iteration_limit", "token_budget", "cost_budget"):
            periods = [window.per for window in getattr(self, name)]
            for position, period in enumerate(periods):
                if period in periods[:position]:
                    raise SpecError(f"two windows per {period}", key=f"{name}.{position}.per", value=period)
        return self


class Fleet(Section):
    """``fleet``: limits over many sessions, by whom the sessions are for."""

    tenant: Annotated[FleetScope | None, _part("each tenant")] = None
    user: Annotated[FleetScope | None, _part("each user")] = None
    agent: Annotated[FleetScope | None, _part("each agent name")] = None
    all: Annotated[FleetScope | None, _part("all sessions together")] = None


def _weight(meaning: str, tighter: Literal["lower", "higher", "free"], default: str = "1") -> Key:
    return Key(meaning=meaning, tighter=tighter, default=default)


class DecisionDefaults(Section):
    """``decision``: how a step is judged, where the code does not say."""

    acceptance_weight: Annotated[float, number(0), _weight("weight of acceptance", "lower")] = 1.0
    influence_weight: Annotated[float, number(0), _weight("weight of influence", "lower")] = 1.0
    risk_weight: Annotated[float, number(0), _weight("weight of risk", "higher")] = 1.0
    cost_weight: Annotated[float, number(0), _weight("weight of cost", "higher")] = 1.0
    threshold: Annotated[float, number(0), _weight("score that accepts, inclusive", "higher", "0.6")] = 0.6
    retry_margin: Annotated[
        float, number(0), _weight("distance below the threshold that is retried, inclusive", "free", "0.1")
    ] = 0.1
    rollback_risk_threshold: Annotated[
        float, number(0, 1), _weight("risk that rolls back, inclusive", "lower", "0.8")
    ] = 0.8
    max_retries: Annotated[int, COUNT, _weight("retries of a step", "lower", "2")] = 2
    max_replans: Annotated[int, COUNT, _weight("new plans in a run", "lower", "1")] = 1


class Loosened(Section):
    """One line of ``loosen``: a bound that is wider than in the file it extends, and why."""

    key: Annotated[
        str, TEXT, Key(meaning="path, such as bounds.iteration_limit", tighter="free", default="required")
    ]
    reason: Annotated[str, TEXT, Key(meaning="why", tighter="free", default="required")]


def _version(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value != 1:
        raise refused(value, "a version of this form", "1")
    return 1


_VERSION = Kind(name="1", read=_version, write=int, schema={"const": 1})


def _gates(meaning: str) -> Key:
    return Key(meaning=meaning, tighter="special", default="none")


class SpecTree(Section):
    """The file."""

    @model_validator(mode="before")
    @classmethod
    def _an_empty_section_is_absent(cls, value: Any) -> Any:
        optional = ("bounds", "agents", "constraints", "loops", "evaluators", "settings")
        return {k: v for k, v in value.items() if v is not None or k not in optional}

    version: Annotated[int, _VERSION, Key(meaning="of this form", tighter="free", default="1")] = 1
    agent: Annotated[str | None, TEXT, Key(meaning="name of the agent", tighter="free", default="none")] = None
    extends: Annotated[
        str | None, TEXT, Key(meaning="a file to start from, relative to this one", tighter="free", default="none")
    ] = None
    loosen: Annotated[
        tuple[Loosened, ...],
        Key(meaning="bounds wider than in that file, with reasons", tighter="free", default="none", nullable=False),
    ] = ()
    review_by: Annotated[
        Any,
        DATE,
        Key(meaning="day by which to look again", tighter="free", default="none"),
    ] = None
    bounds: Annotated[Bounds, _part("the bounds of a run")] = PydanticField(default_factory=Bounds)
    agents: Annotated[dict[str, AgentBounds], _part("what differs by (sub-)agent")] = PydanticField(
        default_factory=dict
    )
    fleet: Annotated[Fleet | None, _part("windows over many sessions")] = None
    decision: Annotated[
        DecisionDefaults | None, Key(meaning="how steps are judged", tighter="special", default="as below")
    ] = None
    constraints: Annotated[Any, GATES, _gates("completion gates")] = None
    loops: Annotated[Any, GATES, _gates("repair loops of the gates")] = None
    evaluators: Annotated[Any, GATES, _gates("judges of the gates")] = None
    settings: Annotated[Any, GATES, _gates("settings of the gates")] = None

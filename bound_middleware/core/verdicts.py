"""What is asked, what is known, and what may be done: the values that the gateway takes and gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .ledger import Chain
from .usage import HANDOFFS, INPUT_TOKENS, ITERATIONS, NANOUSD, OUTPUT_TOKENS, SPAWNS, TOKENS, Amounts

Kind = Literal["model_call", "tool_call", "charge", "answer"]
#: What is known of the approval of one effect; empty: nobody was asked yet.
Approval = Literal["", "granted", "rejected", "expired", "failed"]

#: Which reason is named first when several limits are reached together.
STOP_REASONS = (
    "deadline",
    "cost_budget",
    "token_budget",
    "exposure",
    "iteration_limit",
    "model_call_cost",
    "tool_call_cost",
    "model_call_deadline",
    "tool_call_deadline",
    "idle",
    "truncated",
    "no_progress",
    "consecutive_failures",
    "usage_missing",
    "unpriced_model",
    "tool_refused",
    "data_scope",
    "approval_rejected",
    "approver_failed",
    "gate_unsatisfied",
    "retries_exhausted",
    "replans_exhausted",
    "rolled_back",
    "cancelled",
    "approval_expired",
    "handoff_limit",
    "spawn_limit",
    "model_not_allowed",
    "input_per_call",
    "output_refused",
)
_RANK = {reason: i for i, reason in enumerate(STOP_REASONS)}
_REASON_OF_METER = {
    NANOUSD: "cost_budget",
    TOKENS: "token_budget",
    INPUT_TOKENS: "token_budget",
    OUTPUT_TOKENS: "token_budget",
    ITERATIONS: "iteration_limit",
    SPAWNS: "spawn_limit",
    HANDOFFS: "handoff_limit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody wants to do. ``id`` is made of the framework's ids.

    For a model call ``input_tokens`` is an upper estimate, ``output_max_tokens`` the model's own maximum per
    generation (``None``: it states none), ``output_default_tokens`` what it may generate where the specification
    says nothing (``None``: the usual), and ``generations`` how many it returns. For a charge ``amounts`` is
    what is to be booked, for a tool call the exposures that it adds to.
    """

    kind: Kind
    id: str
    name: str = ""
    agent: str = ""
    input_tokens: int = 0
    output_max_tokens: int | None = None
    output_default_tokens: int | None = None
    generations: int = 1
    amounts: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """One ceiling of one account of the chain, and what is under it.

    ``settled`` counts what the caller itself holds, which is as good as spent to it; ``own`` says how much that is.
    """

    account_id: str
    meter: str
    limit: int
    settled: int
    held: int
    own: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known at the moment of asking.

    ``elapsed_ms`` is the time that the session has been active. ``input_nanousd`` is the most that the input
    costs and ``output_nanousd_per_mtok`` the price of output; for a tool ``price_nanousd`` is the price of one
    call; ``None`` is an unknown price. ``waited`` says that waiting for open holds is over.

    Of a tool call: ``truncated``, its message was cut; ``arguments_refused`` and ``outside_scope``, the rules
    that its arguments break, in words; ``approval``, and whether an ``approver`` can be asked here;
    ``running_tools`` now. ``identical_calls`` of this tool with these arguments came to the same result one
    after the other, the last ``same_results`` of this tool with any arguments did, and ``in_cycle`` says that
    the last calls repeat the ones before them. ``consecutive_failures`` are turns that ended with a failed tool.

    Of an answer: ``answer_refused``, the rules that it breaks, in words, and ``approval`` and ``approver`` as of
    a tool call.

    Of a model call: ``failed_attempts`` of the same request before this one, and whether its provider has
    ``failed_for_good``.
    """

    elapsed_ms: int = 0
    balances: tuple[Balance, ...] = ()
    input_nanousd: int | None = 0
    output_nanousd_per_mtok: int = 0
    price_nanousd: int | None = 0
    waited: bool = False
    truncated: bool = False
    arguments_refused: tuple[str, ...] = ()
    outside_scope: tuple[str, ...] = ()
    approval: Approval = ""
    approver: bool = False
    running_tools: int = 0
    identical_calls: int = 0
    same_results: int = 0
    in_cycle: bool = False
    consecutive_failures: int = 0
    failed_attempts: int = 0
    failed_for_good: bool = False
    answer_refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One bound that does not let the request pass: numbers in the unit of the axis, ``because`` in words."""

    stop_reason: str
    axis: str
    limit: int | None = None
    used: int | None = None
    held: int | None = None
    asked: int | None = None
    account_id: str = ""
    because: tuple[str, ...] = ()
    may_fit_later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What may be done: ``ask`` means that a person, or the policy in a person's place, has to approve it first.

    ``amounts`` is what to hold when allowed; ``output_cap_tokens`` what one generation may produce (``None``:
    not bounded) and ``cap_reason`` the bound that set it; ``time_ms`` how long the call may take and
    ``time_reason`` the bound that set that. ``breaches`` are in the order in which they are named.
    """

    kind: Literal["allow", "refuse", "ask"]
    amounts: Amounts = field(default_factory=dict)
    output_cap_tokens: int | None = None
    cap_reason: str | None = None
    time_ms: int | None = None
    time_reason: str | None = None
    breaches: tuple[Breach, ...] = ()

    @property
    def stop_reason(self) -> str | None:
        return self.breaches[0].stop_reason if self.breaches else None

    @property
    def may_fit_later(self) -> bool:
        """Whether nothing but open holds stands in the way."""
        return bool(self.breaches) and all(b.may_fit_later for b in self.breaches)


def balances_of(chain: Chain) -> tuple[Balance, ...]:
    """Every ceiling of a chain of accounts, from the root down."""
    return tuple(
        Balance(account_id=a.id, meter=m, limit=n, settled=a.settled.get(m, 0), held=a.held.get(m, 0))
        for a in chain
        for m, n in a.ceilings.items()
    )


def passes(limit: int | None, asked: int) -> bool:
    return limit is not None and (limit == 0 or asked > limit)


def rank(reason: str) -> int:
    """The place of a reason in the order in which several are named; one that has none comes last."""
    return _RANK.get(reason, len(_RANK))


def breach_of(balance: Balance, asked: int) -> Breach | None:
    """The breach that asking for so much would be, if any."""
    if not passes(balance.limit, balance.settled + balance.held + asked):
        return None
    return Breach(
        stop_reason=reason_of_meter(balance.meter),
        axis=balance.meter,
        limit=balance.limit,
        used=balance.settled - balance.own,
        held=balance.held + balance.own,
        asked=asked,
        account_id=balance.account_id,
        may_fit_later=balance.limit > 0 and balance.settled + asked <= balance.limit,
    )


def reason_of_meter(meter: str) -> str:
    """The stop reason of a ceiling on a meter; the limit on one tool's calls refuses that tool alone."""
    if meter.startswith("exposure:"):
        return "exposure"
    return _REASON_OF_METER.get(meter, "tool_refused")


def in_order(reasons: Iterable[str]) -> list[str]:
    """Stop reasons in the order in which they are named, each once."""
    return sorted(set(reasons), key=rank)


def as_dict(value: Any) -> Any:
    """A request, facts or verdict as plain JSON values; fields at their default are left out."""
    defaults = _DEFAULTS.get(type(value))
    if defaults is not None:
        pairs = ((name, getattr(value, name), default) for name, default in defaults)
        return {k: as_dict(v) for k, v, d in pairs if not (type(v) is type(d) and v == d)}
    if isinstance(value, tuple):
        return [as_dict(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


_DEFAULTS: dict[type, tuple[tuple[str, Any], ...]] = {
    kind: tuple((f.name, {} if f.default_factory is dict else f.default) for f in fields(kind))
    for kind in (Request, Facts, Balance, Breach, Verdict)
}

"""Amounts that are booked in one step: what no seam sees, and tool calls whose price is known before."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import BoundExceeded, SpecError
from ..core.gateway import Facts, Request
from ..core.ledger import Labels
from ..core.usage import Usage, nanousd
from ..core.verdicts import Approval
from .booking import Charge, booked
from .flow import Flow
from .late import ToolTime

if TYPE_CHECKING:
    from .session import BoundSession


def charge(
    session: BoundSession, *, usd: Any, usage: Any, model: str | None, note: str | None, already_spent: bool
) -> Flow[None]:
    """See ``BoundSession.charge``."""
    if usd is None and usage is None:
        raise SpecError("nothing to charge: give usd, usage or both", key="charge")
    for key, text in (("model", model), ("note", note)):
        if text is not None and not isinstance(text, str):
            raise SpecError(f"{text!r} is not a text", key=key, value=text, allowed="a text, or None")
    price: int | None = None if usd is None else nanousd(usd)
    amounts: dict[str, int] = {}
    flags: dict[str, int] = {}
    if usage is not None:
        tokens, estimated = _usage(usage)
        amounts = {**tokens.amounts(), meters.MODEL_CALLS: 1}
        if session.declared.iteration_unit in ("model_call", "action"):
            amounts[meters.ITERATIONS] = 1
        rate = session.prices.rate(model) if price is None and model is not None else None
        if rate is not None:
            price, estimated = rate.cost_nanousd(tokens), estimated or rate.flagged
        flags = {meters.ESTIMATED_CALLS: int(estimated), meters.UNPRICED_CALLS: int(price is None)}
    if price is not None:
        amounts[meters.NANOUSD] = price
    request = Request(
        kind="charge",
        id=f"charge:{uuid.uuid4().hex}",
        name=model or note or "",
        agent=session.agent,
        amounts=amounts,
    )
    labels = Labels(model=model or "", agent=session.agent)
    asked = Charge(session=session, request=request, price_nanousd=price, labels=labels, flags=flags, note=note)
    yield from booked((asked,), force=already_spent)


def _usage(given: Any) -> tuple[Usage, bool]:
    """Tokens, and whether any of them had to be guessed."""
    if isinstance(given, Usage):
        if given.cache_read_tokens + given.cache_write_tokens > given.input_tokens:
            raise SpecError(
                f"{given!r} has more cached tokens than input",
                key="usage",
                value=given,
                allowed="input_tokens that include cache reads and writes, or the provider's own report as a dict",
            )
        return given, False
    if not isinstance(given, dict) or not given:
        raise SpecError(
            f"{given!r} is not a usage",
            key="usage",
            value=given,
            allowed="a Usage, or a dict such as usage_metadata",
        )
    from ..metering.providers import normalise

    reading = normalise(given)
    if reading.usage == Usage() and reading.estimated:
        raise SpecError(
            f"no count of tokens is found in {given!r}",
            key="usage",
            value=given,
            allowed="a Usage, or a dict such as usage_metadata",
        )
    return reading.usage, reading.estimated


def tool_call(
    sessions: BoundSession | tuple[BoundSession, ...],
    *,
    call_id: str,
    tool: str,
    approved: Mapping[str, Approval] | None = None,
    args: Mapping[str, Any] | None = None,
) -> Flow[ToolTime]:
    """Admit one call of a tool and take it for done: for callers that cannot say how it ends. See ``tools.judge``.

    Returns:
        How long the call may take.

    Raises:
        BoundExceeded: the tool is not allowed, or a bound does not let it pass; nothing was booked.
    """
    from .tools import ToolCall, judge

    every_one = sessions if isinstance(sessions, tuple) else (sessions,)
    call = ToolCall(id=call_id, run_id=call_id, name=tool, args=args or {})
    admission = yield from judge(every_one, call, approved=approved)
    yield from admission.finished(None)
    return admission.time


def would_ask(session: BoundSession, call: Mapping[str, Any]) -> Flow[bool]:
    """Whether nothing but an approval keeps a call from running now. Nothing is booked or recorded."""
    from .tools import would_ask as would

    return (yield from would(session, call))


def superstep(session: BoundSession, *, id: str) -> Flow[None]:
    """Admit one step of a graph, and book it as an iteration.

    Raises:
        BoundExceeded: no iteration is left, or the time is over; nothing was booked.
    """
    request = Request(
        kind="charge",
        id=f"superstep:{id}",
        name="superstep",
        agent=session.agent,
        amounts={meters.ITERATIONS: 1},
    )
    asked = Charge(session=session, request=request, price_nanousd=0, labels=Labels(agent=session.agent), flags={})
    yield from booked((asked,))


def passage(session: BoundSession, *, id: str, name: str) -> BoundExceeded | None:
    """What keeps the next piece of a run from starting: time that is up, or a bound that has ended the run already.

    Nothing is held or booked, and no ledger is asked.
    """
    request = Request(kind="charge", id=id, name=name, agent=session.agent)
    facts = Facts(elapsed_ms=session.elapsed_ms())
    verdict = session.judge(request, facts)
    if session.granted(request, facts, verdict).kind == "refuse":
        return session.refuse(request, facts, verdict)
    reason = session.ending.run_stopped
    return None if reason is None or session.shadow else BoundExceeded(reason, session_id=session.session_id)


__all__ = ["BoundExceeded", "charge", "passage", "superstep", "tool_call", "would_ask"]

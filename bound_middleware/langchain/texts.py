"""What a run says when a bound ends it, and what a model is told about a refusal: what to do, never the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AIMessage

from ..session.tools import Hints

#: How many tools a refused model is told of, and how much of a name that it made up.
TOOLS_TOLD_MAX, NAME_CHARS_MAX = 30, 100

_STOPS = {
    "deadline": "its time is over",
    "cost_budget": "its cost budget is used up",
    "token_budget": "its token budget is used up",
    "iteration_limit": "its iteration limit is reached",
    "exposure": "its exposure limit is reached",
    "model_call_cost": "the next model call would cost more than one call may",
    "input_per_call": "the next model call would send more than one call may",
    "unpriced_model": "nobody knows what the model costs",
    "model_not_allowed": "the model is not allowed",
    "usage_missing": "the provider did not report what was used",
    "truncated": "its answer was cut off",
    "no_progress": "its calls bring nothing new",
    "consecutive_failures": "its calls fail one after the other",
    "spawn_limit": "no more sub-agents may be started",
    "handoff_limit": "no more work may be handed on",
    "model_call_deadline": "a model call took too long",
    "tool_refused": "a tool that it called is not available",
}
_WITHHELD = {
    "approval_rejected": "it was not approved",
    "approver_failed": "it needs an approval that nobody can give here",
}
_REFUSALS = {
    "truncated": "the message was cut off before it was complete. Make a smaller call, or several ones.",
    "data_scope": "what it asks for is outside of what may be read and written here. Stay inside.",
    "exposure": "it is more than is left to be done here. Ask for less, or go on without it.",
    "no_progress": "it brings nothing new. Answer with what you have.",
    "tool_refused": "it is not available here. Use another tool, or answer without it.",
    "approver_failed": "it needs an approval that nobody can give here. Go on without it.",
    "approval_rejected": "it was rejected. Do not ask for the same again; go on without it.",
    "approval_expired": "its approval is too old. Ask for it again, or go on without it.",
    "tool_call_cost": "one call of it costs more than is allowed. Use another tool.",
}


def stop_text(stop_reason: str) -> str:
    """The last message of a run that a bound ended."""
    why = _STOPS.get(stop_reason, "a bound is reached")
    return f"Stopped: {why} ({stop_reason}). What was done before is kept."


def stop_message(stop_reason: str) -> AIMessage:
    """The same as the answer of an agent's model."""
    return AIMessage(content=stop_text(stop_reason), response_metadata={"bound": {"stop_reason": stop_reason}})


def withheld_text(stop_reason: str) -> str:
    """What leaves in the place of an answer that was refused."""
    why = _WITHHELD.get(stop_reason, "it does not have a form that is allowed")
    return f"The answer was withheld: {why} ({stop_reason})."


def asked_again_text(faults: Sequence[str]) -> str:
    """What a model is told of an answer that was refused, when it is asked again."""
    return f"This answer was not accepted: {'; '.join(faults)}. Answer again without that."


def refusal_text(tool: str, stop_reason: str, hints: Hints | None = None) -> str:
    """The answer to a tool call that was refused: why, and what can be called instead."""
    why = _REFUSALS.get(stop_reason, "the run has reached its bound. Answer with what you have.")
    if len(tool) > NAME_CHARS_MAX and (hints is None or tool not in hints.allowed):
        tool = f"{tool[:NAME_CHARS_MAX]}..."
    if stop_reason != "tool_refused" or hints is None:
        return f"The tool {tool!r} was not run: {why}"
    if hints.faults and tool in hints.allowed:
        return f"The tool {tool!r} was not run: {'; '.join(hints.faults)}. Change that, or go on without it."
    if not hints.allowed or tool in hints.allowed:
        return f"The tool {tool!r} was not run: {why}"
    meant = f"Did you mean {hints.meant!r}? " if hints.meant else ""
    listed = ", ".join(hints.allowed[:TOOLS_TOLD_MAX])
    return f"The tool {tool!r} was not run: there is none of this name here. {meant}You may call: {listed}."


def truncated_text(tool: str) -> str:
    """The answer to a call of a message that was cut."""
    return (
        f"The tool {tool!r} was not run: the message was truncated, so that the call is not complete. Call it "
        "again in a shorter form, or in several parts."
    )


def unreadable_text(tool: str) -> str:
    """The answer to a call whose arguments are no JSON."""
    return f"The tool {tool!r} was not run: its arguments cannot be read. They have to be valid JSON."


def stopped_text(tool: str, stop_reason: str) -> str:
    """The answer to a tool call in which a bound stopped something."""
    why = _STOPS.get(stop_reason, "a bound is reached")
    return f"The tool {tool!r} was stopped before it was done: {why}. Go on with what you have."


def no_answer_text(tool: str) -> str:
    """The answer to a call that had none when its agent was stopped: it may have run beside what was stopped."""
    return (
        f"The tool {tool!r} gave no answer before the run was stopped. Whether it ran is not known: find out "
        "before you call it again."
    )


def late_text(tool: str, stop_reason: str, *, ran: bool) -> str:
    """The answer to a tool call whose time was over, while it ran or before it did."""
    why = _STOPS.get(stop_reason, "it took too long")
    if not ran:
        return f"The tool {tool!r} was not run: {why}. Answer with what you have."
    return (
        f"The tool {tool!r} was given up: {why}. Whether it had an effect is not known: find out before you call "
        "it again."
    )


def sub_agent_text(agent: str, why: str, *, started: bool = True, failed: bool = False) -> str:
    """The last word of a sub-agent that did not come to its own end, to the agent that called it."""
    if failed:
        return f"The sub-agent {agent!r} failed ({why}). Go on without it."
    because = f"{_STOPS.get(why, 'a bound is reached')} ({why})"
    if not started:
        return f"The sub-agent {agent!r} was not started: {because}. Go on without it."
    return f"The sub-agent {agent!r} was stopped before it was done: {because}. Go on with what it has."

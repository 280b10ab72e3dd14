"""What a run says when a bound ends it, and what a model is told about a refusal: what to do, never the numbers."""

from __future__ import annotations

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
}
_REFUSALS = {
    "tool_refused": "it is not available here. Use another tool, or answer without it.",
    "approver_failed": "it needs an approval that nobody can give here. Go on without it.",
    "tool_call_cost": "one call of it costs more than is allowed. Use another tool.",
}


def stop_text(stop_reason: str) -> str:
    """The last message of a run that a bound ended."""
    why = _STOPS.get(stop_reason, "a bound is reached")
    return f"Stopped: {why} ({stop_reason}). What was done before is kept."


def refusal_text(tool: str, stop_reason: str) -> str:
    """The answer to a tool call that was refused."""
    why = _REFUSALS.get(stop_reason, "the run has reached its bound. Answer with what you have.")
    return f"The tool {tool!r} was not run: {why}"


def stopped_text(tool: str, stop_reason: str) -> str:
    """The answer to a tool call in which a bound stopped something."""
    why = _STOPS.get(stop_reason, "a bound is reached")
    return f"The tool {tool!r} was stopped before it was done: {why}. Go on with what you have."

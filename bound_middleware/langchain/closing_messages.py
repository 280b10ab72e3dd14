"""What a closing call asks, and what is kept of its answer."""

from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage

_LAST = (
    "This is your last answer, and no tool can be called any more. "
    "Say what you have found and done, and what is missing."
)


def last_question() -> HumanMessage:
    """The message behind the conversation; no history keeps it."""
    return HumanMessage(content=_LAST, name="bound")


def last_message(answer: AIMessage | None) -> AIMessage | None:
    """The words of the answer, without calls that nobody would answer; ``None`` where it has none."""
    if answer is None or not answer.text:
        return None
    return AIMessage(
        content=answer.text,
        id=answer.id,
        usage_metadata=answer.usage_metadata,
        response_metadata={**answer.response_metadata, "bound": {"closing_call": True}},
    )

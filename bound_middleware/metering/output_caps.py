"""The cap on generated tokens, on the wire. Reasoning is bounded by nothing else while it runs.

A cap sits in a field of the model; an argument of the call, or a nested table of options, beats the field. So the
field is set, and every spelling that is found elsewhere is lowered to the same number. A cap is never raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Fields that reach the wire, in the order of preference (each chat class has one of them).
CAP_FIELDS: Final = ("max_tokens", "max_output_tokens", "num_predict")
#: Every spelling that some class sends on, whatever the field says.
CAP_ALIASES: Final = frozenset(
    {*CAP_FIELDS, "max_completion_tokens", "max_tokens_to_sample", "max_new_tokens", "maxTokens",
     "maxOutputTokens", "n_predict"}
)  # fmt: skip
#: Nested tables of a call that replace the model's own, with the spelling that they use inside.
_REPLACING: Final = {
    "options": "num_predict", "generation_config": "max_output_tokens", "generationConfig": "maxOutputTokens",
    "inferenceConfig": "maxTokens", "inference_config": "maxTokens",
}  # fmt: skip
#: Nested tables that are merged into the request.
_MERGED: Final = ("model_kwargs", "extra_body", "additional_model_request_fields")
_NESTED: Final = (*_REPLACING, *_MERGED)

#: ``best_of`` of OpenAI's completions generates that many, and returns ``n`` of them.
_GENERATIONS: Final = ("n", "best_of", "candidate_count", "candidateCount", "num_generations")
#: Whose streams bring every answer, each chunk of one of them (OpenAI "Chat completions: streaming", ``index``).
#: LangChain reads the first answer of a chunk and no other.
_STREAM_ALL_ANSWERS: Final = frozenset({"openai", "azure"})

#: Anthropic "Extended thinking": the budget is at least this, and below ``max_tokens``.
THINKING_MIN_TOKENS: Final = 1_024
#: OpenAI "Responses: max_output_tokens": smaller values are rejected.
RESPONSES_MIN_TOKENS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedCall:
    """A model and arguments whose request carries at most ``cap_tokens``.

    Attributes:
        model: the same, or a copy.
        kwargs: the same, or a copy.
        cap_tokens: what the wire carries per generation: the asked cap, or the user's smaller one.
        capped: ``False``: this class has no known cap; only the stream can be cut.
        refuse: why the provider would reject so small a cap; ``None`` when it would not.
    """

    model: Any
    kwargs: Mapping[str, Any]
    cap_tokens: int
    capped: bool = True
    refuse: str | None = None


def output_cap_of(model: Any, kwargs: Mapping[str, Any] | None = None) -> int | None:
    """The smallest cap that the model or the call sets, in tokens per generation; ``None`` when neither does."""
    state = _state(model)
    given = kwargs or {}
    found: list[Any] = [state[field] for field in CAP_FIELDS if field in state]
    tables = [
        given,
        *(given[name] for name in _NESTED if name in given),
        *(state[name] for name in _MERGED if name in state),
    ]
    for table in tables:
        if table and isinstance(table, Mapping):
            found += [table[alias] for alias in CAP_ALIASES & table.keys()]
    return min((cap for cap in found if _is_cap(cap)), default=None)


def with_output_cap(model: Any, kwargs: Mapping[str, Any], cap_tokens: int) -> CappedCall:
    """The call with at most ``cap_tokens`` per generation on the wire, and never more than the user allowed.

    Anthropic wants a thinking budget of at least 1,024 tokens and below the cap: one that is not below is
    lowered to three quarters of the cap; where even 1,024 do not fit, ``refuse`` says so.

    Args:
        model: any chat model; a copy is made only when one of its fields must change.
        kwargs: arguments of the call.
        cap_tokens: at least 1.

    Raises:
        ValueError: ``cap_tokens`` is below 1: such a call is refused, not capped.
    """
    if cap_tokens < 1:
        raise ValueError(f"a cap of {cap_tokens} tokens is no cap")
    own = output_cap_of(model, kwargs)
    cap = cap_tokens if own is None else min(own, cap_tokens)
    state = _state(model)
    field = next((name for name in CAP_FIELDS if name in state), None)
    update: dict[str, Any] = {}
    if field is not None and not _is_cap(state[field], cap):
        update[field] = cap
    for name in _MERGED:
        if (lowered := _lowered(state.get(name), cap)) is not None:
            update[name] = lowered
    given, found = _capped_kwargs(kwargs, cap)
    refuse = None
    for name, table in (("thinking", state), ("additional_model_request_fields", state), ("thinking", given)):
        changed, why = _lower_thinking(table.get(name), cap)
        refuse = refuse or why
        if changed is not None and table is state:
            update[name] = {**update.get(name, {}), **changed}
        elif changed is not None:
            given = {**given, name: changed}
    return CappedCall(
        model=model.model_copy(update=update) if update else model,
        kwargs=given,
        cap_tokens=cap,
        capped=field is not None or found,
        refuse=refuse or _too_small(model, given, cap),
    )


def generations_of(model: Any, kwargs: Mapping[str, Any] | None = None) -> int:
    """How many answers one call asks for; each may use the whole cap."""
    state, given = _state(model), kwargs or {}
    found = [given.get(name, state.get(name)) for name in _GENERATIONS]
    for nested in (table.get(name) for table in (state, given) for name in _NESTED):
        if isinstance(nested, Mapping):
            found += [nested.get(name) for name in _GENERATIONS]
    return max([1, *(n for n in found if isinstance(n, int) and not isinstance(n, bool))])


def shown_of(provider: str | None, generations: int) -> int:
    """How many of the answers of a call its stream shows: what is generated beside them is not seen."""
    return generations if provider in _STREAM_ALL_ANSWERS else 1


def _state(model: Any) -> Mapping[str, Any]:
    """The fields of ``model``. Asking a pydantic model for what it has not costs 1.6 us each time."""
    state: Mapping[str, Any] = getattr(model, "__dict__", {})
    return state


def _is_cap(value: Any, at_most: int | None = None) -> bool:
    """Whether ``value`` bounds anything: Ollama's ``-1`` and ``-2``, ``None`` and strings do not."""
    good = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return good and (at_most is None or value <= at_most)


def _lowered(table: Any, cap: int) -> dict[str, Any] | None:
    """A copy of ``table`` with every cap in it lowered, or ``None`` when nothing in it must change."""
    if not isinstance(table, Mapping):
        return None
    wrong = [alias for alias in CAP_ALIASES & table.keys() if not _is_cap(table[alias], cap)]
    return {**table, **dict.fromkeys(wrong, cap)} if wrong else None


def _capped_kwargs(kwargs: Mapping[str, Any], cap: int) -> tuple[Mapping[str, Any], bool]:
    """(arguments with every cap lowered, whether a cap is among them)."""
    found = bool(CAP_ALIASES & kwargs.keys())
    given: Mapping[str, Any] = _lowered(kwargs, cap) or kwargs
    for name in _NESTED:
        table = given.get(name)
        if not isinstance(table, Mapping):
            continue
        lowered = _lowered(table, cap)
        if lowered is None and name in _REPLACING and not CAP_ALIASES & table.keys():
            lowered = {**table, _REPLACING[name]: cap}
        if lowered is not None:
            given = {**given, name: lowered}
        found = found or name in _REPLACING
    return given, found


def _lower_thinking(table: Any, cap: int) -> tuple[dict[str, Any] | None, str | None]:
    """(the table with a thinking budget that fits below ``cap``, why none fits); mostly neither."""
    if not table or not isinstance(table, Mapping):
        return None, None
    if "budget_tokens" not in table:
        inner, why = _lower_thinking(table.get("thinking"), cap)
        return (None if inner is None else {**table, "thinking": inner}), why
    if not _is_cap(table["budget_tokens"]) or table["budget_tokens"] < cap:
        return None, None
    if cap <= THINKING_MIN_TOKENS:
        return None, f"thinking needs more than {THINKING_MIN_TOKENS} tokens, the cap is {cap}"
    return {**table, "budget_tokens": max(THINKING_MIN_TOKENS, cap * 3 // 4)}, None


def _too_small(model: Any, given: Mapping[str, Any], cap: int) -> str | None:
    asks = getattr(model, "_use_responses_api", None)
    if cap < RESPONSES_MIN_TOKENS and callable(asks):
        merged = {**(getattr(model, "model_kwargs", None) or {}), **given}
        if getattr(model, "use_responses_api", None) or asks(merged):
            return f"the Responses API wants at least {RESPONSES_MIN_TOKENS} output tokens, the cap is {cap}"
    return None

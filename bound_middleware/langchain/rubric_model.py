"""Any LangChain chat model as the evaluator of a rubric.

Its calls are bounded and charged like every other call; a bound that stops one leaves the rubric ``uncertain``.
They stay out of the streams of the agent whose work is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage

from ..core.errors import BoundExceeded
from ..gates.contract.evaluators import AnthropicEvaluator, OpenAIEvaluator
from ..gates.rubrics.port import Evaluator, EvaluatorFailed, Said
from ..gates.rubrics.prompt import INSTRUCTIONS
from ..gates.runners.rubric import Rubrics
from ..metering import providers
from ..metering.stop_reasons import stop_reason
from ..session import scope
from ..session.session import BoundSession
from .capped import NOSTREAM
from .model import bound_model
from .unattributed import unclaimed

_EXTRA = {"openai": "pip install langchain-openai", "anthropic": "pip install langchain-anthropic"}


class ChatModelEvaluator:
    """Asks a chat model. Structured output is not relied on: the model is told the form, and held to it.

    Args:
        model: any chat model.
        session: who bounds the calls; ``None`` leaves it to the sessions around whoever runs the gates.
        concurrent: whether the runs of one rubric may overlap.

    Raises:
        SpecError: not a chat model, or one that cannot be bounded.
    """

    def __init__(
        self, model: BaseChatModel, *, session: BoundSession | None = None, concurrent: bool = False
    ) -> None:
        bound_model(model, session)
        self._model, self._session, self._concurrent = model, session, concurrent

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"type": type(self._model).__name__, "model": providers.model_name_of(self._model, {})}

    @property
    def concurrent(self) -> bool:
        return self._concurrent

    def evaluate(self, bundle: str) -> Said:
        """What the model answers.

        Raises:
            EvaluatorFailed: the call failed, was stopped by a bound, refused, or cut off.
        """
        meter, model = None, self._model
        try:
            for session in self._claimed():
                model = bound_model(model, session)
                # A session that bounds nothing, inside of the others, reads what this one call used.
                meter = meter or BoundSession(None, prices=session.prices, clock=session.clock)
            meter = meter or BoundSession(None)
            asked = bound_model(model, meter)
            # The runs of a rubric are judgements of their own: a remembered answer is the vote of another run.
            asked.cache = False
            answer = asked.invoke(
                [SystemMessage(INSTRUCTIONS), HumanMessage(bundle)], {"callbacks": [], "tags": [NOSTREAM]}
            )
        except BoundExceeded as error:
            raise EvaluatorFailed(str(error), **_spent(meter)) from error
        except Exception as error:
            raise EvaluatorFailed(f"{type(error).__name__}: {error}", **_spent(meter)) from error
        problem = _problem(answer)
        if problem is not None:
            raise EvaluatorFailed(problem, **_spent(meter))
        return Said(text=str(answer.text), **_spent(meter))

    def _claimed(self) -> tuple[BoundSession, ...]:
        """The sessions that bound this call, as for any model: its own inside those around, else whoever claims it.

        Raises:
            BoundExceeded: nobody does, and it would be hidden from a session that bounds money.
        """
        owners = (self._session,) if self._session is not None else ()
        return scope.claim_for(owners) or unclaimed(providers.model_name_of(self._model, {}))


def rubrics(models: Mapping[str, BaseChatModel | Evaluator], *, session: BoundSession | None = None) -> Rubrics:
    """Rubrics whose evaluators are chat models, by the id that the contract gives an evaluator.

    Raises:
        SpecError: a model that cannot be bounded.
    """
    return Rubrics(
        evaluators={
            name: ChatModelEvaluator(model, session=session) if isinstance(model, BaseChatModel) else model
            for name, model in models.items()
        },
        models=lambda declared, key: provider_evaluator(declared, key, session=session),
    )


def provider_evaluator(
    declared: OpenAIEvaluator | AnthropicEvaluator,
    key: str,
    *,
    session: BoundSession | None = None,
    base_url: str | None = None,
) -> ChatModelEvaluator:
    """The model of a provider, as a contract declares it.

    Args:
        key: the API key.
        base_url: another address than the provider's, for tests and proxies.

    Raises:
        EvaluatorFailed: the integration package is not installed, or refuses the settings.
    """
    make = _openai if isinstance(declared, OpenAIEvaluator) else _anthropic
    try:
        model = make(declared, key, base_url)
    except ImportError as error:
        missing = f"the evaluator {declared.id!r} needs {declared.type}: {_EXTRA[declared.type]}"
        raise EvaluatorFailed(missing) from error
    except ValueError as error:
        raise EvaluatorFailed(f"the evaluator {declared.id!r} is refused: {error}") from error
    return _Declared(declared, model, session)


class _Declared(ChatModelEvaluator):
    """A model of a contract: what is declared is its identity."""

    def __init__(
        self, declared: OpenAIEvaluator | AnthropicEvaluator, model: BaseChatModel, session: BoundSession | None
    ) -> None:
        super().__init__(model, session=session, concurrent=bool(getattr(declared, "concurrent", False)))
        self._declared = declared

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"id": self._declared.id, **self._declared.model_dump(mode="json")}


def _openai(declared: Any, key: str, base_url: str | None) -> BaseChatModel:
    from langchain_openai import ChatOpenAI

    # Models that do not reason refuse the setting, so the default goes only to those that are known to.
    reasons = "reasoning_effort" in declared.model_fields_set or _reasons(declared.model)
    return ChatOpenAI(
        model=declared.model,
        api_key=key,  # type: ignore[arg-type]
        base_url=base_url,
        timeout=declared.timeout_seconds,
        max_retries=declared.max_attempts - 1,
        max_completion_tokens=declared.max_output_tokens,
        reasoning_effort=declared.reasoning_effort if reasons else None,
    )


def _reasons(model: str) -> bool:
    name = model.rpartition("/")[2]
    return name.startswith("gpt-5") or (name[:1] == "o" and name[1:2].isdigit())


def _anthropic(declared: Any, key: str, base_url: str | None) -> BaseChatModel:
    from langchain_anthropic import ChatAnthropic

    address = {} if base_url is None else {"base_url": base_url}
    return ChatAnthropic(
        model_name=declared.model,
        api_key=key,  # type: ignore[arg-type]
        timeout=declared.timeout_seconds,
        max_retries=declared.max_attempts - 1,
        max_tokens_to_sample=declared.max_output_tokens,
        **address,  # type: ignore[arg-type]
    )


def _problem(answer: Any) -> str | None:
    """Why an answer is none: it was cut, refused, or is a call of a tool."""
    ending = stop_reason(answer)
    word = f" ({ending.raw})" if ending.raw else ""
    if ending.truncated or answer.response_metadata.get("bound", {}).get("cut"):
        return f"the answer was cut off{word}"
    blocks = answer.content if isinstance(answer.content, list) else []
    refusals = [block for block in blocks if isinstance(block, dict) and block.get("type") == "refusal"]
    if ending.kind == "filtered" or answer.additional_kwargs.get("refusal") or refusals:
        return f"the model refused{word}"
    if answer.tool_calls or answer.invalid_tool_calls:
        return "the model called a tool"
    return None


def _spent(meter: BoundSession | None) -> dict[str, Any]:
    """What one call used, every attempt of it; its cost is unknown where any of its prices is."""
    if meter is None:
        return {}
    usage = meter.usage
    counts = {
        "model_calls": usage.model_calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
    }
    cost = None if usage.unpriced_calls or not usage.model_calls else str(usage.cost_usd)
    return {"usage": counts, "cost_usd": cost}

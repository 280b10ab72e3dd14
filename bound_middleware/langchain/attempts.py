"""The flows of a bounded model: admit, call the provider, meter, close, settle, and try again where allowed.

Each attempt that is sent is one model call. What the client library would have retried on its own is retried
here, so that every attempt is admitted and counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables.config import var_child_runnable_config

from ..core.errors import BoundExceeded
from ..metering import call_settings, providers
from ..metering.tokens import counter_for
from ..session.flow import Call, Emit, Flow, Op, Sleep
from ..session.model_call import Billing, How, ModelCall, ModelRequest
from ..session.session import BoundSession
from . import cached_answers
from . import messages as texts
from .places import stopping
from .provider_stream import Close, Source, StreamState, in_time

#: The first pause between attempts, doubled each time, as the clients of OpenAI and Anthropic do.
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 500, 8_000
#: A longer wait that a server asks for is not made; the same clients have this limit.
LONGEST_RETRY_AFTER_MS = 60_000


class Attempts:
    """All attempts of one call of a bounded model.

    Args:
        sessions: who bounds the call, from the outermost in.
        plain: the model in its original class.
        chat: the messages.
        kwargs: what the caller passed on.
        call_id: the run's id where the framework gives one.
        retries: how often the client library would have tried again on its own.
        unseen: it may try again all the same; a session that wants every usage refuses that.
    """

    def __init__(
        self,
        sessions: tuple[BoundSession, ...],
        plain: BaseChatModel,
        chat: list[BaseMessage],
        stop: list[str] | None,
        kwargs: dict[str, Any],
        call_id: str | None,
        retries: int = 0,
        *,
        unseen: bool = False,
    ) -> None:
        self.sessions, self.plain, self.chat, self.stop, self.kwargs = sessions, plain, chat, stop, kwargs
        self.call_id = call_id or uuid.uuid4().hex
        self.cache = cached_answers.current()
        self.number, self.unseen = 0, unseen
        caps = (s.limits.attempts_per_call_max for s in sessions)
        self.most = max(1, min([1 + retries, *(c for c in caps if c is not None)]))
        self.model_name = providers.model_name_of(plain, kwargs) or type(plain).__name__
        self.provider = providers.provider_of(plain)
        self.counter = counter_for(self.model_name, self.provider)

    @property
    def streams_underneath(self) -> bool:
        """Whether a call that is not streamed is to be streamed all the same, so that it can be cut."""
        needed = any(s.limits.bounds_output or s.limits.bounds_call_time for s in self.sessions)
        return (
            needed
            and providers.can_stream(self.plain, self.kwargs)
            and providers.stream_reports_usage(self.plain, self.kwargs)
            and call_settings.streams_faithfully(self.plain)
        )

    @property
    def attempt_id(self) -> str:
        """The id of the attempt that runs; the first has the call's own."""
        return self.call_id if self.number <= 1 else f"{self.call_id}#{self.number}"

    def _request(self) -> ModelRequest:
        generations = providers.generations_of(self.plain, self.kwargs)
        extra = {k: v for k, v in self.kwargs.items() if k in ("response_format", "functions", "format")}
        return ModelRequest(
            call_id=self.attempt_id,
            model=self.model_name,
            provider=self.provider,
            counter=self.counter,
            conversation=texts.conversation_of(self.chat),
            counted_input_tokens=self.counter.count_input(
                self.chat, self.kwargs.get("tools") or (), extra or None, self.sessions[-1].calibration.known
            ),
            output_max_tokens=providers.output_cap_of(self.plain, self.kwargs),
            generations=generations,
            shown=providers.shown_of(self.provider, generations),
            may_write_cache=call_settings.may_write_cache(self.chat, self.kwargs),
            may_have_audio=call_settings.may_have_audio(self.plain, self.chat, self.kwargs),
            service_tier=providers.requested_service_tier(self.plain, self.kwargs),
            base_url=providers.base_url_of(self.plain),
            wire_cap=call_settings.caps_output(self.plain),
            **attempt_of(self.sessions, self.chat),
        )

    def _admitted(self) -> Flow[ModelCall]:
        if self.unseen and any(s.limits.strict_usage for s in self.sessions):
            raise (yield from self._unmetered("its client may repeat requests that nobody sees; set max_retries=0"))
        self.number += 1
        call = ModelCall(self.sessions, self._request())
        try:
            yield from call.admit()
        except BoundExceeded as error:
            raise (yield from self.told(error)) from None
        return call

    def told(self, error: BoundExceeded) -> Flow[BoundExceeded]:
        """The error with the outcome of the innermost session, in the form that passes through graphs."""
        session = self.sessions[-1]
        error.outcome = yield Op(lambda: session.outcome, session.ledger.blocking)
        return stopping(error)

    def _prepared(self, call: ModelCall) -> Flow[tuple[BaseChatModel, dict[str, Any]]]:
        """The model and arguments that carry the call's cap and time-out over the wire."""
        model, kwargs = self.plain, dict(self.kwargs)
        if call.output_cap_tokens is not None:
            capped = providers.with_output_cap(model, kwargs, call.output_cap_tokens)
            model, kwargs = capped.model, dict(capped.kwargs)
            if capped.refuse is not None:
                yield from call.settle("not_sent")
                raise (yield from self.told(call.too_small(capped.refuse)))
        patience_s = call.patience_s()
        if patience_s is not None:
            kwargs = call_settings.with_timeout(model, kwargs, patience_s)
        return model, kwargs

    # -- not streamed --------------------------------------------------------------------------------------

    def generate(self, run_manager: Any) -> Flow[ChatResult]:
        """One answer in one piece."""
        while True:
            call = yield from self._admitted()
            model, kwargs = yield from self._prepared(call)
            kwargs.pop("stream_usage", None)
            try:
                result: ChatResult = yield self._ask(call, model, kwargs, run_manager)
            except BaseException as error:  # noqa: BLE001 - settled and raised again
                yield from self._failed(call, error)
                continue
            yield from self._answered(call, result)
            return result

    def _ask(self, call: ModelCall, model: BaseChatModel, kwargs: dict[str, Any], run_manager: Any) -> Call:
        def ask() -> Any:
            return model._generate(self.chat, self.stop, run_manager, **kwargs)

        def aask() -> Any:
            return in_time(call, lambda: model._agenerate(self.chat, self.stop, run_manager, **kwargs))

        return Call(ask, aask)

    def _answered(self, call: ModelCall, result: ChatResult) -> Flow[None]:
        meter = providers.UsageMeter()
        truncated, answers, text = False, True, ""
        for generation in result.generations:
            message: Any = generation.message
            info = {**(result.llm_output or {}), **(generation.generation_info or {})}
            meter.add(message, info)
            text += texts.output_text(message)
            answers = answers and not message.tool_calls
            if providers.stop_reason(message, info).kind == "truncated":
                truncated = True
                generation.message = texts.without_tool_calls(message)
        yield from self._settled(
            call, "done", meter, truncated=truncated, answers=answers, text=text, result=result
        )

    # -- streamed ------------------------------------------------------------------------------------------

    def stream(self, run_manager: Any) -> Flow[None]:
        """The chunks of one answer. An attempt that has emitted a chunk is not repeated."""
        while True:
            call = yield from self._admitted()
            model, kwargs = yield from self._prepared(call)
            source = Source(model, self.chat, self.stop, run_manager, kwargs, call)
            state = StreamState()
            how: How = "aborted"
            try:
                while True:
                    chunk = yield source
                    if chunk is None:
                        how = "done"
                        break
                    reason = state.take(chunk, call)
                    if state.finished:
                        reason = None
                    if reason is not None and reason == call.cap_reason and (yield from call.extend()):
                        reason = None
                    yield Emit(chunk)
                    if reason is not None:
                        how = "cut"
                        call.cut(reason)
                        break
            except BaseException as error:
                call.let_go()
                yield Close(source)
                if isinstance(error, Exception) and call.stopped_by is None and source.late:
                    call.cut(source.late)
                    how = "cut"
                elif state.emitted or not isinstance(error, Exception):
                    call.failed(error)
                    reading = state.meter.result(call.received) or providers.usage_in_error(error)
                    filled = providers.ended_at_length(error)
                    yield from call.settle(
                        how, reading, truncated=filled, answers=not state.arguments, filled=filled
                    )
                    raise
                else:
                    yield from self._failed(call, error, state.meter)
                    continue
            else:
                yield Close(source)
            yield from self._end(call, how, state)
            return

    def _end(self, call: ModelCall, how: How, state: StreamState) -> Flow[None]:
        truncated = state.truncated or how == "cut"
        for chunk in texts.poison(state.arguments.broken(all_of_them=truncated), state.message_id):
            yield Emit(chunk)
        billing = yield from self._settled(
            call, how, state.meter, truncated=state.truncated, answers=not state.arguments
        )
        if how == "cut":
            if not state.emitted and call.stopped_by is not None:
                raise (yield from self.told(call.error()))
            yield Emit(texts.last_chunk(state.message_id, state.unreported(billing.usage), call.stopped_by or ""))

    # -- endings -------------------------------------------------------------------------------------------

    def _settled(
        self,
        call: ModelCall,
        how: How,
        meter: providers.UsageMeter,
        *,
        truncated: bool = False,
        answers: bool = True,
        text: str | None = None,
        result: Any = None,
    ) -> Flow[Billing]:
        reading = meter.result(call.received)
        billing = yield from call.settle(
            how, reading, truncated=truncated, answers=answers, text=text, filled=truncated
        )
        if self.cache is not None and call.shortened:
            self.cache.shut = True
        strict = any(s.limits.strict_usage for s in self.sessions)
        if strict and how == "done" and billing.estimated:
            raise (yield from self._unmetered("it reported no usage", partial=result))
        return billing

    def _unmetered(self, why: str, partial: Any = None) -> Flow[BoundExceeded]:
        """The stop of a session that wants to know every usage, and cannot."""
        for session in self.sessions:
            session.ending.stop("usage_missing", {"name": self.model_name})
            session.record("usage_missing", call_id=self.attempt_id)
        error = BoundExceeded("usage_missing", note=f"{self.model_name!r}: {why}", partial=partial)
        return (yield from self.told(error))

    def _failed(
        self, call: ModelCall, error: BaseException, meter: providers.UsageMeter | None = None
    ) -> Flow[None]:
        """Settle a failed attempt; returns when another may follow, and raises otherwise."""
        late = call.is_late() if isinstance(error, Exception) else None
        sent = "unknown" if not isinstance(error, Exception) else providers.was_sent(error)
        how: How = {"not_sent": "not_sent", "answered": "answered_error"}.get(sent, "aborted")  # type: ignore[assignment]
        reading = meter.result(call.received) if meter is not None else None
        reading = reading or (providers.usage_in_error(error) if isinstance(error, Exception) else None)
        if late:
            call.cut(late)
        else:
            call.failed(error)
        filled = providers.ended_at_length(error)
        yield from call.settle("cut" if late else how, reading, filled=filled, truncated=filled)
        if late:
            raise (yield from self.told(call.error())) from error
        if not isinstance(error, Exception) or not providers.retryable(error) or self.number >= self.most:
            raise error
        if any(out_of_attempts(session, call.request) for session in self.sessions):
            raise error
        pause_ms = providers.retry_after_ms(error)
        if pause_ms is None or pause_ms > LONGEST_RETRY_AFTER_MS:
            pause_ms = min(FIRST_PAUSE_MS * 2 ** (self.number - 1), LONGEST_PAUSE_MS)
        if past_deadline(self.sessions, pause_ms):
            raise error
        yield Sleep(pause_ms / 1000)


def attempt_of(sessions: Iterable[BoundSession], chat: Sequence[Any]) -> dict[str, Any]:
    """What tells the attempts of one call from other calls, where a session counts them."""
    if all(s.declared.attempts_per_call_max is None for s in sessions):
        return {}
    configurable = (var_child_runnable_config.get() or {}).get("configurable") or {}
    return {
        "same": texts.same_request(chat),
        "place": getattr(configurable.get("__pregel_runtime"), "control", None),
    }


def out_of_attempts(session: BoundSession, request: ModelRequest) -> bool:
    """Whether a session would refuse another attempt of a request, so that waiting for it makes no sense."""
    most = session.limits.attempts_per_call_max
    return most is not None and session.attempts.of(request)[0] >= most


def past_deadline(sessions: Iterable[BoundSession], pause_ms: float) -> bool:
    """Whether a session's time would be over after a pause, so that waiting for it makes no sense."""
    walls = ((s.limits.wall_clock_ms, s.elapsed_ms()) for s in sessions)
    return any(wall_ms is not None and elapsed_ms + pause_ms >= wall_ms for wall_ms, elapsed_ms in walls)


def collected(chunks: list[Any]) -> ChatResult:
    """The result of chunks that were streamed underneath a call that is not streamed."""
    from langchain_core.language_models.chat_models import generate_from_stream

    result = generate_from_stream(iter(chunks))
    generation = result.generations[0]
    assert isinstance(generation, ChatGeneration)
    texts.as_one_piece(generation.message)
    usage = getattr(generation.message, "usage_metadata", None)
    info = generation.generation_info or {}
    if usage is not None:
        result.llm_output = {
            "token_usage": {
                "prompt_tokens": usage["input_tokens"],
                "completion_tokens": usage["output_tokens"],
                "total_tokens": usage["total_tokens"],
            },
            **{k: info[k] for k in ("model_name", "system_fingerprint") if k in info},
        }
    return result

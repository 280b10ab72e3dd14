"""The callback: bounds on calls whose model is not in our hands.

It refuses before a call, meters while it streams (a call that is not streamed is streamed underneath), raises
to cut, and settles at the end. It cannot put a cap on the wire, so a call can run over by the chunk that
crosses the bound, and by reasoning that the provider does not show.
"""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessageChunk

from .._doors import ambient_hook
from ..core.errors import BoundExceeded
from ..metering import call_settings, providers
from ..metering.tokens import counter_for
from ..session import approvals, scope
from ..session.arguments import session_of
from ..session.data_scope.indexes import unscoped_retriever
from ..session.flow import Flow, Op, drive
from ..session.model_call import ModelCall, ModelRequest
from ..session.session import BoundSession
from ..session.workers import beside
from . import (
    cached_answers,
    client_retries,
    event_bridge,
    handler_log,
    open_calls,
    places,
    several_answers,
    stream_usage,
    tool_runs,
)
from .abandoned import close_streams, close_unstarted
from .approval import approval_inside
from .attempts import attempt_of
from .colours import BothColours
from .errors import answerable
from .messages import conversation_of, disarm, output_text, poison_in_place, tells
from .model import SEAM_KEY
from .open_calls import OpenCall
from .unattributed import unclaimed


class BoundCallback(BaseCallbackHandler):
    """Bounds the LangChain calls it is passed to: ``config={"callbacks": [session.callback]}``.

    Model calls are refused in ``on_chat_model_start``, cut in ``on_llm_new_token``; tools are refused in
    ``on_tool_start``. A model that ``bound_model`` made is left to itself, so nothing counts twice. While a chain,
    an agent or a tool that was given a session's callback runs, the session is live: a call below it that has lost
    the callbacks (in a bare thread) belongs to it, when no other session is live.

    Args:
        session: who bounds; ``None`` asks for each call who claims it.

    Raises:
        SpecError: not a session.
        BoundExceeded: from the call itself, in every API, sync and async.
    """

    raise_error = True
    run_inline = True
    ignore_chain = True
    ignore_custom_event = True

    def __init__(self, session: BoundSession | None = None) -> None:
        self.session = session_of(session)
        if self.session is not None:
            self.ignore_chain = False
            ambient_hook()

    # -- models --------------------------------------------------------------------------------------------

    def _model_start(self, serialized: Any, messages: list[Any], **kwargs: Any) -> Flow[None]:
        """Hold room for the call, or refuse it."""
        try:
            yield from self._admitted(serialized, messages, **kwargs)
        except BoundExceeded:
            close_unstarted()
            raise

    def _admitted(
        self, serialized: Any, messages: list[Any], *, run_id: Any, metadata: Any = None, **kwargs: Any
    ) -> Flow[None]:
        yield from places.arrive()
        if metadata and metadata.get(SEAM_KEY) == "model":
            return
        params = kwargs.get("invocation_params") or {}
        name = (metadata or {}).get("ls_model_name") or params.get("model") or params.get("model_name")
        name = name or (serialized or {}).get("name") or ""
        bounding = open_calls.bounding(run_id)
        sessions = tuple(s for s in self._claim(metadata) if s not in bounding)
        if not sessions:
            sessions = () if bounding else unclaimed(name)
        if not sessions:
            return
        provider = (metadata or {}).get("ls_provider")
        counter, generations = counter_for(name, provider), providers.generations_of(None, params)
        conversation = messages[0] if messages else []
        call = ModelCall(
            sessions,
            ModelRequest(
                call_id=str(run_id),
                model=name,
                provider=provider,
                counter=counter,
                conversation=conversation_of(conversation),
                counted_input_tokens=counter.count_input(
                    conversation, params.get("tools") or (), None, sessions[-1].calibration.known
                ),
                output_max_tokens=call_settings.output_cap_in(params, metadata),
                generations=generations,
                shown=providers.shown_of(provider, generations),
                wire_cap=False,
                may_write_cache=call_settings.may_write_cache(conversation, params),
                may_have_audio=call_settings.may_have_audio(None, conversation, params),
                service_tier=providers.requested_service_tier(None, params),
                **attempt_of(sessions, conversation),
            ),
        )
        try:
            yield from call.admit()
        except BoundExceeded as error:
            yield from open_calls.abandon(run_id)
            error.outcome = yield from _outcome(sessions[-1])
            raise places.stopping(error) from None
        opened = OpenCall(handler=self, call=call, may_repeat=providers.may_retry_unseen(serialized))
        open_calls.add(run_id, opened, kwargs.get("batch_size") or 1)
        stream_usage.ask()
        client_retries.watch()
        event_bridge.watch()
        several_answers.watch()

    def _text_model_start(self, serialized: Any, prompts: list[str], **kwargs: Any) -> Flow[None]:
        """The same for a model that takes text."""
        yield from self._model_start(serialized, [list(prompts)], **kwargs)

    on_chat_model_start: Any = BothColours(_model_start)
    on_llm_start: Any = BothColours(_text_model_start)

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: Any, **kwargs: Any) -> None:
        """Meter a chunk, and raise when a bound says stop."""
        opened = open_calls.of(run_id, self)
        if opened is None or opened.call.stopped_by is not None:
            return
        message = getattr(chunk, "message", None)
        text = token if isinstance(token, str) else ""
        usage: Any = None
        if message is not None:
            opened.pieces.append(message)
            text = output_text(message)
            first_text = not opened.call.has_output and bool(text)
            if message.tool_call_chunks:
                opened.arguments.add(message)
            info = chunk.generation_info
            usage = message.usage_metadata
            if usage is not None or info or first_text or tells(message.response_metadata):
                told = chunk is not opened.bridged
                self._disarm(opened, message, opened.report(message, info) if told else "unknown")
            opened.told = chunk
        self._took(opened, "chunk", text, usage)

    def _disarm(self, opened: OpenCall, message: Any, ended: str) -> None:
        """Where the answer ends, make its tool calls invalid: all when it was truncated, else those cut in half."""
        if ended != "unknown" and opened.arguments:
            poison_in_place(message, opened.arguments.broken(all_of_them=ended == "truncated"))

    def on_stream_event(self, event: Any, *, run_id: Any, **kwargs: Any) -> None:
        """Meter an event of the v3 protocol, which has no chunks."""
        opened = open_calls.of(run_id, self)
        if opened is None or opened.call.stopped_by is not None or not isinstance(event, dict):
            return
        if event.get("event") == "content-block-delta":
            delta = event.get("delta") or event.get("content") or {}
            parts = (delta.get(key) for key in ("text", "reasoning", "thinking", "args", "arguments"))
            text = "".join(p for p in parts if isinstance(p, str))
            if opened.source != "chunk":
                opened.pieces.append(AIMessageChunk(content=text))
            self._took(opened, "event", text)
        usage = event.get("usage") or event.get("usage_metadata")
        if usage and opened.meter.result() is None:
            # LangChain has added up what the chunks reported, running totals too; the chunks themselves count.
            opened.meter.add(usage)

    def _took(self, opened: OpenCall, source: str, text: str, usage: Any = None) -> None:
        """Meter text from the first source that brings any; some models report a piece as chunk and as event."""
        if text and opened.source is None:
            opened.source = source
        if opened.lost is not None:
            opened.lost.look()
        call = opened.call
        reason = call.took(text if opened.source == source else "")
        if usage is not None:
            call.reported(ended=opened.ended)
        if reason is None:
            return
        if reason == call.cap_reason and call.may_extend:
            extended = beside(lambda: drive(call.extend())) if call.blocking else drive(call.extend())
            if extended:
                return
            reason = call.cap_reason or reason
        call.cut(reason)
        raise places.stopping(call.error(partial=opened.partial()))

    def _model_end(self, response: Any, *, run_id: Any, **kwargs: Any) -> Flow[None]:
        """Settle at what the provider billed."""
        tool_runs.proposed(self._claim(None), response)
        opened = open_calls.take(run_id, self)
        if opened is None:
            self._note_hit(response, run_id)
            return
        call, meter = opened.call, opened.meter
        text, truncated, answers = "", False, True
        fresh = providers.UsageMeter()
        for generation in (g for group in response.generations for g in group):
            message = getattr(generation, "message", None)
            if message is None:
                text += generation.text
                continue
            info = {**(response.llm_output or {}), **(generation.generation_info or {})}
            text += output_text(message)
            fresh.add(message, info)
            answers = answers and not message.tool_calls
            if providers.stop_reason(message, info).kind == "truncated":
                truncated = True
                disarm(message)
        reading = meter.result(call.received) or fresh.result()
        hit = fresh.result()
        if hit is not None and hit.cached_hit and not call.has_output:
            yield from call.settle("not_sent")
            cached_answers.record_hit(call.sessions, run_id)
            return
        opened.name_unseen_attempts()
        billing = yield from call.settle(
            "done", reading, truncated=truncated, answers=answers, text=text, filled=truncated
        )
        if billing.estimated and any(s.limits.strict_usage for s in call.sessions):
            for session in call.sessions:
                session.ending.stop("usage_missing", {"name": call.request.model})
                session.record("usage_missing", call_id=str(run_id))
            error = BoundExceeded(
                "usage_missing", note=f"{call.request.model!r} reported no usage", partial=response
            )
            error.outcome = yield from _outcome(call.sessions[-1])
            raise places.stopping(error)

    def _note_hit(self, response: Any, run_id: Any) -> None:
        """Record an answer of LangChain's cache for a bounded model: the cache lies above its seam.

        What the ambient handler sees too is left to that one.
        """
        messages = [g.message for group in response.generations for g in group if hasattr(g, "message")]
        if any(cached_answers.from_cache(message) for message in messages):
            ambient = () if self.session is None else scope.claim()
            cached_answers.record_hit(tuple(s for s in self._claim(None) if s not in ambient), run_id)

    def _model_error(self, error: BaseException, *, run_id: Any, **kwargs: Any) -> Flow[None]:
        """Settle a call that failed, was left, or was cut by us."""
        opened = open_calls.take(run_id, self)
        if opened is None:
            return
        call = opened.call
        opened.name_unseen_attempts()
        if call.stopped_by is None:
            yield from opened.failed(error)
            return
        call.let_go()
        yield close_streams(error)
        yield from call.settle("cut", opened.meter.result(call.received))
        if isinstance(error, BoundExceeded) and error.outcome is None:
            error.outcome = yield from _outcome(call.sessions[-1])

    on_llm_end: Any = BothColours(_model_end)
    on_llm_error: Any = BothColours(_model_error)

    # -- tools ---------------------------------------------------------------------------------------------

    def _tool_start(
        self, serialized: Any, input_str: str, *, run_id: Any, metadata: Any = None, **kwargs: Any
    ) -> Flow[None]:
        """Count the call, or refuse it, for each session that has not judged it yet.

        The middleware judges a call before it runs; what is begun again, or inside of it, is another run.
        """
        name = (serialized or {}).get("name") or kwargs.get("name") or ""
        judged = scope.judged_tool_call.get()
        if (
            judged is None
            or judged.id not in (run_id, kwargs.get("tool_call_id"))
            or (judged.what and judged.what != approvals.canonical([name, kwargs.get("inputs")]))
        ):
            # A call that was admitted runs, whatever has stopped the run since.
            yield from places.arrive()
            judged = scope.Judged(run_id, ())
            scope.judged_tool_call.set(judged)
        todo = tuple(s for s in self._claim(metadata) if s not in judged.by)
        judged.id, judged.by = run_id, (*judged.by, *todo)
        try:
            call_id = kwargs.get("tool_call_id")
            call = {"id": call_id or str(run_id), "name": name, "args": kwargs.get("inputs")}
            approved = {}
            for session in todo:
                shown = {**call, "args": call["args"] or {}}
                approved[session.session_id] = yield from approval_inside(session, shown)
            yield from tool_runs.begin(todo, self, run_id, call, approved)
        except BoundExceeded as error:
            refusing = next(s for s in todo if s.session_id == error.session_id)
            error.outcome = yield from _outcome(refusing)
            ends_run = refusing.ending.run_stopped is not None
            raise answerable(places.stopping(error), name, call_id, ends_run) from None
        self._run_start(serialized, input_str, run_id=run_id)

    on_tool_start: Any = BothColours(_tool_start)

    def _tool_end(self, output: Any, *, run_id: Any, **kwargs: Any) -> Flow[None]:
        """Tell the sessions what a tool came to, an answer or an error."""
        try:
            yield from tool_runs.end(self, run_id, output)
        finally:
            self._run_end(output, run_id=run_id)

    on_tool_end: Any = BothColours(_tool_end)
    on_tool_error: Any = BothColours(_tool_end)

    # -- runs ----------------------------------------------------------------------------------------------

    def _run_start(self, serialized: Any, given: Any, *, run_id: Any, **kwargs: Any) -> None:
        """The session is live from here."""
        if self.session is not None:
            scope.run_began(self.session, run_id)

    def _retriever_start(
        self, serialized: Any, query: Any, *, run_id: Any, metadata: Any = None, **kwargs: Any
    ) -> Flow[None]:
        """Refuse an index that the data scope does not open."""
        yield from places.arrive()
        sessions = self._claim(metadata)
        stop = unscoped_retriever(sessions)
        if stop is not None:
            stop.outcome = yield from _outcome(next(s for s in sessions if s.session_id == stop.session_id))
            raise places.stopping(stop)
        self._run_start(serialized, query, run_id=run_id)

    def _run_end(self, output: Any, *, run_id: Any, **kwargs: Any) -> None:
        """The session is live no longer, unless another run is open, or it is entered."""
        if self.session is not None:
            scope.run_ended(self.session, run_id)

    on_chain_start: Any = _run_start
    on_chain_end: Any = _run_end
    on_chain_error: Any = _run_end
    on_retriever_start: Any = BothColours(_retriever_start)
    on_retriever_end: Any = _run_end
    on_retriever_error: Any = _run_end

    # -- helpers -------------------------------------------------------------------------------------------

    def _claim(self, metadata: Any) -> tuple[BoundSession, ...]:
        return scope.claim_for((self.session,) if self.session is not None else (), metadata)

    def __copy__(self) -> BoundCallback:
        return self

    def __deepcopy__(self, memo: Any) -> BoundCallback:
        return self


class StreamingBoundCallback(BoundCallback):
    """The same, and LangChain streams every call underneath, so that it can be cut while it runs.

    LangChain recognises the two methods and does not call them outside of its event streams.
    """

    streams_underneath = True

    def tap_output_iter(self, run_id: Any, output: Any) -> Any:
        return output

    def tap_output_aiter(self, run_id: Any, output: Any) -> Any:
        return output


def callback_for(session: BoundSession) -> BoundCallback:
    """The handler of a session: it streams underneath when something could need to be cut."""
    limits = session.limits
    kind = StreamingBoundCallback if limits.bounds_output or limits.bounds_call_time else BoundCallback
    return kind(session)


def _outcome(session: BoundSession) -> Flow[Any]:
    return (yield Op(lambda: session.outcome, session.ledger.blocking))


handler_log.quiet()

"""A local LLM provider on 127.0.0.1 that counts, itself, what it generated and what was paid for."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from . import wire_anthropic, wire_openai_chat, wire_openai_responses
from .local_server import LocalServer
from .provider_http import STREAM_END, Connection, HttpRequest, HungUpError, answer, frame, stream_head
from .provider_listener import Listener
from .provider_plan import Ask, make_plan
from .provider_records import RecordTotals, RequestRecord
from .provider_reply import Reply, ReplyLike

if TYPE_CHECKING:
    from .provider_process import ProviderProcess

_STALL_MS = 10_000

Responder = Callable[[RequestRecord], ReplyLike]

_WIRES: tuple[ModuleType, ...] = (wire_openai_chat, wire_openai_responses, wire_anthropic)


class ProviderServer(LocalServer, RecordTotals):
    """Speaks OpenAI chat completions, OpenAI responses and Anthropic messages on a local port.

    The real clients work over real sockets: `ChatOpenAI(base_url=server.openai_url)`,
    `ChatAnthropic(base_url=server.url)`. Replies come, in this order, from failures (`fail_first`), the script
    (`script`), a function (`respond`), else the default reply. Caps on the output are honoured, histories are
    checked as the providers check them, and when the client hangs up the server notices before its next token.

    Args:
        replies: the script to begin with.
        default: the reply when nothing else applies. Default: 16 generated tokens.
        keep_alive: let clients use a connection again, as real providers do. Default False: asynchronous clients
            that are not closed would leave open sockets behind, and with them a ResourceWarning.
        strict: refuse invalid histories (a tool call without its answer, an answer without its call) and caps
            below 1 with HTTP 400, as the providers do. Default True.

    Used as a context manager, or with `start()` and `stop()`.
    """

    def __init__(
        self,
        replies: Iterable[ReplyLike] = (),
        *,
        default: ReplyLike | None = None,
        keep_alive: bool = False,
        strict: bool = True,
    ) -> None:
        self._strict = strict
        self._keep_alive = keep_alive
        self._headers = {"connection": "keep-alive" if keep_alive else "close"}
        self._script = [Reply.from_plain(reply) for reply in replies]
        self._default = Reply() if default is None else Reply.from_plain(default)
        self._responder: Responder | None = None
        self._failures: list[Reply] = []
        self._overrides: dict[str, Any] = {}
        self._records: list[RequestRecord] = []
        self._received = 0
        self._in_flight = 0
        self._changed = threading.Condition()
        self._listener: Listener | None = None

    @classmethod
    def in_process(
        cls,
        replies: Iterable[ReplyLike] = (),
        *,
        default: ReplyLike | None = None,
        keep_alive: bool = False,
        strict: bool = True,
    ) -> "ProviderServer":
        """A server in threads of this process; the same as the constructor."""
        return cls(replies, default=default, keep_alive=keep_alive, strict=strict)

    @classmethod
    def in_subprocess(
        cls,
        replies: Iterable[ReplyLike] = (),
        *,
        default: ReplyLike | None = None,
        keep_alive: bool = False,
        strict: bool = True,
    ) -> "ProviderProcess":
        """A server in a child process, so that the CPU time of the client's process can be measured alone.

        Scripts, defaults, faults, records and totals work as here; `respond` does not, as it takes a function.
        """
        from .provider_process import ProviderProcess

        return ProviderProcess(replies, default=default, keep_alive=keep_alive, strict=strict)

    def start(self, port: int = 0) -> Self:
        """Listens on 127.0.0.1; `port` 0 takes a free one.

        Raises:
            RuntimeError: it is running already.
            OSError: the port is taken.
        """
        if self._listener is not None:
            raise RuntimeError("the server is running already")
        self._listener = Listener(self._handle, port)
        self._port = self._listener.port
        return self

    def stop(self) -> None:
        """Ends all answers in flight, closes all sockets, and waits up to 5 s for the threads. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def script(self, replies: Iterable[ReplyLike]) -> None:
        """Appends replies that are used once each, in order, before the function and the default."""
        added = [Reply.from_plain(reply) for reply in replies]
        with self._changed:
            self._script += added

    def default(self, reply: ReplyLike) -> None:
        """Sets the reply for requests that nothing else answers."""
        self._default = Reply.from_plain(reply)

    def respond(self, responder: Responder | None) -> None:
        """Has `responder(request_record)` choose the reply when the script is used up; None takes it off."""
        self._responder = responder

    def fail_first(
        self, requests: int, *, status: int = 500, retry_after_ms: int | None = 1, error_usage: bool = False
    ) -> None:
        """Answers the next `requests` requests with an error; they do not use up the script."""
        failure = Reply(status=status, retry_after_ms=retry_after_ms, error_usage=error_usage)
        with self._changed:
            self._failures += [failure] * requests

    def override(self, **fields: Any) -> None:
        """Sets fields of `Reply` on every reply to come, such as `usage="none"`; no fields end the override.

        Raises:
            TypeError: a name is no field of `Reply`.
            ValueError: a value is not allowed.
        """
        Reply(**fields)
        self._overrides = fields

    def reset(self) -> None:
        """Forgets the records, the script, the failures, the function and the override; the default stays."""
        with self._changed:
            self._records.clear()
            self._script.clear()
            self._failures.clear()
        self._responder = None
        self._overrides = {}

    @property
    def requests(self) -> list[RequestRecord]:
        """Snapshots of all requests so far, oldest first."""
        with self._changed:
            return [copy(record) for record in self._records]

    def wait_idle(self, timeout_s: float = 5.0) -> None:
        """Returns when no answer is in flight: each one ended, or its hang-up was noticed.

        Raises:
            TimeoutError: some answer is still in flight after `timeout_s` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._in_flight, timeout_s):
                raise TimeoutError(f"{self._in_flight} answers are in flight after {timeout_s} s")

    def wait_requests(self, count: int, timeout_s: float = 5.0) -> None:
        """Returns when at least `count` requests were received.

        Raises:
            TimeoutError: fewer arrived within `timeout_s` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._records) >= count, timeout_s):
                raise TimeoutError(f"{len(self._records)} of {count} requests after {timeout_s} s")

    def _handle(self, connection: Connection, request: HttpRequest) -> bool:
        if self._control(connection, request):
            return True
        record = self._begin(request)
        try:
            self._answer(connection, record)
        except HungUpError:
            record.finished, record.hung_up = False, True
            record.hung_up_after_tokens = record.output_tokens
        finally:
            with self._changed:
                record.finished_ns = time.monotonic_ns()
                self._in_flight -= 1
                self._changed.notify_all()
        return record.finished and self._keep_alive

    def _control(self, connection: Connection, request: HttpRequest) -> bool:
        return False

    def _begin(self, request: HttpRequest) -> RequestRecord:
        problem: str | None = None
        body: Any = {}
        try:
            body = json.loads(request.body) if request.body else {}
        except ValueError:
            problem = "the body is not JSON"
        if not isinstance(body, dict):
            problem, body = "the body is not a JSON object", {}
        with self._changed:
            self._received += 1
            record = RequestRecord(
                number=self._received,
                method=request.method,
                path=request.path,
                headers=request.headers,
                body=body,
                problem=problem,
                started_ns=time.monotonic_ns(),
            )
            self._records.append(record)
            self._in_flight += 1
            self._changed.notify_all()
        return record

    def _answer(self, connection: Connection, record: RequestRecord) -> None:
        wire = next((wire for wire in _WIRES if record.path.endswith(wire.PATH)), None)
        if record.path.endswith(wire_anthropic.COUNT_PATH):
            count = wire_anthropic.read(record.body).input_tokens()
            self._send_whole(connection, record, 200, json.dumps({"input_tokens": count}).encode())
            return
        if wire is None or record.method != "POST":
            record.problem = record.problem or f"no such endpoint: {record.method} {record.path}"
            self._send_whole(connection, record, 404, wire_openai_chat.error(404, record.problem, None))
            return
        ask = self._read(wire, record)
        if ask is None:
            self._send_whole(connection, record, 400, wire.error(400, str(record.problem), None))
            return
        reply = self._next_reply(record)
        if reply.is_error:
            connection.check(reply.first_byte_delay_ms)
            self._send_error(connection, record, wire, ask, reply)
        else:
            self._send_reply(connection, record, wire, ask, reply)

    def _read(self, wire: ModuleType, record: RequestRecord) -> Ask | None:
        if record.problem:
            return None
        try:
            ask: Ask = wire.read(record.body)
            history_problem = wire.history_problem(record.body)
        except (AttributeError, TypeError, ValueError) as error:
            record.problem = f"the request is malformed: {error}"
            return None
        record.streamed = ask.stream
        if self._strict and ask.max_tokens is not None and ask.max_tokens < 1:
            record.problem = f"the cap on output tokens must be >= 1, not {ask.max_tokens}"
        elif self._strict and history_problem is not None:
            record.problem = history_problem
        return None if record.problem else ask

    def _next_reply(self, record: RequestRecord) -> Reply:
        with self._changed:
            if self._failures:
                return self._failures.pop(0)
            scripted = self._script.pop(0) if self._script else None
        if scripted is not None:
            reply = scripted
        elif self._responder is not None:
            reply = Reply.from_plain(self._responder(copy(record)))
        else:
            reply = self._default
        return replace(reply, **self._overrides) if self._overrides else reply

    def _send_error(
        self, connection: Connection, record: RequestRecord, wire: ModuleType, ask: Ask, reply: Reply
    ) -> None:
        usage = None
        if reply.error_usage:
            input_tokens = ask.input_tokens() if reply.input_tokens is None else reply.input_tokens
            usage = (input_tokens, reply.tokens or 0)
            record.billed, (record.input_tokens, record.output_tokens) = True, usage
        headers = {}
        if reply.retry_after_ms is not None:
            headers["retry-after-ms"] = str(reply.retry_after_ms)
            if reply.retry_after_ms >= 1000:
                headers["retry-after"] = str(reply.retry_after_ms // 1000)
        body = wire.error(reply.status, f"scripted status {reply.status}", usage)
        self._send_whole(connection, record, reply.status, body, headers)

    def _send_whole(
        self,
        connection: Connection,
        record: RequestRecord,
        status: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        record.status = status
        record.finished, record.written_tokens = True, record.output_tokens
        connection.send(answer(status, body, {**self._headers, **(headers or {})}))

    def _send_reply(
        self, connection: Connection, record: RequestRecord, wire: ModuleType, ask: Ask, reply: Reply
    ) -> None:
        record.input_tokens = ask.input_tokens() if reply.input_tokens is None else reply.input_tokens
        record.billed = True
        connection.check(reply.first_byte_delay_ms)
        plan = make_plan(reply, ask, serial=record.number, input_tokens=record.input_tokens)
        if ask.stream:
            record.status = 200
            frames = [(tokens, frame(data)) for tokens, data in wire.events(plan)]
            connection.send(stream_head(self._headers))
        elif reply.token_delay_ms or reply.drop_after_tokens is not None:
            frames = [(step.tokens * plan.choices, b"") for step in plan.steps]
        else:
            frames = [(plan.output_tokens, b"")]
        last = len(frames) - 1
        stalls_at = reply.stall_after_tokens
        for index, (tokens, data) in enumerate(frames):
            if _drops(reply, record):
                return
            if stalls_at is not None and record.output_tokens >= stalls_at:
                stalls_at = None
                connection.check(_STALL_MS)
            connection.check(reply.token_delay_ms * tokens)
            record.output_tokens += tokens
            if data:
                if index == last:
                    record.finished, data = True, data + STREAM_END
                connection.send(data)
                record.written_tokens = record.output_tokens
        if not ask.stream and not _drops(reply, record):
            self._send_whole(connection, record, 200, wire.whole(plan))


def _drops(reply: Reply, record: RequestRecord) -> bool:
    drop_after = reply.drop_after_tokens
    record.dropped = drop_after is not None and record.output_tokens >= drop_after
    return record.dropped


if __name__ == "__main__":
    from bound_middleware.testing.provider_process import main

    raise SystemExit(main())

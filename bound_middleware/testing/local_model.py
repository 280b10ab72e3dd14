"""A small real model on 127.0.0.1, behind OpenAI's protocol, which counts itself what it generated.

    with LocalModel() as model:
        client = ChatOpenAI(model=model.name, base_url=model.openai_url, api_key="none")
        client.invoke("hello")
        model.calls()[0].generated_tokens

`local_model_setup` installs it.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any, Final, Self

from .child_process import end, first_line
from .local_model_setup import Installed, LocalModelError, installed
from .local_server import LocalServer

NAME: Final = "smollm2-135m-instruct"
#: USD per million tokens: a local model costs nothing, so it is given prices for which money can be bounded.
INPUT_USD: Final = "2.50"
OUTPUT_USD: Final = "10"
PRICES: Final = {NAME: {"input": INPUT_USD, "output": OUTPUT_USD}}

_SERVER = Path(__file__).with_name("local_model_server.mjs")
_IDLE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCall:
    """One request as the server saw it.

    Attributes:
        number: its place among all requests, from 1.
        streamed: whether the client asked for a stream.
        max_tokens: the cap on the wire; `None` where there was none.
        prompt_tokens: tokens of the prompt with cached ones; 0 where nothing was evaluated.
        cached_tokens: those that need not be evaluated again.
        generated_tokens: what the model generated, also after a hang-up.
        finish_reason: `stop`, `length`, `tool_calls`; `None` where the client hung up or the request was refused.
        hung_up: the client was gone before the answer was complete.
        hung_up_after_tokens: generated tokens when the server noticed.
        ended_after_hang_up_ms: how long generating went on from then.
        problem: why the request was refused.
    """

    number: int
    streamed: bool
    max_tokens: int | None
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    finish_reason: str | None
    hung_up: bool
    hung_up_after_tokens: int | None
    ended_after_hang_up_ms: int | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCounters:
    """What the server counted of some calls."""

    calls: tuple[LocalCall, ...]

    @property
    def requests(self) -> int:
        """Requests received."""
        return len(self.calls)

    @property
    def paid_calls(self) -> int:
        """Requests for which the model worked."""
        return sum(call.prompt_tokens > 0 for call in self.calls)

    @property
    def input_tokens(self) -> int:
        """Tokens of all prompts, cached ones included."""
        return sum(call.prompt_tokens for call in self.calls)

    @property
    def output_tokens(self) -> int:
        """All tokens generated."""
        return sum(call.generated_tokens for call in self.calls)

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    @property
    def cost_nanousd(self) -> int:
        """The tokens at `PRICES`, in nano-dollars."""
        nanousd_per_token = [int(Decimal(usd).scaleb(3)) for usd in (INPUT_USD, OUTPUT_USD)]
        return self.input_tokens * nanousd_per_token[0] + self.output_tokens * nanousd_per_token[1]


class LocalModel(LocalServer):
    """The server, in a process of its own that ends with this one. A context manager, or `start()` and `stop()`.

    Args:
        parts: where model, engine and Node.js are; default: the installed ones.
        threads: of the engine.
    """

    name: Final = NAME
    prices: Final = PRICES

    def __init__(self, parts: Installed | None = None, *, threads: int = 2) -> None:
        self._parts = parts
        self._threads = threads
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> Self:
        """Starts the server on a free port; 1 s.

        Raises:
            LocalModelError: it is not installed, or did not start within 60 s.
            RuntimeError: it is running already.
        """
        if self._child is not None:
            raise RuntimeError("the local model is running already")
        parts = installed() if self._parts is None else self._parts
        paths: Iterable[Path] = (_SERVER, parts.engine, parts.weights)
        command = [parts.node, *map(str, paths), NAME, "0", str(self._threads)]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        line = first_line(self._child)
        if not line:
            said = self._stop()
            raise LocalModelError(f"the local model did not start: {said or 'no reason was given'}")
        self._port = json.loads(line)["port"]
        return self

    def stop(self) -> None:
        """Ends the server, by force after 5 s. Idempotent."""
        self._stop()

    def calls(self, after: int = 0) -> tuple[LocalCall, ...]:
        """All requests after the first `after`, oldest first, as soon as none is being worked on.

        Raises:
            TimeoutError: one is after 60 s.
        """
        return tuple(LocalCall(**plain) for plain in self._get(f"/calls?after={after}"))

    def counters(self, after: int = 0) -> LocalCounters:
        """The sums over `calls(after)`."""
        return LocalCounters(calls=self.calls(after))

    def _get(self, path: str) -> Any:
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=_IDLE_TIMEOUT_S)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def _stop(self) -> str:
        """Ends the child and returns the end of what it wrote to its error output."""
        child, self._child = self._child, None
        log, self._log = self._log, None
        if child is None or log is None:
            return ""
        with log:
            end(child)
            log.seek(0)
            return log.read().decode(errors="replace").strip()[-2000:]

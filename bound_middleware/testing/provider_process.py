"""A `ProviderServer` in a child process, and the same API in the parent."""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

from .child_process import end, first_line
from .local_server import LocalServer
from .provider_http import Connection, HttpRequest, answer
from .provider_records import RecordTotals, RequestRecord
from .provider_reply import Reply, ReplyLike
from .provider_server import ProviderServer

CONTROL = "/__bound__/"
_REPLY_MARGIN_S = 5.0


class ProviderProcess(LocalServer, RecordTotals):
    """Made by `ProviderServer.in_subprocess`; ends with the parent at the latest.

    Replies are plain data: `Reply`s, texts or mappings. Records are fetched from `GET /__bound__/records`.
    """

    def __init__(
        self,
        replies: Iterable[ReplyLike] = (),
        *,
        default: ReplyLike | None = None,
        keep_alive: bool = False,
        strict: bool = True,
    ) -> None:
        self._keep_alive = keep_alive
        self._arguments = {
            "replies": [Reply.from_plain(reply).to_plain() for reply in replies],
            "default": None if default is None else Reply.from_plain(default).to_plain(),
            "strict": strict,
        }
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, port: int = 0) -> Self:
        """Starts the child, which listens on 127.0.0.1; `port` 0 takes a free one.

        Raises:
            RuntimeError: it is running already, or does not start within 20 s.
        """
        if self._child is not None:
            raise RuntimeError("the server is running already")
        command = [
            sys.executable,
            "-m",
            f"{__package__}.provider_server",
            "--port",
            str(port),
            "--until-stdin-ends",
        ]
        command += ["--keep-alive"] if self._keep_alive else []
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
        self._child = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        line = first_line(self._child)
        if not line:
            self.stop()
            raise RuntimeError("the server's process did not start")
        self._port = json.loads(line)["port"]
        self._call("configure", self._arguments)
        return self

    def stop(self) -> None:
        """Ends the child, by force after 5 s. Idempotent."""
        child, self._child = self._child, None
        if child is not None:
            end(child)

    @property
    def pid(self) -> int:
        """The child's process id.

        Raises:
            RuntimeError: it is not running.
        """
        if self._child is None:
            raise RuntimeError("the server is not running")
        return self._child.pid

    def script(self, replies: Iterable[ReplyLike]) -> None:
        """As `ProviderServer.script`."""
        self._call("script", {"replies": [Reply.from_plain(reply).to_plain() for reply in replies]})

    def default(self, reply: ReplyLike) -> None:
        """As `ProviderServer.default`."""
        self._call("default", {"reply": Reply.from_plain(reply).to_plain()})

    def fail_first(
        self, requests: int, *, status: int = 500, retry_after_ms: int | None = 1, error_usage: bool = False
    ) -> None:
        """As `ProviderServer.fail_first`."""
        options = {"status": status, "retry_after_ms": retry_after_ms, "error_usage": error_usage}
        self._call("fail_first", {"requests": requests, **options})

    def override(self, **fields: Any) -> None:
        """As `ProviderServer.override`."""
        Reply(**fields)
        self._call("override", fields)

    def reset(self) -> None:
        """As `ProviderServer.reset`."""
        self._call("reset", {})

    def wait_idle(self, timeout_s: float = 5.0) -> None:
        """As `ProviderServer.wait_idle`."""
        self._call("wait_idle", {"timeout_s": timeout_s}, timeout_s)

    def wait_requests(self, count: int, timeout_s: float = 5.0) -> None:
        """As `ProviderServer.wait_requests`."""
        self._call("wait_requests", {"count": count, "timeout_s": timeout_s}, timeout_s)

    @property
    def requests(self) -> list[RequestRecord]:
        """Snapshots of all requests so far, oldest first; fetched on each use."""
        return [RequestRecord(**plain) for plain in self._call("records")]

    def _call(self, name: str, arguments: dict[str, Any] | None = None, timeout_s: float = 0) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout_s + _REPLY_MARGIN_S)
        try:
            body = None if arguments is None else json.dumps(arguments)
            connection.request("GET" if arguments is None else "POST", CONTROL + name, body)
            response = connection.getresponse()
            answered = json.loads(response.read())
        finally:
            connection.close()
        if response.status == 504:
            raise TimeoutError(answered["error"])
        if response.status != 200:
            raise RuntimeError(answered["error"])
        return answered["value"]


class ControlledServer(ProviderServer):
    """A `ProviderServer` whose methods can be called at `/__bound__/NAME`, with a JSON object of arguments."""

    def _control(self, connection: Connection, request: HttpRequest) -> bool:
        if not request.path.startswith(CONTROL):
            return False
        try:
            value = self._perform(request.path.removeprefix(CONTROL), json.loads(request.body or b"{}"))
        except TimeoutError as error:
            status, answered = 504, {"error": str(error)}
        except (TypeError, ValueError, KeyError) as error:
            status, answered = 400, {"error": f"{type(error).__name__}: {error}"}
        else:
            status, answered = 200, {"value": value}
        connection.send(answer(status, json.dumps(answered).encode(), {}))
        return True

    def _perform(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "records":
            return [asdict(record) for record in self.requests]
        if name == "configure":
            self._strict = arguments["strict"]
            if arguments["default"] is not None:
                self.default(arguments["default"])
            self.script(arguments["replies"])
        elif name in ("script", "default", "fail_first", "override", "reset", "wait_idle", "wait_requests"):
            getattr(self, name)(**arguments)
        else:
            raise ValueError(f"no such control: {name}")
        return None


def main(argv: list[str] | None = None) -> int:
    """Runs a server until its standard input ends, or until Ctrl-C.

    Prints one line of JSON, `{"port": ..., "url": ...}`, as soon as it listens.
    """
    parser = argparse.ArgumentParser(prog="python -m bound_middleware.testing.provider_server")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--default", metavar="JSON", help='the default reply, such as {"tokens": 100}')
    parser.add_argument("--keep-alive", action="store_true", help="let clients use a connection again")
    parser.add_argument("--until-stdin-ends", action="store_true", help="stop when standard input ends")
    options = parser.parse_args(argv)
    default = None if options.default is None else json.loads(options.default)
    with ControlledServer(default=default, keep_alive=options.keep_alive) as server:
        sys.stdout.write(json.dumps({"port": server.port, "url": server.url}) + "\n")
        sys.stdout.flush()
        try:
            if options.until_stdin_ends:
                sys.stdin.buffer.read()
            else:
                threading.Event().wait()
        except KeyboardInterrupt:
            pass
    return 0

"""The server's side of one TCP connection: HTTP/1.1 requests in, answers out, hang-ups noticed."""

import contextlib
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import IO

MAX_HEADERS = 200
_NO_WAIT = getattr(socket, "MSG_DONTWAIT", 0)
_SEND_BUFFER_BYTES = 4096

STREAM_END = b"0\r\n\r\n"


class HungUpError(Exception):
    """The client closed the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request as read from the wire; header names are in lower case, the query is cut off the path."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One accepted socket. Reads and writes block; `shut` from another thread ends both."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._sock = sock
        self._input: IO[bytes] = sock.makefile("rb")

    def read_request(self) -> HttpRequest | None:
        """The next request; None when the client is done or sent nonsense."""
        try:
            return self._read_request()
        except (OSError, ValueError):
            return None

    def _read_request(self) -> HttpRequest | None:
        words = self._input.readline(65_536).split()
        if len(words) != 3:
            return None
        headers: dict[str, str] = {}
        for _ in range(MAX_HEADERS):
            line = self._input.readline(65_536)
            if line in (b"\r\n", b"\n"):
                break
            name, colon, value = line.partition(b":")
            if not colon:
                return None
            headers[name.decode("latin-1").strip().lower()] = value.decode("latin-1").strip()
        else:
            return None
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = self._read_chunks()
        else:
            body = self._input.read(int(headers.get("content-length", 0)))
        path = words[1].decode("latin-1").partition("?")[0]
        return HttpRequest(method=words[0].decode("latin-1"), path=path, headers=headers, body=body)

    def _read_chunks(self) -> bytes:
        parts = []
        while size := int(self._input.readline(1024).partition(b";")[0], 16):
            parts.append(self._input.read(size))
            self._input.readline(1024)
        while self._input.readline(65_536) not in (b"\r\n", b"\n", b""):
            pass
        return b"".join(parts)

    def check(self, wait_ms: int = 0) -> None:
        """Returns after `wait_ms`; raises as soon as the client is gone.

        Raises:
            HungUpError: the client closed or reset the connection.
        """
        until_ns = time.monotonic_ns() + wait_ms * 1_000_000
        if wait_ms and not _readable(self._sock, wait_ms):
            return
        if self._at_end():
            raise HungUpError
        if wait_ms:
            time.sleep(max(0, until_ns - time.monotonic_ns()) / 1e9)

    def _at_end(self) -> bool:
        if not _NO_WAIT and not _readable(self._sock, 0):
            return False
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | _NO_WAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def send(self, data: bytes) -> None:
        """Writes all of `data`.

        Raises:
            HungUpError: the client closed or reset the connection.
        """
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise HungUpError from error

    def shut(self) -> None:
        """Wakes whoever reads or writes; both then see a client that is gone."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket."""
        self._input.close()
        self._sock.close()


def answer(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """A whole JSON answer, head and body."""
    head = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    return _head(status, head) + body


def stream_head(headers: Mapping[str, str]) -> bytes:
    """The head of a streamed answer; frames follow, then `STREAM_END`."""
    return _head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **headers})


def frame(data: bytes) -> bytes:
    """One chunk of a streamed answer; nothing for nothing, as an empty chunk would end the stream."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = "Status"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _readable(sock: socket.socket, wait_ms: int) -> bool:
    try:
        if not hasattr(select, "poll"):
            return bool(select.select([sock], [], [], wait_ms / 1000)[0])
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        return bool(poller.poll(wait_ms))
    except (OSError, ValueError):
        return True

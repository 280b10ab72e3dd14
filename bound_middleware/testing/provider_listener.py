"""The threads and sockets of a local server: one thread per connection, all gone after `stop`."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from .provider_http import Connection, HttpRequest

_STOP_TIMEOUT_S = 5.0
_BACKLOG = 256


class Listener:
    """Accepts connections on 127.0.0.1 and hands each request to `handle`.

    Args:
        handle: called in the connection's thread; False closes the connection.
        port: 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, handle: Callable[[Connection, HttpRequest], bool], port: int) -> None:
        self._handle = handle
        self._stopping = False
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, Connection] = {}
        self._socket = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="bound-provider-accept", daemon=True)
        self._acceptor.start()

    def stop(self) -> None:
        """Closes all sockets, which ends what is in flight, and waits up to 5 s for the threads."""
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        self._stopping = True
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            pass
        self._acceptor.join(_STOP_TIMEOUT_S)
        self._socket.close()
        with self._lock:
            still_open = dict(self._connections)
        for connection in still_open.values():
            connection.shut()
        for thread in still_open:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            if self._stopping:
                sock.close()
                return
            connection = Connection(sock)
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="bound-provider-connection", daemon=True
            )
            with self._lock:
                self._connections[thread] = connection
            thread.start()

    def _serve(self, connection: Connection) -> None:
        try:
            while (request := connection.read_request()) is not None:
                if not self._handle(connection, request):
                    return
        finally:
            connection.close()
            with self._lock:
                self._connections.pop(threading.current_thread(), None)

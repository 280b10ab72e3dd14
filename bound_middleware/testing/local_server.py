"""What every local server here has: a port on 127.0.0.1, addresses made of it, and a `with` that ends it."""

from types import TracebackType
from typing import Self


class LocalServer:
    """A server that listens on 127.0.0.1 between `start` and `stop`; what a subclass adds is how it does that."""

    _port: int | None = None

    def start(self) -> Self:
        """Listens on a free port."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ends it. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port it listens on.

        Raises:
            RuntimeError: it was never started.
        """
        if self._port is None:
            raise RuntimeError("the server was not started")
        return self._port

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, the base URL for Anthropic clients."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`, the base URL for OpenAI clients."""
        return f"{self.url}/v1"

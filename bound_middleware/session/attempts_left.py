"""One budget of attempts for each model call, shared by everything that may try it again.

Clients, retry middleware, retry policies, fallbacks and loops of the user's own do not know of each other, so
nested they multiply. What they have in common is the request: one that carries the messages of a request that
failed is another attempt of it, whoever makes it, and whichever model it goes to, until one is answered.

1. Each attempt that failed counts, also one that never reached the provider.
2. An error that no attempt will change ends the attempts: for every model when the request is what is wrong (400),
   for this model alone when it is the model or the account (401, 403, 404, a prompt that is too long for it).
3. Another invocation of a graph, or another entry of the session, begins with a full budget.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..metering.call_errors import Finality
    from .admission import ModelRequest

#: Requests whose last attempt failed, and which may be tried again.
KEPT = 1_024


@dataclass(slots=True, kw_only=True)
class _Failed:
    """What is known of a request that has had no answer yet."""

    place: object
    attempts: int = 0
    final: bool = False
    models: set[str] = field(default_factory=set)


class AttemptsLeft:
    """The requests of a session that failed, by what they say. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed: OrderedDict[int, _Failed] = OrderedDict()

    def of(self, request: ModelRequest) -> tuple[int, bool]:
        """How many attempts of this request have failed, and whether another one is pointless."""
        with self._lock:
            known = self._failed.get(request.same) if request.same is not None else None
            if known is None or known.place is not request.place:
                return 0, False
            return known.attempts, known.final or request.model in known.models

    def failed(self, request: ModelRequest, final: Finality) -> None:
        """An attempt ended with an error of its provider."""
        if request.same is None:
            return
        with self._lock:
            known = self._failed.pop(request.same, None)
            if known is None or known.place is not request.place:
                known = _Failed(place=request.place)
            known.attempts += 1
            known.final = known.final or final == "request"
            if final == "model":
                known.models.add(request.model)
            self._failed[request.same] = known
            while len(self._failed) > KEPT:
                self._failed.popitem(last=False)

    def answered(self, request: ModelRequest) -> None:
        """An attempt was answered; the same question may be asked again."""
        with self._lock:
            self._failed.pop(request.same or 0, None)

    def forget(self) -> None:
        """Everything begins anew."""
        with self._lock:
            self._failed.clear()

"""The outcome of an agent's run, as it is when LangGraph says that nothing is left to run.

Hooks of other middlewares may come behind our ``after_agent`` and call models. What the outcome gained by then is
put into it: where such a hook writes nothing LangGraph does not emit the state again, so the value that it emitted
is completed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.channels import BinaryOperatorAggregate

from ..session.session import BoundSession
from ..session.workers import beside
from .channel import concluded, merge, settled


class EndingChannel(BinaryOperatorAggregate[dict[str, Any]]):
    """Merges like the output channel of every adapter; ``finish_with`` is the invocation's, and told of the end."""

    __slots__ = ("finish_with", "sent")

    def __init__(self, typ: Any = dict, operator: Any = merge) -> None:
        super().__init__(typ, operator)
        self.finish_with: Callable[[dict[str, Any]], bool] | None = None
        self.sent: Any = None
        """LangGraph's channel of the tasks that were sent. When only those are left, it says that nothing is."""

    def finish(self) -> bool:
        """LangGraph calls this when nothing is left to run; until then a decision may have called it running."""
        if not isinstance(self.value, dict) or (self.sent is not None and self.sent.is_available()):
            return False
        ended = concluded(self.value)
        changed = ended is not self.value
        if changed:
            self.value.update(ended)
        gained = self.finish_with is not None and self.finish_with(self.value)
        return gained or changed


def later(session: BoundSession, told: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> Any:
    """Puts into a value what its outcome gained since it was told; what others wrote into it since stays."""
    config = var_child_runnable_config.get()

    def outcome() -> dict[str, Any]:
        return session.outcome_if(ended=True).as_dict()

    def finish(value: dict[str, Any]) -> bool:
        now = beside(outcome) if session.ledger.blocking else outcome()
        gained = {name: part for name, part in now.items() if part != told.get(name)}
        if not gained:
            return False
        told.update(gained)
        before = value.get("outcome") or {}
        if "detail" in gained:
            gained["detail"] = {**(before.get("detail") or {}), **(gained["detail"] or {})}
        value.update(settled({**value, "outcome": {**before, **gained}}))
        token = var_child_runnable_config.set(config)
        try:
            tell(value)
        finally:
            var_child_runnable_config.reset(token)
        return True

    return finish

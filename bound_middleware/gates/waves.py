"""One run of the engine: waves, reuse, and one flight at a time for each constraint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from .graph import kept_back, ready
from .keys import Key, key_of
from .progress import Teller
from .runners import RUNNERS
from .runners.base import GateSite, found
from .state import Busy, StateError
from .values import Result
from .watch import Unreadable

if TYPE_CHECKING:
    from .contract import Constraint, Rubric
    from .engine import Engine


class Waves:
    """Runs constraints in the order of their needs.

    Args:
        reuse: whether evidence may be taken from the store.
        keep: whether what is found goes into the store, and waivers apply.
    """

    def __init__(
        self, engine: Engine, site: GateSite, constraints: Mapping[str, Constraint], *, reuse: bool, keep: bool
    ) -> None:
        self._engine, self._site, self._constraints = engine, site, constraints
        self._reuse, self._keep = reuse, keep
        self._results: dict[str, Result] = {}
        self._told = Teller(engine.progress, engine.clock)

    def run(self) -> dict[str, Result]:
        """All results by constraint."""
        waiting = dict(self._constraints)
        while waiting:
            wave = [waiting.pop(name) for name in ready(waiting, self._results)]
            todo = []
            for constraint in wave:
                kept = kept_back(constraint, self._results)
                if kept is None:
                    todo.append(constraint)
                else:
                    self._results[constraint.id] = kept
            self._wave([c for c in todo if c.kind != "rubric"])
            for constraint in todo:
                if constraint.kind == "rubric":
                    self._results[constraint.id] = self._told_of(constraint, partial(self._rubric, constraint))
        self._site.watch.remember()
        return self._results

    def _wave(self, constraints: list[Constraint]) -> None:
        todo: list[tuple[Constraint, Key]] = []
        for constraint in constraints:
            known = self._judged(constraint, partial(self._looked_up, constraint, todo))
            if known is not None:
                self._results[constraint.id] = known
        if todo:
            self._parallel(todo)
            # What ran may have changed what the next wave watches.
            self._site.watch.again()

    def _looked_up(self, constraint: Constraint, todo: list[tuple[Constraint, Key]]) -> Result | None:
        key = key_of(constraint, self._site)
        known = self._cached(constraint, key)
        if known is None:
            todo.append((constraint, key))
        return known

    def _parallel(self, todo: list[tuple[Constraint, Key]]) -> None:
        workers = min(self._site.contract.settings.concurrency, len(todo))
        every_s = self._site.contract.settings.progress_interval_seconds
        with ThreadPoolExecutor(workers, thread_name_prefix="bound-gate") as pool:
            running: set[Future[Result]] = set()
            try:
                for constraint, key in todo:
                    work = partial(RUNNERS[constraint.kind], constraint, self._site)
                    flight = partial(self._flight, constraint, key, work)
                    running.add(pool.submit(self._told_of, constraint, flight))
                while running:
                    done, running = wait(running, timeout=every_s, return_when=FIRST_COMPLETED)
                    for result in (future.result() for future in done):
                        self._results[result.constraint_id] = result
                    if not done:
                        self._told.running()
            except BaseException:
                self._site.stop.set()
                for future in running:
                    future.cancel()
                raise

    def _cached(self, constraint: Constraint, key: Key) -> Result | None:
        if not self._reuse:
            return None
        known = self._engine.evidence.get(constraint.id, key.whole)
        # The key covers the inputs; a store that says otherwise was not written by us.
        if known is None or known.input_digest != key.inputs or known.kind != constraint.kind:
            return None
        return self._engine.waived(replace(known, enforcement=constraint.enforcement, cached=True))

    def _rubric(self, constraint: Rubric) -> Result:
        rubrics = self._engine.rubrics
        if rubrics is None:
            return found(constraint, "uncertain", "no evaluator is connected", category="environment")
        evaluator = self._site.contract.evaluators[constraint.evaluator]
        case = rubrics.prepare(constraint, evaluator, self._site, tuple(self._results.values()))
        key = key_of(constraint, self._site, bundle=case.digest)
        return self._flight(constraint, key, case.run, case.digest)

    def _flight(
        self, constraint: Constraint, key: Key, work: Callable[[], Result], bundle: str | None = None
    ) -> Result:
        """What is known of a constraint or, not at the same time as anybody else's run of it, what is found out."""
        if not self._keep:
            return self._ran(constraint, key, work)
        with self._engine.state.lock(f"flight/{constraint.id}", stop=self._site.stop):
            known = self._cached(constraint, key)
            if known is not None:
                return known
            result = self._ran(constraint, key, work)
            looked = replace(self._site, watch=self._site.watch.another())
            if key_of(constraint, looked, bundle=bundle) != key:
                # In part it is about inputs that are no more: an answer for now, not to be found again.
                return replace(result, message=f"{result.message}; inputs changed while it ran".removeprefix("; "))
            self._engine.evidence.put(key.whole, result)
            return self._engine.waived(result)

    def _ran(self, constraint: Constraint, key: Key, work: Callable[[], Result]) -> Result:
        started_ms = self._engine.clock.now_ms()
        result = work()
        return replace(
            result,
            constraint_id=constraint.id,
            kind=constraint.kind,
            enforcement=constraint.enforcement,
            input_digest=key.inputs,
            duration_ms=max(0, self._engine.clock.now_ms() - started_ms),
            cached=False,
        )

    def _told_of(self, constraint: Constraint, work: Callable[[], Result]) -> Result:
        self._told.started(constraint.id)
        result = self._judged(constraint, work)
        assert result is not None
        self._told.finished(result)
        return result

    def _judged(self, constraint: Constraint, work: Callable[[], Result | None]) -> Result | None:
        """What the work found; a fault in it is a blocking error, and never an open gate."""
        try:
            if self._site.stop.is_set():
                return found(constraint, "error", "called off", category="environment")
            return work()
        except Unreadable as error:
            told = str(error)
        except Busy:
            told = "called off while another run was on"
        except StateError as error:
            told = f"no evidence can be kept: {error}"
        except Exception as error:  # noqa: BLE001 - a gate that cannot be judged must not open
            told = f"internal fault: {type(error).__name__}: {error}"
        return found(constraint, "error", self._site.redact(told)[:2_000], category="environment")

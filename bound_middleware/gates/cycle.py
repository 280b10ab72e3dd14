"""One locked, journaled step of a repair loop.

The journal is written before the gates run when a task begins, so that its time counts from there, and after they
have run; a kill in between leaves the older one. A task ends with ``passed``: the step after it begins the next one
with new budgets. A task that is given up is replaced only on purpose (``new_task``). An edited contract is the same
task: editing it must not buy attempts.
"""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING

from ..core.errors import SpecError
from ..session.flow import Call, Flow, Op, Sleep, adrive, drive
from .digests import framed
from .journal import locked, name_of, read_journal, write_journal
from .loops import Journal, Step, advance, begun, repeated
from .state import Busy, State, StateError
from .watch import Unreadable

if TYPE_CHECKING:
    from ..decision.collectors.process import Clock
    from .contract import Loop
    from .engine import Engine


class CycleStopped(StateError):
    """A step was called off before it was complete; its journal is as it was."""

    code = "cycle_stopped"


_CALLED_OFF = "the step was called off; nothing was counted"
_TURN_S = 0.05


def cycle(
    engine: Engine, name: str, *, new_task: bool = False, clock: Clock | None = None, stop: Event | None = None
) -> Step:
    """Runs the gates of a loop once and says what comes next.

    Args:
        new_task: begins with new budgets, whatever the journal says; it also replaces one that cannot be read.
        clock: the time that budgets are counted by; by default the engine's.
        stop: once set, commands are ended and nothing is counted.

    Raises:
        SpecError: the contract has no such loop.
        StateError: the journal cannot be read or written, or the step was called off.
    """
    return drive(step_flow(engine, name, new_task=new_task, clock=clock, stop=stop))


async def acycle(
    engine: Engine, name: str, *, new_task: bool = False, clock: Clock | None = None, stop: Event | None = None
) -> Step:
    """As ``cycle``, off the loop. A cancelled task ends after its commands have been ended."""
    return await adrive(step_flow(engine, name, new_task=new_task, clock=clock, stop=stop))


def loop_named(engine: Engine, name: str) -> Loop:
    """The settings of a loop of the engine's contract.

    Raises:
        SpecError: it has no such loop.
    """
    loops = engine.contract.loops
    if name not in loops:
        allowed = ", ".join(loops) or "the contract has none"
        raise SpecError(f"there is no loop {name!r}", key="loops", value=name, allowed=allowed)
    return loops[name]


def step_flow(
    engine: Engine, name: str, *, new_task: bool = False, clock: Clock | None = None, stop: Event | None = None
) -> Flow[Step]:
    """The flow of one step, for both colours."""
    loop, clock, stop = loop_named(engine, name), clock or engine.clock, stop or Event()
    with ExitStack() as held:
        yield from _taken(engine.state, name, held, stop)
        journal = yield Op(lambda: _opened(engine, loop, clock.now_ms(), new_task=new_task), blocking=True)
        inputs = yield Op(lambda: _inputs(engine, loop), blocking=True)
        again = repeated(loop, journal, inputs=inputs, now_ms=clock.now_ms())
        if again is None:
            report = yield Call(
                lambda: engine.run(loop.phase, stop=stop), lambda: engine.arun(loop.phase, stop=stop)
            )
            if stop.is_set():
                raise CycleStopped(str(engine.state.path(name_of(name))), _CALLED_OFF)
            again = advance(loop, journal, report, inputs=inputs, now_ms=clock.now_ms())
        written, step = again
        yield Op(lambda: write_journal(engine.state, written), blocking=True)
        return step


def _taken(state: State, name: str, held: ExitStack, stop: Event) -> Flow[None]:
    # In short turns, so that whoever waits for a long step of somebody else can still be interrupted.
    while True:
        try:
            yield Op(lambda: held.enter_context(locked(state, name)), blocking=True)
        except Busy:
            if stop.is_set():
                raise CycleStopped(str(state.path(name_of(name))), _CALLED_OFF) from None
            yield Sleep(_TURN_S)
        else:
            return


def _opened(engine: Engine, loop: Loop, now_ms: int, *, new_task: bool) -> Journal:
    journal = None if new_task else read_journal(engine.state, loop.id)
    if journal is not None and journal.prior_state != "passed":
        return journal
    journal = begun(loop, engine.contract.digest, now_ms)
    write_journal(engine.state, journal)
    return journal


def _inputs(engine: Engine, loop: Loop) -> str:
    """A digest of all that the constraints of a phase depend on; empty when one cannot be read."""
    names = engine.contract.applicable(loop.phase)
    try:
        return framed(engine.contract.digest, *(part for name in names for part in (name, engine.peek(name)[0])))
    except Unreadable:
        return ""

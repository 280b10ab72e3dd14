"""Compensations run newest first, each once, also when the process is killed in the middle."""

import asyncio
import signal
import subprocess
import sys
from typing import Any

import pytest
from langchain_core.tools import tool

from bound_middleware.langgraph.compensations import Undone, since_order, undone
from bound_middleware.langgraph.effect_scope import Effects, Place
from bound_middleware.langgraph.effect_store import MemoryJournal, SqliteJournal
from bound_middleware.langgraph.effects import Compensation, Effect, EffectId, canonical, checked, digest_of
from bound_middleware.session.flow import adrive, drive

HERE = Place(thread_id="t", ns="decide", step=9, checkpoint_id="")


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    made = MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "effects.db")
    yield made
    if request.param == "sqlite":
        made.close()


@pytest.fixture(params=["sync", "async"])
def go(request):
    return drive if request.param == "sync" else lambda flow: asyncio.run(adrive(flow))


def record(
    journal: Any,
    name: str,
    args: dict[str, Any],
    *,
    state: str | None = "done",
    result: Any = None,
    ns: str = "tools",
) -> Effect:
    """An effect that has happened; with ``state=None`` one whose process is gone."""
    id = EffectId(
        thread_id="t", checkpoint_ns=ns, step=1, tool_call_id=f"c{journal.head()}", digest=digest_of(name, args)
    )
    effect = Effect(id=id, tool=name, arguments=canonical(args))
    assert journal.begin(effect, again=False) is None
    if state is None:
        journal.abandon(id.key)
    else:
        journal.finish(id.key, state, result=canonical(result), answer=None, note="ValueError")
    return effect


def undo_all(
    go: Any,
    journal: Any,
    *,
    rollback_id: str = "r",
    reversible: tuple[str, ...] = (),
    dry_run: bool = False,
    **compensations: Any,
) -> Undone:
    effects = Effects(journal, {name: checked(undo) for name, undo in compensations.items()}, frozenset(reversible))
    chosen = go(since_order(effects, HERE, 0))
    return go(undone(effects, chosen, rollback_id, dry_run=dry_run))


def names(entries: tuple[dict[str, Any], ...]) -> list[tuple[str, str]]:
    return [(entry["tool"], entry["arguments"].get("n", "")) for entry in entries]


def test_the_newest_effect_is_undone_first_with_arguments_and_result(journal, go):
    log: list[Any] = []
    record(journal, "book", {"n": 1}, result={"id": "b1"})
    record(journal, "book", {"n": 2}, result={"id": "b2"})

    done = undo_all(go, journal, book=lambda args, result: log.append((args, result)))

    assert log == [({"n": 2}, {"id": "b2"}), ({"n": 1}, {"id": "b1"})]
    assert names(done.compensated) == [("book", 2), ("book", 1)]
    assert done.could_not_undo == ()


def test_each_compensation_runs_once_over_several_rollbacks(journal, go):
    log: list[int] = []
    record(journal, "book", {"n": 1})

    first = undo_all(go, journal, rollback_id="one", book=lambda n: log.append(n))
    same = undo_all(go, journal, rollback_id="one", book=lambda n: log.append(n))
    later = undo_all(go, journal, rollback_id="two", book=lambda n: log.append(n))

    assert log == [1]
    assert first == same, "the same rollback that runs again says the same"
    assert later == Undone(compensated=(), could_not_undo=())


def test_what_has_no_compensation_is_listed_as_not_undone(journal, go):
    record(journal, "mail", {"to": "a"})
    record(journal, "edit", {"path": "f"})
    record(journal, "search", {"q": "x"})
    record(journal, "book", {"n": "many"}, state="void")

    done = undo_all(go, journal, reversible=("edit",), search=None)

    assert done.compensated == ()
    assert [(e["tool"], e["reason"]) for e in done.could_not_undo] == [
        ("mail", "no compensation is registered, and it is not declared reversible")
    ]


@pytest.mark.parametrize("state", [None, "failed"])
def test_an_effect_with_unknown_end_is_left_unless_that_is_declared_safe(journal, go, state):
    log: list[int] = []
    record(journal, "book", {"n": 1}, state=state)

    left = undo_all(go, journal, book=lambda n: log.append(n))
    assert log == []
    assert left.could_not_undo[0]["reason"].startswith("effect unknown")
    assert left.compensated == ()
    done = undo_all(go, journal, book=Compensation(undo=lambda n: log.append(n), safe_if_unknown=True))

    assert log == [1]
    assert names(done.compensated) == [("book", 1)]


def test_a_compensation_that_raises_is_reported_and_the_older_ones_still_run(journal, go):
    log: list[int] = []

    def cancel(n: int) -> None:
        if n == 2:
            raise OSError("no line")
        log.append(n)

    for n in (1, 2, 3):
        record(journal, "book", {"n": n})
    done = undo_all(go, journal, book=cancel)

    assert log == [3, 1]
    assert names(done.compensated) == [("book", 3), ("book", 1)]
    assert [(e["arguments"], e["reason"]) for e in done.could_not_undo] == [
        ({"n": 2}, "its compensation raised OSError: no line")
    ]
    again = undo_all(go, journal, book=cancel)
    assert "could not be confirmed" in again.could_not_undo[0]["reason"]


def test_an_idempotent_compensation_that_raised_is_tried_again(journal, go):
    outcomes = [OSError("no line"), None]

    def cancel(n: int) -> None:
        problem = outcomes.pop(0)
        if problem is not None:
            raise problem

    record(journal, "book", {"n": 1})
    undo = Compensation(undo=cancel, idempotent=True)

    assert len(undo_all(go, journal, book=undo).could_not_undo) == 1
    assert names(undo_all(go, journal, book=undo).compensated) == [("book", 1)]
    assert outcomes == []


def test_a_dry_run_lists_and_changes_nothing(journal, go):
    log: list[int] = []
    record(journal, "book", {"n": 1})
    record(journal, "mail", {"to": "a"})
    before = journal.since("t", 0)

    listed = undo_all(go, journal, dry_run=True, book=lambda n: log.append(n))

    assert names(listed.compensated) == [("book", 1)]
    assert [e["tool"] for e in listed.could_not_undo] == ["mail"]
    assert log == []
    assert journal.since("t", 0) == before


def test_an_effect_that_was_compensated_may_happen_and_be_compensated_again(journal, go):
    log: list[int] = []
    effect = record(journal, "book", {"n": 1})
    undo_all(go, journal, rollback_id="one", book=lambda n: log.append(n))

    assert journal.begin(effect, again=False) is None
    journal.finish(effect.id.key, "done", result="null", answer=None, note="")
    undo_all(go, journal, rollback_id="two", book=lambda n: log.append(n))

    assert log == [1, 1]


def test_only_effects_of_this_graph_and_those_inside_are_taken_back(journal, go):
    record(journal, "mail", {"n": 1}, ns="tools")
    record(journal, "mail", {"n": 2}, ns="sub|tools")
    record(journal, "mail", {"n": 3}, ns="sub|deep|tools")
    record(journal, "mail", {"n": 4}, ns="subway|tools")
    effects = Effects(journal, {}, frozenset())

    inner = go(since_order(effects, Place(thread_id="t", ns="sub|decide", step=1, checkpoint_id=""), 0))
    outer = go(since_order(effects, HERE, 0))

    assert [e.arguments for e in inner] == ['{"n":3}', '{"n":2}']
    assert len(outer) == 4


@tool
def cancel_tool(n: int) -> str:
    """Cancel."""
    LOG.append(("tool", n))
    return "cancelled"


@tool
async def cancel_async_tool(n: int) -> str:
    """Cancel."""
    LOG.append(("async tool", n))
    return "cancelled"


async def cancel_async(n: int, result: Any) -> None:
    await asyncio.sleep(0)
    LOG.append((n, result))


def cancel_default(n: int, reason: str = "rollback") -> None:
    LOG.append((n, reason))


def cancel_rest(**given: Any) -> None:
    LOG.append(given)


def cancel_all(args: dict[str, Any]) -> None:
    LOG.append(args)


LOG: list[Any] = []


@pytest.mark.parametrize(
    ("undo", "seen"),
    [
        (lambda: LOG.append("nothing"), "nothing"),
        (lambda a, r: LOG.append((a, r)), ({"n": 1, "m": 2}, "res")),
        (lambda result, n: LOG.append((result, n)), ("res", 1)),
        (lambda call: LOG.append(call), {"n": 1, "m": 2}),
        (cancel_all, {"n": 1, "m": 2}),
        (cancel_rest, {"n": 1, "m": 2}),
        (cancel_default, (1, "rollback")),
        (cancel_async, (1, "res")),
        (cancel_tool, ("tool", 1)),
        (cancel_async_tool, ("async tool", 1)),
    ],
)
def test_a_compensation_gets_what_its_parameters_are_named_after(journal, go, undo, seen):
    LOG.clear()
    record(journal, "book", {"n": 1, "m": 2}, result="res")

    done = undo_all(go, journal, book=undo)

    assert [seen] == LOG
    assert len(done.compensated) == 1


def test_a_compensation_that_wants_what_nobody_has_is_reported_and_can_be_mended(journal, go):
    record(journal, "book", {"n": 1})

    def cancel(one: Any, two: Any, three: Any) -> None: ...

    done = undo_all(go, journal, book=cancel)

    assert "cannot be called" in done.could_not_undo[0]["reason"]
    assert len(undo_all(go, journal, book=lambda n: None).compensated) == 1


async def test_a_cancelled_rollback_leaves_its_compensation_unconfirmed():
    journal, entered = MemoryJournal(), asyncio.Event()
    record(journal, "book", {"n": 1})

    async def cancel(n: int) -> None:
        entered.set()
        await asyncio.Event().wait()

    effects = Effects(journal, {"book": checked(cancel)}, frozenset())
    chosen = await adrive(since_order(effects, HERE, 0))
    task = asyncio.create_task(adrive(undone(effects, chosen, "r")))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    chosen = await adrive(since_order(effects, HERE, 0))
    done = await adrive(undone(effects, chosen, "r"))

    assert done.compensated == ()
    assert "was cut off" in done.could_not_undo[0]["reason"]


ROLLBACK = """
import os, signal, sys
from bound_middleware.langgraph.compensations import since_order, undone
from bound_middleware.langgraph.effect_store import SqliteJournal
from bound_middleware.langgraph.effect_scope import Effects, Place
from bound_middleware.langgraph.effects import Compensation
from bound_middleware.session.flow import drive

path, log, dies_at, when, idempotent = sys.argv[1:]

def cancel(n):
    if n == int(dies_at) and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with open(log, "a") as file:
        file.write(f"{n}\\n")
    if n == int(dies_at) and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)

book = Compensation(undo=cancel, idempotent=idempotent == "yes")
effects = Effects(SqliteJournal(path), {"book": book}, frozenset())
here = Place(thread_id="t", ns="decide", step=9, checkpoint_id="")
done = drive(undone(effects, drive(since_order(effects, here, 0)), "r"))
print([e["arguments"]["n"] for e in done.compensated], [e["arguments"]["n"] for e in done.could_not_undo])
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("idempotent", ["yes", "no"])
def test_a_rollback_that_was_killed_goes_on_and_repeats_nothing(tmp_path, when, idempotent):
    journal = SqliteJournal(tmp_path / "effects.db")
    for n in (1, 2, 3, 4):
        record(journal, "book", {"n": n})
    journal.close()

    def run(dies_at: int) -> subprocess.CompletedProcess[str]:
        arguments = [tmp_path / "effects.db", tmp_path / "log", str(dies_at), when, idempotent]
        return subprocess.run(
            [sys.executable, "-c", ROLLBACK, *arguments], capture_output=True, text=True, check=False, timeout=60
        )

    assert run(3).returncode == -signal.SIGKILL
    again = run(0)

    ran = [int(line) for line in (tmp_path / "log").read_text().split()]
    if idempotent == "yes":
        assert again.stdout == "[4, 3, 2, 1] []\n"
        assert ran == ([4, 3, 3, 2, 1] if when == "after" else [4, 3, 2, 1])
    else:
        # Whether the third was cancelled is not known, so it is neither repeated nor called done.
        assert again.stdout == "[4, 2, 1] [3]\n"
        assert ran == ([4, 3, 2, 1] if when == "after" else [4, 2, 1])
    assert run(0).stdout == again.stdout, "a third time says the same and runs nothing"
    assert [int(line) for line in (tmp_path / "log").read_text().split()] == ran


def test_what_another_living_process_is_undoing_is_left_to_it(tmp_path):
    journal = SqliteJournal(tmp_path / "effects.db")
    record(journal, "book", {"n": 1})
    code = ROLLBACK.replace("os.kill(os.getpid(), signal.SIGKILL)", "(print('in', flush=True), sys.stdin.read())")
    arguments = [tmp_path / "effects.db", tmp_path / "log", "1", "before", "yes"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        log: list[int] = []
        done = undo_all(drive, journal, book=Compensation(undo=lambda n: log.append(n), idempotent=True))
        other.kill()
    assert log == []
    assert [e["reason"] for e in done.could_not_undo] == ["it is in work elsewhere"]

    done = undo_all(drive, journal, book=Compensation(undo=lambda n: log.append(n), idempotent=True))

    assert log == [1]
    assert len(done.compensated) == 1
    journal.close()

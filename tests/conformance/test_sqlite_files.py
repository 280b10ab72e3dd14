"""The file of a ledger: what opens, what is refused and how, and what failures leave behind."""

import gc
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from bound_middleware.core.errors import LedgerError, SpecError
from bound_middleware.core.ledger import Hold, Labels
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.ledgers.sqlite_schema import APPLICATION_ID, SCHEMA_VERSION

from .ledger_worker import NOW_MS
from .workers import Worker

MOST = 2**63 - 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path):
    with SqliteLedger(path) as ledger:
        ledger.open("root", ceilings={"tokens": 100})
        yield ledger


def hold(id: str = "a", tokens: int = 1, account_id: str = "root", **values) -> Hold:
    return Hold(id=id, account_id=account_id, amounts={"tokens": tokens}, **values)


def refusal(path: Path, **options) -> str:
    with pytest.raises(LedgerError) as failure:
        SqliteLedger(path, **options)
    assert failure.value.reason == "unavailable"
    assert failure.value.id == str(path)
    return str(failure.value)


def sql(path: Path, *statements: str) -> list[tuple]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return [row for statement in statements for row in connection.execute(statement)]
    finally:
        connection.close()


@pytest.mark.parametrize("path", [":memory:", "", "file:x.db?mode=memory"])
def test_what_is_no_file_is_refused_with_a_hint(path):
    with pytest.raises(SpecError, match=r"MemoryLedger\(\)"):
        SqliteLedger(path)


@pytest.mark.parametrize("options", [{"busy_timeout_ms": -1}, {"busy_timeout_ms": 2**31}, {"durability": "none"}])
def test_an_option_out_of_range_is_refused_and_makes_no_file(path, options):
    with pytest.raises(SpecError):
        SqliteLedger(path, **options)
    assert not path.exists()


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    assert "does not exist; create it first" in refusal(tmp_path / "no" / "ledger.db")


def test_a_folder_instead_of_a_file_is_named(tmp_path):
    assert "this is a folder" in refusal(tmp_path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder where even root cannot write")
def test_a_folder_that_cannot_be_written_is_named():
    assert "cannot be created" in refusal(Path("/proc/ledger.db"))


def test_a_name_that_no_file_can_have_is_refused(tmp_path):
    assert "cannot be created" in refusal(tmp_path / "a\0b")


def test_a_file_that_is_not_sqlite_is_refused_and_left_alone(path):
    path.write_bytes(b"a page of notes" * 200)
    assert "no SQLite file" in refusal(path)
    assert path.read_bytes() == b"a page of notes" * 200


def test_another_programs_database_is_refused_and_left_alone(path):
    sql(path, "CREATE TABLE t (x)", "PRAGMA user_version = 3")
    before = path.read_bytes()
    assert "belongs to something else" in refusal(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_file_of_a_newer_version_is_refused_with_what_to_do(path, ledger):
    ledger.close()
    sql(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    assert "upgrade bound-middleware" in refusal(path)


def test_a_ledger_is_marked_as_one(path, ledger):
    assert sql(path, "PRAGMA application_id", "PRAGMA user_version") == [(APPLICATION_ID,), (SCHEMA_VERSION,)]


def test_a_damaged_file_is_an_error_with_what_to_do(path, ledger):
    for number in range(200):
        ledger.book("root", f"{number}", {"tokens": 1}, NOW_MS)
    ledger.close()
    content = bytearray(path.read_bytes())
    content[2_048:] = b"\xa5" * (len(content) - 2_048)
    path.write_bytes(content)
    with SqliteLedger(path) as damaged, pytest.raises(LedgerError, match="damaged; keep it") as failure:
        damaged.chain("root", NOW_MS)
    assert failure.value.id == str(path)


def test_a_row_that_cannot_be_read_is_damage(path, ledger):
    sql(path, "UPDATE accounts SET ceilings = '{'")
    with pytest.raises(LedgerError, match="damaged; keep it"):
        ledger.chain("root", NOW_MS)


def test_a_locked_file_is_an_error_after_the_timeout_and_nothing_is_lost(path, ledger):
    with SqliteLedger(path, busy_timeout_ms=0) as impatient:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked for longer than busy_timeout_ms") as failure:
            impatient.hold(hold(), NOW_MS)
        assert (failure.value.reason, failure.value.id) == ("unavailable", str(path))
        other.execute("ROLLBACK")
        other.close()
        assert impatient.holds("root") == ()
        assert impatient.hold(hold(), NOW_MS) is None


def test_an_operation_waits_for_a_lock_that_is_given_up_in_time(path, ledger):
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ledger.hold(hold(), NOW_MS)))
    thread.start()
    other.execute("COMMIT")
    other.close()
    thread.join()
    assert answers == [None]


def test_opening_a_locked_file_is_an_error_after_the_timeout(path, ledger):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "locked" in refusal(path, busy_timeout_ms=0)
    other.close()


def test_a_full_disk_is_an_error_and_changes_nothing(path):
    """The process may write files of 64 kB at most; later the limit is lifted."""
    script = """if True:
        import resource, sys
        from bound_middleware.core.errors import LedgerError
        from bound_middleware.ledgers import SqliteLedger

        ledger = SqliteLedger(sys.argv[1])
        ledger.open("root", ceilings={})
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
        booked = 0
        try:
            while booked < 10_000:
                ledger.book("root", f"{booked}", {"tokens": 1}, 0)
                booked += 1
        except LedgerError as error:
            print(error.reason, "nothing was changed" in str(error))
        counted = ledger.chain("root", 0)[0].settled["tokens"]
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        again = ledger.book("root", f"{booked}", {"tokens": 1}, 0).closed
        ledger.close()
        with SqliteLedger(sys.argv[1]) as reopened:
            total = reopened.chain("root", 0)[0].settled["tokens"]
        print(0 < booked < 10_000, counted == booked, again, total == booked + 1)
    """
    pytest.importorskip("resource")
    result = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["unavailable True", "True True True True"]


@pytest.mark.skipif(os.name != "posix", reason="needs file modes")
def test_only_its_owner_can_read_the_file(path, ledger):
    ledger.book("root", "a", {"tokens": 1}, NOW_MS)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {"ledger.db": 0o600, "ledger.db-shm": 0o600, "ledger.db-wal": 0o600}


def test_closing_leaves_one_file(path, ledger):
    ledger.book("root", "a", {"tokens": 1}, NOW_MS)
    ledger.close()
    assert os.listdir(path.parent) == ["ledger.db"]


def test_a_closed_ledger_says_so(path, ledger):
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="was closed"):
        ledger.chain("root", NOW_MS)


def test_a_ledger_that_nobody_closes_is_closed_without_a_warning(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SqliteLedger(path).open("root", ceilings={})
        gc.collect()
    assert os.listdir(path.parent) == ["ledger.db"]


def test_a_relative_path_stays_the_same_file_when_the_process_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SqliteLedger("ledger.db") as ledger:
        monkeypatch.chdir("/")
        assert ledger.path == str(tmp_path / "ledger.db")
        assert repr(ledger) == f"SqliteLedger({ledger.path!r})"


def test_durability_decides_how_often_the_disk_is_waited_for(path):
    levels = []
    for durability in ("process", "full"):
        with SqliteLedger(path, durability=durability) as ledger, ledger._store.reading as rows:
            levels.append(rows._execute("PRAGMA synchronous").fetchone()[0])
    assert levels == [1, 2]


def test_a_ledger_pickles_as_its_path_and_options(path, ledger):
    ledger.hold(hold("pickled"), NOW_MS)
    with Worker(path) as worker:
        worker.hear()
        assert worker.ask("unpickle", pickle.dumps(ledger).hex()) == str(path)
    assert ledger.chain("root", NOW_MS)[0].settled == {"tokens": 1}
    with pickle.loads(pickle.dumps(SqliteLedger(path, durability="full", hold_owner_check=False))) as other:
        assert other._options == {"durability": "full", "hold_owner_check": False, "busy_timeout_ms": 10_000}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_both_sides_of_a_fork_go_on_with_the_ledger(path, ledger):
    ledger.open("child", ceilings={}, parent_id="root")
    with Worker(path) as worker:
        worker.hear()
        assert worker.ask("fork") == "child ['child']"
        assert worker.hear() == "parent ['child'] 1"
        assert worker.hear() == "child closed"
    (root,) = ledger.chain("root", NOW_MS)
    assert (root.held, root.settled) == ({}, {"tokens": 3})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_keeps_its_own_locks_when_its_parent_closes_the_file(path, ledger):
    """A child that had inherited the connection would go on in a log that its parent deletes here."""
    ledger.open("child", ceilings={}, parent_id="root")
    ledger.close()
    with Worker(path) as worker:
        worker.hear()
        assert [worker.ask("fork"), worker.hear(), worker.hear()][-1] == "child closed"
    with SqliteLedger(path) as reopened:
        assert reopened.chain("root", NOW_MS)[0].settled == {"tokens": 3}


def test_a_failure_inside_an_operation_leaves_the_ledger_usable(path, ledger, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bound_middleware.ledgers.sqlite_rows.Rows.close_id", interrupt)
    ledger.hold(hold(), NOW_MS)
    with pytest.raises(KeyboardInterrupt):
        ledger.settle("a", {"tokens": 1}, NOW_MS)
    monkeypatch.undo()
    assert [h.id for h in ledger.holds("root")] == ["a"]
    assert ledger.lines("root") == ()
    assert ledger.chain("root", NOW_MS)[0].settled == {}
    assert ledger.settle("a", {"tokens": 1}, NOW_MS).closed is True


def test_numbers_up_to_63_bits_are_exact_and_a_larger_sum_is_an_error(path):
    with SqliteLedger(path) as ledger:
        ledger.open("root", ceilings={})
        ledger.open("child", ceilings={"tokens": MOST}, parent_id="root")
        ledger.hold(hold("a", MOST - 1, "child"), NOW_MS)
        before = ledger.chain("child", NOW_MS)
        for call in (
            lambda: ledger.hold(hold("b", 2), NOW_MS),
            lambda: ledger.extend("a", {"nanousd": MOST + 1}, NOW_MS),
            lambda: ledger.book("root", "c", {"tokens": 2}, NOW_MS),
            lambda: ledger.settle("a", {"tokens": MOST + 1}, NOW_MS),
            lambda: ledger.open("root", ceilings={"tokens": MOST + 1}),
            lambda: ledger.hold(hold("d", expires_ms=2**63), NOW_MS),
        ):
            with pytest.raises(LedgerError) as failure:
                call()
            assert failure.value.reason == "unavailable"
        assert ledger.chain("child", NOW_MS) == before
        ledger.settle("a", {"tokens": MOST}, NOW_MS)
        assert [a.settled for a in ledger.chain("child", NOW_MS)] == [{"tokens": MOST}] * 2
        assert [line.amounts for line in ledger.lines("root")] == [{"tokens": MOST}]


def test_pruning_forgets_old_ids_and_nothing_else(ledger):
    ledger.open("root", ceilings={})
    for number in range(2_500):
        ledger.book("root", f"{number:04}", {"tokens": 1}, number, labels=Labels(model="m"))
    ledger.hold(hold("open"), 0)
    assert ledger.prune(2_400) == 2_400
    assert ledger.prune(2_400) == 0
    assert ledger.book("root", "2400", {"tokens": 1}, 3_000).closed is False
    assert ledger.book("root", "2399", {"tokens": 1}, 3_000).closed is True
    assert ledger.chain("root", 3_000)[0].settled == {"tokens": 2_501}
    assert [h.id for h in ledger.holds("root")] == ["open"]


def test_what_another_object_wrote_is_seen_by_the_next_operation(path, ledger):
    with SqliteLedger(path) as other:
        for number in range(20):
            writer, reader = (ledger, other) if number % 2 else (other, ledger)
            writer.hold(hold(f"{number}", 1), NOW_MS)
            writer.settle(f"{number}", {"tokens": 1}, NOW_MS)
            writer.open("root", ceilings={"tokens": 100 + number})
            (account,) = reader.chain("root", NOW_MS)
            assert (account.settled, account.ceilings) == ({"tokens": number + 1}, {"tokens": 100 + number})


def test_a_thread_that_keeps_the_ledger_too_long_is_an_error_for_the_others(path, ledger):
    ledger._store._patience_s = 0
    inside, done = threading.Event(), threading.Event()

    def keep():
        with ledger._store.writing:
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=keep)
    thread.start()
    assert inside.wait(60)
    try:
        with pytest.raises(LedgerError, match="another thread"):
            ledger.chain("root", NOW_MS)
    finally:
        done.set()
        thread.join()
    assert ledger.chain("root", NOW_MS)[0].held == {}


def test_a_large_tree_outgrows_what_is_kept_between_operations(path, ledger, monkeypatch):
    monkeypatch.setattr("bound_middleware.ledgers.sqlite_rows._ROWS_KEPT", 5)
    for number in range(12):
        ledger.open(f"{number}", ceilings={"tokens": 2}, parent_id="root")
        ledger.hold(hold(f"h{number}", 1, f"{number}"), NOW_MS)
        ledger.book(f"{number}", f"b{number}", {"tokens": 1}, NOW_MS)
    assert ledger.chain("0", NOW_MS)[0].used("tokens") == 24
    assert [ledger.chain(f"{number}", NOW_MS)[1].used("tokens") for number in range(12)] == [2] * 12

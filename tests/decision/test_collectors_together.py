"""All the evidence on a step at once: checks, changes, meters; in both colours."""

import asyncio
import os
import subprocess
import threading
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.decision.collectors import (
    Artifact,
    ChangesWithin,
    CleanTree,
    Collector,
    Collectors,
    Command,
    Look,
    MeterReading,
    Scope,
    StepRun,
    WithinMeters,
    abegin_step,
    acollect_all,
    begin_step,
    collect_all,
    merge_evidence,
    read_meters,
)
from bound_middleware.decision.collectors.finding import missing, stale, verdict
from bound_middleware.decision.collectors.together import _waves
from bound_middleware.decision.contracts import StepContract
from bound_middleware.decision.evidence import CheckEvidence, EvidenceCollector, ExecutionEvidence
from bound_middleware.decision.models import BoundCriteria
from bound_middleware.decision.workflow import BoundWorkflow
from bound_middleware.testing import FakeClock

SH = ("/bin/sh", "-c")


def contract(*checks, risks=(), artifacts=(), budget=None):
    return StepContract(
        id="step",
        description="A step",
        goal="A goal",
        acceptance_checks=[{"id": check, "description": f"{check} passes"} for check in checks],
        risk_checks=[{"id": risk, "description": risk, "severity": 0.5} for risk in risks],
        expected_artifacts=artifacts,
        budget=budget,
    )


class Session:
    """Has the shape of a session."""

    def __init__(self, **usage):
        self.ms = usage.pop("ms", 0)
        self.usage = SimpleNamespace(**({"tool_calls": 0, "total_tokens": 0, "cost_nanousd": 0} | usage))

    def elapsed_ms(self):
        return self.ms


@dataclass(frozen=True, kw_only=True)
class Scripted(Collector):
    """Says what it is told to, and notes that it looked."""

    finding: object = verdict(True, "seen")
    beside: bool = True
    seen: list = field(default_factory=list)

    @property
    def parallel(self):
        return self.beside

    def look(self, site):
        self.seen.append(site)
        return Look(finding=self.finding, source="scripted", digest="sha256:0")


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()

    def git(*words):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, check=True)

    git("init", "-q", "-b", "main")
    git("config", "user.email", "a@example.test")
    git("config", "user.name", "A")
    (folder / "kept.txt").write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "first")
    git.path = folder
    return git


def both(collectors, **arguments):
    """What ``collect`` gives, after ``acollect`` gave the same."""
    found = collectors.collect(**arguments)
    again = asyncio.run(collectors.acollect(**arguments))
    assert again == found
    return found


def test_a_record_carries_source_time_digest_and_provenance(tmp_path):
    collectors = Collectors({"a": Scripted()}, workspace=tmp_path, clock=FakeClock(start_ms=1234))
    found = both(collectors, contract=contract("a"))
    assert found.acceptance == (
        CheckEvidence(
            check_id="a",
            passed=True,
            source="scripted",
            details="seen",
            provenance="observed",
            observed_ms=1234,
            digest="sha256:0",
        ),
    )


@pytest.mark.parametrize(
    ("finding", "passed", "provenance", "details"),
    [
        (verdict(False, "no"), False, "observed", "no"),
        (missing("nothing"), False, "missing", "missing: nothing"),
        (stale("old"), False, "missing", "stale: old"),
    ],
)
def test_what_was_not_seen_is_missing_and_not_failed(tmp_path, finding, passed, provenance, details):
    collectors = Collectors({"a": Scripted(finding=finding)}, workspace=tmp_path, clock=FakeClock())
    found = both(collectors, contract=contract("a"))
    (record,) = found.acceptance
    assert (record.passed, record.provenance, record.details) == (passed, provenance, details)


def test_records_are_filed_where_the_contract_has_the_check(tmp_path):
    collectors = Collectors({"r": Scripted(), "a": Scripted(), "other": Scripted()}, workspace=tmp_path)
    found = collectors.collect(contract=contract("a", "nobody looks", risks=["r"]))
    assert [record.check_id for record in found.acceptance] == ["a"]
    assert [record.check_id for record in found.risks] == ["r"]
    assert collectors.checks["other"].seen == []


def test_it_is_an_evidence_collector_and_so_is_each_of_its_parts(tmp_path):
    assert isinstance(Collectors({}), EvidenceCollector)
    assert isinstance(Command(command=("true",)), EvidenceCollector)


def test_one_collector_stands_alone(tmp_path):
    alone = Command(command=(*SH, "exit 0"), check_id="a", workspace=tmp_path)
    assert alone.collect(contract=contract("a"), execution=None).acceptance[0].passed
    assert asyncio.run(alone.acollect(contract=contract("a"))).acceptance[0].passed
    for name in (None, "b"):
        with pytest.raises(SpecError, match=r"no check .*allowed: a"):
            Command(command=("true",), check_id=name).collect(contract=contract("a"))


@pytest.mark.parametrize("checks", [{"a": "pytest"}, {" ": Scripted()}, {3: Scripted()}, {"a": Scripted}])
def test_what_is_no_collector_is_refused_at_construction(checks):
    with pytest.raises(SpecError, match="is no collector of a check"):
        Collectors(checks)


def test_collectors_that_write_nothing_look_side_by_side_and_the_others_alone(tmp_path):
    gate = threading.Barrier(2, timeout=20)
    running, alone = [], []

    @dataclass(frozen=True, kw_only=True)
    class Beside(Scripted):
        def look(self, site):
            running.append(1)
            gate.wait()  # would time out if the other one did not run now
            running.pop()
            return Scripted.look(self, site)

    @dataclass(frozen=True, kw_only=True)
    class Alone(Scripted):
        beside: bool = False

        def look(self, site):
            alone.append(len(running))
            return Scripted.look(self, site)

    checks = {"a": Beside(), "b": Beside(), "c": Alone(), "d": Alone(), "e": Beside(), "f": Beside()}
    found = Collectors(checks, workspace=tmp_path).collect(contract=contract(*checks))
    assert [record.check_id for record in found.acceptance] == list(checks)
    assert alone == [0, 0]


def test_a_collector_that_writes_is_a_wave_of_its_own_and_the_order_is_kept():
    def waves(text):
        wanted = [(letter, Scripted(beside=letter.islower())) for letter in text]
        return ["".join(name for name, _ in wave) for wave in _waves(wanted)]

    assert waves("abCDef") == ["ab", "C", "D", "ef"]
    assert waves("Aab") == ["A", "ab"]
    assert waves("aA") == ["a", "A"]
    assert waves("") == []


def test_an_error_in_a_collector_is_not_hidden(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Broken(Scripted):
        def look(self, site):
            raise ZeroDivisionError

    collectors = Collectors({"a": Broken()}, workspace=tmp_path)
    with pytest.raises(ZeroDivisionError):
        collectors.collect(contract=contract("a"))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(collectors.acollect(contract=contract("a")))


async def test_a_cancelled_collection_kills_what_runs_before_it_ends(tmp_path):
    collectors = Collectors(
        {"a": Command(command=(*SH, "echo $$ > pid; mv pid ready; sleep 60"))}, workspace=tmp_path
    )
    task = asyncio.create_task(collectors.acollect(contract=contract("a")))
    while not (tmp_path / "ready").exists():
        await asyncio.sleep(0.005)
    pid = int((tmp_path / "ready").read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_event_loop_goes_on_while_a_command_runs(tmp_path):
    collectors = Collectors({"a": Command(command=(*SH, "while ! test -e go; do :; done"))}, workspace=tmp_path)
    task = asyncio.create_task(collectors.acollect(contract=contract("a")))
    await asyncio.sleep(0)
    (tmp_path / "go").write_text("")
    assert (await task).acceptance[0].passed


def test_secrets_stay_out_of_records(tmp_path):
    command = Command(command=(*SH, "echo my hidden-value-1234 and $API_TOKEN >&2; exit 1"))
    environment = {**os.environ, "API_TOKEN": "from-the-environment"}
    found = Collectors(
        {"a": command}, workspace=tmp_path, environment=environment, secrets=["hidden-value-1234"]
    ).collect(contract=contract("a"))
    assert found.acceptance[0].details == "exit code 1: my [redacted] and [redacted]"


def test_details_are_one_line_and_cut(tmp_path):
    collectors = Collectors({"a": Scripted(finding=verdict(True, "x\n y\t" + "z" * 9000))}, workspace=tmp_path)
    details = collectors.collect(contract=contract("a")).acceptance[0].details
    assert details.startswith("x y zz")
    assert len(details) == 2000


def test_without_a_session_nothing_is_measured_and_a_declared_budget_is_spent(tmp_path):
    step = contract(
        "a", budget={"max_retries": 3, "max_tool_calls": 10, "max_tokens": 100, "max_runtime_seconds": 9}
    )
    found = Collectors({"a": Scripted()}, workspace=tmp_path).collect(contract=step)
    assert found.unmeasured == ("retry_count", "tool_call_count")
    assert (found.token_usage, found.runtime_seconds) == (None, None)
    result = BoundWorkflow().evaluate_step(contract=step, evidence=found, criteria=BoundCriteria(threshold=0.6))
    assert result.scores.cost == 1.0


def test_the_meters_of_a_session_count_from_the_start_of_the_step(tmp_path):
    session = Session(tool_calls=5, total_tokens=1000, ms=4000)
    step = begin_step(tmp_path, session=session)
    session.usage.tool_calls, session.usage.total_tokens, session.ms = 7, 1300, 5500
    collectors = Collectors({}, workspace=tmp_path, session=session)
    found = both(collectors, contract=contract("a"), execution=step.retried(2))
    assert (found.retry_count, found.tool_call_count, found.token_usage) == (2, 2, 300)
    assert (found.runtime_seconds, found.unmeasured) == (1.5, ())
    whole = collectors.collect(contract=contract("a"))
    assert (whole.tool_call_count, whole.token_usage, whole.unmeasured) == (7, 1300, ("retry_count",))


def test_a_real_session_has_the_meters(tmp_path):
    from bound_middleware import BoundSession

    session = BoundSession({"bounds": {"cost_budget": {"total_usd": 1}}}, clock=FakeClock())
    with session:
        session.charge(usd="0.25")
        reading = read_meters(session)
    assert reading == MeterReading(tool_calls=0, tokens=0, cost_nanousd=250_000_000, elapsed_ms=0)


@pytest.mark.parametrize("bad", [-1, 1.5, True, "3", float("nan")])
def test_a_meter_that_is_none_is_an_error(bad):
    with pytest.raises(SpecError, match="is no meter reading"):
        read_meters(Session(total_tokens=bad))


def test_meters_of_another_session_are_an_error():
    with pytest.raises(SpecError, match="went back"):
        read_meters(Session(total_tokens=1)).since(MeterReading(tokens=2))


def test_a_cost_with_unpriced_calls_in_it_is_not_known():
    reading = read_meters(Session(cost_nanousd=5, unpriced_calls=1))
    assert reading.cost_nanousd is None
    assert MeterReading(cost_nanousd=5).since(reading).cost_nanousd is None


def spent(session, **limits):
    collector = WithinMeters(session=session, check_id="a", **limits)
    return collector.collect(contract=contract("a")).acceptance[0]


def test_limits_on_meters_are_inclusive_and_the_unknown_is_missing(tmp_path):
    session = Session(tool_calls=2, total_tokens=10, cost_nanousd=500_000_000, ms=7)
    assert spent(session, max_tool_calls=2, max_tokens=10, max_usd="$0.50", max_runtime_ms=7).passed
    for limits in (
        {"max_tool_calls": 1},
        {"max_tokens": 9},
        {"max_usd": Decimal("0.499999999")},
        {"max_runtime_ms": 6},
    ):
        record = spent(session, **limits)
        assert (record.passed, record.provenance) == (False, "observed")
        assert "at most" in record.details
    assert spent(session).provenance == "missing"
    session.usage.unpriced_calls = 1
    assert spent(session, max_usd=1).provenance == "missing"
    assert spent(session, max_usd=1, max_tokens=0).provenance == "observed"


@pytest.mark.parametrize("limits", [{"max_tokens": -1}, {"max_tokens": True}, {"max_usd": 0.5}, {"max_usd": "nan"}])
def test_limits_that_are_none_are_refused(limits):
    with pytest.raises(SpecError):
        WithinMeters(session=Session(), **limits)


def test_what_a_step_touched_is_told_apart_by_the_contract_and_the_scope(repo):
    step = begin_step(repo.path)
    (repo.path / "out.txt").write_text("x")
    (repo.path / "src").mkdir()
    (repo.path / "src" / "a.py").write_text("x")
    (repo.path / "stray").write_text("x")
    collectors = Collectors({}, workspace=repo.path, scope=Scope(allowed=["src/**"]))
    found = both(collectors, contract=contract("a", artifacts=["out.txt", "absent.txt"]), execution=step)
    assert found.produced_artifacts == ("out.txt", "src/a.py")
    assert found.unexpected_artifacts == ("stray",)
    assert found.rollback_available is True


def test_changes_that_the_step_committed_are_seen(repo):
    step = begin_step(repo.path)
    (repo.path / "stray").write_text("x")
    repo("add", ".")
    repo("commit", "-qm", "hide it")
    found = Collectors({}, workspace=repo.path, scope=Scope()).collect(contract=contract("a"), execution=step)
    assert found.unexpected_artifacts == ("stray",)


def test_a_file_that_a_command_of_the_collection_writes_is_not_the_steps(repo):
    step = begin_step(repo.path)
    checks = {"a": Command(command=(*SH, "touch made-by-the-check"))}
    found = Collectors(checks, workspace=repo.path, scope=Scope()).collect(contract=contract("a"), execution=step)
    assert found.acceptance[0].passed
    assert found.unexpected_artifacts == ()


def test_an_expected_artifact_that_was_there_before_was_not_produced(repo):
    os.utime(repo.path / "kept.txt", ns=(1001, 1001))
    step = begin_step(repo.path)
    collectors = Collectors({}, workspace=repo.path)
    expected = contract("a", artifacts=["kept.txt"])
    assert collectors.collect(contract=expected, execution=step).produced_artifacts == ()
    assert collectors.collect(contract=expected).produced_artifacts == ("kept.txt",)


def test_without_a_scope_nobody_looks_at_git(tmp_path):
    found = Collectors({}, workspace=tmp_path).collect(contract=contract("a"))
    assert (found.unexpected_artifacts, found.rollback_available) == ((), None)


def test_a_tree_that_was_dirty_before_the_step_cannot_be_rolled_back(repo):
    (repo.path / "mine").write_text("not committed")
    step = begin_step(repo.path)
    assert step.dirty is True
    found = Collectors({}, workspace=repo.path, scope=Scope(allowed=["**"])).collect(
        contract=contract("a"), execution=step
    )
    assert found.rollback_available is False


def test_whether_an_unknown_state_can_be_restored_is_not_known(repo):
    collectors = Collectors({}, workspace=repo.path, scope=Scope(base="HEAD"))
    found = collectors.collect(contract=contract("a"), execution=StepRun(started_ns=0))
    assert found.rollback_available is None
    assert collectors.collect(contract=contract("a")).rollback_available is True


@pytest.mark.parametrize("base", [None, "no-such-commit"])
def test_changes_that_are_not_known_are_not_taken_for_none(repo, base):
    found = Collectors({}, workspace=repo.path, scope=Scope(allowed=["**"], base=base)).collect(
        contract=contract("a")
    )
    assert len(found.unexpected_artifacts) == 1
    assert found.unexpected_artifacts[0].startswith("(what changed is not known: ")
    assert found.rollback_available is (None if base is None else False)


def test_a_git_that_does_not_start_leaves_the_rollback_unknown_and_the_changes_unexpected(repo):
    collectors = Collectors({}, workspace=repo.path, scope=Scope(base="HEAD"), environment={"PATH": "/nowhere"})
    found = collectors.collect(contract=contract("a"))
    assert found.rollback_available is None
    assert "did not start" in found.unexpected_artifacts[0]


def test_a_step_outside_of_a_repository_has_no_base(tmp_path):
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    step = begin_step(tmp_path, environment=environment)
    assert (step.base, step.dirty, step.meters) == (None, None, None)
    assert asyncio.run(abegin_step(tmp_path, environment=environment)).base is None


def test_other_collectors_add_their_evidence(tmp_path):
    class Human:
        def collect(self, *, contract, execution):
            assert execution == "a run"
            record = CheckEvidence(check_id="b", passed=True, source="me", provenance="attested")
            return ExecutionEvidence(acceptance=[record], token_usage=5, unmeasured=["retry_count"])

    collectors = Collectors({"a": Scripted()}, workspace=tmp_path, clock=FakeClock(), others=[Human()])
    found = both(collectors, contract=contract("a", "b"), execution="a run")
    assert [record.check_id for record in found.acceptance] == ["a", "b"]
    assert (found.token_usage, found.unmeasured) == (5, ("retry_count", "tool_call_count"))


def test_merging_keeps_each_record_once_the_most_of_each_count_and_the_worst_news():
    record = CheckEvidence(check_id="a", passed=True, source="x")
    one = ExecutionEvidence(acceptance=[record], produced_artifacts=["p"], retry_count=2, rollback_available=True)
    two = ExecutionEvidence(acceptance=[record], produced_artifacts=["p", "q"], token_usage=9, retry_count=1)
    merged = merge_evidence(one, two)
    assert merged == ExecutionEvidence(
        acceptance=[record], produced_artifacts=["p", "q"], token_usage=9, retry_count=2, rollback_available=True
    )
    no_way_back = ExecutionEvidence(rollback_available=False)
    assert merge_evidence(one, no_way_back).rollback_available is False
    assert merge_evidence(one) is one
    unmeasured = ExecutionEvidence(unmeasured=["retry_count"])
    assert merge_evidence(unmeasured, one).unmeasured == ()
    assert merge_evidence(unmeasured, ExecutionEvidence()).unmeasured == ("retry_count",)


def test_the_whole_of_a_step_is_judged_on_what_was_seen(repo):
    criteria = BoundCriteria(threshold=0.6)
    step = begin_step(repo.path, session=Session())
    (repo.path / "report.txt").write_text("done")
    wanted = contract("works", "report", risks=["stays-inside"], artifacts=["report.txt"])
    checks = {
        "works": Command(command=(*SH, "test -s report.txt")),
        "report": Artifact(path="report.txt"),
        "stays-inside": ChangesWithin(allowed=("report.txt",)),
    }
    options = {"workspace": repo.path, "scope": Scope(), "session": Session()}
    found = collect_all(checks, contract=wanted, execution=step, **options)
    result = BoundWorkflow().evaluate_step(contract=wanted, evidence=found, criteria=criteria)
    assert (result.decision, result.assurance, result.score) == ("ACCEPT", "verified", 1.0)
    (repo.path / "stray").write_text("x")
    found = asyncio.run(acollect_all(checks, contract=wanted, execution=step, **options))
    result = BoundWorkflow().evaluate_step(contract=wanted, evidence=found, criteria=criteria)
    assert (result.decision, result.scores.risk) == ("ROLLBACK", 1.0)


def test_a_clean_tree_is_evidence_too(repo):
    clean = CleanTree(check_id="a", workspace=repo.path)
    assert clean.collect(contract=contract("a")).acceptance[0].passed
    (repo.path / "new").write_text("x")
    record = clean.collect(contract=contract("a")).acceptance[0]
    assert (record.passed, record.details) == (False, "1 path differs: 'new'")

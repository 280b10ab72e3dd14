"""The collectors that run a tool or read its report, on small real projects and on tools that misbehave."""

import importlib.util
import json
import marshal
import os
import py_compile
import sys

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.decision.collectors import (
    Artifact,
    Command,
    Coverage,
    CoverageReport,
    JUnitReport,
    Mypy,
    Pytest,
    PytestJsonReport,
    Redactor,
    Ruff,
    Site,
    StepRun,
    SystemClock,
)
from bound_middleware.decision.collectors.site import now_on_disk_ns
from bound_middleware.testing import FakeClock

SH = ("/bin/sh", "-c")
JUNIT = '<testsuites><testsuite tests="1"><testcase name="a"/></testsuite></testsuites>'


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "work space"
    folder.mkdir()
    # Plugins of the suite that runs this have no business in the small projects.
    return Site(workspace=folder, environment={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def script(site, name, text):
    """A program that stands in for a tool; returns the command that runs it."""
    path = site.workspace / name
    path.write_text(text)
    return (sys.executable, "-I", str(path))


def fake_pytest(site, report=None, exit_code=0, said=""):
    """A pytest that writes a report as it is told; ``None`` writes none."""
    write = "" if report is None else f"open(sys.argv[-1].partition('=')[2], 'w').write({report!r})\n"
    return script(site, "fake.py", f"import sys\n{write}print({said!r})\nsys.exit({exit_code})")


def with_step(site, *, before=0):
    """The same site within a step that began some ns after now, or before."""
    return Site(workspace=site.workspace, environment=site.environment, step=StepRun(started_ns=before))


def test_a_command_is_judged_by_its_exit_code(site):
    assert Command(command=(*SH, "exit 0")).look(site).finding.status == "passed"
    failed = Command(command=(*SH, "echo why >&2; exit 3")).look(site).finding
    assert (failed.status, failed.details) == ("failed", "exit code 3: why")
    assert Command(command=(*SH, "exit 3"), success_codes=(3,)).look(site).finding.status == "passed"
    assert Command(command=(*SH, "exit 75"), missing_codes=(75,)).look(site).finding.status == "missing"


@pytest.mark.parametrize("command", [("no-such-tool-anywhere",), (*SH, "exit 127"), (*SH, "kill -15 $$")])
def test_a_command_that_did_not_run_to_its_end_is_missing(site, command):
    assert Command(command=command).look(site).finding.status == "missing"


def test_a_command_that_is_too_slow_is_missing(tmp_path):
    class Hasty(FakeClock):
        def now_ms(self):
            return self.advance(ms=400)

    finding = (
        Command(command=(*SH, "sleep 60"), timeout_ms=1000).look(Site(workspace=tmp_path, clock=Hasty())).finding
    )
    assert finding.status == "missing"
    assert "was stopped after" in finding.details


def test_a_command_sees_only_the_variables_that_are_allowed(tmp_path):
    site = Site(workspace=tmp_path, environment={"A": "1", "B": "2", "PATH": os.environ["PATH"]})
    show = (*SH, "echo $A-$B-$C")

    def said(**more):
        return Command(command=(*SH, f"{show[-1]} >&2; exit 1"), **more).look(site).finding.details

    assert said() == "exit code 1: 1-2-"
    assert said(allow=("B",)) == "exit code 1: -2-"
    assert said(allow=(), variables={"C": "3"}) == "exit code 1: --3"


def test_the_digest_tells_looks_apart_and_is_of_redacted_text(tmp_path):
    collector = Command(command=(*SH, "cat said"))

    def digest(text, redact=None):
        (tmp_path / "said").write_text(text)
        return collector.look(Site(workspace=tmp_path, redact=redact or Redactor())).digest

    one = digest("same")
    assert one == digest("same")
    assert one != digest("other")
    assert one.startswith("sha256:")
    assert len(one) == 7 + 64
    hide = Redactor(secrets=["first-secret", "other-secret"])
    assert digest("first-secret", hide) == digest("other-secret", hide)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Command(command="make test"),
        lambda: Command(command=()),
        lambda: Command(command=("a\0b",)),
        lambda: Command(command=("a", 3)),
        lambda: Command(command=("a",), timeout_ms=0),
        lambda: Command(command=("a",), timeout_ms=True),
        lambda: Command(command=("a",), allow="PATH"),
        lambda: Command(command=("a",), missing_codes=(0,)),
        lambda: Pytest(min_tests=0),
        lambda: Pytest(command="pytest"),
        lambda: Coverage(min_percent=101),
        lambda: Coverage(min_percent="nan"),
        lambda: Coverage(min_percent=True),
        lambda: CoverageReport(path="c.json", min_percent="much"),
        lambda: JUnitReport(path="j.xml", command=("a",), vouched_by="CI"),
        lambda: Artifact(path="x", sha256="abc"),
        lambda: Artifact(path="x", min_bytes=-1),
    ],
)
def test_nonsense_is_an_error_at_construction(make):
    with pytest.raises(SpecError):
        make()


def test_real_tests_are_run_and_counted(site):
    (site.workspace / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\n@pytest.mark.skip\ndef test_b(): pass\n"
        "@pytest.mark.xfail\ndef test_c(): assert 0\ndef test_d(): pass\n"
    )
    look = Pytest(paths=("-p", "no:cacheprovider", "-k", "not test_d"), max_deselected=1).look(site)
    assert (look.finding.status, look.source) == ("passed", "pytest")
    assert look.finding.details == "1 passed, 1 skipped, 1 xfailed, 1 deselected"
    assert Pytest(paths=("-k", "nothing"), max_deselected=1).look(site).finding.status == "missing"
    (site.workspace / "test_it.py").write_text("import not_to_be_found\n")
    failed = Pytest().look(site).finding
    assert (failed.status, failed.details) == ("failed", "0 passed, 1 error")


def test_pytest_sees_the_module_as_it_is_now_however_soon_it_was_changed(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    site = Site(workspace=tmp_path, environment={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    (tmp_path / "test_it.py").write_text("from it import one\n\ndef test_one():\n    assert one() == 1\n")
    seen = []
    for number in (1, 2):
        # The same size, in the same second: Python itself would take compiled code for current.
        (tmp_path / "it.py").write_text(f"def one(): return {number}\n")
        os.utime(tmp_path / "it.py", (10**9, 10**9))
        seen.append(Pytest(paths=("-p", "no:cacheprovider")).look(site).finding.status)
    assert seen == ["passed", "failed"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it.py", "test_it.py"]


@pytest.mark.parametrize("which", ["the module", "the test"])
def test_a_compiled_file_beside_a_source_does_not_take_its_place(tmp_path, which):
    """It is ignored, so that git does not see it, and says itself that nobody need compare it with its source."""
    (tmp_path / "m.py").write_text("VALUE = 1\n")
    (tmp_path / "test_m.py").write_text("import m\n\ndef test_it():\n    assert m.VALUE == 2\n")
    quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def status(**more):
        collector = Pytest(paths=("-p", "no:cacheprovider"), variables={**quiet, **more})
        return collector.look(Site(workspace=tmp_path)).finding.status

    if which == "the module":
        planted = tmp_path / "planted.py"
        planted.write_text("VALUE = 2\n")
        compiled = importlib.util.cache_from_source(str(tmp_path / "m.py"))
        py_compile.compile(str(planted), compiled, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    else:
        assert status(PYTHONPYCACHEPREFIX="", PYTHONDONTWRITEBYTECODE="") == "failed"
        (compiled,) = (tmp_path / "__pycache__").glob("test_m.*pytest*.pyc")
        code = compile("def test_it():\n    pass\n", str(tmp_path / "test_m.py"), "exec")
        compiled.write_bytes(compiled.read_bytes()[:16] + marshal.dumps(code))
    assert status(PYTHONPYCACHEPREFIX="") == "passed", "the trap works"
    assert status() == "failed"


def test_a_pytest_that_is_not_installed_is_missing(site):
    finding = Pytest(command=(sys.executable, "-I", "-S", "-m", "pytest")).look(site).finding
    assert finding.status == "missing"
    assert finding.details.startswith("pytest is not installed: ")


@pytest.mark.parametrize(
    ("report", "exit_code", "status"),
    [
        (JUNIT, 0, "passed"),
        (JUNIT, 1, "failed"),
        (None, 0, "missing"),
        (None, 1, "missing"),
        (JUNIT.replace('<testcase name="a"/>', "").replace("1", "0"), 0, "missing"),
        (JUNIT.replace("/>", "><failure/></testcase>", 1), 0, "failed"),
        ("<html/>", 0, "invalid"),
        ("", 0, "invalid"),
        (JUNIT[:-12], 0, "invalid"),
        ("<!DOCTYPE x [<!ENTITY a 'a'>]>" + JUNIT, 0, "invalid"),
    ],
)
def test_what_pytest_says_is_believed_only_with_a_sound_report(site, report, exit_code, status):
    command = fake_pytest(site, report, exit_code, said="99 passed in 0.1s")
    assert Pytest(command=command).look(site).finding.status == status


def test_a_printed_last_line_is_no_evidence_of_tests(site):
    finding = Pytest(command=fake_pytest(site, said="99 passed in 0.1s")).look(site).finding
    assert (finding.status, finding.details) == ("missing", "no report was written; pytest ended (exit code 0)")


def test_real_lint_is_run_and_counted(site):
    (site.workspace / "a.py").write_text("import os\n")
    assert Ruff(paths=("--isolated", "a.py")).look(site).finding.details == "1 violation"
    (site.workspace / "a.py").write_text("")
    assert Ruff(paths=("--isolated", "a.py")).look(site).finding.status == "passed"
    (site.workspace / "a.py").unlink()
    assert Ruff(paths=("--isolated", ".")).look(site).finding.status == "missing"
    assert Ruff(paths=("--isolated", "absent.py")).look(site).finding.status == "missing"
    assert Ruff(command=(sys.executable, "-I", "-S", "-m", "ruff", "check")).look(site).finding.status == "missing"


def test_lint_that_says_more_than_is_kept_is_not_judged(site):
    flood = "import sys; print('[' + ' ' * 4_200_000 + ']'); sys.exit({})"
    for code, status in ((0, "invalid"), (1, "failed")):
        command = script(site, "flood.py", flood.format(code))
        assert Ruff(command=command).look(site).finding.status == status


def test_types_are_judged_by_the_last_line(site):
    good = script(site, "good.py", "print('Success: no issues found in 2 source files')")
    assert Mypy(command=good).look(site).finding.status == "passed"
    assert Mypy(command=script(site, "mute.py", "")).look(site).finding.status == "missing"
    assert Mypy(command=(sys.executable, "-I", "-S", "-m", "mypy")).look(site).finding.status == "missing"


def fake_coverage(site, covered, total, exit_code=0):
    report = {"totals": {"covered_lines": covered, "num_statements": total}}
    return script(
        site, "cov.py", f"import sys\nopen(sys.argv[-1], 'w').write({json.dumps(report)!r})\nsys.exit({exit_code})"
    )


def test_coverage_needs_data_of_this_step(site):
    collector = Coverage(min_percent=90, command=fake_coverage(site, 9, 10))
    assert collector.look(site).finding.status == "missing"
    (site.workspace / ".coverage").write_text("data")
    assert collector.look(site).finding.status == "passed"
    assert collector.look(with_step(site)).finding.status == "passed"
    os.utime(site.workspace / ".coverage", ns=(10**18, 10**18))
    assert (
        collector.look(with_step(site, before=10**18 + 1)).finding.status == "passed"
    )  # whole seconds: same second
    assert collector.look(with_step(site, before=10**18 + 10**9)).finding.status == "stale"
    strict = Coverage(min_percent="90.1", command=fake_coverage(site, 9, 10))
    assert strict.look(site).finding.status == "failed"
    broken = Coverage(min_percent=0, command=(sys.executable, "-I", "-S", "-m", "coverage", "json"))
    assert broken.look(site).finding.status == "missing"
    silent = Coverage(min_percent=0, command=script(site, "mute.py", ""))
    assert "coverage wrote no report" in silent.look(site).finding.details


def test_real_coverage_is_read(site):
    (site.workspace / "a.py").write_text("x = 1\nif x > 1:\n    y = 2\n")
    ran = Command(command=(sys.executable, "-m", "coverage", "run", "--data-file=.coverage", "a.py"))
    assert ran.look(site).finding.status == "passed"
    finding = Coverage(min_percent="66.6").look(site).finding
    assert (finding.status, finding.figures["covered"], finding.figures["total"]) == ("passed", 2, 3)
    assert Coverage(min_percent="66.7").look(site).finding.status == "failed"


def test_a_report_that_nobody_here_wrote_is_a_claim_or_attested_and_never_observed(site):
    (site.workspace / "j.xml").write_text(JUNIT)
    look = JUnitReport(path="j.xml").look(with_step(site))
    assert (look.finding.status, look.provenance) == ("passed", "claimed")
    look = JUnitReport(path="j.xml", vouched_by="the CI").look(with_step(site))
    assert (look.provenance, look.source) == ("attested", "report j.xml, vouched for by the CI")


def test_a_report_of_another_time_is_stale(site):
    path = site.workspace / "j.xml"
    path.write_text(JUNIT)
    os.utime(path, ns=(1001, 1001))
    assert JUnitReport(path="j.xml").look(with_step(site, before=1001)).finding.status == "passed"
    assert JUnitReport(path="j.xml").look(with_step(site, before=1002)).finding.status == "stale"
    assert JUnitReport(path="j.xml", any_age=True).look(with_step(site, before=1002)).finding.status == "stale"
    assert JUnitReport(path="j.xml").look(site).finding.status == "stale"
    assert JUnitReport(path="j.xml", any_age=True).look(site).finding.status == "passed"


def writes(site, action):
    return JUnitReport(path="j.xml", command=(*SH, action)).look(site)


def test_a_report_counts_as_observed_when_the_command_wrote_it(site):
    look = writes(site, f"echo '{JUNIT}' > j.xml")
    assert (look.finding.status, look.provenance) == ("passed", "observed")


def test_a_report_that_the_command_did_not_write_is_stale_or_missing(site):
    assert writes(site, "true").finding.status == "missing"
    (site.workspace / "j.xml").write_text(JUNIT)
    assert writes(site, "true").finding.status == "stale"
    old = site.workspace / "old.xml"
    old.write_text(JUNIT)
    os.utime(old, ns=(1001, 1001))
    assert writes(site, "cp -p old.xml j.xml").finding.status == "stale"
    assert writes(site, "rm j.xml").finding.status == "missing"
    assert writes(site, "exit 127").finding.status == "missing"


def test_a_report_written_again_by_a_command_that_fails_fails(site):
    assert writes(site, f"echo '{JUNIT}' > j.xml; exit 1").finding.status == "failed"


def test_a_report_must_be_a_regular_file_of_the_workspace(site):
    def status(path):
        return JUnitReport(path=path).look(with_step(site)).finding.status

    outside = site.workspace.parent / "outside.xml"
    outside.write_text(JUNIT)
    (site.workspace / "link.xml").symlink_to(outside)
    (site.workspace / "loop.xml").symlink_to("loop.xml")
    (site.workspace / "inner.xml").symlink_to("real.xml")
    (site.workspace / "real.xml").write_text(JUNIT)
    os.mkfifo(site.workspace / "pipe.xml")
    assert status("../outside.xml") == "invalid"
    assert status(str(outside)) == "invalid"
    assert status("link.xml") == "invalid"
    assert status("loop.xml") in ("invalid", "missing")
    assert status("pipe.xml") == "invalid"
    assert status(".") == "invalid"
    assert status("absent.xml") == "missing"
    assert status("inner.xml") == "passed"


def test_a_json_report_of_pytest_is_read_with_its_exit_code(site):
    def status(exitcode, outcome="passed"):
        report = {"exitcode": exitcode, "summary": {"total": 1}, "tests": [{"nodeid": "t", "outcome": outcome}]}
        (site.workspace / "r.json").write_text(json.dumps(report))
        return PytestJsonReport(path="r.json").look(with_step(site)).finding.status

    assert status(0) == "passed"
    assert status(1) == "failed"
    assert status(5) == "missing"
    assert status(0, "failed") == "failed"


def test_a_coverage_report_is_read_and_not_believed_when_its_writer_failed(site):
    def status(action="true", **more):
        text = '{"totals": {"covered_lines": 9, "num_statements": 10}}'
        command = (*SH, f"echo '{text}' > c.json; {action}")
        return CoverageReport(path="c.json", min_percent=90, command=command, **more).look(site).finding.status

    assert status() == "passed"
    assert status("exit 1") == "missing"


def artifact(site, **more):
    return Artifact(path="out.bin", **more).look(site)


def test_an_artifact_is_there_not_empty_and_of_this_step(site):
    path = site.workspace / "out.bin"
    assert (artifact(site).finding.status, artifact(site).finding.details) == ("failed", "'out.bin' does not exist")
    path.write_bytes(b"")
    assert artifact(site).finding.status == "failed"
    assert artifact(site, min_bytes=0).finding.status == "passed"
    path.write_bytes(b"abc")
    look = artifact(site, min_bytes=3)
    assert (look.finding.status, look.provenance) == ("passed", "observed")
    assert look.digest == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert artifact(site, min_bytes=4).finding.status == "failed"
    os.utime(path, ns=(1001, 1001))
    assert artifact(with_step(site, before=1002)).finding.status == "stale"
    assert artifact(with_step(site, before=1002), fresh=False).finding.status == "passed"
    assert artifact(with_step(site, before=1001)).finding.status == "passed"


def test_an_artifact_with_the_digest_that_was_asked_is_verified(site):
    (site.workspace / "out.bin").write_bytes(b"abc")
    good = artifact(site, sha256="BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD")
    assert (good.finding.status, good.provenance) == ("passed", "verified")
    assert artifact(site, sha256="sha256:" + "0" * 64).finding.status == "failed"


def test_a_folder_or_a_pipe_is_no_artifact(site):
    os.mkfifo(site.workspace / "out.bin")
    assert artifact(site).finding.status == "invalid"
    assert Artifact(path=".").look(site).finding.status == "invalid"


def test_the_clock_of_files_is_not_ahead_of_the_files(tmp_path):
    before = now_on_disk_ns()
    (tmp_path / "x").write_text("")
    assert (tmp_path / "x").stat().st_mtime_ns >= before


def test_the_system_clock_does_not_go_back():
    clock = SystemClock()
    readings = [clock.now_ms() for _ in range(100)]
    assert readings == sorted(readings)

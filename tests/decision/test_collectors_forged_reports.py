"""Reports that an agent wrote to look like a good run: old, from elsewhere, counted twice, too large, no text."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bound_middleware.decision.collectors import (
    Artifact,
    CoverageReport,
    JUnitReport,
    Mypy,
    PytestJsonReport,
    ReportError,
    Ruff,
    Site,
    begin_step,
    judge_tests,
    parse_junit,
    parse_pytest_json,
    report_file,
)
from bound_middleware.decision.collectors.report_file import JSON_BYTES_MAX, located, parse_json, read

ONE = b'<testsuite tests="1"><testcase classname="m" name="t"/></testsuite>'
FAR_NS = 4_000_000_000 * 10**9


@pytest.fixture
def site(tmp_path):
    return Site(workspace=tmp_path)


def status(site, collector):
    return collector.look(site).finding.status


def test_a_report_of_before_the_step_that_was_dated_ahead_is_stale(site, tmp_path):
    report, artifact = tmp_path / "r.xml", tmp_path / "a.txt"
    report.write_bytes(ONE)
    artifact.write_bytes(b"x")
    for path in (report, artifact):
        os.utime(path, ns=(FAR_NS, FAR_NS))
    step = begin_step(tmp_path)
    later = replace(step, started_ns=step.started_ns + 1)  # the same tick of the file system's clock
    late = replace(site, step=later)
    assert status(late, JUnitReport(path="r.xml")) == "stale"
    assert status(late, Artifact(path="a.txt")) == "stale"
    report.write_bytes(ONE)
    os.utime(report, ns=(later.started_ns + 10**9, later.started_ns + 10**9))
    written = replace(site, step=replace(step, started_ns=step.started_ns - 10**9))
    assert status(written, JUnitReport(path="r.xml")) == "passed"


def test_a_report_of_before_the_command_that_was_dated_ahead_is_stale(site, tmp_path):
    report = tmp_path / "r.xml"
    report.write_bytes(ONE)
    os.utime(report, ns=(FAR_NS, FAR_NS))
    assert status(site, JUnitReport(path="r.xml", command=("true",))) == "stale"
    assert status(site, JUnitReport(path="r.xml", command=("cp", "r.xml", "other.xml"))) == "stale"


@pytest.mark.parametrize("kind", ["link out", "link to a link out", "folder link out", "dots", "absolute", "loop"])
@pytest.mark.parametrize("collector", [JUnitReport, PytestJsonReport, CoverageReport, Artifact])
def test_a_report_from_another_folder_is_no_evidence(tmp_path, kind, collector):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "r").write_bytes(ONE)
    path = "r"
    if kind == "link out":
        (inside / "r").symlink_to(outside / "r")
    elif kind == "link to a link out":
        (inside / "s").symlink_to(outside / "r")
        (inside / "r").symlink_to("s")
    elif kind == "folder link out":
        (inside / "d").symlink_to(outside)
        path = "d/r"
    elif kind == "dots":
        path = "../outside/r"
    elif kind == "absolute":
        path = str(outside / "r")
    else:
        (inside / "r").symlink_to("r")
    more = {"min_percent": 0} if collector is CoverageReport else {}
    more |= {"any_age": True} if collector is not Artifact else {}
    look = collector(path=path, **more).look(Site(workspace=inside))
    assert look.finding.status == "invalid"
    assert "leads" in look.finding.details


def test_a_file_that_becomes_a_link_after_it_was_looked_up_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(ONE)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "r").write_bytes(b"")
    found = located(inside, "r")
    found.unlink()
    found.symlink_to(secret)
    with pytest.raises(ReportError, match="cannot be opened"):
        read(found)


def test_a_report_that_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "huge.xml"
    with open(path, "wb") as file:
        file.truncate(report_file.REPORT_BYTES_MAX + 1)  # sparse: takes no space
    monkeypatch.setattr(report_file, "_read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(ReportError, match=f"larger than {report_file.REPORT_BYTES_MAX} bytes"):
        read(path)


def test_a_pipe_a_device_and_a_folder_keep_nobody_waiting(site, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    for path in ("pipe", "folder", "zero"):
        assert status(site, JUnitReport(path=path, any_age=True)) == "invalid"


def test_json_that_would_fill_the_memory_is_refused():
    with pytest.raises(ReportError, match=f"more than {JSON_BYTES_MAX} bytes of JSON"):
        parse_json(b"[" + b"[]," * (JSON_BYTES_MAX // 3) + b"[]]")
    with pytest.raises(ReportError, match="no JSON"):
        parse_json(b"[" * 100_000)
    with pytest.raises(ReportError, match="no JSON"):
        parse_json(b"9" * 10_000)


def test_a_test_that_is_listed_twice_in_a_json_report_counts_once_as_its_worst():
    def report(*tests):
        rows = [{"nodeid": name, "outcome": outcome} for name, outcome in tests]
        return json.dumps({"exitcode": 0, "summary": {"total": len(rows)}, "tests": rows}).encode()

    counts, _ = parse_pytest_json(report(*[("t::a", "passed")] * 50))
    assert counts.passed == 1
    assert judge_tests(counts, exit_code=0, min_tests=2).status == "failed"
    for order in (("passed", "failed"), ("failed", "passed")):
        counts, _ = parse_pytest_json(report(*(("t::a", outcome) for outcome in order)))
        assert (counts.passed, counts.failed) == (0, 1)
    for nodeid in (None, 7, "", ["t"]):
        with pytest.raises(ReportError, match="no name of a test"):
            parse_pytest_json(report((nodeid, "passed")))


def test_a_test_that_is_listed_twice_in_a_junit_report_counts_once():
    suites = b"<testsuites>" + ONE * 50 + b"</testsuites>"
    assert parse_junit(suites).passed == 1
    nameless = b"<testsuite>" + b"<testcase/>" * 50 + b"</testsuite>"
    assert parse_junit(nameless).passed == 1


@pytest.mark.parametrize(
    ("attributes", "outcome"),
    [
        ('status="notrun"', "skipped"),
        ('status="run" result="suppressed"', "skipped"),
        ('status="Skipped"', "skipped"),
        ('status="disabled"', "skipped"),
        ('result="failed"', "failed"),
        ('status="FAILED"', "failed"),
        ('status="error"', "errors"),
        ('status="run" result="completed"', "passed"),
        ('status="passed"', "passed"),
    ],
)
def test_an_outcome_in_an_attribute_counts_as_one_in_an_element(attributes, outcome):
    counts = parse_junit(f'<testsuite><testcase name="t" {attributes}/></testsuite>'.encode())
    assert getattr(counts, outcome) == 1
    assert counts.passed == (outcome == "passed")


@pytest.mark.parametrize(
    "inner",
    ['<skipped type="pytest.xfail"/>', "<skipped/>", '<skipped type="pytest.skip"/>'],
)
def test_tests_that_were_only_skipped_or_expected_to_fail_are_missing(inner):
    report = f'<testsuite tests="1"><testcase name="t">{inner}</testcase></testsuite>'.encode()
    assert judge_tests(parse_junit(report), exit_code=0).status == "missing"


@pytest.mark.parametrize("outcome", ["skipped", "xfailed"])
def test_the_same_in_a_json_report(outcome):
    rows = [{"nodeid": "t", "outcome": outcome}]
    counts, code = parse_pytest_json(json.dumps({"exitcode": 0, "summary": {}, "tests": rows}).encode())
    assert judge_tests(counts, exit_code=code).status == "missing"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\x00\x00",
        b'<testsuite tests="1"><testcase name="\xff\xfe"/></testsuite>',
        b'<?xml version="1.0" encoding="utf-7"?>' + ONE,
        b'<?xml version="1.0" encoding="idna"?>' + ONE,
        b'<?xml version="1.0" encoding="rot13"?>' + ONE,
        b'<?xml version="1.0" encoding="no-such"?>' + ONE,
        b"\x00" * 100,
        ONE + b"trailing",
        ONE[:-5],
    ],
)
def test_what_is_no_text_is_invalid_and_no_traceback(data):
    with pytest.raises(ReportError):
        parse_junit(data)


@pytest.mark.parametrize("data", [b"\xff\xfe{}", b'{"summary": "\xff"}', b"", b"null", b'{"summary": null}'])
def test_what_is_no_json_in_utf_8_is_invalid(data):
    with pytest.raises(ReportError):
        parse_pytest_json(data)


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><testsuite name="&b;"/>',
        '<!DOCTYPE x [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><testsuite/>',
        '<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd"><testsuite/>',
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><testsuite><testcase name="&e;"/></testsuite>',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_neither_expand_nor_fetch(text, encoding):
    with pytest.raises(ReportError, match="document type"):
        parse_junit(text.encode(encoding))


@pytest.mark.parametrize(("collector", "name"), [(Ruff(), "ruff"), (Mypy(paths=(".",)), "mypy")])
def test_a_module_of_the_workspace_does_not_take_the_place_of_the_tool(site, tmp_path, collector, name):
    (tmp_path / f"{name}.py").write_text(
        "open('PWNED', 'w')\nprint('Success: no issues found in 1 source file')\nprint('[]')\n"
    )
    (tmp_path / "bad.py").write_text("import os\nx: int = 'a'\n")
    assert status(site, collector) == "failed"
    assert not (tmp_path / "PWNED").exists()
    assert Path(sys.executable).exists()

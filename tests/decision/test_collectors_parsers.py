"""What test, lint, type and coverage reports say, counted. Nothing here runs a command."""

import json
from fractions import Fraction

import pytest

from bound_middleware.decision.collectors import (
    ReportError,
    TestCounts,
    judge_coverage,
    judge_mypy,
    judge_ruff,
    judge_tests,
    parse_junit,
    parse_pytest_json,
    parse_pytest_summary,
)

PYTEST_JUNIT = b"""<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="3" failures="5" skipped="2" tests="15" time="0.05">
<testcase classname="test_a" name="test_ok" time="0.000" />
<testcase classname="test_a" name="test_fail"><failure message="assert 0">body</failure></testcase>
<testcase classname="test_a" name="test_skip"><skipped type="pytest.skip" message="unconditional skip">x</skipped>
</testcase>
<testcase classname="test_a" name="test_xfail"><skipped type="pytest.xfail" message="" /></testcase>
<testcase classname="test_a" name="test_xpass_strict"><failure message="[XPASS(strict)] ">x</failure></testcase>
<testcase classname="test_a" name="test_setup"><error message="failed on setup">ValueError</error></testcase>
<testcase classname="test_a" name="test_td_fail"><failure message="assert 0">x</failure></testcase>
<testcase classname="test_a" name="test_td_fail"><error message="failed on teardown">x</error></testcase>
<testcase classname="test_a" name="test_p[1]" /><testcase classname="test_a" name="test_p[2]" />
<testcase classname="test_a" name="test_sub"><failure message="one">x</failure><failure message="two"/></testcase>
</testsuite></testsuites>"""


def suite(cases="", **claimed):
    attributes = " ".join(f'{name}="{value}"' for name, value in claimed.items())
    return f"<testsuites><testsuite {attributes}>{cases}</testsuite></testsuites>".encode()


PASSED = '<testcase classname="a" name="{}"/>'


def test_junit_tests_are_counted_one_by_one_and_a_test_listed_twice_counts_once_as_its_worst():
    assert parse_junit(PYTEST_JUNIT) == TestCounts(passed=3, failed=3, errors=2, skipped=1, xfailed=1)


def test_the_worst_of_a_test_stays_whatever_is_listed_after_it():
    text = suite(
        '<testcase name="x"><error/></testcase><testcase name="x"><failure/></testcase><testcase name="x"/>'
    )
    assert parse_junit(text) == TestCounts(errors=1)


def test_what_stands_deeper_within_a_test_is_no_outcome():
    text = suite('<testcase name="x"><system-out><failure/></system-out></testcase>')
    assert parse_junit(text) == TestCounts(passed=1)


def test_xfailed_tests_are_no_skipped_tests():
    counts = parse_junit(PYTEST_JUNIT)
    assert (counts.skipped, counts.xfailed, counts.ran) == (1, 1, 8)


def test_failures_that_are_claimed_and_not_listed_are_refused():
    with pytest.raises(ReportError, match="failures are claimed and none is listed"):
        parse_junit(suite(PASSED.format("x"), tests=6, failures=5))
    with pytest.raises(ReportError, match="failures are claimed"):
        parse_junit(suite(PASSED.format("x"), tests=6, errors=1))
    assert parse_junit(suite(PASSED.format("x"), tests=1, failures=0)).passed == 1


def test_tests_that_are_claimed_and_not_listed_are_refused():
    with pytest.raises(ReportError, match="7 tests are claimed and none is listed"):
        parse_junit(suite(tests=7))
    assert parse_junit(suite(tests=0)) == TestCounts()


@pytest.mark.parametrize("root", ["html", "coverage", "testcase"])
def test_another_document_is_no_junit_report(root):
    with pytest.raises(ReportError, match="its root is"):
        parse_junit(f"<{root}/>".encode())


@pytest.mark.parametrize(
    "text",
    [
        b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><testsuites>&b;</testsuites>',
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuites/>',
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><testsuites><testsuite>&e;</testsuite></testsuites>',
        b'<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1/x"> %p;]><testsuites/>',
        b"<!DOCTYPE testsuites><testsuites/>",
    ],
)
def test_a_document_type_is_refused_before_an_entity_can_expand(text):
    with pytest.raises(ReportError, match="a document type or an entity"):
        parse_junit(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"  ",
        b"not xml",
        b"<testsuites>",
        b"<testsuites><testsuite></testsuites>",
        b"<testsuites>\xff</testsuites>",
        b'<?xml version="1.0" encoding="no-such"?><testsuites/>',
        b'<?xml version="1.0" encoding="euc-jp"?><testsuites/>',
        b"<testsuites/><testsuites/>",
        b"<testsuites>&undefined;</testsuites>",
        PYTEST_JUNIT[:-40],
    ],
)
def test_what_is_no_xml_is_refused(text):
    with pytest.raises(ReportError, match="no XML"):
        parse_junit(text)


def test_counts_that_are_no_counts_are_refused():
    for text in ("-1", "1e9", "nan", "٣", "99999999999999999999"):
        with pytest.raises(ReportError, match="is no count"):
            parse_junit(suite(failures=text))


def test_deep_elements_are_refused():
    with pytest.raises(ReportError, match="deeper than 64"):
        parse_junit(b"<testsuites>" + b"<a>" * 100 + b"</a>" * 100 + b"</testsuites>")


def test_suites_within_suites_count_each_test_once():
    inner = suite(PASSED.format("x") + PASSED.format("y"), tests=2).decode()
    text = f"<testsuites tests='2'><testsuite tests='2'>{inner[12:-13]}</testsuite></testsuites>"
    assert parse_junit(text.encode()).passed == 2


def test_a_failure_outside_of_a_test_is_no_outcome_of_the_next():
    text = suite("<properties><failure/></properties>" + PASSED.format("x"))
    assert parse_junit(text) == TestCounts(passed=1)


def test_utf_16_is_read():
    text = '<?xml version="1.0" encoding="utf-16"?><testsuite><testcase name="é"/></testsuite>'
    assert parse_junit(text.encode("utf-16")).passed == 1


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("=== 3 passed in 0.12s ===", TestCounts(passed=3, deselected=0)),
        ("3 passed, 4 warnings in 0.12s", TestCounts(passed=3, deselected=0)),
        (
            "5 failed, 4 passed, 1 skipped, 1 xfailed, 1 xpassed, 3 errors, 1 subtests passed in 0.63s",
            TestCounts(passed=4, failed=5, errors=3, skipped=1, xfailed=1, xpassed=1, deselected=0),
        ),
        ("11 deselected, 1 error in 0.69s", TestCounts(errors=1, deselected=11)),
        ("=== 2 passed, 9 deselected in 61.20s (0:01:01) ===", TestCounts(passed=2, deselected=9)),
        ("no tests ran in 0.59s", TestCounts(deselected=0)),
        ("\x1b[32m\x1b[1m2 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m", TestCounts(passed=2, deselected=0)),
    ],
)
def test_the_last_line_of_pytest_is_read_and_warnings_are_no_tests(line, counts):
    assert parse_pytest_summary(f"collected 3 items\n9 passed in 1.00s\n{line}\n\n") == counts


def test_a_text_without_a_last_line_has_no_summary():
    assert parse_pytest_summary("") is None
    assert parse_pytest_summary("I think 3 passed in the end\npassed") is None


def json_report(outcomes, exitcode=0, **summary):
    tests = [{"nodeid": f"t{index}", "outcome": outcome} for index, outcome in enumerate(outcomes)]
    return json.dumps({"exitcode": exitcode, "summary": {"total": len(tests), **summary}, "tests": tests}).encode()


def test_the_json_report_is_counted_test_by_test():
    data = json_report(["passed", "passed", "failed", "error", "skipped", "xfailed", "xpassed"], 1, deselected=4)
    assert parse_pytest_json(data) == (
        TestCounts(passed=2, failed=1, errors=1, skipped=1, xfailed=1, xpassed=1, deselected=4),
        1,
    )


def test_a_json_report_whose_collection_failed_has_an_error():
    report = json.loads(json_report(["passed"], 2))
    report["collectors"] = [{"outcome": "passed"}, {"outcome": "failed"}]
    assert parse_pytest_json(json.dumps(report).encode())[0].errors == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON"),
        (b"[]", "has no summary"),
        (b'{"summary": 3}', "has no summary"),
        (b'{"summary": {"total": 4}}', "4 tests are claimed and none is listed"),
        (json_report(["passed"], failed=2), "failures are claimed"),
        (json_report(["deselected"]), "is no outcome"),
        (json_report(["fine"]), "is no outcome"),
        (b'{"summary": {"total": -1}, "tests": []}', "is no count"),
        (b'{"summary": {"total": true}, "tests": []}', "is no count"),
        (b'{"summary": {"total": NaN}, "tests": []}', "NaN is no number"),
        (b'{"summary": {"total": 1}, "summary": {"total": 0}}', "stands there twice"),
        (b'{"summary": {}, "tests": 3}', "no list"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_a_json_report_that_cannot_be_relied_on_is_refused(data, why):
    with pytest.raises(ReportError, match=why):
        parse_pytest_json(data)


GOOD = TestCounts(passed=3, skipped=1, deselected=2)


@pytest.mark.parametrize(
    ("counts", "exit_code", "status", "words"),
    [
        (GOOD, 0, "passed", "3 passed, 1 skipped, 2 deselected"),
        (GOOD, None, "passed", "3 passed"),
        (None, 0, "missing", "no report was written"),
        (None, 4, "missing", "was used wrongly (exit code 4)"),
        (TestCounts(), 0, "missing", "no test ran"),
        (TestCounts(deselected=5), 5, "missing", "no test ran: 0 passed, 5 deselected"),
        (TestCounts(skipped=4), 0, "missing", "no test ran: 0 passed, 4 skipped"),
        (TestCounts(xfailed=4), 0, "missing", "no test ran: 0 passed, 4 xfailed"),
        (TestCounts(passed=3), 5, "missing", "no test ran"),
        (TestCounts(passed=3, failed=1), 1, "failed", "3 passed, 1 failed"),
        (TestCounts(passed=3, failed=1), 0, "failed", "1 failed"),
        (TestCounts(errors=1), 2, "failed", "0 passed, 1 error"),
        (TestCounts(passed=2), 2, "missing", "pytest was interrupted (exit code 2)"),
        (TestCounts(passed=2), 3, "missing", "had an internal error"),
        (TestCounts(passed=2), 1, "failed", "2 passed, but pytest ended with 1"),
        (TestCounts(xpassed=2), 0, "failed", "at least 1 have to pass"),
    ],
)
def test_what_a_run_of_tests_means(counts, exit_code, status, words):
    finding = judge_tests(counts, exit_code=exit_code)
    assert finding.status == status
    assert words in finding.details
    assert finding.passed == (status == "passed")


def test_limits_on_what_may_be_left_out_are_inclusive():
    def status(**limits):
        return judge_tests(GOOD, exit_code=0, **limits).status

    assert status(min_tests=3) == "passed"
    assert status(min_tests=4) == "failed"
    assert status(max_skipped=1) == "passed"
    assert status(max_skipped=0) == "failed"
    assert status(max_deselected=2) == "passed"
    assert status(max_deselected=1) == "failed"


def test_deselected_tests_come_from_the_last_line_and_without_it_are_not_known():
    counts = TestCounts(passed=3)
    assert judge_tests(counts, exit_code=0, max_deselected=0).status == "missing"
    told = judge_tests(counts, exit_code=0, summary=TestCounts(passed=900, deselected=7), max_deselected=0)
    assert told.status == "failed"
    assert told.figures["passed"] == 3
    assert told.figures["deselected"] == 7


@pytest.mark.parametrize(
    ("exit_code", "stdout", "stderr", "status", "words"),
    [
        (0, b"[]", "", "passed", "0 violations"),
        (0, b"[]", "warning: No Python files found under the given path(s)\n", "missing", "no Python file"),
        (1, b'[{"code": "F401"}]', "", "failed", "1 violation"),
        (0, b'[{"code": "F401"}, {"code": null}]', "", "failed", "2 violations"),
        (1, b"[]", "", "invalid", "listed nothing"),
        (1, b'[{"code": "E902"}]', "", "missing", "could not read"),
        (2, b"", "error: unknown option", "missing", "exit code 2"),
        (0, b"", "", "invalid", "cannot be used"),
        (0, b"All checks passed!", "", "invalid", "cannot be used"),
        (0, b"{}", "", "invalid", "no list"),
        (0, b"[3]", "", "invalid", "no list"),
    ],
)
def test_what_ruff_means(exit_code, stdout, stderr, status, words):
    finding = judge_ruff(exit_code, stdout, stderr)
    assert finding.status == status
    assert words in finding.details


@pytest.mark.parametrize(
    ("exit_code", "stdout", "status", "words"),
    [
        (0, "Success: no issues found in 12 source files\n", "passed", "no error in 12 files"),
        (0, "Success: no issues found in 1 source file\n", "passed", "no error in 1 file"),
        (0, "a.py:1: note: x\nSuccess: no issues found in 2 source files", "passed", "2 files"),
        (1, "a.py:1: error: x\nFound 1 error in 1 file (checked 3 source files)\n", "failed", "1 error in 1 file"),
        (0, "Found 2 errors in 1 file (checked 3 source files)\n", "failed", "2 errors"),
        (2, "b.py:1: error\nFound 2 errors in 1 file (errors prevented further checking)\n", "failed", "2 errors"),
        (0, "Success: no issues found in 0 source files", "missing", "no file"),
        (0, "", "missing", "does not say"),
        (2, "usage: mypy [-h]", "missing", "exit code 2"),
        (1, "Success: no issues found in 12 source files\n", "missing", "exit code 1"),
        (0, "print: Success: no issues found in 12 source files, he said", "missing", "does not say"),
    ],
)
def test_what_mypy_means(exit_code, stdout, status, words):
    finding = judge_mypy(exit_code, stdout)
    assert finding.status == status
    assert words in finding.details


def coverage(covered, total, **more):
    return json.dumps({"totals": {"covered_lines": covered, "num_statements": total, **more}}).encode()


def test_coverage_is_counted_exactly_and_its_limit_is_inclusive():
    assert judge_coverage(coverage(9, 10), min_percent=Fraction(90)).status == "passed"
    assert judge_coverage(coverage(89_999, 100_000), min_percent=Fraction(90)).status == "failed"
    near = judge_coverage(coverage(8_999_999, 10_000_000), min_percent=Fraction(90))
    assert (near.status, near.details[:6]) == ("failed", "89.9 %")


def test_coverage_counts_branches_and_does_not_believe_the_percentage_of_the_report():
    data = coverage(10, 10, covered_branches=0, num_branches=10, percent_covered=100.0)
    assert judge_coverage(data, min_percent=Fraction(51)).status == "failed"
    assert judge_coverage(data, min_percent=Fraction(50)).status == "passed"


def test_coverage_of_nothing_is_missing():
    assert judge_coverage(coverage(0, 0), min_percent=Fraction(0)).status == "missing"


def test_coverage_of_named_files_needs_each_of_them():
    report = json.loads(coverage(1, 100))
    report["files"] = {"a.py": {"summary": {"covered_lines": 5, "num_statements": 5}}}
    data = json.dumps(report).encode()
    assert judge_coverage(data, min_percent=Fraction(90), files=["a.py"]).status == "passed"
    absent = judge_coverage(data, min_percent=Fraction(0), files=["a.py", "b.py"])
    assert (absent.status, "'b.py'" in absent.details) == ("missing", True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"totals": {}}',
        coverage(11, 10),
        coverage(-1, 10),
        coverage(1.5, 10),
        coverage(True, 10),
        coverage(float("nan"), 10),
    ],
)
def test_a_coverage_report_that_cannot_be_right_is_invalid(data):
    assert judge_coverage(data, min_percent=Fraction(0)).status == "invalid"

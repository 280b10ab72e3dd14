"""JUnit XML, as pytest and its kin write it. Pure; the tests are counted one by one.

A document type is refused before anything in it is read, so no entity can expand or fetch. Nothing is built in
memory but a row per test.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.parsers import expat

DEPTH_MAX = 64
TESTS_MAX = 1_000_000

#: From the best to the worst; a test that is listed twice (it failed, then its teardown did) counts once, as its
#: worst.
_OUTCOMES = ("passed", "skipped", "xfailed", "failed", "error")

#: What some tools say in an attribute of a test, and not by an element in it.
_SAID = {
    **dict.fromkeys(("notrun", "skipped", "disabled", "suppressed", "ignored"), "skipped"),
    **dict.fromkeys(("failed", "failure", "fail"), "failed"),
    "error": "error",
}


class ReportError(ValueError):
    """A report that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCounts:
    """Outcomes of tests, each test counted once. ``deselected`` is ``None`` where the report does not say.

    A test that was expected to fail and passed is under ``passed`` in JUnit, and under ``failed`` where strict.
    """

    __test__ = False

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    xfailed: int = 0
    xpassed: int = 0
    deselected: int | None = None

    @property
    def ran(self) -> int:
        """The tests that ran and could have failed."""
        return self.passed + self.failed + self.errors + self.xpassed


def parse_junit(data: bytes) -> TestCounts:
    """Counts the ``testcase`` elements of a report.

    Raises:
        ReportError: no XML, a document type, no JUnit root, too deep, or a summary that its list does not bear
            out: tests or failures are claimed and none is listed.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = False
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = _refuse
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ReportError(f"no XML: {expat.ErrorString(error.code)} in line {error.lineno}") from None
    except (LookupError, ValueError) as error:  # an encoding that Python does not know, or that takes more bytes
        raise error if isinstance(error, ReportError) else ReportError(f"no XML: {error}") from None
    return reader.counts()


def _refuse(*_: object) -> None:
    raise ReportError("a document type or an entity, which no test report needs")


class _Reader:
    def __init__(self) -> None:
        self.path: list[str] = []
        self.tests: dict[tuple[str, ...], str] = {}
        self.test: tuple[str, ...] | None = None
        self.claimed = {"tests": 0, "failures": 0, "errors": 0}

    def start(self, name: str, given: dict[str, str]) -> None:
        if not self.path and name not in ("testsuites", "testsuite"):
            raise ReportError(f"no JUnit report: its root is {name[:40]!r}")
        self.path.append(name)
        if len(self.path) > DEPTH_MAX:
            raise ReportError(f"elements deeper than {DEPTH_MAX}")
        if name == "testsuite":
            self._suite(given)
        elif name == "testcase" and self.test is None:
            self.test = tuple(given.get(key, "") for key in ("file", "classname", "name"))
            for key in ("status", "result"):
                self._note(_SAID.get(given.get(key, "").lower(), "passed"))
        elif self.test is not None and self.path[-2] == "testcase":
            self._outcome(name, given)

    def end(self, name: str) -> None:
        self.path.pop()
        if name == "testcase" and "testcase" not in self.path:
            self.test = None

    def _suite(self, given: dict[str, str]) -> None:
        for key in self.claimed:
            text = given.get(key, "0").strip() or "0"
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ReportError(f"{key}={text[:20]!r} is no count")
            # Suites may hold suites and count them too: what matters is whether anything is claimed.
            self.claimed[key] = max(self.claimed[key], int(text))

    def _outcome(self, name: str, given: dict[str, str]) -> None:
        if name == "error":
            self._note("error")
        elif name == "failure":
            self._note("failed")
        elif name == "skipped":
            self._note("xfailed" if given.get("type") == "pytest.xfail" else "skipped")

    def _note(self, outcome: str) -> None:
        assert self.test is not None
        before = self.tests.get(self.test, "passed")
        self.tests[self.test] = max(before, outcome, key=_OUTCOMES.index)
        if len(self.tests) > TESTS_MAX:
            raise ReportError(f"more than {TESTS_MAX} tests")

    def counts(self) -> TestCounts:
        outcomes = list(self.tests.values())
        number = {outcome: outcomes.count(outcome) for outcome in _OUTCOMES}
        if self.claimed["tests"] and not outcomes:
            raise ReportError(f"{self.claimed['tests']} tests are claimed and none is listed")
        if self.claimed["failures"] + self.claimed["errors"] and not number["failed"] + number["error"]:
            raise ReportError("failures are claimed and none is listed")
        return TestCounts(
            passed=number["passed"],
            failed=number["failed"],
            errors=number["error"],
            skipped=number["skipped"],
            xfailed=number["xfailed"],
        )

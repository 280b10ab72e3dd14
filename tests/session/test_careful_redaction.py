"""A declared pattern of ``redact`` is looked for in bounded time, whatever a model wrote."""

import re
import time

import pytest

from bound_middleware import BoundSession
from bound_middleware.session.data_scope.redaction import redactor
from bound_middleware.session.tools import patterns


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(\w+\s?)*$", r"(?:a|aa)+$"])
def test_a_pattern_that_takes_others_for_ever_does_not_hold_a_run(pattern):
    began = time.monotonic()
    with BoundSession({"bounds": {"data_access_scope": {"redact": [pattern]}}}) as session:
        session.redact("a" * 1_000 + "!")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("pattern", "text", "shown"),
    [
        (r"case-(?:\d+-?)+", "see case-12-34 and case-5.", "see [redacted] and [redacted]."),
        (r"(?:[a-z]+\.)+internal", "at db.eu.internal now", "at [redacted] now"),
        (r"(?:a|b)*", "xaby", "x[redacted]y"),
        (r"(\w)\1{3}(?:a|b)*", "xxxxab", "[redacted]"),
        (r"ticket [0-9]+", "ticket 77 is done", "[redacted] is done"),
    ],
)
def test_what_a_pattern_says_is_taken_out_and_nothing_else(pattern, text, shown):
    assert redactor((pattern,))(text) == shown


def test_where_it_takes_too_long_all_is_taken_out(monkeypatch):
    redact = redactor((r"(?:a+,?)+;",))
    assert redact("see a,a; there") == "see [redacted] there"
    monkeypatch.setattr(patterns, "WORK_MAX", 1_000)
    assert redact("a," * 1_000) == "[redacted]"


@pytest.mark.parametrize(
    ("pattern", "backtracks"),
    [
        (r"(a+)+", True),
        (r"(?:a|aa)+", True),
        (r"(?:x?y)*", True),
        (r"[a-z]+-[0-9]+", False),
        (r"(?:ab{3})+", False),
    ],
)
def test_only_what_could_take_long_is_looked_for_with_care(pattern, backtracks):
    assert patterns.may_backtrack(pattern) is backtracks
    assert re.compile(pattern)

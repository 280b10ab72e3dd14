"""The rules that a tool call is judged by, one by one: each refusal has a twin that passes."""

import random
import re
import time
from decimal import Decimal

import pytest

from bound_middleware.core.limits import Limits
from bound_middleware.session.tools import arguments, exposure, hosts, names, output, patterns, schema
from bound_middleware.session.tools.exact import amount_nano
from bound_middleware.session.tools.patterns import Unjudged, matches
from bound_middleware.session.tools.progress import Progress, result_of

PATTERNS = [
    r"[a-z]+",
    r"(a|b)*abb",
    r"(?i)AbC+",
    r"(?!.*\.\.)[a-z./]+",
    r"a{2,4}",
    r"\bfoo\b.*",
    r"[^a-c]+",
    r"a??b",
    r"(?<=a)b|ab",
    r"(?m)^a$\n^b$",
    r"(a*)*",
    r"[a\-z\]]+",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_it_means_to_the_standard_library(pattern):
    letters = random.Random(pattern)
    for _ in range(300):
        text = "".join(letters.choice("aabbcfoz./-]\nAB 1") for _ in range(letters.randint(0, 7)))
        assert matches(pattern, text) is (re.fullmatch(pattern, text) is not None), text


def test_a_pattern_that_takes_others_for_ever_is_judged_in_no_time():
    began = time.monotonic()
    assert not matches(r"(a+)+b", "a" * 20_000)
    assert matches(r"(a+)+b", "a" * 19_999 + "b")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "pattern", [r"(?s:.*)(?:(?=.*x).)*(?s:.*)", r"(?:[ab](?!.*x))*", r"(?:a|b)*a(?:(?:a|b)(?:a|b)){900}"]
)
def test_a_pattern_that_would_take_too_long_for_a_text_is_given_up(pattern, monkeypatch):
    monkeypatch.setattr(patterns, "WORK_MAX", 200_000)
    text = "".join(random.Random(1).choices("ab", k=20_000))
    with pytest.raises(Unjudged, match="too long"):
        matches(pattern, text)
    assert matches(pattern, text[:100]) is (re.fullmatch(pattern, text[:100]) is not None)


def test_looking_ahead_in_a_long_text_is_judged():
    text = "a word and " * 1_800
    assert matches(r"(?!.*secret).*", text)
    assert not matches(r"(?!.*secret).*", text + "secret")
    assert matches(r"(?s:.*)(?:word (?=and)(?<=d ))(?s:.*)", text)


@pytest.mark.parametrize(("pattern", "text"), [(r"(a)\1", "aa"), ("a*", "a" * 20_001), ("(a{0,99}){0,99}", "a")])
def test_what_cannot_be_judged_in_bounded_time_is_said_not_to_be(pattern, text):
    with pytest.raises(Unjudged):
        matches(pattern, text)


@pytest.mark.parametrize(
    ("url", "inside"),
    [
        ("https://example.com/x", True),
        ("https://EXAMPLE.com.:443/", True),
        ("https://m\u00fcnchen.de/", True),
        ("https://a.b.example.org/", True),
        ("https://10.0.0.1:8443/", True),
        ("https://example.com@evil.com/", False),
        ("https://evil.com\\@example.com", False),
        ("https://example.com:8443/", False),
        ("https://example.com.evil.com/", False),
        ("https://ex\u0430mple.com/", False),
        ("https://example.org/", False),
        ("http://2130706433/", False),
        ("http://0x7f.1/", False),
        ("http://[::1]/", False),
        ("//example.com/", False),
        ("javascript:alert(1)//example.com", False),
    ],
)
def test_a_url_leads_to_a_listed_host_or_it_is_outside(url, inside):
    assert hosts.is_listed(url, ["example.com", "m\u00fcnchen.de", "*.example.org", "10.0.0.1:8443"]) is inside


@pytest.mark.parametrize(
    ("text", "led_to"),
    [
        ("<mailto:a@evil.com?body=1>", "mailto:a@evil.com?body=1"),
        ("<javascript:alert(1)>", "javascript:alert(1)"),
        ('<button formaction="javascript:x">', "javascript:x"),
        ("[x](mailto\\:a@evil.com)", "mailto:a@evil.com"),
        ('<a href="java&#10;script:x">', "java\nscript:x"),
        ("<a href='ma\tilto:a'>", "ma\tilto:a"),
        ("<img src=`data:,x`>", "data:,x"),
        ('<meta http-equiv=refresh content="0;url=data:,x">', "data:,x"),
        ('<p style="background: url(data:,x)">', "data:,x"),
        ("see https://example.com\u2026", "https://example.com"),
    ],
)
def test_an_address_is_found_however_markdown_or_html_write_it(text, led_to):
    assert led_to in hosts.links(text)


@pytest.mark.parametrize(
    "text",
    ["at 10:30, note: this", "a < b, c: d > e", "[^1]: note: this", "a list: [x](/a) [y](b.html)", "url: none"],
)
def test_what_leads_nowhere_is_no_address(text):
    assert hosts.links(text) == ()


def test_a_number_is_compared_exactly_and_nothing_else_is_one():
    limits = Limits(argument_rules=(("t", "n", "most_nano", 300_000_000),))
    for fine in (0.3, Decimal("0.3"), 0, -5, [0.1, 0.2]):
        assert arguments.faults(limits, "t", {"n": fine}) == ()
    for wrong in (0.1 + 0.2, True, "0.1", float("inf"), None, {"n": 0}, [0.1, 1]):
        assert arguments.faults(limits, "t", {"n": wrong}) != ()


def test_a_rule_reaches_into_nested_arguments():
    limits = Limits(argument_rules=(("t", "order.amount", "most_nano", 5_000_000_000),))
    assert arguments.faults(limits, "t", {"order": {"amount": 5}}) == ()
    assert arguments.faults(limits, "t", {"order": [{"amount": 5}, {"amount": 6}]}) != ()
    assert arguments.faults(limits, "t", {"order": "amount=6"}) != ()


def test_a_rule_in_python_that_raises_or_changes_its_argument_opens_nothing():
    args = {"n": [1]}
    assert arguments.faults(Limits(), "t", args, rule=lambda a: a["n"].append(2) is None) == ()
    assert args == {"n": [1]}
    assert arguments.faults(Limits(), "t", args, rule=lambda a: a["m"]) != ()
    assert arguments.faults(Limits(), "t", args, rule=lambda a: 1) != ()


def test_an_exposure_that_cannot_be_read_is_never_zero():
    limits = Limits(exposure=(("pay", "n", 5),))
    assert exposure.asked(limits, "pay", {"n": 0.5}) == ({"exposure:pay:n": 500_000_000}, ())
    for args in ({}, {"n": -1}, {"n": "1"}, {"n": True}, {"n": float("nan")}, None):
        amounts, faults = exposure.asked(limits, "pay", args)
        assert (amounts, len(faults)) == ({}, 1)
    assert exposure.asked(limits, "other", {}) == ({}, ())
    assert amount_nano(Decimal("1E-10")) == 1


@pytest.mark.parametrize(
    "name", ["Read_File", "fs/read_file", "re\u0430d_file", "\uff52ead_file", "read_fiIe", "raed_file"]
)
def test_a_look_alike_is_told_what_it_looks_like(name):
    assert names.looks_like(name, ["read_file", "shell"]) == "read_file"
    assert names.looks_like("read_file", ["read_file", "shell"]) is None
    assert names.looks_like("launch", ["read_file", "shell"]) is None


SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"tag": {"enum": ["a", "b"]}},
}


@pytest.mark.parametrize(
    "args", [{}, {"n": 0}, {"n": "1"}, {"n": True}, {"n": 1.5}, {"n": 1, "m": 2}, {"n": 1, "tags": ["c"]}]
)
def test_arguments_that_the_schema_does_not_take(args):
    assert schema.faults(args, SCHEMA) != ()
    assert schema.faults({"n": 1, "tags": ["a", "b"]}, SCHEMA) == ()


def told(progress, turn, calls):
    """The signs before each call of a turn; then their results are known."""
    entries = [progress.begin(turn, i, tool, args) for i, (tool, args, _, _) in enumerate(calls)]
    signs = [progress.signs(entry) for entry in entries]
    for entry, (_, _, result, failed) in zip(entries, calls, strict=True):
        progress.finish(entry, result_of(result), failed=failed)
    return signs


def test_failures_are_counted_by_turn():
    progress = Progress(Limits())
    seen = []
    for turn, failures in enumerate([[True] * 4, [False], [True], [False, True]]):
        told(progress, str(turn), [("t", {"n": i}, f"{turn}{i}", failed) for i, failed in enumerate(failures)])
        seen.append(progress.failed_turns())
    assert seen == [1, 0, 1, 2]


def test_a_call_counts_only_while_nothing_new_comes_of_any_call():
    progress = Progress(Limits())
    same = ("run_tests", {}, "1 failed", False)
    counts = [told(progress, "a", [same])[0].identical, told(progress, "b", [same])[0].identical]
    told(progress, "c", [("edit", {"to": 1}, "ok", False)])
    counts.append(told(progress, "d", [same])[0].identical)
    assert counts == [0, 1, 0]
    assert told(progress, "e", [same])[0].identical == 1


def test_a_call_that_is_tried_again_is_one_call():
    progress = Progress(Limits())
    for _ in range(5):
        told(progress, "one", [("t", {}, "error", True)])
    assert progress.failed_turns() == 1
    assert told(progress, "two", [("t", {}, "error", True)])[0].identical == 1


def test_a_call_that_still_runs_counts_like_those_behind_it():
    progress = Progress(Limits())
    first, second, third = (progress.begin("one", place, "t", {}) for place in range(3))
    progress.finish(second, result_of("error"), failed=True)
    assert progress.signs(third).identical == 2
    assert progress.awaits(third)
    progress.finish(first, result_of("something else"), failed=False)
    assert progress.signs(third).identical == 1


def test_a_cycle_is_seen_when_it_would_go_on():
    progress = Progress(Limits(cycle_window=3))
    a, b = ("a", {}, "x", False), ("b", {}, "y", False)
    for turn, call in enumerate([a, b, a, b]):
        assert not told(progress, str(turn), [call])[0].cycle
    assert progress.glance("a", {}).cycle
    assert not progress.glance("b", {}).cycle


def test_tools_that_are_exempt_are_not_watched():
    progress = Progress(Limits(unwatched_tools=frozenset({"poll"})))
    for turn in range(5):
        signs = told(progress, str(turn), [("poll", {}, "same", False)])[0]
    assert (signs.identical, signs.same) == (0, 0)


def test_a_letter_and_its_mark_are_not_cut_apart():
    text = "ab" + "e\u0301" * 50
    short = output.cut(text, 21)
    head, tail = short.split("\n[")[0], short.split("]\n")[1]
    assert not head.endswith("e")
    assert not tail.startswith("\u0301")
    assert output.cut(text, 102) is text

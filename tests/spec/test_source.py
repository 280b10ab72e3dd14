"""Reading YAML and JSON: plain data, nothing twice, nothing that only an attack needs."""

from decimal import Decimal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bound_middleware.core.errors import SpecError
from bound_middleware.spec.source import parse


def value_of(text):
    return parse(f"x: {text}").data["x"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", Decimal("0.1")), ("2.00", Decimal("2.00")), (".5", Decimal("0.5")), ("-1.5e3", Decimal("-1.5e3")),
        ("1e3", Decimal(1000)), ("7", 7), ("-7", -7), ("1_000", 1000), ("0", 0), ("true", True), ("False", False),
        ("null", None), ("~", None), ("", None), ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"),
        ("010", "010"), ("0x1F", "0x1F"), ("1:30", "1:30"), ("1__0", "1__0"), ("2027-06-30", "2027-06-30"),
        ("'7'", "7"), ('"true"', "true"), ("!!str 7", "7"), ("a b", "a b"), ("|\n  two\n  lines", "two\nlines"),
        ("1" * 50, 10**40), ("-" + "1" * 50, -(10**40)),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text, value):
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


def test_a_fraction_keeps_its_digits():
    digits = "0.1000000000000000055511151231257827"
    assert value_of(digits) == Decimal(digits)


#: Words without digits: what is a number differs between YAML 1.1, which PyYAML writes, and 1.2.
WORDS = st.text(st.characters(codec="ascii", exclude_categories=["Cc", "Nd"]))
SCALARS = st.none() | st.booleans() | st.integers(-(10**38), 10**38) | WORDS


def branches(inner):
    return st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)


@given(st.recursive(SCALARS, branches, max_leaves=12))
def test_what_pyyaml_writes_is_read_back(value):
    text = yaml.safe_dump({"x": value})
    assert parse(text).data == {"x": value}


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("a: 1\nb: 2\na: 3", 3, "a"),
        ("a: {b: 1, b: 2}", 1, "a.b"),
        ("a:\n  - {b: 1}\n  - c: 1\n    c: 2", 4, "a.1.c"),
        ("a: 1\n'a': 2", 2, "a"),
        ('{"a": 1,\n "a": 2}', 2, "a"),
        ('{"a": {"b": 1,\n\t"c": 2,\n\t"b": 2}}', 3, "a.b"),
    ],
)
def test_a_key_written_twice_is_an_error(text, line, key):
    with pytest.raises(SpecError, match="twice") as caught:
        parse(text)
    assert (caught.value.line, caught.value.key) == (line, key)


def test_a_json_key_written_twice_is_an_error_even_where_yaml_cannot_read_it():
    with pytest.raises(SpecError, match="twice"):
        parse('{"a": "\x7f", "b": 1, "b": 2}', file="x.json")


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['true']", "!!python/name:os.system x", "!thing {a: 1}", "!!int '5'",
            "!!binary aGk=", "!!set {a}", "!!timestamp 2027-01-01", "!<tag:example.org,2000:x> y"],
)  # fmt: skip
def test_a_tag_that_builds_an_object_is_an_error(tag):
    with pytest.raises(SpecError, match="plain data") as caught:
        parse(f"a: 1\nx: {tag}")
    assert caught.value.line == 2


def test_anchors_are_copies():
    data = parse("a: &x {n: [1]}\nb: *x\nc: *x").data
    assert data["a"] == data["b"] == data["c"] == {"n": [1]}
    assert data["a"] is not data["b"]


def test_merges_give_way_to_what_is_written():
    data = parse("a: &x {n: 1, m: 2}\nb: &y {m: 3, o: 4}\nc: {<<: [*x, *y], n: 9}\nd:\n  n: 7\n  <<: *x").data
    assert data["c"] == {"n": 9, "m": 2, "o": 4}
    assert data["d"] == {"n": 7, "m": 2}


def test_the_line_of_a_merged_or_aliased_value_is_where_it_is_written():
    source = parse("a: &x\n  n: 1\nb: *x\nc:\n  <<: *x\n  m: 2\nd:\n  - <<: [*x]")
    assert source.line(("b", "n")) == 2
    assert source.line(("c", "n")) == 2
    assert source.line(("c", "m")) == 6
    assert source.line(("d", 0, "n")) == 2
    assert source.line(("d", 0, "zzz")) == 8
    assert not any("<<" in path for path in source.lines)


@pytest.mark.parametrize(
    ("text", "match"),
    [("a: *nowhere", "no anchor"), ("a: &x {b: *x}", "contains itself"), ("a: &x [*x]", "contains itself"),
     ("a: &x 5\nb: {<<: *x}", "merges a mapping"), ("b: {<<: [1]}", "merges a mapping"), ("? [a]\n: 1", "a text"),
     ("? {a: 1}\n: 1", "a text")],
)  # fmt: skip
def test_a_wrong_anchor_merge_or_key_is_an_error_with_a_line(text, match):
    with pytest.raises(SpecError, match=match) as caught:
        parse(text)
    assert caught.value.line


def test_laughs_by_the_billion_are_cut_short():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(SpecError, match="too large"):
        parse("\n".join(lines))


def test_merges_by_the_billion_are_cut_short():
    lines = ["a0: &a0 {k: v}"] + [
        f"a{n}: &a{n} {{<<: [*a{n - 1}], k{n}: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60)
    ]
    with pytest.raises(SpecError, match="too large"):
        parse("\n".join(lines))


@pytest.mark.parametrize("text", ["x: " + "[" * 3000 + "]" * 3000, "x: " + "{a: " * 200 + "1" + "}" * 200,
                                  '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}",
                                  "x:\n" + "- " * 2000 + "1"])  # fmt: skip
def test_deep_nesting_is_an_error_not_a_crash(text):
    with pytest.raises(SpecError, match=r"too deep|too large"):
        parse(text)


def test_a_text_beyond_all_review_is_not_even_parsed():
    with pytest.raises(SpecError, match="characters"):
        parse("#" * 300_000)


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1, 2", 1), ("a: 1\n b: 2", 2), ("a: 1\nb: 'open", 2), ("a: 1\n\tb: 2", 2), ("a: \x00", None),
     ("a: b: c", 1),
     ("%YAML 3\n---\na: 1", 1)],
)  # fmt: skip
def test_broken_yaml_is_one_error(text, line):
    with pytest.raises(SpecError, match="no YAML") as caught:
        parse(text, file="bound.yml")
    assert "\n" not in str(caught.value)
    assert line is None or caught.value.line in (line, line + 1)


@pytest.mark.parametrize(("text", "line"), [('{"a": 1,}', 1), ('{"a": 1\n', 2), ("[1", 1), ("a: 1", 1), ("", 1)])
def test_broken_json_is_one_error(text, line):
    with pytest.raises(SpecError, match="no JSON") as caught:
        parse(text, file="bound.json")
    assert caught.value.line == line


@pytest.mark.parametrize("text", ["", "# nothing", "---", "null", "- a", "just words", "5"])
def test_a_file_without_a_mapping_is_an_error(text):
    with pytest.raises(SpecError, match="a specification is a mapping"):
        parse(text)


def test_two_documents_are_an_error():
    with pytest.raises(SpecError, match="one document") as caught:
        parse("a: 1\n---\nb: 2")
    assert caught.value.line == 2


def test_a_byte_order_mark_is_no_part_of_a_key():
    assert parse("\ufeffa: 1").data == {"a": 1}


def test_json_numbers_are_exact_and_have_lines():
    source = parse(
        '{\n  "a": 0.1,\n  "b": [1e2, NaN, -Infinity, 1e99999999999999999999],\n  "c": "\\ud83d\\ude00"}'
    )
    assert source.data["a"] == Decimal("0.1")
    assert source.data["b"][0] == 100
    assert not any(number.is_finite() for number in source.data["b"][1:])
    assert source.data["c"] == "😀"
    assert source.line(("b",)) == 3

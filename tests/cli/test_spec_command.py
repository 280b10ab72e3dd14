"""``bound spec explain | lint | schema | diff``."""

import io
import json

import pytest

from bound_middleware import cli

SOUND = """\
bounds:
  iteration_limit: 30
  token_budget: {total: 200000}
  action_surface: {allowed: [search]}
"""


@pytest.fixture
def write(tmp_path):
    def written(name, text):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return written


@pytest.fixture
def bound(capsys):
    """Runs ``bound spec`` and returns (exit code, stdout, stderr)."""

    def run(*arguments):
        code = cli.main(["spec", *arguments])
        return (code, *capsys.readouterr())

    return run


def test_explain_prints_every_axis(bound, write):
    code, out, err = bound("explain", write("bound.yml", SOUND))
    assert (code, err) == (0, "")
    assert "bounds.iteration_limit.max: 30 model calls" in out
    assert out.count("NOT BOUND") == 4


def test_explain_as_json_has_the_rows_of_each_file(bound, write):
    one, two = write("one.yml", SOUND), write("two.yml", "agent: x")
    code, out, _ = bound("explain", one, two, "--json")
    found = json.loads(out)
    assert code == 0
    assert [item["file"] for item in found] == [one, two]
    assert found[0]["rows"][0]["axis"] == "iterations"
    assert set(found[0]["rows"][0]) == {
        "axis",
        "key",
        "value",
        "unit",
        "mechanism",
        "scope",
        "checked",
        "overshoot",
    }


def test_explain_of_several_files_names_each(bound, write):
    one, two = write("one.yml", SOUND), write("two.yml", "agent: x")
    _, out, _ = bound("explain", one, two)
    assert f"== {one}\n" in out
    assert f"== {two}\n" in out


def test_explain_takes_an_entrance_and_the_tools(bound, write):
    _, out, _ = bound("explain", write("bound.yml", SOUND), "--entrance", "bound_model", "--tools", "serch, other")
    assert "NOT ENFORCED by bound_model" in out
    assert "no tool is called 'search'" in out
    code, _, err = bound("explain", write("bound.yml", SOUND), "--entrance", "bound_modl")
    assert code == 2
    assert "did you mean 'bound_model'?" in err


def test_a_dash_reads_stdin(bound, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(SOUND))
    assert bound("explain", "-")[0] == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("bounds: {iteration_limt: 3}"))
    code, out, err = bound("lint", "-")
    assert (code, out) == (2, "")
    assert err.startswith("error: <stdin>:1: bounds.iteration_limt: unknown key")
    assert err.count("\n") == 1


def test_a_wrong_file_is_one_line_or_one_json_object(bound, write):
    path = write("bound.yml", "bounds:\n  iteration_limit: -1\n")
    code, out, err = bound("explain", path)
    assert (code, out) == (2, "")
    assert (
        err == f"error: {path}:2: bounds.iteration_limit: -1 is out of range; "
        "allowed: a whole number of at least 0 and at most 9007199254740991\n"
    )
    code, out, err = bound("explain", path, "--json")
    assert (code, out) == (2, "")
    assert json.loads(err)["line"] == 2


def test_a_missing_file_is_2(bound, tmp_path):
    code, _, err = bound("lint", str(tmp_path / "none.yml"))
    assert code == 2
    assert "cannot be read" in err


def test_lint_of_a_sound_file_is_silent_on_stdout_and_0(bound, write):
    code, out, err = bound("lint", write("bound.yml", SOUND), "--today", "2027-01-01", "--tools", "search")
    assert (code, out) == (0, "")
    assert err == "0 errors, 0 warnings, 0 notes\n"


def test_lint_answers_no_where_it_finds_an_error(bound, write):
    path = write("bound.yml", "bounds:\n  action_surface:\n    forbidden: [any network egress]\n")
    code, out, err = bound("lint", path)
    assert code == 3
    assert f"{path}:3: error: bounds.action_surface.forbidden.0: nothing enforces 'any network egress'" in out
    assert err.startswith("2 errors, ")


def test_lint_of_warnings_alone_is_0(bound, write):
    path = write("bound.yml", f"review_by: 2027-06-30\n{SOUND}")
    code, out, err = bound("lint", path, "--today", "2027-07-01")
    assert code == 0
    assert f"{path}:1: warning: review_by: " in out
    assert err == "0 errors, 1 warning, 0 notes\n"
    assert bound("lint", path, "--today", "2027-06-30")[1] == ""


def test_lint_as_json(bound, write):
    path = write("bound.yml", "agent: x")
    code, out, _ = bound("lint", path, "--json")
    assert code == 3
    assert json.loads(out) == [
        {
            "file": path,
            "findings": [
                {
                    "code": "no-bound",
                    "severity": "error",
                    "key": "bounds",
                    "message": "nothing is bounded",
                    "line": None,
                }
            ],
        }
    ]


def test_a_wrong_day_is_a_usage_error(bound, write):
    code, _, err = bound("lint", write("bound.yml", SOUND), "--today", "soon")
    assert code == 2
    assert "2027-06-30" in err


def test_schema_is_json_on_stdout(bound):
    code, out, err = bound("schema")
    assert (code, err) == (0, "")
    assert json.loads(out)["$schema"].startswith("https://json-schema.org/draft/2020-12/")
    assert json.loads(bound("schema", "--json")[1]) == json.loads(out)


def test_diff_says_what_each_key_does(bound, write):
    before = write("before.yml", SOUND)
    after = write("after.yml", SOUND.replace("30", "20").replace("200000", "300000"))
    code, out, err = bound("diff", before, after)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "tightened: bounds.iteration_limit.max: 30 -> 20",
        "loosened: bounds.token_budget.total: 200,000 -> 300,000",
    ]
    assert json.loads(bound("diff", before, after, "--json")[1])[1] == {
        "key": "bounds.token_budget.total",
        "verdict": "loosened",
        "before": "200,000",
        "after": "300,000",
    }


def test_diff_answers_no_only_when_asked_to(bound, write):
    before, after = write("before.yml", SOUND), write("after.yml", SOUND.replace("30", "20"))
    assert bound("diff", before, after)[0] == 0
    assert bound("diff", before, after, "--fail-on", "loosened")[0] == 0
    assert bound("diff", after, before, "--fail-on", "loosened")[0] == 3
    assert bound("diff", before, after, "--fail-on", "any")[0] == 3
    assert bound("diff", before, before, "--fail-on", "any") == (0, "", "no difference\n")


def test_diff_reads_one_side_from_stdin(bound, write, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(SOUND))
    assert bound("diff", "-", write("after.yml", SOUND))[0] == 0


def test_no_colour_is_ever_printed(bound, write, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    path = write("bound.yml", "bounds: {iteration_limit: 0}")
    for arguments in (("explain", path), ("lint", path), ("diff", path, path)):
        assert "\x1b" not in "".join(map(str, bound(*arguments)))


@pytest.mark.parametrize("arguments", [(), ("explain",), ("lint",), ("diff", "a"), ("nothing",)])
def test_a_wrong_call_is_2(bound, arguments):
    assert bound(*arguments)[0] == 2

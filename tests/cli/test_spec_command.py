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
        "coverage",
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
        "overall: mixed",
    ]
    found = json.loads(bound("diff", before, after, "--json")[1])
    assert found["overall"] == "mixed"
    assert found["changes"][1] == {
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


GRAPH = '''
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import ScriptedChatModel

SPEC = {"bounds": {"iteration_limit": 3}}


@tool
def search(q: str) -> str:
    """Find."""
    return q


@tool
def pay(to: str) -> str:
    """Pay."""
    return to


agent = create_agent(ScriptedChatModel(["x"]), [search, pay])
builder = StateGraph(MessagesState)
builder.add_node("agent", agent)
builder.add_node("report", lambda state: state)
builder.add_edge(START, "agent")
builder.add_edge("agent", "report")
bounded = bound_graph(builder, SPEC)
with_middleware = create_agent(ScriptedChatModel(["x"]), [search], middleware=[BoundMiddleware(SPEC)])


def make():
    return builder


nothing = 3
'''

ABOUT = """\
bounds:
  iteration_limit: 3
  action_surface: {forbidden: [pay]}
  data_access_scope: {store_namespaces: [cache]}
  reversibility_envelope: {requires_human_approval: [deploy], unknown_tools: reversible}
"""


@pytest.mark.parametrize("name", ["builder", "bounded", "make"])
def test_explain_says_what_of_a_graph_is_covered(bound, write, name):
    graph = f"{write('agents_to_explain.py', GRAPH)}:{name}"
    code, out, _ = bound("explain", write("bound.yml", ABOUT), "--graph", graph, "--json")
    (found,) = json.loads(out)
    assert code == 0
    assert found["graph"]["entrance"] == ("bound_graph" if name == "bounded" else None)
    assert [(node["name"], node["kind"], node["tools"]) for node in found["graph"]["nodes"]] == [
        ("agent", "graph", []),
        ("agent/model", "code", []),
        ("agent/tools", "tools", ["search", "pay"]),
        ("report", "code", []),
    ]
    coverage = {row["key"]: row["coverage"] for row in found["rows"]}
    assert coverage["bounds.iteration_limit.max"] == "nodes: agent/model, report"
    assert coverage["bounds.action_surface.forbidden"] == "tools: pay"
    assert coverage["bounds.reversibility_envelope.requires_human_approval"] == "no tool of the graph"
    assert [(tool["name"], tool["tier"], tool["listed"]) for tool in found["tools"]] == [
        ("search", "run", False),
        ("pay", "refuse", True),
    ]
    assert "no tool is called 'deploy'" in {row["value"] for row in found["rows"]}


def test_explain_prints_tools_and_nodes_behind_the_axes(bound, write):
    graph = f"{write('agents_to_explain.py', GRAPH)}:bounded"
    code, out, err = bound("explain", write("bound.yml", ABOUT), "--graph", graph)
    assert (code, err) == (0, "")
    assert "  search: runs, NAMED BY NO LIST (agent/tools)\n" in out
    assert "  pay: refused (agent/tools)\n" in out
    assert "NOT BOUND: other clients" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    assert "covers tools: pay" in " ".join(out.split())


def test_what_bounds_the_graph_already_decides_what_is_enforced(bound, write):
    graph = f"{write('agents_to_explain.py', GRAPH)}:with_middleware"
    spec = write("bound.yml", "bounds: {iteration_limit: {max: 3, unit: superstep}}")
    (found,) = json.loads(bound("explain", spec, "--graph", graph, "--json")[1])
    row = found["rows"][0]
    assert (row["mechanism"], row["coverage"]) == ("NOT ENFORCED by BoundMiddleware", "nothing")
    code, out, _ = bound("lint", spec, "--graph", graph)
    assert code == 3
    assert "BoundMiddleware sees no supersteps" in out


def test_lint_finds_what_does_not_fit_a_graph(bound, write):
    graph = f"{write('agents_to_explain.py', GRAPH)}:builder"
    code, out, _ = bound("lint", write("bound.yml", ABOUT), "--graph", graph, "--json")
    (found,) = json.loads(out)
    codes = {item["code"]: item["message"] for item in found["findings"]}
    assert code == 3
    assert codes["tool-not-listed"] == "no list names 'search' (node agent/tools): it runs"
    assert codes["approval-names-no-tool"] == "'deploy' names no tool: nobody is asked"
    sound = "bounds: {iteration_limit: 3, token_budget: {total: 9000}, action_surface: {allowed: [search, pay]}}"
    assert bound("lint", write("sound.yml", sound), "--graph", graph)[0] == 0


@pytest.mark.parametrize("target", ["nothing", "missing"])
def test_a_target_that_is_no_graph_is_a_usage_error(bound, write, target):
    graph = f"{write('agents_to_explain.py', GRAPH)}:{target}"
    code, out, err = bound("explain", write("bound.yml", ABOUT), "--graph", graph)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [("30", "20", "tightened"), ("30", "40", "loosened"), ("search", "search (web)", "changed")],
)
def test_diff_has_one_word_for_all(bound, write, before, after, word):
    files = write("before.yml", SOUND), write("after.yml", SOUND.replace(before, after, 1))
    assert bound("diff", *files)[1].splitlines()[-1] == f"overall: {word}"


def test_the_specification_is_explained_without_a_framework():
    import subprocess
    import sys

    code = (
        "import sys, bound_middleware.spec.explain, bound_middleware.spec.lint; print('langgraph' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

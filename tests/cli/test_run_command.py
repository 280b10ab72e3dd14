"""``bound run``: programs and graphs that know nothing of bounds, run under them."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from bound_middleware import BoundExceeded
from bound_middleware.cli import main, programs, targets
from bound_middleware.core.events import event_from, replay, verify
from bound_middleware.session import scope
from bound_middleware.testing import ProviderServer, Reply

CLIENT = """
import sys
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="gpt-4o", base_url=sys.argv[1], api_key="none", max_retries=0, stream_usage=True)
"""
SCRIPTED = """
from bound_middleware.testing import ScriptedChatModel
model = ScriptedChatModel(["one two three"], cycle=True)
"""
SEEN = """
import json, os, sys
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "path0": sys.path[0], "name": __name__, "file": __file__, "package": __package__,
    "spec": __spec__ and __spec__.name, "is_main": main.__dict__ is globals(), "doc": __doc__,
    "loader": type(__loader__).__name__, "names": sorted(n for n in globals() if n.startswith("__")),
}))
sys.exit(7)
"""


@pytest.fixture
def env(monkeypatch):
    """The environment of a child: no proxy for 127.0.0.1, no colours."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    return dict(os.environ)


@pytest.fixture
def server():
    with ProviderServer(default=Reply(tokens=20)) as running:
        yield running


@pytest.fixture
def program(tmp_path):
    """``program(text, name)``: writes a program and gives its name."""

    def write(text, name="app.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return name

    return write


@pytest.fixture
def python(tmp_path, env):
    """``python(*arguments)``: a finished child of this interpreter, in the folder of the programs."""

    def call(*arguments, **options):
        command = [sys.executable, *map(str, arguments)]
        given = {"cwd": tmp_path, "env": env, "timeout": 60, **options}
        return subprocess.run(command, capture_output=True, text=True, check=False, **given)

    return call


@pytest.fixture
def bound_run(python):
    """``bound_run(*arguments)``: the same for the command."""
    return lambda *arguments, **options: python("-m", "bound_middleware.cli", "run", *arguments, **options)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The command in this process: its folder, and everything that it would leave behind taken away again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    yield tmp_path
    scope.surround(None)
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in sys.modules[name].__file__:
            del sys.modules[name]


def last_json(stdout):
    return json.loads(stdout.splitlines()[-1])


# -- programs as the interpreter runs them -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["script", "module", "package", "folder"])
def test_a_program_sees_what_the_interpreter_would_have_shown_it(kind, program, python, bound_run):
    name = {"script": "sub/app.py", "module": "app.py", "package": "pkg/__main__.py", "folder": "tool/__main__.py"}
    program(SEEN, name[kind])
    target = {"script": ["sub/app.py"], "module": ["-m", "app"], "package": ["-m", "pkg"], "folder": ["tool"]}[kind]
    plain = python(*target, "a", "--json", "-m", "x")
    bounded = bound_run("--quiet", "--usd", "1", *target, "a", "--json", "-m", "x")
    assert json.loads(bounded.stdout) == json.loads(plain.stdout)
    assert (bounded.returncode, bounded.stderr) == (plain.returncode, plain.stderr) == (7, "")


def test_an_unhandled_exception_shows_the_frames_of_the_program_alone_and_exits_1(program, python, bound_run):
    app = program("def f():\n    return 1 / 0\n\nprint('before')\nf()\n")
    plain, bounded = python(app), bound_run("--quiet", app)
    assert (bounded.returncode, bounded.stdout, bounded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert bounded.returncode == 1


def test_a_syntax_error_is_shown_as_the_interpreter_shows_it(program, python, bound_run):
    app = program("print('never')\nif:\n")
    plain, bounded = python(app), bound_run("--quiet", app)
    assert bounded.stderr.splitlines()[-3:] == plain.stderr.splitlines()[-3:]
    assert "bound_middleware" not in bounded.stderr
    assert (bounded.returncode, bounded.stdout) == (1, "")


def test_what_sys_exit_is_given_is_respected_and_the_summary_goes_to_stderr(program, bound_run):
    done = bound_run(program("print('out')\nimport sys\nsys.exit('a reason')\n"))
    assert (done.returncode, done.stdout) == (1, "out\n")
    lines = done.stderr.splitlines()
    assert lines[:3] == ["bound: NOT BOUND: nothing limits this run", "a reason", "bound: failed, NOT BOUND"]
    assert [line.split()[0] for line in lines[3:]] == ["iterations", "tokens", "money", "time", "calls"]


def test_a_program_may_close_its_own_output(program, bound_run):
    done = bound_run("--quiet", "--json", program("import sys\nprint('out')\nsys.stdout.close()\n"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")


# -- bounded programs, by the count of the server ----------------------------------------------------------


def test_a_stop_that_ends_the_program_is_one_line_and_exit_code_3(program, bound_run, server):
    server.default(Reply(tokens=10_000, token_delay_ms=1))
    app = program(CLIENT + "print('asking')\nprint(model.invoke('hello'))\n")
    done = bound_run("--quiet", "--usd", "0.001", app, server.openai_url)
    server.wait_idle()
    assert (done.returncode, done.stdout) == (3, "asking\n")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("bound: stopped by cost_budget: model call 'gpt-4o' was cut while it ran")
    assert server.requests[0].hung_up
    assert server.paid_calls == 1
    assert server.cost_nanousd("2.5", "10") < 2_000_000


def test_a_program_that_swallows_the_stop_exits_3_and_pays_no_more(program, bound_run, server):
    app = program(
        CLIENT
        + """
for i in range(9):
    try:
        model.invoke("hello")
    except Exception:
        print("ignored")
"""
    )
    done = bound_run("--iterations", "4", "--json", app, server.openai_url)
    assert server.requests_count == server.paid_calls == 4
    assert done.returncode == 3
    assert done.stdout.count("ignored") == 5
    said = last_json(done.stdout)
    assert said["exit_code"] == 3
    assert said["outcome"]["stop_reason"] == "iteration_limit"
    assert said["outcome"]["usage"]["total_tokens"] == server.total_tokens
    assert "iterations  4 of 4" in done.stderr


def test_an_error_that_a_program_makes_of_a_stop_is_shown_and_exits_3(program, bound_run):
    app = program(
        SCRIPTED
        + """
try:
    model.invoke("hello")
except Exception as error:
    raise RuntimeError("no answer") from error
"""
    )
    done = bound_run("--quiet", "--tokens", "0", app)
    assert done.returncode == 3
    assert "RuntimeError: no answer" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("bound: stopped by token_budget")


THREADS = (
    CLIENT
    + """
import asyncio, atexit, threading
from concurrent.futures import ThreadPoolExecutor

lock = threading.Lock()

def ask(where):
    try:
        model.invoke(where)
        word = "answered"
    except Exception:
        word = "refused"
    with lock:
        print(where, word, flush=True)

async def aask():
    await model.ainvoke("task")
    print("task answered", flush=True)

main_ended = threading.Event()

def late():
    main_ended.wait()
    ask("late thread")

atexit.register(ask, "atexit")
asyncio.run(aask())
pool = ThreadPoolExecutor(1)
pool.submit(ask, "pool").result()
thread = threading.Thread(target=ask, args=("thread",))
thread.start()
thread.join()
threading.Thread(target=late).start()
main_ended.set()
"""
)


def test_tasks_threads_and_executors_are_bounded_also_after_the_main_thread_has_ended(program, bound_run, server):
    done = bound_run("--iterations", "3", "--json", program(THREADS), server.openai_url)
    assert server.paid_calls == 3
    assert done.stdout.splitlines()[:4] == [
        "task answered",
        "pool answered",
        "thread answered",
        "late thread refused",
    ]
    said = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert said["outcome"]["usage"]["model_calls"] == 3
    assert done.stdout.splitlines()[-1] == "atexit refused"
    assert done.returncode == 3


def test_an_asynchronous_program_is_cut_in_its_tasks(program, bound_run, server):
    app = program(
        CLIENT
        + """
import asyncio

async def ask(i):
    return await model.ainvoke(f"hello {i}")

async def main():
    async with asyncio.TaskGroup() as tasks:
        for i in range(6):
            tasks.create_task(ask(i))

asyncio.run(main())
"""
    )
    done = bound_run("--quiet", "--iterations", "2", app, server.openai_url)
    assert server.requests_count <= 2
    assert done.returncode == 3
    assert done.stderr.startswith("bound: stopped by iteration_limit")
    assert "Traceback" not in done.stderr


def test_a_trace_verifies_and_replays_and_goes_on_in_the_next_run(program, bound_run, tmp_path):
    app = program(SCRIPTED + "print(model.invoke('hello').text)\n")
    options = ["--quiet", "--ledger", "books.db", "--session", "s1", "--iterations", "1", "--trace", "run.jsonl"]
    first, second = bound_run(*options, app), bound_run(*options, app)
    assert (first.returncode, second.returncode) == (0, 3)
    assert (first.stdout, second.stdout) == ("one two three\n", "")
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    events = [event_from(json.loads(line)) for line in lines]
    assert len(verify(events)) == 64
    assert [verdict["kind"] for verdict in replay(events)] == ["allow", "refuse"]
    assert {event.session_id for event in events} == {"s1"}


def test_shadow_refuses_nothing_and_says_what_it_let_pass(program, bound_run):
    app = program(SCRIPTED + "for i in range(3):\n    print(model.invoke('hello').text)\n")
    done = bound_run("--shadow", "--iterations", "1", "--tokens", "5", app)
    assert (done.returncode, done.stdout) == (0, "one two three\n" * 3)
    assert "bound: completed, SHADOW: nothing is refused" in done.stderr
    let_pass = next(line for line in done.stderr.splitlines() if "let pass" in line)
    assert "iteration_limit 2 times" in let_pass
    assert "token_budget" in let_pass


def test_an_interrupt_is_130_and_the_outcome_is_told(program, tmp_path, env, server):
    server.default(Reply(first_byte_delay_ms=60_000))
    app = program(CLIENT + "model.invoke('hello')\n")
    command = [sys.executable, "-m", "bound_middleware.cli", "run", "--usd", "1", app, server.openai_url]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as child:
        server.wait_requests(1, timeout_s=30)
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "bound: failed (interrupted)" in stderr


# -- graphs ------------------------------------------------------------------------------------------------

GRAPHS = """
from contextlib import asynccontextmanager, contextmanager
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, MessagesState, StateGraph
from bound_middleware.testing import ScriptedChatModel

model = ScriptedChatModel(["one two three"], cycle=True)

def sync_node(state):
    return {"messages": [model.invoke(state["messages"])]}

async def async_node(state):
    return {"messages": [await model.ainvoke(state["messages"])]}

def builder_of(node):
    return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").add_edge("node", END)

builder = builder_of(sync_node)
graph = builder.compile()
only_async = builder_of(async_node).compile()
chain = model | RunnableLambda(lambda message: {"words": len(message.text.split())})

def factory():
    return builder

def configured(config):
    assert config == {"configurable": {}}
    return graph

async def async_factory():
    return only_async

@asynccontextmanager
async def async_context():
    yield only_async

@contextmanager
def context():
    yield graph

def broken():
    return 1 / 0

def greedy(one, two):
    return graph

number = 7

class Shelf:
    graph = graph
"""
KINDS = (
    "graph builder only_async factory configured async_factory async_context context Shelf.graph".split()  # noqa: SIM905
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_graph_is_invoked_with_a_text_and_answers_with_a_text(kind, here, program, capsys):
    program(GRAPHS, "graphs.py")
    assert main(["run", "--quiet", f"graphs.py:{kind}", "--input", "hello", "--iterations", "1"]) == 0
    assert capsys.readouterr().out == "one two three\n"


def test_a_chain_takes_a_text_and_answers_with_json(here, program, capsys):
    program(GRAPHS, "graphs.py")
    assert main(["run", "--quiet", "graphs:chain", "--input", "hello"]) == 0
    assert json.loads(capsys.readouterr().out) == {"words": 3}


def test_the_input_may_be_json_or_a_file(here, program, capsys):
    program(GRAPHS, "graphs.py")
    (here / "input.json").write_text(json.dumps({"messages": [["user", "a"], ["ai", "b"], ["user", "c"]]}))
    assert main(["run", "--quiet", "--json", "graphs.py:graph", "--input", "@input.json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [m["content"] for m in said["result"]["messages"]] == ["a", "b", "c", "one two three"]
    assert said["outcome"]["status"] == "completed"
    assert said["outcome"]["usage"]["model_calls"] == 1


@pytest.mark.parametrize("target", ["answers", "langgraph.json:answers", "described"])
def test_a_graph_of_langgraph_json_is_named_or_found(target, here, program, capsys):
    program(GRAPHS, "src/graphs.py")
    entries = {"answers": "./src/graphs.py:graph", "described": {"path": "./src/graphs.py:factory"}}
    (here / "langgraph.json").write_text(json.dumps({"graphs": entries}))
    assert main(["run", "--quiet", target, "--input", "hello"]) == 0
    assert capsys.readouterr().out == "one two three\n"


def test_a_file_in_a_package_may_import_its_neighbours(here, program, capsys):
    program("", "shop/__init__.py")
    program(GRAPHS, "shop/graphs.py")
    program("from .graphs import graph as agent\n", "shop/agent.py")
    assert main(["run", "--quiet", "shop/agent.py:agent", "--input", "hello"]) == 0
    assert capsys.readouterr().out == "one two three\n"


def test_a_graph_that_a_bound_stops_exits_3_with_one_line(here, program, capsys):
    program(GRAPHS, "graphs.py")
    assert main(["run", "--quiet", "--json", "graphs.py:graph", "--input", "x", "--iterations", "0"]) == 3
    said = capsys.readouterr()
    assert said.err == "bound: stopped by iteration_limit: model call 'scripted' was not made\n"
    assert json.loads(said.out)["result"] is None


def test_a_graph_that_fails_shows_its_own_frames_and_exits_1(here, program, capsys):
    program(GRAPHS, "graphs.py")
    assert main(["run", "--quiet", "graphs.py:broken", "--input", "x"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "graphs.py" in lines[1]
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_a_graph_whose_own_bounds_stopped_it_is_a_no_as_well(here, program, capsys):
    program("from langchain_core.runnables import RunnableLambda as R\ngraph = R(lambda x: x)\n", "own.py")
    outcome = {"bound": {"outcome": {"status": "stopped", "stop_reason": "deadline"}}}
    assert main(["run", "own.py:graph", "--input", json.dumps(outcome)]) == 3
    assert "stopped by deadline, a bound of the graph's own" in capsys.readouterr().err


# -- usage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there is nothing to run"),
        (["ap.py"], "did you mean 'app.py'?"),
        (["--usd", "-1", "app.py"], "usd"),
        (["--spec", "none.yml", "app.py"], "none.yml"),
        (["--spec", "bound.yml", "--usd", "1", "app.py"], "either --spec or the short names"),
        (["--session", "s", "app.py"], "--ledger PATH"),
        (["--input", "x", "app.py"], "a program reads its own input"),
        (["--prices", "none.json", "app.py"], "--prices"),
        (["--trace", "app.py", "app.py"], "its last line is no event of a trace"),
        (["graphs.py:graph"], "there is no input"),
        (["graphs.py:grap", "--input", "x"], "did you mean 'graph'?"),
        (["graphs.py:greedy", "--input", "x"], "'greedy' needs 2 arguments"),
        (["graphs.py:number", "--input", "x"], "a int cannot be invoked"),
        (["nowhere:graph", "--input", "x"], "there is no module 'nowhere'"),
        (["none.py:graph", "--input", "x"], "there is no file"),
        (["langgraph.json:other", "--input", "x"], "allowed: answers"),
        (["graphs.py:graph", "--input", "@none.txt"], "--input"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_allowed_and_exit_code_2(arguments, words, here, program, capsys):
    program("pass\n", "app.py")
    program(GRAPHS, "graphs.py")
    (here / "langgraph.json").write_text(json.dumps({"graphs": {"answers": "graphs.py:graph"}}))
    assert main(["run", "--quiet", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_bound_that_nothing_enforces_here_is_said_before_the_run(here, program, capsys):
    program(GRAPHS, "graphs.py")
    (here / "bound.yml").write_text("bounds: {time_budget: {per_tool_call_seconds_max: 3}}\n")
    assert main(["run", "--spec", "bound.yml", "graphs.py:graph", "--input", "x"]) == 0
    assert capsys.readouterr().err.startswith("bound: NOT ENFORCED by bound run: bounds.time_budget.per_tool_call")


def test_a_group_of_stops_is_a_stop_and_a_mixed_one_is_an_error_that_a_bound_caused(capsys):
    stop = BoundExceeded("deadline")
    assert programs.ended_by(ExceptionGroup("tasks", [stop])) == programs.Ended(code=3, stop=stop)
    mixed = programs.ended_by(ExceptionGroup("tasks", [stop, ValueError("own")]))
    assert (mixed.code, mixed.stop, mixed.failed) == (3, stop, True)
    assert programs.ended_by(ValueError("own")).code == 1
    assert "ValueError: own" in capsys.readouterr().err


def test_a_call_that_was_made_is_never_made_again_asynchronously():
    calls = []

    def invoke(given):
        calls.append("sync")
        raise NotImplementedError("use ainvoke")

    async def ainvoke(given):
        calls.append("async")
        return given

    runnable = SimpleNamespace(invoke=invoke, ainvoke=ainvoke)
    assert targets.answer(runnable, "x", unused=lambda: True) == "x"
    with pytest.raises(NotImplementedError):
        targets.answer(runnable, "x", unused=lambda: False)
    assert calls == ["sync", "async", "sync"]


def test_a_thread_with_bounds_of_its_own_is_still_inside_those_of_the_run(tmp_path):
    program = tmp_path / "app.py"
    program.write_text(
        "import threading\n"
        "from bound_middleware import BoundExceeded, bound\n"
        "from bound_middleware.testing import ScriptedChatModel\n"
        "model = ScriptedChatModel(['x'], cycle=True)\n"
        "def work():\n"
        "    with bound(iterations=100):\n"
        "        for _ in range(10):\n"
        "            try:\n"
        "                model.invoke('hello')\n"
        "            except BoundExceeded:\n"
        "                pass\n"
        "threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "[t.start() for t in threads]\n"
        "[t.join() for t in threads]\n"
        "print('made', model.call_count)\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "bound_middleware.cli", "run", "--iterations", "5", "--quiet", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("made 5\n", 3)

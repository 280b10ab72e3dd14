"""The core is the standard library and arithmetic: it loads nothing else, and it cannot see the world."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import bound_middleware.core

CORE = Path(bound_middleware.core.__file__).parent
SOURCES = sorted(CORE.glob("*.py"))
MODULES = [f"bound_middleware.core.{path.stem}" for path in SOURCES if path.stem != "__init__"]

#: All that the core imports. A new name here is a decision.
ALLOWED = {
    "__future__",
    "collections",
    "dataclasses",
    "decimal",
    "hashlib",
    "json",
    "re",
    "types",
    "typing",
}
FORBIDDEN_BUILTINS = {"open", "input", "print", "exec", "eval", "compile", "breakpoint", "__import__"}


def _names(node):
    """The top-level modules that an import statement names; its own siblings are none."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]} if node.level == 0 else set()
    return set()


def _loaded_by(code):
    """The names in ``sys.modules`` that a fresh interpreter has after the code and had not before."""
    script = (
        f"import json, sys\nbefore = set(sys.modules)\n{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", script], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_the_core_has_its_six_modules():
    assert {path.stem for path in SOURCES} >= {"errors", "events", "gateway", "ledger", "limits", "usage"}


@pytest.mark.parametrize("module", MODULES)
def test_importing_a_module_of_the_core_loads_nothing_outside_the_standard_library(module):
    loaded = _loaded_by(f"import {module}")
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert foreign == {"bound_middleware"}
    ours = {name for name in loaded if name.startswith("bound_middleware.")}
    assert module in ours
    assert all(name == "bound_middleware.core" or name.startswith("bound_middleware.core.") for name in ours)


def test_importing_all_of_the_core_loads_no_clock_no_chance_no_log_and_no_socket_of_its_own():
    loaded = set(_loaded_by("; ".join(f"import {module}" for module in MODULES)))
    assert not loaded & {"random", "uuid", "logging", "socket", "asyncio", "threading", "subprocess", "datetime"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_of_the_core_imports_only_what_is_allowed(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = set().union(*(_names(node) for node in ast.walk(tree)))
    assert imported <= ALLOWED
    assert not any(isinstance(node, ast.ImportFrom) and node.level > 1 for node in ast.walk(tree))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_of_the_core_neither_reads_nor_writes_nor_catches_everything(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert not called & FORBIDDEN_BUILTINS
    handlers = [n.type for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler)]
    caught = {n.id for t in handlers if t is not None for n in ast.walk(t) if isinstance(n, ast.Name)}
    assert None not in handlers
    assert not caught & {"Exception", "BaseException"}


def test_the_core_decides_the_same_when_no_clock_can_be_read():
    """Every source of time raises while a call is decided, held, traced and replayed."""
    code = """
import time
def refuse(*_): raise SystemExit("the core read a clock")
for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"):
    setattr(time, name, refuse)
from bound_middleware.core import events, gateway, ledger, limits
plain = gateway.as_dict
bounds = limits.Limits(tokens=50, wall_clock_ms=9)
chain = (ledger.Account(id="s", ceilings=dict(bounds.ceilings)),)
request = gateway.Request(kind="model_call", id="c", input_tokens=5)
facts = gateway.Facts(balances=gateway.balances_of(chain))
verdict = gateway.decide(request, facts, bounds)
chain, _ = ledger.settle(ledger.admit(chain, verdict.amounts), verdict.amounts, verdict.amounts)
head = {"at_ms": 0, "session_id": "s", "fingerprint": "f"}
trace = list(events.chained([
    events.TraceEvent(seq=0, name="session_opened", detail={"limits": events.limits_as_dict(bounds)}, **head),
    events.TraceEvent(seq=1, name="model_call", request=plain(request), facts=plain(facts), **head),
]))
events.verify(trace)
assert events.replay(trace)[0]["output_cap_tokens"] == 45 == chain[0].settled["output_tokens"]
"""
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""Proposes a contract from what a project already uses. Nothing is installed, run, or invented.

A tool counts when the project configures it: a table in ``pyproject.toml``, a section in ``setup.cfg``, a file of
its own, or a script in ``package.json``. A lock file decides through which program commands run.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import SpecError
from ..spec.source import parse as parse_source
from .contract.load import FILES, PARTS, contract_of

HEADER = """\
# Completion gates: what must be true before work here is done.
# Proposed from what this project already uses; read it, change it, commit it.
# Phases: change (after an edit, fast), stop (before finishing), ci (fresh, without waivers), push.
"""
LOOP = """\
# How often the work of one task is repaired before a person decides: bound gate cycle finish
loops:
  finish:
    phase: stop
    interval_seconds: 30
    max_repair_attempts: 3
    max_unchanged_repairs: 2
    max_duration_seconds: 3600
"""
IGNORED = (".bound/state/", ".bound/secrets.env")
#: Scripts of package.json that are gates, with their phases.
SCRIPTS = {"lint": ("change", "stop", "ci"), "typecheck": ("stop", "ci"), "test": ("stop", "ci")}
_NO_TEST = "no test specified"
_TOP = re.compile(r"\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One constraint to write down, and why: ``because`` names what was found."""

    name: str
    because: str
    command: tuple[str, ...]
    phases: tuple[str, ...] = ("stop", "ci")
    watch: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What ``init`` has done: the file, the constraints in it, and the lines added to ``.gitignore``."""

    path: Path
    proposals: tuple[Proposal, ...]
    ignored: tuple[str, ...] = ()


def detect(root: str | os.PathLike[str]) -> tuple[Proposal, ...]:
    """What the tools of a project are, in the order they would run.

    Raises:
        SpecError: a file that says so cannot be read.
    """
    place = Path(root)
    found = [*_git(place), *_python(place), *_node(place)]
    return tuple({proposal.name: proposal for proposal in found}.values())


def render(proposals: tuple[Proposal, ...]) -> str:
    """The section of ``bound.yml``."""
    lines = [HEADER + "constraints:"]
    for proposal in proposals:
        lines += [f"  {proposal.name}:  # {proposal.because}", "    kind: command"]
        lines.append(f"    command: {json.dumps(list(proposal.command))}")
        lines.append(f"    phases: [{', '.join(proposal.phases)}]")
        if proposal.watch:
            lines.append(f"    watch: {json.dumps(list(proposal.watch))}")
        if proposal.needs:
            lines.append(f"    needs: [{', '.join(proposal.needs)}]")
        lines.append("")
    return "\n".join([*lines, LOOP])


def init(root: str | os.PathLike[str], *, force: bool = False, gitignore: bool = False) -> Written:
    """Writes the proposed contract to ``bound.yml``; what else that file says stays as it is.

    Args:
        force: replace the gates of a contract that is there.
        gitignore: also keep the local state and the keys out of git.

    Raises:
        SpecError: there are gates already, or nothing was found to propose; nothing was written.
    """
    place = Path(root)
    if not place.is_dir():
        raise SpecError("no such folder", file=str(place))
    proposals = detect(place)
    if not proposals:
        raise SpecError("nothing found to propose", file=str(place), allowed="write the contract by hand")
    path = place / FILES[0]
    before = _before(place, path, force=force)
    text = f"{before.rstrip()}\n\n{render(proposals)}" if before.strip() else render(proposals)
    # What is written loads; a file in another style than ours is not spoiled.
    contract_of(parse_source(text, file=str(path)))
    replace(path, text)
    return Written(path=path, proposals=proposals, ignored=ignore(place) if gitignore else ())


def ignore(root: Path) -> tuple[str, ...]:
    """Adds what is local to ``.gitignore``, where it is not there yet, and says which lines are new."""
    path = root / ".gitignore"
    before = _read(path) or ""
    there = {line.strip().strip("/") for line in before.splitlines()}
    new = tuple(line for line in IGNORED if line.strip("/") not in there and ".bound" not in there)
    if new:
        replace(path, (before if not before or before.endswith("\n") else before + "\n") + "\n".join(new) + "\n")
    return new


def _before(root: Path, path: Path, *, force: bool) -> str:
    for name in FILES:
        text = _read(root / name)
        if text is None:
            continue
        gates = (
            name.startswith("constraintloop") or parse_source(text, file=name).data.get("constraints") is not None
        )
        if gates and not force:
            raise SpecError(f"{name} already has gates", file=str(root / name), allowed="--force, to replace them")
    text = _read(path)
    return "" if text is None else _without_gates(text)


def _without_gates(text: str) -> str:
    kept, dropping = [], False
    for line in text.splitlines():
        if _TOP.match(line) and not line.startswith("#"):
            dropping = line.partition(":")[0].strip("'\"") in PARTS
        elif _TOP.match(line):
            # A comment at the margin belongs to what follows; ours go with the gates.
            dropping = dropping or f"{line}\n" in HEADER or f"{line}\n" in LOOP
        if not dropping:
            kept.append(line)
    return "\n".join(kept)


def _git(root: Path) -> Iterator[Proposal]:
    if (root / ".git").exists():
        command = ("git", "diff", "--check")
        yield Proposal(name="diff_hygiene", because="a git repository", command=command, phases=SCRIPTS["lint"])


def _python(root: Path) -> Iterator[Proposal]:
    marks = [
        n for n in ("pyproject.toml", "setup.cfg", "setup.py", "pytest.ini", "tox.ini") if (root / n).is_file()
    ]
    if not marks:
        return
    tables, config = _pyproject(root), _setup_cfg(root)
    tool = tables.get("tool")
    tool = tool if isinstance(tool, Mapping) else {}
    python = (*runner(root), "python", "-m")
    sources = _sources(root)
    watch = ("**/*.py", "**/*.pyi", *marks)
    fast = SCRIPTS["lint"]
    if sources:
        command = (*python, "compileall", "-q", *sources)
        yield Proposal(
            name="python_syntax", because=f"Python, by {marks[0]}", command=command, phases=fast, watch=watch
        )
    ruff = "[tool.ruff]" if "ruff" in tool else _first(root, "ruff.toml", ".ruff.toml")
    if ruff:
        command = (*python, "ruff", "check", ".")
        yield Proposal(
            name="lint", because=f"ruff, by {ruff}", command=command, phases=fast, watch=_own(watch, ruff)
        )
    mypy = "[tool.mypy]" if "mypy" in tool else _first(root, "mypy.ini", ".mypy.ini")
    mypy = mypy or ("[mypy] in setup.cfg" if config.has_section("mypy") else None)
    if mypy:
        told = tool.get("mypy")
        knows = isinstance(told, Mapping) and {"files", "packages", "modules"} & set(told)
        target = () if knows or _option(root, config, "files") else sources[:1] or (".",)
        command = (*python, "mypy", *target)
        yield Proposal(name="types", because=f"mypy, by {mypy}", command=command, watch=_own(watch, mypy))
    tests = _pytest(root, tables, tool, config)
    needs = ("python_syntax",) if sources else ()
    if tests:
        command = (*python, "pytest", "-q")
        yield Proposal(name="tests", because=f"pytest, by {tests}", command=command, needs=needs)
    elif any((root / "tests").glob("test*.py")):
        command = (*python, "unittest", "discover", "-s", "tests", "-t", ".")
        yield Proposal(name="tests", because="tests/ for unittest", command=command, needs=needs)


def _pytest(root: Path, tables: Mapping[str, Any], tool: Mapping[str, Any], config: Any) -> str | None:
    if "pytest" in tool:
        return "[tool.pytest]"
    if config.has_section("tool:pytest"):
        return "[tool:pytest] in setup.cfg"
    named = _first(root, "pytest.ini", ".pytest.ini", "conftest.py", "tests/conftest.py")
    if named:
        return named
    wanted = [tables.get("dependency-groups"), tables.get("project"), tool.get("poetry"), tool.get("uv")]
    if re.search(r"""["']pytest\b""", json.dumps(wanted, default=str)):
        return "the dependencies"
    files = sorted((*(root / "tests").glob("**/test_*.py"), *root.glob("test_*.py")))[:200]
    if any(re.search(r"^\s*(?:import|from)\s+pytest\b|^def test_", _read(file) or "", re.M) for file in files):
        return "the tests"
    return None


def _node(root: Path) -> Iterator[Proposal]:
    text = _read(root / "package.json")
    if text is None:
        return
    try:
        package = json.loads(text)
    except ValueError as error:
        raise SpecError(f"is no JSON: {error}", file=str(root / "package.json")) from None
    scripts = package.get("scripts") if isinstance(package, dict) else None
    if not isinstance(scripts, dict):
        return
    manager = _manager(root, package)
    for script, phases in SCRIPTS.items():
        told = scripts.get(script)
        if isinstance(told, str) and told.strip() and _NO_TEST not in told:
            because = f"the script {script!r} of package.json"
            yield Proposal(name=f"node_{script}", because=because, command=(manager, "run", script), phases=phases)


def _manager(root: Path, package: Mapping[str, Any]) -> str:
    told = str(package.get("packageManager", "")).partition("@")[0]
    if told in ("npm", "pnpm", "yarn"):
        return told
    return "pnpm" if (root / "pnpm-lock.yaml").is_file() else "yarn" if (root / "yarn.lock").is_file() else "npm"


def runner(root: Path) -> tuple[str, ...]:
    for lock, runner in (("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pdm.lock", "pdm")):
        if (root / lock).is_file():
            return (runner, "run")
    return ()


def _sources(root: Path) -> tuple[str, ...]:
    if (root / "src").is_dir():
        found = ["src"]
    else:
        found = sorted(p.parent.name for p in root.glob("*/__init__.py") if p.parent.name not in ("tests", "test"))
        found += sorted(p.name for p in root.glob("*.py") if p.name not in ("setup.py", "conftest.py"))
    return (*found, *(name for name in ("tests", "test") if any((root / name).glob("**/*.py"))))


def _pyproject(root: Path) -> dict[str, Any]:
    text = _read(root / "pyproject.toml")
    try:
        return {} if text is None else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"is no TOML: {error}", file=str(root / "pyproject.toml")) from None


def _setup_cfg(root: Path) -> configparser.RawConfigParser:
    config = configparser.RawConfigParser(strict=False)
    try:
        config.read_string(_read(root / "setup.cfg") or "")
    except configparser.Error as error:
        raise SpecError(f"cannot be read: {error}", file=str(root / "setup.cfg")) from None
    return config


def _option(root: Path, config: configparser.RawConfigParser, name: str) -> bool:
    own = re.search(rf"^\s*{name}\s*=", (_read(root / "mypy.ini") or "") + (_read(root / ".mypy.ini") or ""), re.M)
    return own is not None or config.has_option("mypy", name)


def _own(watch: tuple[str, ...], named: str) -> tuple[str, ...]:
    return watch if named.startswith("[") else (*watch, named)


def _first(root: Path, *names: str) -> str | None:
    return next((name for name in names if (root / name).is_file()), None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot be read: {error}", file=str(path)) from None


def replace(path: Path, text: str) -> None:
    """Writes a file as a whole; readers see the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

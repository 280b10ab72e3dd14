"""``init`` proposes what a project already uses, in a form that a person reads, and nothing else."""

import json

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.gates import proposals
from bound_middleware.gates.contract import load, parse
from bound_middleware.gates.detect import LOOP, detect, init, render


@pytest.fixture
def project(tmp_path):
    def made(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return made


def commands(root):
    return {proposal.name: " ".join(proposal.command) for proposal in detect(root)}


def test_a_project_of_python_gets_the_tools_it_configures(project):
    root = project(
        pyproject_DOT_toml="[tool.ruff]\n[tool.mypy]\nfiles = ['pk']\n[tool.pytest.ini_options]\n",
        pk__init_DOT_py="",
        tests__test_a_DOT_py="def test_a(): pass\n",
    )
    (root / "pk" / "__init__.py").write_text("")
    assert commands(root) == {
        "python_syntax": "python -m compileall -q pk tests",
        "lint": "python -m ruff check .",
        "types": "python -m mypy",
        "tests": "python -m pytest -q",
    }


def test_a_tool_that_is_not_configured_is_not_proposed(project):
    assert commands(project(setup_DOT_py="", a_DOT_py="")) == {"python_syntax": "python -m compileall -q a.py"}


@pytest.mark.parametrize(
    ("name", "text", "constraint"),
    [
        ("setup_DOT_cfg", "[tool:pytest]\n", "tests"),
        ("setup_DOT_cfg", "[mypy]\n", "types"),
        ("pytest_DOT_ini", "[pytest]\n", "tests"),
        ("ruff_DOT_toml", "", "lint"),
        ("mypy_DOT_ini", "[mypy]\n", "types"),
        ("conftest_DOT_py", "", "tests"),
    ],
)
def test_other_files_configure_tools_too(project, name, text, constraint):
    root = project(setup_DOT_py="", **{name: text})
    assert constraint in commands(root)


@pytest.mark.parametrize(
    "text",
    [
        "[dependency-groups]\ndev = ['pytest>=8']\n",
        "[project.optional-dependencies]\ntest = ['pytest']\n",
        "[tool.poetry.group.dev.dependencies]\npytest = '*'\n",
    ],
)
def test_pytest_among_the_dependencies_is_pytest(project, text):
    assert commands(project(pyproject_DOT_toml=text))["tests"] == "python -m pytest -q"


def test_tests_without_pytest_are_run_by_unittest(project):
    root = project(pyproject_DOT_toml="", tests__test_a_DOT_py="import unittest\n")
    assert commands(root)["tests"] == "python -m unittest discover -s tests -t ."


@pytest.mark.parametrize(("lock", "runner"), [("uv", "uv run"), ("poetry", "poetry run"), ("pdm", "pdm run")])
def test_a_lock_file_of_python_says_how_commands_run(project, lock, runner):
    root = project(pyproject_DOT_toml="[tool.ruff]\n", **{f"{lock}_DOT_lock": ""})
    assert commands(root)["lint"] == f"{runner} python -m ruff check ."


SCRIPTS = json.dumps({"scripts": {"lint": "eslint .", "typecheck": "tsc", "test": "vitest run", "build": "x"}})


@pytest.mark.parametrize(
    ("lock", "manager"),
    [("package-lock_DOT_json", "npm"), ("pnpm-lock_DOT_yaml", "pnpm"), ("yarn_DOT_lock", "yarn"), ("other", "npm")],
)
def test_a_project_of_node_gets_its_scripts_by_its_own_manager(project, lock, manager):
    root = project(package_DOT_json=SCRIPTS, **{lock: ""})
    assert commands(root) == {f"node_{name}": f"{manager} run {name}" for name in ("lint", "typecheck", "test")}


def test_the_manager_that_a_package_names_wins(project):
    text = json.dumps({"packageManager": "pnpm@9.1.0", "scripts": {"test": "vitest"}})
    assert commands(project(package_DOT_json=text, yarn_DOT_lock="")) == {"node_test": "pnpm run test"}


def test_the_placeholder_of_npm_is_no_test(project):
    text = json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1', "lint": " "}})
    assert commands(project(package_DOT_json=text)) == {}


@pytest.mark.parametrize(
    ("name", "text"), [("package.json", "{"), ("pyproject.toml", "[["), ("pyproject.toml", b"\xff")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, text):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SpecError) as refused:
        detect(tmp_path)
    assert refused.value.file == str(tmp_path / name)


def test_what_is_written_loads_and_says_why(project):
    root = project(pyproject_DOT_toml="[tool.ruff]\n", package_DOT_json=SCRIPTS)
    written = init(root)
    contract = load(root)
    assert list(contract.constraints) == [proposal.name for proposal in written.proposals]
    assert contract.loops["finish"].phase == "stop"
    text = (root / "bound.yml").read_text()
    assert "  lint:  # ruff, by [tool.ruff]\n" in text
    assert LOOP in text
    assert contract.constraints["lint"].watch == ("**/*.py", "**/*.pyi", "pyproject.toml")


@pytest.mark.parametrize("name", ["bound.yml", "bound.yaml", "constraintloop.yml", "constraintloop.yaml"])
def test_gates_that_are_there_stay_without_force(project, name):
    root = project(pyproject_DOT_toml="[tool.ruff]\n")
    (root / name).write_text("version: 1\nconstraints: {}\n")
    before = sorted(path.name for path in root.iterdir())
    with pytest.raises(SpecError, match="already has gates"):
        init(root)
    assert sorted(path.name for path in root.iterdir()) == before
    assert (root / name).read_text() == "version: 1\nconstraints: {}\n"


def test_force_replaces_the_gates_and_leaves_the_bounds(project):
    root = project(pyproject_DOT_toml="[tool.ruff]\n")
    bounds = "# of this agent\nbounds:\n  iteration_limit: 7\n"
    (root / "bound.yml").write_text(
        f"{bounds}settings: {{}}\nconstraints:\n  old:\n    kind: command\nagents: {{}}\n"
    )
    init(root, force=True)
    text = (root / "bound.yml").read_text()
    assert text.startswith(f"{bounds}agents: {{}}\n\n# Completion gates")
    assert list(load(root).constraints) == ["lint"]


def test_a_second_force_changes_nothing(project):
    root = project(pyproject_DOT_toml="[tool.ruff]\n")
    init(root)
    once = (root / "bound.yml").read_text()
    init(root, force=True)
    assert (root / "bound.yml").read_text() == once


def test_bounds_without_gates_get_gates_without_force(project):
    root = project(pyproject_DOT_toml="[tool.ruff]\n")
    (root / "bound.yml").write_text("bounds:\n  iteration_limit: 7\n")
    init(root)
    assert (root / "bound.yml").read_text().startswith("bounds:\n  iteration_limit: 7\n\n# Completion gates")


def test_where_nothing_is_found_nothing_is_written(tmp_path):
    with pytest.raises(SpecError, match="nothing found to propose"):
        init(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_local_state_is_kept_out_of_git_once_and_only_when_asked(project):
    root = project(pyproject_DOT_toml="[tool.ruff]\n", _DOT_gitignore="build/")
    assert init(root).ignored == ()
    assert init(root, force=True, gitignore=True).ignored == (".bound/state/", ".bound/secrets.env")
    assert init(root, force=True, gitignore=True).ignored == ()
    assert (root / ".gitignore").read_text() == "build/\n.bound/state/\n.bound/secrets.env\n"


def test_a_repository_gets_a_look_at_its_diff(tmp_path):
    (tmp_path / ".git").mkdir()
    assert commands(tmp_path) == {"diff_hygiene": "git diff --check"}
    assert "phases: [change, stop, ci]" in render(detect(tmp_path))


def test_a_proposal_of_stronger_gates_is_a_file_beside_the_contract(project):
    root = project(
        pyproject_DOT_toml="[tool.pytest.ini_options]\n[tool.ruff]\n",
        bound_DOT_yml="constraints:\n  tests: {kind: command, command: [python, -m, pytest, -q]}\n",
    )
    contract = load(root)
    text = proposals.enhance(root, contract).read_text()
    assert (root / "bound.yml").read_text().count("kind") == 1
    assert text.startswith("# For review only")
    proposed = {name: entry["constraint"] for name, entry in _yaml(text)["proposals"].items()}
    assert list(proposed) == ["lint", "coverage", "lint_new", "types_new", "design_review"]
    evaluators = {"review": {"type": "openai", "model": "m"}}
    assert parse({"constraints": proposed, "evaluators": evaluators}).constraints["coverage"].kind == "ratchet"


def test_a_proposal_of_tests_names_the_modules_without_one(project):
    root = project(
        pyproject_DOT_toml="",
        pk__one_DOT_py="",
        pk__two_DOT_py="",
        tests__test_two_DOT_py="",
    )
    (root / ".hidden").mkdir()
    (root / ".hidden" / "three.py").touch()
    contract = parse({"constraints": {"unit": {"kind": "command", "command": ["pytest"]}}})
    found = _yaml(proposals.author(root, contract).read_text())
    assert [row["module"] for row in found["tests_to_write"]] == ["pk/one.py"]
    assert found["gates_that_run_tests"] == ["unit"]


def _yaml(text):
    import yaml

    return yaml.safe_load(text)

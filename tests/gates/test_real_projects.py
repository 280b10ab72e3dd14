"""Three public projects as anybody gets them: propose gates, run, break, run, repair, run.

Their source distributions come from the package index that pip is set up for, into a temporary folder; where none
can be reached these tests are skipped, which is no proof of anything.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

BOUND = [sys.executable, "-m", "bound_middleware.cli", "gate"]
TOOLS = ("pytest", "ruff", "mypy")
#: Project -> (the file that is broken, the constraints that init proposes).
PROJECTS = {
    "cachetools": ("src/cachetools/__init__.py", ["python_syntax", "lint", "tests"]),
    "inflection": ("inflection/__init__.py", ["python_syntax", "types", "tests"]),
    "toolz": ("toolz/__init__.py", ["python_syntax", "tests"]),
}
pytestmark = pytest.mark.xdist_group("real projects")


def _fetched(command, why):
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{why}: no answer from a package index in 240 s")
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"{why}: {last}")


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """The folder with the programs of an environment of their own, in which the projects are tested."""
    pip = shutil.which("pip") or shutil.which("pip3")
    if pip is None:
        pytest.skip("there is no pip to fetch public projects with")
    place = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, capture_output=True)
    python = place / "bin" / "python"
    _fetched([pip, "--python", str(python), "install", "--quiet", *TOOLS], "the tools cannot be installed")
    return place / "bin"


@pytest.fixture(params=PROJECTS)
def project(request, tools, tmp_path):
    name = request.param
    pip = shutil.which("pip") or shutil.which("pip3")
    fetch = [pip, "download", "--quiet", "--no-deps", "--no-binary", name, "--dest", str(tmp_path), name]
    _fetched(fetch, f"{name} cannot be fetched")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    (root,) = (tmp_path / "unpacked").iterdir()
    return name, root, tools


def test_a_public_project_is_gated_broken_and_repaired(project):
    name, root, tools = project
    broken, constraints = PROJECTS[name]
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "COV", "BOUND"))},
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}{os.pathsep}{Path(__file__).parents[2]}",
    }

    def bound(action, *arguments):
        command = [*BOUND, action, "--project", str(root), "--json", *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
        return run.returncode, json.loads(run.stdout)

    def verdicts(report):
        return {result["constraint_id"]: result["verdict"] for result in report["results"]}

    code, written = bound("init")
    assert (code, [row["id"] for row in written["constraints"]]) == (0, constraints)

    code, report = bound("run")
    assert (code, report["state"]) == (0, "passed"), report

    source = root / broken
    sound = source.read_bytes()
    source.write_bytes(sound + b"\n1 / 0\n")
    code, report = bound("run")
    assert (code, report["state"]) == (3, "blocked")
    assert verdicts(report)["tests"] == "fail"
    tests = next(result for result in report["results"] if result["constraint_id"] == "tests")
    assert "ZeroDivisionError" in tests["output_tail"]

    source.write_bytes(sound)
    code, report = bound("run")
    assert (code, report["state"]) == (0, "passed"), report

    code, report = bound("run")
    assert (code, {result["cached"] for result in report["results"]}) == (0, {True})
    code, report = bound("ci")
    assert (code, {result["cached"] for result in report["results"]}) == (0, {False})

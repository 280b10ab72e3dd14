"""The example of ``docs/evidence.md`` does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

from bound_middleware.decision import collectors

TEXT = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text()


def test_the_example_prints_what_it_says(tmp_path):
    (code, output), *more = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert more == []
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for words in (
        ["init", "-q"],
        ["-c", "user.name=A", "-c", "user.email=a@b.test", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (output, "")


def test_every_collector_is_in_the_table():
    names = {
        name
        for name in collectors.__all__
        if isinstance(kind := getattr(collectors, name), type)
        and issubclass(kind, collectors.Collector)
        and kind not in (collectors.Collector, collectors.CommandCollector)
    }
    assert len(names) >= 12
    assert [name for name in sorted(names) if f"`{name}" not in TEXT] == []

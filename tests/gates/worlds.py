"""A project in a temporary folder with gates over it."""

import os
import sys
from pathlib import Path

from bound_middleware.gates.contract import parse
from bound_middleware.gates.engine import Engine
from bound_middleware.gates.state import State

PYTHON = sys.executable


def sh(script, **more):
    return {"kind": "command", "command": script, "shell": True, **more}


class World:
    """A root and a state beside it; ``ran`` counts how often a constraint's command has run."""

    def __init__(self, folder: Path, constraints: dict, **parts) -> None:
        self.root, self.state = folder / "project", State(folder / "state")
        self.notes = folder / "notes"
        self.root.mkdir(exist_ok=True)
        self.notes.mkdir(exist_ok=True)
        self.contract = parse({"constraints": constraints, **parts})
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}

    def write(self, path: str, text: str | bytes) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return place

    def engine(self, **more) -> Engine:
        return Engine(self.contract, root=self.root, state=self.state, **{"environment": self.environment, **more})

    def run(self, phase="stop", **more):
        return self.engine().run(phase, **more)

    def result(self, phase="stop", **more):
        return self.run(phase, **more).results[0]

    def ran(self, name: str = "x") -> int:
        place = self.notes / name
        return len(place.read_text()) if place.exists() else 0

    def noted(self, script: str, name: str = "x") -> str:
        """The script, and a note that it ran."""
        return f"printf 1 >> '{self.notes / name}'; {script}"


def world(folder: Path, script: str = "true", **more) -> World:
    """One command ``x`` that notes every run."""
    found = World(folder, {})
    found.contract = parse({"constraints": {"x": sh(found.noted(script), **more)}})
    return found

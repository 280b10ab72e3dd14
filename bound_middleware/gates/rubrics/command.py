"""A program as evaluator: the bundle on its standard input, one reply on its standard output."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...decision.collectors.process import Run
from ...decision.collectors.site import last_line
from ..contract.evaluators import CommandEvaluator
from .port import EvaluatorFailed, Said


class Program:
    """Runs the command of a contract once for each judgement.

    Args:
        declared: the command, its time-out, and whether its runs may overlap.
        run: runs an argument list with a file as its standard input.
        redact: takes secrets out of what is told about a failure.
    """

    def __init__(
        self, declared: CommandEvaluator, *, run: Callable[[Path], Run], redact: Callable[[str], str]
    ) -> None:
        self._declared, self._run, self._redact = declared, run, redact

    @property
    def identity(self) -> Mapping[str, Any]:
        return self._declared.model_dump(mode="json")

    @property
    def concurrent(self) -> bool:
        return bool(getattr(self._declared, "concurrent", False))

    def evaluate(self, bundle: str) -> Said:
        """Its output, when it ended with 0.

        Raises:
            EvaluatorFailed: it did not start or end in time, ended otherwise, or wrote too much or no UTF-8.
        """
        with tempfile.NamedTemporaryFile(prefix="bound-bundle-", suffix=".json") as file:
            file.write(bundle.encode())
            file.flush()
            done = self._run(Path(file.name))
        if done.trouble is not None:
            raise EvaluatorFailed(self._redact(done.trouble))
        if done.exit_code != 0:
            said = self._redact(last_line(done.stderr))
            raise EvaluatorFailed(f"{done.argv[0]} ended with {done.exit_code}" + (f": {said}" if said else ""))
        if not done.stdout.complete:
            raise EvaluatorFailed(f"{done.argv[0]} wrote more than is read")
        try:
            return Said(text=done.stdout.data.decode())
        except UnicodeDecodeError:
            raise EvaluatorFailed(f"{done.argv[0]} wrote what is no UTF-8") from None

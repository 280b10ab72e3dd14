"""The twelve plans that show what the quality report sees and what it cannot see."""

from __future__ import annotations

import json
from pathlib import Path

from ..core.errors import SpecError
from ._base import Frozen
from .contracts import BoundPlan

BUILT_IN = Path(__file__).with_name("contract_corpus.json")


class PlanOfCorpus(Frozen):
    """A plan, and what it is there to show."""

    note: str = ""
    plan: BoundPlan


def read_corpus(path: str | Path | None = None) -> dict[str, PlanOfCorpus]:
    """Plans by name: those of a file ``{name: {note, plan}}``, or of a folder with one plan per ``NAME.json``.

    ``None`` is the corpus of this package.

    Raises:
        SpecError: there is nothing to read, or it is no JSON; an empty answer would look like a clean one.
        ValidationError: a plan is not valid.
    """
    source = BUILT_IN if path is None else Path(path)
    if not source.is_dir():
        return {name: PlanOfCorpus.model_validate(entry) for name, entry in read_json(source).items()}
    found = {
        file.stem: PlanOfCorpus.model_validate({"plan": read_json(file)}) for file in sorted(source.glob("*.json"))
    }
    if not found:
        raise SpecError("no *.json in this folder", key="corpus", file=str(source))
    return found


def load_contract_corpus(path: str | Path | None = None) -> dict[str, BoundPlan]:
    """The plans of a corpus by name; see ``read_corpus``."""
    return {name: entry.plan for name, entry in read_corpus(path).items()}


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file. Raises SpecError that names the file when there is none."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError
        raise SpecError(f"is no JSON: {error}", file=str(path)) from error
    if not isinstance(read, dict):
        raise SpecError("holds no JSON object", file=str(path))
    return read

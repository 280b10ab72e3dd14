"""Whether an evaluator could be asked: its key, its program, its integration. Nobody is asked for that."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .secrets import FILE, SecretsProblem, load_secrets, with_secrets

if TYPE_CHECKING:
    from ..contract.evaluators import Evaluator

_INTEGRATIONS = {"openai": "langchain_openai", "anthropic": "langchain_anthropic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """``notes`` say what is there, ``problems`` what is missing; none of them holds a value of a key."""

    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return not self.problems


def readiness(evaluator: Evaluator, root: Path, environment: Mapping[str, str]) -> Readiness:
    """What an evaluator of a contract has and lacks on this machine."""
    notes: list[str] = []
    problems: list[str] = []
    secrets: dict[str, str] = {}
    try:
        secrets = load_secrets(root, environment)
    except SecretsProblem as error:
        problems.append(str(error))
    if evaluator.type == "command":
        name = evaluator.argv[0]
        # A path with a slash is relative to the root, where the command runs.
        place = shutil.which(str(root / name) if "/" in name else name, path=environment.get("PATH"))
        (notes if place else problems).append(f"{name} is {place}" if place else f"{name} is not there")
        return Readiness(notes=tuple(notes), problems=tuple(problems))
    notes.append(f"model {evaluator.model}")
    key = evaluator.api_key_env
    if with_secrets(environment, secrets).get(key, "").strip():
        notes.append(f"{key} is set in {'the environment' if key in environment else FILE}")
    else:
        problems.append(f"{key} is not set, neither in the environment nor in {FILE}")
    integration = _INTEGRATIONS[evaluator.type]
    if find_spec(integration) is None:
        problems.append(f"{integration} is not installed: pip install {integration.replace('_', '-')}")
    return Readiness(notes=tuple(notes), problems=tuple(problems))

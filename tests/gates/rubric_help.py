"""A project with a rubric, and evaluators that say what they are told to."""

import json
import subprocess
from pathlib import Path
from typing import Any

from bound_middleware.core.redaction import Redactor
from bound_middleware.gates.contract import parse
from bound_middleware.gates.rubrics import EvaluatorFailed, Said
from bound_middleware.gates.runners.base import GateSite
from bound_middleware.gates.runners.rubric import Rubrics
from bound_middleware.gates.watch import Watch
from bound_middleware.testing import FakeClock

COMMAND = {"type": "command", "command": ["true"]}


def reply(verdict: str = "pass", **more: Any) -> str:
    return json.dumps({"verdict": verdict, "rationale": f"it says {verdict}", **more})


class Scripted:
    """Says the next text each time; an exception is raised."""

    concurrent = False

    def __init__(self, *texts: Any, cost_usd: str | None = "0.25", **usage: int) -> None:
        self.texts, self.usage, self.cost_usd, self.bundles = list(texts), usage, cost_usd, []

    @property
    def identity(self) -> dict[str, Any]:
        return {"type": "scripted"}

    def evaluate(self, bundle: str) -> Said:
        self.bundles.append(json.loads(bundle))
        text = self.texts.pop(0)
        if isinstance(text, BaseException):
            raise text
        return Said(text=text, usage=self.usage, cost_usd=self.cost_usd)


def failed(reason: str = "no answer") -> EvaluatorFailed:
    return EvaluatorFailed(reason)


def contract_of(*, evaluator: dict[str, Any] | None = None, settings: dict[str, Any] | None = None, **rubric: Any):
    entry = {"kind": "rubric", "evaluator": "judge", "rubric": "names are clear", "enforcement": "advisory"}
    return parse(
        {
            "settings": settings or {},
            "constraints": {"review": entry | rubric},
            "evaluators": {"judge": evaluator or COMMAND},
        }
    )


def site_of(root: Path, contract: Any, *, environment: dict[str, str] | None = None, goal: str | None = None):
    variables = {"PATH": "/usr/bin:/bin", **(environment or {})}
    return GateSite(
        root=root.resolve(),
        contract=contract,
        watch=Watch(root),
        environment=variables,
        redact=Redactor(variables),
        clock=FakeClock(),
        goal=goal,
    )


def prepared(root: Path, judge: Any = None, *, earlier: Any = (), environment=None, goal=None, **given: Any):
    contract = contract_of(**given)
    rubrics = Rubrics() if judge is None else Rubrics(evaluators={"judge": judge})
    site = site_of(root, contract, environment=environment, goal=goal)
    return rubrics.prepare(contract.constraints["review"], contract.evaluators["judge"], site, tuple(earlier))


def judged(root: Path, judge: Any = None, **given: Any):
    return prepared(root, judge, **given).run()


def bundle_of(root: Path, **given: Any) -> dict[str, Any]:
    case = prepared(root, Scripted(), **given)
    assert case.problem == ""
    return json.loads(case.bundle)


def git(root: Path, *words: str) -> None:
    settings = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *settings, *words], cwd=root, check=True, capture_output=True)


def put(root: Path, files: dict[str, str | bytes]) -> None:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())


def repository(root: Path, files: dict[str, str | bytes]) -> None:
    git(root, "init", "-q", "-b", "main")
    put(root, files)
    git(root, "add", "-Af")
    git(root, "commit", "-qm", "first")

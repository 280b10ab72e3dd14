"""What a run of gates says: one ``Result`` per constraint, and the ``Report`` over them. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

Verdict = Literal["pass", "fail", "pending", "uncertain", "error", "waived", "skipped"]
Phase = Literal["change", "stop", "ci", "push"]
Enforcement = Literal["required", "advisory"]
Category = Literal["constraint", "environment"]
State = Literal["passed", "passed_with_advisories", "blocked", "nothing_applicable"]
KindName = Literal["command", "metric", "artifact", "ratchet", "rubric"]

SCHEMA_VERSION = 1
#: The verdicts with which a required constraint lets the work be called done.
SATISFIED: tuple[Verdict, ...] = ("pass", "waived")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a constraint that may be retried."""

    verdict: Verdict
    message: str
    duration_ms: int
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a rubric, or a report, names. ``line`` counts from 1."""

    message: str
    file_path: str | None = None
    line: int | None = None
    suggestion: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one constraint showed.

    ``input_digest`` keys the evidence (empty where it could not be taken); ``category`` tells a violation of the
    constraint from a failure of the machine around it, which is never reused; ``blocked_by`` are the constraints
    at the root of a ``skipped`` or ``pending`` one; ``cached`` means it was not run now. All text is redacted.
    """

    constraint_id: str
    kind: KindName
    verdict: Verdict
    enforcement: Enforcement
    input_digest: str = ""
    message: str = ""
    duration_ms: int = 0
    exit_code: int | None = None
    value: float | None = None
    output_tail: str | None = None
    findings: tuple[Finding, ...] = ()
    evaluator_calls: tuple[Mapping[str, Any], ...] = ()
    cached: bool = False
    category: Category = "constraint"
    blocked_by: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def satisfied(self) -> bool:
        """Whether this result stands in nobody's way."""
        return self.verdict in SATISFIED

    @property
    def blocks(self) -> bool:
        """Whether the work is not done because of this result: it is required and not satisfied."""
        return self.enforcement == "required" and not self.satisfied

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, every field."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """The result that ``as_dict`` gave.

        Raises:
            ValueError: it is none, or holds a word that no result has.
        """
        known = _known(cls, data)
        known["findings"] = tuple(Finding(**_known(Finding, item)) for item in known.get("findings", ()))
        known["attempts"] = tuple(Attempt(**_known(Attempt, item)) for item in known.get("attempts", ()))
        for name in ("evaluator_calls", "blocked_by"):
            known[name] = tuple(known.get(name, ()))
        found = cls(**known)
        for word, words in ((found.verdict, Verdict), (found.enforcement, Enforcement), (found.category, Category)):
            if word not in get_args(words):
                raise ValueError(f"{word!r} is not one of {', '.join(get_args(words))}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One run of a phase. ``started_at`` is UTC in ISO form with a ``Z``; results are in the contract's order."""

    run_id: str
    project_root: str
    contract_digest: str
    phase: Phase
    started_at: str
    results: tuple[Result, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def state(self) -> State:
        """The one answer. A phase without any enabled constraint is ``nothing_applicable``, which is no pass."""
        if not self.results:
            return "nothing_applicable"
        if self.blocking:
            return "blocked"
        return "passed" if all(result.satisfied for result in self.results) else "passed_with_advisories"

    @property
    def passed(self) -> bool:
        """Whether something applied and nothing blocks."""
        return self.state in ("passed", "passed_with_advisories")

    @property
    def blocking(self) -> tuple[Result, ...]:
        """The results in the way. A pending advisory one is too: it may still turn out to be a finding."""
        return tuple(r for r in self.results if r.blocks or r.verdict == "pending")

    @property
    def roots(self) -> tuple[Result, ...]:
        """The blocking results that something can be done about: those that no other one caused."""
        return tuple(result for result in self.blocking if not result.blocked_by) or self.blocking

    @property
    def advisories(self) -> tuple[Result, ...]:
        """The advisory results that are not satisfied."""
        return tuple(r for r in self.results if r.enforcement == "advisory" and not r.satisfied)

    def __getitem__(self, constraint_id: str) -> Result:
        for result in self.results:
            if result.constraint_id == constraint_id:
                return result
        raise KeyError(constraint_id)

    def with_result(self, result: Result) -> Report:
        """The same report with one result replaced."""
        results = (result if r.constraint_id == result.constraint_id else r for r in self.results)
        return replace(self, results=tuple(results))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the fields and the state."""
        return {**{field.name: _plain(getattr(self, field.name)) for field in fields(self)}, "state": self.state}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """The report that ``as_dict`` gave.

        Raises:
            ValueError: it is none, or of another version.
        """
        known = _known(cls, data)
        if known.get("schema_version") != SCHEMA_VERSION or known.get("phase") not in get_args(Phase):
            raise ValueError(f"no report of version {SCHEMA_VERSION}")
        known["results"] = tuple(Result.from_dict(item) for item in known.get("results", ()))
        return cls(**known)


def _plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.as_dict()
    if isinstance(value, Finding | Attempt):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _known(kind: type, data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"no {kind.__name__}: {type(data).__name__}")
    names = {field.name for field in fields(kind)}
    missing = {f.name for f in fields(kind) if f.default is f.default_factory} - set(data)
    if missing:
        raise ValueError(f"no {kind.__name__}: {', '.join(sorted(missing))} missing")
    return {key: value for key, value in data.items() if key in names}

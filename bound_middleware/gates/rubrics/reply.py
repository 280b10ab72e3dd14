"""The strict form of a reply. Anything that is not exactly one reply is none."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from ...decision.collectors.junit import ReportError
from ...decision.collectors.report_file import parse_json
from ..values import Finding

Word = Literal["pass", "fail", "uncertain"]
REPLY_BYTES_MAX = 262_144
FINDINGS_MAX = 200
SCHEMA_VERSION = 1
_FENCED = re.compile(r"```(?:json)?[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)


class BadReply(ValueError):
    """A text that is no reply, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One judgement. ``score`` is 0 to 1, inclusive; ``metadata`` stood beside the result in an envelope."""

    verdict: Word
    rationale: str
    score: float | None = None
    findings: tuple[Finding, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


def parse_reply(text: str) -> Reply:
    """The reply that a text is: one JSON object, alone or in one markdown fence, plain or in an envelope.

    Raises:
        BadReply: anything else: words around it, two objects, a key too many or twice, NaN, a value out of range.
    """
    body = text.strip()
    if len(body.encode("utf-8", "surrogatepass")) > REPLY_BYTES_MAX:
        raise BadReply(f"the reply is larger than {REPLY_BYTES_MAX} bytes")
    fenced = _FENCED.fullmatch(body)
    body = fenced[1] if fenced is not None else body
    if not body.strip():
        raise BadReply("the reply is empty")
    try:
        data = _mapping(parse_json(body.encode("utf-8", "surrogatepass")), "the reply")
    except ReportError as error:
        raise BadReply(f"the reply is {error}") from None
    if "result" not in data and "schema_version" not in data:
        return _reply(data, {})
    _only(data, "the envelope", ("schema_version", "result", "metadata"))
    version = data.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise BadReply(f"schema_version is {version!r}, not {SCHEMA_VERSION}")
    metadata = _mapping(data.get("metadata", {}), "metadata")
    return _reply(_mapping(data.get("result"), "result"), metadata)


def _reply(data: Mapping[str, Any], metadata: Mapping[str, Any]) -> Reply:
    _only(data, "the reply", ("verdict", "rationale", "score", "findings"))
    verdict = data.get("verdict")
    if verdict not in get_args(Word):
        raise BadReply(f"verdict is {_shown(verdict)}, not one of {', '.join(get_args(Word))}")
    findings = data.get("findings", [])
    if not isinstance(findings, list) or len(findings) > FINDINGS_MAX:
        raise BadReply(f"findings is no list of at most {FINDINGS_MAX}")
    return Reply(
        verdict=cast(Word, verdict),
        rationale=_text(data.get("rationale"), "rationale"),
        score=_score(data.get("score")),
        findings=tuple(map(_finding, findings)),
        metadata=metadata,
    )


def _finding(item: Any) -> Finding:
    data = _mapping(item, "a finding")
    _only(data, "a finding", ("message", "file_path", "line", "suggestion"))
    line = data.get("line")
    if line is not None and (type(line) is not int or line < 1):
        raise BadReply(f"the line of a finding is {_shown(line)}, not a whole number from 1")
    return Finding(
        message=_text(data.get("message"), "the message of a finding"),
        file_path=None if data.get("file_path") is None else _text(data["file_path"], "file_path"),
        line=line,
        suggestion=None if data.get("suggestion") is None else _text(data["suggestion"], "suggestion"),
    )


def _score(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= 1:
        raise BadReply(f"score is {_shown(value)}, not a number from 0 to 1")
    return float(value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadReply(f"{name} is {_shown(value)}, not a text")
    # A lone surrogate is no character: nobody could store it.
    return value.encode("utf-8", "backslashreplace").decode()


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadReply(f"{name} is {_shown(value)}, not an object")
    return value


def _only(data: Mapping[str, Any], name: str, known: Iterable[str]) -> None:
    extra = sorted(set(data) - set(known))
    if extra:
        raise BadReply(f"{name} has an unknown key {_shown(extra[0])}")


def _shown(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:60] + "…"

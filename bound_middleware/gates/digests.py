"""The digests that evidence is keyed by. Every part is framed by its length: no two inputs share a digest.

ConstraintLoop joins paths and bytes without separators, so that ``{a: bc}`` and ``{ab: c}`` are one there; here
they are two.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .values import Result

_FORM = b"bound gates 1"


def framed(*parts: bytes | str) -> str:
    """SHA-256 over the parts, each preceded by its length, in hexadecimal."""
    return hashlib.sha256(_joined(part.encode() if isinstance(part, str) else part for part in parts)).hexdigest()


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


def tree_digest(files: Mapping[str, str]) -> str:
    """The digest of a tree: its paths and the digests of their contents, in the order of the paths."""
    flat = (part for path in sorted(files) for part in (os.fsencode(path), files[path].encode()))
    return hashlib.sha256(_joined(flat)).hexdigest()


def json_text(value: Any) -> str:
    """The one JSON text of a plain value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def input_digest(
    *, constraint_id: str, contract_digest: str, constraint: Any, tree: str, more: Iterable[bytes | str] = ()
) -> str:
    """What the evidence of a constraint depends on: the whole contract, its own definition, and what it watches.

    ``more`` is what one kind adds: a baseline, the bytes of an artifact, the bundle of a rubric.
    """
    return framed(_FORM, constraint_id, contract_digest, json_text(constraint), tree, *more)


def evidence_digest(result: Result) -> str:
    """What a person who waives or acknowledges has looked at; not how long it took, nor whether it was cached."""
    seen = (
        result.constraint_id,
        result.input_digest,
        result.verdict,
        result.message,
        json_text([result.exit_code, result.value, result.category]),
        result.output_tail or "",
        json_text([[f.message, f.file_path, f.line, f.suggestion] for f in result.findings]),
    )
    return framed(_FORM, *(part.encode("utf-8", "surrogatepass") for part in seen))

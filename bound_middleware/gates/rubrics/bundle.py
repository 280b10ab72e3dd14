"""What an evaluator is shown: one JSON object of a limited size, without secrets.

The diff gets at most a quarter of the limit, earlier results another; files fill the rest, the likeliest first,
each whole or not at all. What does not fit is named. If it is still too much, files go first, then the diff, then
the results.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..contract.kinds import Rubric
from ..values import Result
from .disclosure import Withheld, withheld_name
from .inside import read_inside, real_path, text_of
from .work_diff import WorkDiff

SCHEMA_VERSION = 1
DIFF_SHARE, RESULTS_SHARE, GOAL_SHARE, OMITTED_SHARE = 4, 4, 8, 16
_SOURCE_FOLDERS = frozenset({"src", "lib", "app"})
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+|\w+")
_CUT = "\n[cut]\n"


class BundleTooLarge(Exception):
    """The rubric and its goal alone do not fit into the limit."""


def make_bundle(
    *,
    rubric: Rubric,
    root: Path,
    paths: Iterable[str],
    goal: str | None,
    work: WorkDiff,
    earlier: Sequence[Result],
    withheld: Withheld,
    redact: Callable[[str], str],
    bytes_max: int,
) -> str:
    """The bundle as JSON in at most ``bytes_max`` bytes of UTF-8.

    Args:
        paths: the files that the rubric includes, relative to the root.
        earlier: the results of what ran before; how long that took is left out.
        redact: takes secrets out of a text.

    Raises:
        BundleTooLarge: there is no room for the rubric itself.
    """
    told = [_told(result, redact) for result in earlier]
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "constraint_id": rubric.id,
        "rubric": rubric.rubric,
        "goal": _cut(redact(goal), bytes_max // GOAL_SHARE) if goal else None,
        "diff": _cut(redact(work.text), bytes_max // DIFF_SHARE),
        "deterministic_results": _shortened(told, bytes_max // RESULTS_SHARE),
        "files": {},
        "omitted_files": [],
    }
    ranked = sorted(paths, key=_rank(root, f"{goal or ''} {rubric.rubric}", work.changed))
    room = bytes_max - _size(data) - bytes_max // OMITTED_SHARE
    files, omitted = {}, []
    for path in ranked:
        text = _disclosed(root, path, work, withheld, redact, room)
        cost = 0 if text is None else _size(path) + _size(text) + 2
        if text is None or cost > room:
            omitted.append(path)
        else:
            files[path], room = text, room - cost
    data["files"] = files
    data["omitted_files"] = _named([*work.withheld, *omitted], bytes_max // OMITTED_SHARE)
    _fit(data, bytes_max)
    return _text(data)


def _rank(root: Path, wanted: str, changed: frozenset[str]) -> Callable[[str], tuple[Any, ...]]:
    words = _words(wanted)

    def rank(path: str) -> tuple[Any, ...]:
        try:
            modified_ns = os.stat(root / path, follow_symlinks=False).st_mtime_ns
        except OSError:
            modified_ns = 0
        folder = path.split("/")[0] in _SOURCE_FOLDERS
        return (-len(words & _words(path)), path not in changed, not folder, -modified_ns, path)

    return rank


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text) if len(word) > 2}


def _disclosed(
    root: Path, path: str, work: WorkDiff, withheld: Withheld, redact: Callable[[str], str], room: int
) -> str | None:
    """The text of a file as it may leave; ``None`` where it may not, is none, or cannot fit."""
    try:
        if os.stat(f"{root}/{path}").st_size > room:  # most files of a large project: nothing else is asked of them
            return None
    except OSError:
        return None
    real = real_path(root, path)
    if real is None or path in work.withheld or withheld_name(path) or withheld_name(real):
        return None
    data = read_inside(root, real, bytes_max=max(room, 0))
    text = text_of(data) if data is not None else None
    if text is None or withheld.covers(text) or redact(path) != path:
        return None
    return redact(text)


def _told(result: Result, redact: Callable[[str], str]) -> dict[str, Any]:
    return {
        "constraint_id": result.constraint_id,
        "kind": result.kind,
        "verdict": result.verdict,
        "enforcement": result.enforcement,
        "input_digest": result.input_digest,
        "message": redact(result.message),
        "exit_code": result.exit_code,
        "value": result.value,
        "output_tail": None if result.output_tail is None else redact(result.output_tail),
        "findings": [
            {"message": redact(f.message), "file_path": f.file_path, "line": f.line} for f in result.findings
        ],
    }


def _named(paths: Sequence[str], bytes_max: int) -> list[str]:
    """The names, but those of secrets, as many as have room; the last entry counts the others."""
    found: list[str] = []
    left = bytes_max - 40
    names = sorted({_printable(path) for path in paths})
    for number, name in enumerate(names):
        left -= _size(name) + 2
        if left < 0:
            return [*found, f"and {len(names) - number} more"]
        found.append(name)
    return found


def _shortened(results: list[dict[str, Any]], bytes_max: int) -> list[dict[str, Any]]:
    """The results with what there is room for of what each said: the end of its output, its first findings."""
    for chars in (None, 16_000, 4_000, 1_000, 200, 0):
        if _size(results) <= bytes_max:
            break
        for result in results:
            tail = result["output_tail"]
            result["output_tail"] = tail[-chars:] if chars and tail else tail if chars is None else None
            result["message"] = result["message"][: max(chars or 4_000, 80)]
            result["findings"] = result["findings"][: 0 if chars == 0 else 20]
    return results


def _fit(data: dict[str, Any], bytes_max: int) -> None:
    """Gives up files, then lines of the diff, then what results said, then names, until the rest fits."""
    while _size(data) > bytes_max and data["files"]:
        data["files"].popitem()
    while _size(data) > bytes_max and data["diff"]:
        data["diff"] = _cut(data["diff"], len(data["diff"].encode()) // 2) if len(data["diff"]) > 100 else ""
    if _size(data) > bytes_max:
        data["deterministic_results"] = _shortened(data["deterministic_results"], 0)
        data["omitted_files"] = [f"{len(data['omitted_files'])} more"] if data["omitted_files"] else []
    if _size(data) > bytes_max:
        raise BundleTooLarge(f"the rubric does not fit into {bytes_max} bytes (evaluation_bundle_limit)")


def _cut(text: str, bytes_max: int) -> str:
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= bytes_max:
        return text
    return data[: max(0, bytes_max - len(_CUT))].decode("utf-8", "ignore") + _CUT


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _text(value: Any) -> str:
    return _printable(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False))


def _size(value: Any) -> int:
    return len(_text(value).encode())

"""A specification that starts from another file, and may only tighten it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import SpecError
from .compiled import overlaid
from .diff import Change, changes
from .forms import validated
from .source import Source
from .tree import SpecTree

if TYPE_CHECKING:
    from .bound_spec import BoundSpec

#: A chain that no reviewer follows any more.
MAX_FILES = 10
Marks = tuple[tuple[str, str], ...]


def extended(
    tree: SpecTree,
    source: Source,
    *,
    root: Path | None,
    load: Callable[[Path], BoundSpec],
    below: tuple[Path, ...],
) -> tuple[SpecTree, Marks]:
    """The tree laid over the file that it extends, and what is wider than there, with reasons.

    Raises:
        SpecError: no such file, a circle, a bound that is wider and not marked, or a mark that marks nothing.
    """
    if tree.extends is None:
        raise _error(source, "loosen", "there is no file to be wider than", allowed="loosen together with extends")
    if root is None:
        raise _error(source, "extends", "a path is relative to a file, and this is none", allowed="load, or root=")
    path = root / tree.extends
    if path.resolve() in below:
        raise _error(source, "extends", f"a circle of files: {_chain((*below, path.resolve()))}")
    if len(below) >= MAX_FILES:
        raise _error(source, "extends", f"more than {MAX_FILES} files")
    if not path.is_file():
        raise _error(source, "extends", f"there is no file {str(path)!r}")
    parent = load(path)
    data = laid_over(parent, tree)
    merged = validated(Source(data=data, file=source.file, lines=source.lines))
    wider = {change.key: change for change in changes(parent.tree, merged) if change.verdict == "loosened"}
    marks = {mark.key: mark.reason for mark in tree.loosen}
    for key, change in wider.items():
        if key not in marks:
            raise _wider(source, change, tree.extends)
    for position, mark in enumerate(tree.loosen):
        if mark.key not in wider:
            raise _error(
                source,
                f"loosen.{position}.key",
                f"{mark.key!r} is not wider than in {tree.extends}",
                allowed=", ".join(wider) or "no mark: nothing is wider",
            )
    return merged, tuple(dict((*parent.loosened, *marks.items())).items())


def laid_over(parent: BoundSpec, tree: SpecTree) -> dict[str, Any]:
    """The canonical data of the parent with what the tree says laid over it."""
    own = tree.model_dump(exclude_unset=True, exclude={"extends", "loosen"})
    data: dict[str, Any] = overlaid(parent.canonical(), own)
    for part in ("constraints", "loops", "evaluators", "settings"):
        if part in own:  # a gate is one statement: replaced by name, never mixed
            data[part] = {**(parent.canonical().get(part) or {}), **own[part]}
    return data


def _wider(source: Source, change: Change, base: str) -> SpecError:
    return _error(
        source,
        change.key,
        f"{change.after} is wider than {change.before} in {base}",
        allowed=f"a tighter value, or loosen: [{{key: {change.key}, reason: ...}}]",
    )


def _error(source: Source, key: str, message: str, *, allowed: str | None = None) -> SpecError:
    path = tuple(int(part) if part.isdigit() else part for part in key.split("."))
    return SpecError(message, key=key, allowed=allowed, file=source.file, line=source.line(path))


def _chain(paths: tuple[Path, ...]) -> str:
    return " -> ".join(path.name for path in paths)

"""Plain data out of the event stream of a YAML parser."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import yaml

from ..core.errors import SpecError
from .source import MAX_DEPTH, MAX_NODES, Path, scalar

MAX_ANCHORS = 200
_PLAIN_TAGS = {"!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_TEXT_TAGS = {"!", "tag:yaml.org,2002:str"}


class Builder:
    """Builds one document; ``lines`` has the line of each key and list item, from 1.

    Aliases are copied, and each copy counts, so that a file cannot unfold to more than ``MAX_NODES`` values.
    """

    def __init__(self, events: Iterator[Any], file: str | None) -> None:
        self._events, self._file, self._nodes = events, file, 0
        self._reused = 0
        self._anchors: dict[str, tuple[Any, dict[Path, int], int]] = {}
        self._open: set[str] = set()
        self.lines: dict[Path, int] = {}

    def document(self) -> Any:
        """The data of the only document; ``None`` when there is none."""
        documents: list[Any] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if documents:
                    raise self._error("a specification is one document", event)
                documents.append(self._node(next(self._events), ()))
        return documents[0] if documents else None

    def _node(self, event: Any, path: Path) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event, path)
        self._count(1, event, path)
        if event.tag is not None and event.tag not in _PLAIN_TAGS:
            raise self._error(f"the tag {event.tag!r} builds an object; a specification is plain data", event)
        anchor, before = event.anchor, self._nodes
        if anchor is not None:
            self._reuse(event, path)
            self._anchors.pop(anchor, None)
            self._open.add(anchor)
        value = self._value(event, path)
        if anchor is not None:
            self._open.discard(anchor)
            below = {at[len(path) :]: line for at, line in self.lines.items() if at[: len(path)] == path != at}
            self._anchors[anchor] = (value, below, self._nodes - before + 1)
        return value

    def _value(self, event: Any, path: Path) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            is_plain = event.style is None and event.tag not in _TEXT_TAGS
            return scalar(event.value) if is_plain else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            for item in self._until(yaml.SequenceEndEvent):
                here = (*path, len(items))
                self.lines[here] = _line(item)
                items.append(self._node(item, here))
            return items
        return self._mapping(path)

    def _mapping(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        merged_lines: dict[Path, int] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._error("a key is a text", event, path)
            key, line = event.value, _line(event)
            if key == "<<" and event.style is None:
                self._reuse(event, path)
                for base, lines in self._bases(next(self._events), path):
                    merged = {**base, **merged}
                    merged_lines = {**lines, **merged_lines}
                continue
            here = (*path, key)
            if key in found:
                first = self.lines[here]
                raise SpecError(
                    f"the key is written twice, first in line {first}", key=dotted(here), file=self._file, line=line
                )
            self.lines[here] = line
            found[key] = self._node(next(self._events), here)
        for at, line in merged_lines.items():
            if at[0] not in found:
                self.lines[(*path, *at)] = line
        return {**{k: v for k, v in merged.items() if k not in found}, **found}

    def _bases(self, event: Any, path: Path) -> Iterator[tuple[dict[str, Any], dict[Path, int]]]:
        at = (*path, "<<")
        value = self._node(event, at)
        lines = {key[len(at) :]: self.lines.pop(key) for key in [k for k in self.lines if k[: len(at)] == at != k]}
        self.lines.pop(at, None)
        bases = value if isinstance(value, list) else [value]
        for position, base in enumerate(bases):
            if not isinstance(base, dict):
                raise self._error("<< merges a mapping, or a list of mappings", event, path)
            below = {k[1:]: n for k, n in lines.items() if k[0] == position} if isinstance(value, list) else lines
            yield base, {k: n for k, n in below.items() if k}

    def _aliased(self, event: Any, path: Path) -> Any:
        if event.anchor in self._open:
            raise self._error(f"the anchor {event.anchor!r} contains itself", event, path)
        if event.anchor not in self._anchors:
            raise self._error(f"there is no anchor {event.anchor!r}", event, path)
        value, below, size = self._anchors[event.anchor]
        self._count(size, event, path)
        for at, line in below.items():
            self.lines[(*path, *at)] = line
        return copy.deepcopy(value)

    def _reuse(self, event: Any, path: Path) -> None:
        self._reused += 1
        if self._reused > MAX_ANCHORS:
            raise self._error(f"more than {MAX_ANCHORS} anchors and merges", event, path)

    def _until(self, end: type) -> Iterator[Any]:
        while not isinstance(event := next(self._events), end):
            yield event

    def _count(self, nodes: int, event: Any, path: Path) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise self._error("too large or too deep for a specification", event, path[:6])

    def _error(self, message: str, event: Any, path: Path = ()) -> SpecError:
        return SpecError(message, key=dotted(path) or None, file=self._file, line=_line(event))


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def dotted(path: Path) -> str:
    """The path as it is shown: ``bounds.exposure.0.max``."""
    return ".".join(map(str, path))

"""``BoundSpec``: one reviewed statement of what an agent may do, as an immutable value."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Never

from ..core.errors import SpecError
from ..core.limits import Limits
from .compiled import Window, compiled, effective, windows
from .forms import as_bytes, validated, written
from .keys import names, nearest
from .source import MAX_CHARS, Source, parse, plain
from .tree import Bounds, SpecTree

_SHORT = {
    "iterations": ("bounds", "iteration_limit", "max"),
    "tokens": ("bounds", "token_budget", "total"),
    "usd": ("bounds", "cost_budget", "total_usd"),
    "seconds": ("bounds", "time_budget", "wall_clock_seconds"),
    "tools": ("bounds", "action_surface", "allowed"),
    "approve": ("bounds", "reversibility_envelope", "requires_human_approval"),
}


class UnknownKeyword(SpecError, TypeError):
    """A keyword that the short form does not have: a wrong specification and a wrong call."""

    code = "unknown_keyword"


class BoundSpec:
    """What an agent may do: immutable, hashable, safe to share between threads, picklable.

    The keywords are the short form of the file; ``None`` is not bounded, ``0`` allows nothing:

    Args:
        iterations: model calls in a run.
        tokens: input and output tokens of all model calls.
        usd: cost of all calls: ``"0.50"``, ``"$0.50"``, int, ``Decimal``, or a float by its shortest form.
        seconds: the wall clock; fractions down to a millisecond.
        tools: the only tools that may run, besides those in ``approve``.
        approve: the tools that wait for a person.

    Raises:
        SpecError: nonsense in a value. For an unknown keyword it is also a ``TypeError``.
    """

    __slots__ = ("_bytes", "_compiled", "_fingerprint", "_loosened", "_path", "_source", "_tree")
    _bytes: bytes
    _compiled: dict[str | None, Limits]
    _fingerprint: str
    _loosened: tuple[tuple[str, str], ...]
    _path: Path | None
    _source: Source
    _tree: SpecTree

    def __init__(
        self,
        *,
        iterations: int | None = None,
        tokens: int | None = None,
        usd: str | int | float | Decimal | None = None,
        seconds: int | float | Decimal | None = None,
        tools: Iterable[str] | None = None,
        approve: Iterable[str] | None = None,
        **unknown: Never,
    ) -> None:
        for keyword in unknown:
            raise _unknown_keyword(keyword)
        given: dict[str, Any] = {"iterations": iterations, "tokens": tokens, "usd": usd, "seconds": seconds}
        data: dict[str, Any] = {}
        for keyword, value in {**given, "tools": tools, "approve": approve}.items():
            if value is not None:
                at = data
                for part in _SHORT[keyword][:-1]:
                    at = at.setdefault(part, {})
                at[_SHORT[keyword][-1]] = value
        try:
            plainly = plain(data)
            for keyword in ("tools", "approve"):
                _only_names(plainly, _SHORT[keyword])
            self._set(Source(data=plainly), path=None)
        except SpecError as error:
            error.key = _short_key(error.key)
            raise

    @classmethod
    def of(cls, spec: BoundSpec | str | os.PathLike[str] | Mapping[str, Any]) -> BoundSpec:
        """The specification itself, or the one that a path or a mapping stands for.

        Raises:
            SpecError: anything else, or a wrong specification.
        """
        if isinstance(spec, BoundSpec):
            return spec
        if isinstance(spec, Mapping):
            return cls.from_dict(spec)
        if isinstance(spec, str | os.PathLike):
            return cls.load(spec)
        raise SpecError(
            f"a {type(spec).__name__} is no specification",
            key="spec",
            value=spec,
            allowed="a BoundSpec, the path of a file, or a dict",
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BoundSpec:
        """The specification in a YAML or JSON file, with everything that it extends.

        Raises:
            SpecError: the file cannot be read or is wrong; with the line and the key.
        """
        return cls._loaded(Path(path), ())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, root: str | os.PathLike[str] | None = None) -> BoundSpec:
        """The specification with the shape of the file; ``root`` is the folder that ``extends`` starts from.

        Raises:
            SpecError: a wrong specification, or ``extends`` without a ``root``.
        """
        return cls._built(Source(data=plain(data)), path=None, root=Path(root) if root is not None else None)

    @classmethod
    def parse(cls, text: str, *, root: str | os.PathLike[str] | None = None, file: str | None = None) -> BoundSpec:
        """The specification in a YAML or JSON text; ``file`` is the name that errors give it.

        Raises:
            SpecError: a wrong specification; with the line and the key.
        """
        return cls._built(parse(text, file=file), path=None, root=Path(root) if root is not None else None)

    @classmethod
    def _loaded(cls, path: Path, below: tuple[Path, ...]) -> BoundSpec:
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(MAX_CHARS + 1)
        except UnicodeDecodeError:
            raise SpecError("the file cannot be read: it is not UTF-8", file=str(path)) from None
        except (OSError, ValueError) as error:  # ValueError: the name has a null character
            reason = getattr(error, "strerror", None) or str(error)
            raise SpecError(f"the file cannot be read: {reason}", file=str(path)) from None
        return cls._built(parse(text, file=str(path)), path=path, root=path.parent, below=(*below, path.resolve()))

    @classmethod
    def _built(
        cls, source: Source, *, path: Path | None, root: Path | None, below: tuple[Path, ...] = ()
    ) -> BoundSpec:
        spec = cls.__new__(cls)
        spec._set(source, path=path, root=root, below=below)
        return spec

    def _set(
        self, source: Source, *, path: Path | None, root: Path | None = None, below: tuple[Path, ...] = ()
    ) -> None:
        tree = validated(source)
        marks: tuple[tuple[str, str], ...] = ()
        if tree.extends is not None or tree.loosen:
            from .extends import extended

            tree, marks = extended(
                tree, source, root=root, load=lambda base: BoundSpec._loaded(base, below), below=below
            )
        canonical = as_bytes(written(tree))
        values = {
            "_tree": tree,
            "_source": source,
            "_path": path,
            "_loosened": marks,
            "_compiled": {name: compiled(effective(tree, name)) for name in (None, *tree.agents)},
            "_bytes": canonical,
            "_fingerprint": f"sha256:{hashlib.sha256(canonical).hexdigest()}",
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def agent(self) -> str | None:
        """The name of the agent, when the file gives one."""
        return self._tree.agent

    @property
    def path(self) -> Path | None:
        """The file it was loaded from."""
        return self._path

    @property
    def file(self) -> str | None:
        """The name that errors give the file."""
        return self._source.file

    @property
    def agents(self) -> tuple[str, ...]:
        """The (sub-)agents that ``agents`` says something of, sorted."""
        return tuple(sorted(self._tree.agents))

    @property
    def fingerprint(self) -> str:
        """``sha256:`` and the digest of ``canonical_bytes()``: equal for equal specifications, in every process."""
        return self._fingerprint

    @property
    def loosened(self) -> tuple[tuple[str, str], ...]:
        """What is wider than in the file that it extends, as (key, reason)."""
        return self._loosened

    @property
    def windows(self) -> tuple[Window, ...]:
        """The ceilings of ``fleet``, which many sessions share."""
        return windows(self._tree)

    @property
    def bounds_anything(self) -> bool:
        """Whether any axis of any agent, or of the fleet, is bounded."""
        from .rows import bound_axes

        return bool(bound_axes(self)) or bool(self.windows)

    @property
    def tree(self) -> SpecTree:
        """The validated file, ``extends`` resolved. Read it only: its form may change."""
        return self._tree

    def limits(self, agent: str | None = None) -> Limits:
        """The limits of the agent itself, or of a (sub-)agent with what ``agents`` says of it."""
        return self._compiled.get(agent, self._compiled[None])

    def bounds(self, agent: str | None = None) -> Bounds:
        """The validated ``bounds`` section, for an agent as in ``limits``."""
        return effective(self._tree, agent)

    def own_bounds(self, agent: str | None = None) -> Bounds:
        """What ``agents`` says of a (sub-)agent alone; ``bounds`` itself where it says nothing."""
        return self._tree.agents.get(agent, self._tree.bounds) if agent is not None else self._tree.bounds

    def section(self, name: str) -> dict[str, Any] | None:
        """A copy of a section of the file in its canonical form, with defaults for ``decision``.

        ``None`` when the file does not have it.
        """
        if name == "decision" and self._tree.decision is not None:
            return self._tree.decision.model_dump()
        found: dict[str, Any] | None = self.canonical().get(name)
        return found

    def line(self, key: str) -> int | None:
        """The line of a key such as ``bounds.token_budget.total`` in the file, from 1."""
        path = tuple(int(part) if part.isdigit() else part for part in key.split("."))
        return self._source.line(path)

    def canonical(self) -> dict[str, Any]:
        """The file's shape as JSON data: ``extends`` resolved, defaults left out, lists of names sorted.

        Money is a decimal text, which no reader rounds. ``from_dict`` of it is an equal specification.
        """
        import json

        found: dict[str, Any] = json.loads(self._bytes)
        return found

    def canonical_bytes(self) -> bytes:
        """``canonical()`` as ASCII JSON with sorted keys and no spaces: what the fingerprint is taken of."""
        return self._bytes

    def unenforced_prose(self, agent: str | None = None) -> tuple[str, ...]:
        """The sentences that no mechanism enforces, in the order of the file."""
        from .attach import unenforced

        return tuple(item.text for item in unenforced(self.bounds(agent)))

    def check_tools(self, tool_names: Iterable[str], agent: str | None = None) -> None:
        """Checks that the specification fits an agent with these tools.

        Raises:
            SpecError: a name that no tool has, or a ban or an approval in prose that nothing enforces while
                ``action_surface.allowed`` is not a closed list.
        """
        from .attach import check_tools

        check_tools(self, frozenset(tool_names), agent)

    def __eq__(self, other: object) -> bool:
        return self._bytes == other._bytes if isinstance(other, BoundSpec) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a BoundSpec does not change; make another one")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError("a BoundSpec does not change; make another one")

    def __reduce__(self) -> tuple[Callable[..., BoundSpec], tuple[Any, ...]]:
        return (_restored, (self._bytes, self._path, self._loosened))

    def __repr__(self) -> str:
        name = f"{self.agent!r}, " if self.agent else ""
        return f"<BoundSpec {name}{self.fingerprint[:19]}>"


def _unknown_keyword(keyword: str) -> UnknownKeyword:
    from .faults import MEANT

    back = {name: short for short, path in _SHORT.items() for name in path[1:]}
    shorts = {name: back.get(home, home) for name, home in MEANT.items()} | back | {name: name for name in _SHORT}
    close = nearest(keyword, [name for name, short in shorts.items() if short in _SHORT])
    return UnknownKeyword(
        "unknown keyword" if keyword != "bounds" else "the shape of the file is given to BoundSpec.from_dict",
        key=keyword,
        allowed=", ".join(_SHORT),
        nearest=shorts[close] if close is not None else None,
    )


def _only_names(data: dict[str, Any], path: tuple[str, ...]) -> None:
    """A call has names; notes and sentences are for the file."""
    *parents, last = path
    for part in parents:
        data = data.get(part, {})
    if last in data:
        try:
            names(data[last])
        except SpecError as error:
            error.key = ".".join(path)
            raise


def _short_key(key: str | None) -> str | None:
    for short, path in _SHORT.items():
        prefix = ".".join(path)
        if key is not None and (key == prefix or key.startswith(f"{prefix}.")):
            return f"{short}{key[len(prefix) :]}"
    return key


def _restored(canonical: bytes, path: Path | None, loosened: tuple[tuple[str, str], ...]) -> BoundSpec:
    import json

    spec = BoundSpec.from_dict(json.loads(canonical))
    object.__setattr__(spec, "_path", path)
    object.__setattr__(spec, "_loosened", loosened)
    return spec

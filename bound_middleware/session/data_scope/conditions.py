"""What the metadata of a document must say for one scope, without an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.limits import Plain
from .agreed import Agreed
from .errors import OutsideScope
from .scope import DataScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """For each key the values that a document may have; a document without the key has none of them.

    ``own`` are the values that a document gets when it is written: an exception opens reads alone.
    """

    allowed: Mapping[str, tuple[Plain, ...]] = field(default_factory=dict)
    own: Mapping[str, tuple[Plain, ...]] = field(default_factory=dict)
    agreed: Mapping[tuple[str, str], Agreed] = field(default_factory=dict)

    def hold(self, metadata: Mapping[str, Any]) -> bool:
        return all(any(_same(metadata.get(key), one) for one in values) for key, values in self.allowed.items())

    def crossings(self, metadata: Mapping[str, Any]) -> Iterator[Agreed]:
        """The exceptions without which a document would not be given."""
        for (key, value), line in self.agreed.items():
            if metadata.get(key) == value:
                yield line

    def stamped(self, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
        """The metadata of a document that is written: what it leaves open is the scope's.

        Raises:
            OutsideScope: it says something else.
        """
        stamped = dict(metadata or {})
        for key, values in self.own.items():
            if key not in stamped and len(values) == 1:
                stamped[key] = values[0]
            if not any(_same(stamped.get(key), one) for one in values):
                raise OutsideScope(f"a document whose {key!r} is not the scope's cannot be written")
        return stamped


def conditions_of(scope: DataScope, *, tenant_key: str = "tenant", user_key: str = "user") -> Conditions:
    """What the scope asks of documents.

    Raises:
        OutsideScope: a tenant or user is declared and not known.
    """
    if scope.unknown:
        raise OutsideScope(*scope.unknown)
    allowed: dict[str, tuple[Plain, ...]] = dict(scope.metadata)
    own = dict(allowed)
    agreed: dict[tuple[str, str], Agreed] = {}
    for kind, key in (("tenant", tenant_key), ("user", user_key)):
        if kind not in scope.bound:
            continue
        name = scope.owner(kind)
        if name not in own.get(key, (name,)):
            raise OutsideScope(f"the scope declares documents of another {kind}")
        others = {to: line for line in scope.agreed if (to := line.named(kind)) is not None}  # type: ignore[arg-type]
        own[key], allowed[key] = (name,), (name, *(to for to in others if to != name))
        agreed |= {(key, to): line for to, line in others.items() if to != name}
    return Conditions(allowed=allowed, own=own, agreed=agreed)


def _same(found: object, wanted: Plain) -> bool:
    return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted

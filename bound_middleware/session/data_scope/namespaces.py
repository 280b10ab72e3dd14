"""Where a namespace of a store lies for one scope: arithmetic on labels, without a store.

Whoever uses the store names a namespace; the scope says where that is. Memory belongs to an identity (the tenant,
the user, the session, as far as they are declared), and its labels come first: ``("memories",)`` of the tenant acme
is ``("acme", "memories")``. A namespace that names the own identity already stays where it is. Where
``store_namespaces`` are declared nothing else exists; ``{tenant}``, ``{user}`` and ``{session}`` in them stand for
the identity, so that ``memories/{user}`` is kept in that order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .agreed import Agreed, agreed_namespace
from .scope import DataScope

Labels = tuple[str, ...]
_PLACEHOLDER = re.compile(r"\{(tenant|user|session)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A part of the store: what the caller calls it, where it is, and the exception that opens it, if one does."""

    named: Labels
    real: Labels
    agreed: Agreed | None = None

    def real_of(self, named: Labels) -> Labels:
        return (*self.real, *named[len(self.named) :])

    def named_of(self, real: Labels) -> Labels | None:
        """What the caller calls a namespace of the store; ``None`` when it is not in this part."""
        if real[: len(self.real)] != self.real:
            return None
        return (*self.named, *real[len(self.real) :])


class Namespaces:
    """The parts of a store that a scope opens."""

    __slots__ = ("_agreed", "_closed", "_identity", "_unknown", "places")

    def __init__(self, scope: DataScope) -> None:
        known = {"tenant": scope.tenant, "user": scope.user}
        if scope.session is not None:
            known["session"] = f"session={scope.session}"
        labels = {kind: label_of(name) for kind, name in known.items() if name is not None}
        bound = [kind for kind in labels if kind in scope.bound or kind == "session"]
        self._identity: Labels = tuple(labels[kind] for kind in bound)
        own = dict(zip(bound, self._identity, strict=True))
        self._agreed, self._unknown = scope.agreed, scope.unknown
        self._closed = scope.namespaces is not None
        given = () if scope.unknown else ((),) if scope.namespaces is None else scope.namespaces
        places = (_declared(template, labels, own, scope.literal) for template in given)
        self.places: tuple[Place, ...] = tuple(place for place in places if place is not None)

    def place_of(self, named: Labels, *, read: bool) -> Place | None:
        """The part that a namespace is in; an agreed exception is one for reads alone."""
        if self._unknown:
            return None
        own = max(
            (place for place in self.places if named[: len(place.named)] == place.named),
            key=lambda place: len(place.named),
            default=None,
        )
        if own is not None and self._closed:
            return own
        identity = self._identity
        if own is not None and identity and named[: len(identity)] == identity:
            return Place(named=identity, real=identity)
        line = agreed_namespace(self._agreed, named)
        if line is None:
            return own
        return Place(named=named, real=named, agreed=line) if read else None

    def below(self, named: Labels) -> tuple[Place, ...]:
        """The parts that a read of everything below a namespace covers."""
        place = self.place_of(named, read=True)
        if place is not None:
            return (Place(named=named, real=place.real_of(named), agreed=place.agreed),)
        return tuple(place for place in self.places if place.named[: len(named)] == named)


def _declared(
    template: Labels, labels: dict[str, str], own: dict[str, str], literal: frozenset[str]
) -> Place | None:
    """Where a declared namespace is; ``None`` when it names somebody who is not known."""
    if any(kind not in labels for label in template for kind in _PLACEHOLDER.findall(label)):
        return None
    named = tuple(_PLACEHOLDER.sub(lambda found: labels[found[1]], label) for label in template)
    identity = tuple(own.values())
    if named[: len(identity)] == identity:
        return Place(named=named, real=named)
    said = {kind for label in template for kind in _PLACEHOLDER.findall(label)}
    said |= {kind for kind in own if kind in literal and labels[kind] in template}
    return Place(named=named, real=(*(label for kind, label in own.items() if kind not in said), *named))


def matches(condition: str, path: Iterable[str], namespace: Labels) -> bool:
    """Whether a namespace has this prefix or suffix, in which ``*`` stands for any label."""
    wanted = tuple(path)
    if len(wanted) > len(namespace):
        return False
    part = namespace[: len(wanted)] if condition == "prefix" else namespace[len(namespace) - len(wanted) :]
    return all(one in ("*", other) for one, other in zip(wanted, part, strict=True))


def label_of(name: str) -> str:
    """A name as one label of a namespace. Labels have no dots: some stores join them with one."""
    for character in ("%", ".", "\0"):
        name = name.replace(character, f"%{ord(character):02X}")
    return name

"""The data scope of a session: one value that goes with each call and is enforced where the data is.

What is declared is closed: a tenant that is declared and not known, or known to be another one, allows nothing.
What is not declared is not bounded.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import SpecError
from ...core.limits import ArgumentLimit, Limits, Plain
from ...core.redaction import Redactor
from .. import scope as attribution
from .agreed import Agreed
from .errors import OutsideScope
from .paths import Roots
from .redaction import redactor

if TYPE_CHECKING:
    from ..session import BoundSession
    from .faults import Finding

Rules = tuple[tuple[str, str, str, ArgumentLimit], ...]
#: The value of ``tenant`` and ``user`` that stands for whoever the session is opened for.
OF_THE_SESSION = "session"
#: The kinds of arguments that this package judges.
KINDS = ("path", "tenant", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataScope:
    """What one session may read and write.

    ``tenant`` and ``user`` are whose data it is (``None``: nobody was named); ``bound`` says which of them are
    declared, and ``unknown`` why nothing is allowed, in words. ``session`` is set where memory of other sessions
    is closed. ``roots`` is ``None`` where paths are not bounded.
    """

    tenant: str | None = None
    user: str | None = None
    session: str | None = None
    bound: frozenset[str] = frozenset()
    literal: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    roots: Roots | None = None
    namespaces: tuple[tuple[str, ...], ...] | None = None
    metadata: tuple[tuple[str, tuple[Plain, ...]], ...] = ()
    agreed: tuple[Agreed, ...] = ()
    no_external_index_read: bool = False
    rules: Rules = ()
    redact: Redactor = field(default_factory=Redactor)

    @property
    def bounds_stores(self) -> bool:
        return self.namespaces is not None or bool(self.bound) or self.session is not None

    @property
    def bounds_retrieval(self) -> bool:
        return bool(self.metadata or self.bound)

    def owner(self, kind: str) -> str:
        """The tenant or the user, for a query that must name one.

        Raises:
            OutsideScope: nobody was named, so that there is no answer that reads nobody else's data.
        """
        name = {"tenant": self.tenant, "user": self.user}[kind]
        if self.unknown or name is None:
            raise OutsideScope(*(self.unknown or (f"the session is opened for no {kind}",)))
        return name

    def examine(self, tool: str, args: Any) -> Finding:
        """What of the arguments of a call is outside, and which agreed exceptions it uses."""
        from .faults import examine

        return examine(self, tool, args)

    def reads_disk(self, tool: str) -> bool:
        """Whether judging a call of the tool looks at the file system."""
        return self.roots is not None and any(
            row[0] == tool and row[2] == "kind" and row[3] == "path" for row in self.rules
        )


def scope_from(
    limits: Limits,
    owner: Mapping[str, str],
    *,
    session_id: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    rules: Rules | None = None,
) -> DataScope:
    """The scope that limits declare for an owner; relative roots start at ``folder``, or where this process is."""
    owners: dict[str, str | None] = {}
    unknown = []
    declared = {"tenant": limits.tenant, "user": limits.user}
    for kind, name in declared.items():
        given = owner.get(kind)
        owners[kind] = given if name in (None, OF_THE_SESSION) else name
        if name == OF_THE_SESSION and given is None:
            unknown.append(f"the session is opened for no {kind}")
        elif name not in (None, OF_THE_SESSION) and given not in (None, name):
            unknown.append(f"the session is opened for another {kind}")
    return DataScope(
        tenant=owners["tenant"],
        user=owners["user"],
        session=session_id if limits.no_cross_session_memory_read else None,
        bound=frozenset(kind for kind, name in declared.items() if name is not None),
        literal=frozenset(kind for kind, name in declared.items() if name not in (None, OF_THE_SESSION)),
        unknown=tuple(unknown),
        roots=None
        if limits.roots is None
        else Roots(limits.roots, folder=os.getcwd() if folder is None else folder),
        namespaces=limits.store_namespaces,
        metadata=limits.metadata,
        agreed=tuple(Agreed(to=to, reason=reason) for to, reason in limits.cross_scope),
        no_external_index_read=limits.no_external_index_read,
        rules=tuple(row for row in (limits.argument_rules if rules is None else rules) if row[2] == "kind"),
        redact=redactor(limits.redact),
    )


_kept: weakref.WeakKeyDictionary[BoundSession, DataScope] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def scope_of(session_or_runtime: Any = None) -> DataScope:
    """The data scope of a session, or of the session that bounds the running call.

    A tool takes its runtime as an injected argument, which the model does not see and cannot give, and asks here
    for the tenant instead of taking one from the model.

    Args:
        session_or_runtime: a ``BoundSession``, LangGraph's ``Runtime`` or ``ToolRuntime``, a config, or nothing.

    Raises:
        SpecError: no session bounds this call.
        OutsideScope: what the scope needs to know is not known.
    """
    found = scopes_of(session_or_runtime)
    if not found:
        raise SpecError(
            "no session bounds this call, so that it has no data scope",
            key="scope_of",
            allowed="a BoundSession, or the runtime of a tool that runs below one",
        )
    unknown = [why for scope in found for why in scope.unknown]
    for kind in ("tenant", "user"):
        if len({getattr(scope, kind) for scope in found} - {None}) > 1:
            unknown.append(f"the sessions around this call are opened for more than one {kind}")
    if unknown:
        raise OutsideScope(*unknown)
    inner = found[-1]
    around = next((scope for scope in reversed(found) if scope.tenant or scope.user), inner)
    return inner if inner.tenant or inner.user or around is inner else around


def scopes_of(session_or_runtime: Any = None) -> tuple[DataScope, ...]:
    """The scopes of all sessions that bound a call, from the outermost in."""
    return tuple(_scope(session) for session in sessions_of(session_or_runtime))


def sessions_of(session_or_runtime: Any = None) -> tuple[BoundSession, ...]:
    """The session itself, or those that bound the call whose runtime or config it is."""
    if hasattr(session_or_runtime, "declared"):
        return (session_or_runtime,)
    config = getattr(session_or_runtime, "config", session_or_runtime)
    named = config if isinstance(config, Mapping) else {}
    metadata = {**(named.get("metadata") or {}), **(named.get("configurable") or {})}
    return attribution.claim(metadata)


def _scope(session: BoundSession) -> DataScope:
    with _lock:
        kept = _kept.get(session)
    if kept is None:
        root = session.lineage[-1]
        made = scope_from(
            session.declared, session.owner, session_id=root.session_id, folder=_folder(session.lineage)
        )
        with _lock:
            kept = _kept.setdefault(session, made)
    return kept


def _folder(lineage: Iterable[BoundSession]) -> Path | None:
    """The folder of the file that declares the roots: the session's own or one above it."""
    for session in lineage:
        if session.spec.path is not None and session.declared.roots is not None:
            return session.spec.path.absolute().parent
    return None

"""Which indexes a scope opens at all: those that a scoped retriever looks at, where others are closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ...core.errors import BoundExceeded
from .errors import OutsideScope, refused

if TYPE_CHECKING:
    from ..session import BoundSession

_inside: ContextVar[bool] = ContextVar("bound_scoped_retrieval", default=False)


@contextmanager
def inside_scope() -> Iterator[None]:
    """What is retrieved in here is looked at before anybody gets it."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def unscoped_retriever(sessions: Sequence[BoundSession]) -> BoundExceeded | None:
    """Why a retriever that starts now may not run: a scope closes every index that is in none, and it is in none.

    It is in the trace; in shadow mode that is all.
    """
    stop = None
    for session in sessions:
        if session.declared.no_external_index_read and not _inside.get():
            error = refused(session, "retriever", OutsideScope("a retriever that is in no scope cannot be used"))
            if not session.shadow and stop is None:
                stop = BoundExceeded("data_scope", axis="data", note=str(error), session_id=session.session_id)
    return stop

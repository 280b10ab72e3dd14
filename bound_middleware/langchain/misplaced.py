"""Limits that a caller puts where nobody reads them."""

from __future__ import annotations

from typing import Any

from ..core.errors import SpecError

#: Short names that mean nothing else; ``tokens``, ``seconds`` and ``tools`` may be a caller's own.
_SHORT = frozenset({"usd", "iterations"})
#: Sections of ``bounds`` whose names are words of every day.
_COMMON = frozenset({"stop", "exposure"})


def check(configurable: Any) -> None:
    """Look for bounds in the ``configurable`` of a run, which could neither loosen nor tighten anything.

    Raises:
        SpecError: one is there; it names the place where it belongs.
    """
    from ..spec.tree import Bounds

    names = {"bounds", *_SHORT, *Bounds.model_fields} - _COMMON
    for key in configurable or ():
        if key in names:
            raise SpecError(
                "a limit in the config of a run is read by nobody",
                key=f"configurable.{key}",
                allowed="bounds in the specification: BoundMiddleware({'bounds': {...}}); for one run a tighter "
                "session around it: with bound(...): agent.invoke(...)",
            )

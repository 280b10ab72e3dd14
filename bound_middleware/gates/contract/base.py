"""What the parts of a contract share: the base of the models, and the readings of their values."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict

from ...core.errors import SpecError
from ...spec.numbers import finite, shown

_ID = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


class Part(BaseModel):
    """A frozen mapping of known keys, each read strictly: ``"1"`` and ``true`` are no numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def identifier(value: Any) -> str:
    """A name of letters, digits, ``-``, ``_`` and ``.``; it also names files, so ``.`` and ``..`` are none."""
    if not isinstance(value, str) or not _ID.fullmatch(value) or value.strip(".") == "" or len(value) > 100:
        raise SpecError(
            f"{shown(value)} is no id", value=value, allowed="at most 100 of A-Z a-z 0-9 - _ ., not only dots"
        )
    return value


def relative(value: Any) -> str:
    """A path below the root, with ``/`` between its parts."""
    if not isinstance(value, str) or not value.strip() or "\\" in value or "\0" in value:
        raise SpecError(f"{shown(value)} is no path", value=value, allowed="relative, with /, without ..")
    if PurePosixPath(value).is_absolute() or ".." in value.split("/"):
        raise SpecError(f"{shown(value)} leads out", value=value, allowed="relative, with /, without ..")
    return value


def pattern(value: Any) -> str:
    """A path pattern; ``**`` only as a whole part."""
    text = relative(value)
    if any("**" in part and part != "**" for part in text.split("/")):
        raise SpecError(f"{shown(value)} has ** beside other characters", value=value, allowed="a/**/b")
    return text


def variable(value: Any) -> str:
    """The name of an environment variable; a ``*`` at its end stands for any rest."""
    if not isinstance(value, str) or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?|\*", value, re.ASCII) is None:
        raise SpecError(f"{shown(value)} names no variable", value=value, allowed="NAME, PREFIX_* or *")
    return value


def _some(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"{shown(value)} is no text", value=value, allowed="some text")
    return value


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def number(*, above: float | None = None, most: float | None = None) -> Any:
    """The reading of a finite number above one edge (exclusive) and up to another (inclusive)."""

    def read(value: Any) -> float:
        found = finite(value, least=None, most=most)
        if above is not None and found <= above:
            edge = "" if most is None else f" and at most {most:g}"
            raise SpecError(f"{shown(value)} is out of range", value=value, allowed=f"above {above:g}{edge}")
        return found

    return BeforeValidator(read)


def whole(least: int, most: int) -> Any:
    """The reading of an integer in an inclusive range."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise SpecError(
                f"{shown(value)} is out of range", value=value, allowed=f"a whole number from {least} to {most}"
            )
        return value

    return BeforeValidator(read)


LIST = BeforeValidator(_listed)
Text: TypeAlias = Annotated[str, BeforeValidator(_some)]
Id: TypeAlias = Annotated[str, BeforeValidator(identifier)]
Relative: TypeAlias = Annotated[str, BeforeValidator(relative)]
Pattern: TypeAlias = Annotated[str, BeforeValidator(pattern)]
Variable: TypeAlias = Annotated[str, BeforeValidator(variable)]
Number: TypeAlias = Annotated[float, number()]
Patterns: TypeAlias = Annotated[tuple[Pattern, ...], LIST]
Ids: TypeAlias = Annotated[tuple[Id, ...], LIST]
Codes: TypeAlias = Annotated[tuple[Annotated[int, whole(0, 255)], ...], LIST]
Argv: TypeAlias = Annotated[tuple[str, ...] | str, LIST]

"""What all models share: frozen, finite numbers only, no unknown keys; immutable down to their collections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from .rules import RANGES, Decision

if TYPE_CHECKING:
    Many = Sequence
else:

    class Many:
        """``Many[X]``: any list or tuple of X may be given; a tuple is kept, so that nobody can change it."""

        def __class_getitem__(cls, item):
            return tuple[item, ...]


class Frozen(BaseModel):
    """A value: it cannot be changed, it refuses what it does not know, and it survives its own JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty or only spaces")
    if _writable(text) != text:
        raise ValueError("must be text that can be written: half of a surrogate pair is none")
    return text


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _countable(number: int) -> int:
    try:
        float(number)
    except OverflowError:
        raise ValueError("is too large to compute with") from None
    return number


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def number(name: str) -> Any:
    """The range of a number, from the one table."""
    lowest, highest = RANGES[name]
    return Field(ge=lowest, le=highest)


Text = Annotated[str, AfterValidator(_not_blank)]
"""Kept as given. A zero-width space is content, a no-break space is not."""

Words = Annotated[str, AfterValidator(_writable)]
"""What somebody else wrote: half of a surrogate pair, which no file can hold, is written as its escape."""

# Strict: "no" and 1 are no truth. A guess about what a program meant would be evidence that nobody gave.
Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(ge=0), AfterValidator(_countable)]
Seconds = Annotated[float, Field(ge=0)]
Rate = Annotated[float, number("rate")]
Forced = Annotated[Decision, BeforeValidator(_upper)]
"""A decision that evidence may force; given in either case."""


def unique(what: str, names: Sequence[str]) -> None:
    """Raises ValueError when a name occurs twice: its evidence and its weight would count double."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"duplicate {what} {name!r}")
        seen.add(name)


K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that refuses every change, so that values which hold it can be shared between threads."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("this mapping is part of a frozen value; copy it with dict(...) to change it")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (dict(self),))

    def __deepcopy__(self, memo: Any) -> FrozenDict[K, V]:
        return self

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


M = TypeVar("M", bound=BaseModel)

_SETTERS: tuple[Any, ...] = (
    object.__new__,
    BaseModel.__dict__["__dict__"].__set__,
    *(BaseModel.__dict__[f"__pydantic_{name}__"].__set__ for name in ("fields_set", "extra", "private")),
)


def maker(model: type[M]) -> Callable[[Iterable[dict[str, Any]]], list[M]]:
    """What makes models of values that were computed from validated ones: every field given, nothing checked.

    Validation is most of the cost of a decision, and there it could not fail. The values become the models' own, in
    the order in which they are to be written.
    """
    # Shared by all: pydantic copies it before it changes it, and frozen models never do.
    fields = set(model.model_fields)
    new, set_values, set_fields, set_extra, set_private = _SETTERS

    def make(values_of_all: Iterable[dict[str, Any]]) -> list[M]:
        models: list[M] = []
        for values in values_of_all:
            made = new(model)
            set_values(made, values)
            set_fields(made, fields)
            set_extra(made, None)
            set_private(made, None)
            models.append(made)
        return models

    return make


def read_mapping(value: Any) -> dict[str, Any] | None:
    """A copy of a mapping that a validator may edit, or ``None`` for what pydantic should judge itself."""
    return dict(value) if isinstance(value, Mapping) else None

"""``action_surface.outputs``: the forms that an answer may have. A list that is given is closed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from ..core.errors import SpecError
from .entries import HOSTS
from .keys import COUNT, NAMES, PATTERN, TEXT, Key, Kind, refused, text
from .orders import WITHIN
from .section import Section
from .shapes import PATTERNS

_NOTED = re.compile(r"([^\s()]+)\s*\((.*)\)", re.DOTALL)
#: What the one form is called where a file names none.
ANSWER = "answer"


def _schema(value: Any) -> str:
    try:
        if isinstance(value, Mapping):
            return json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        pass
    raise refused(value, "a JSON Schema", "a mapping such as {type: object, required: [city]}")


SCHEMA = Kind(name="JSON Schema", read=_schema, write=json.loads, schema={"type": "object"})


class OutputForm(Section):
    """One form that an answer may have: it has it when it keeps all of the rules. Written short as its name."""

    name: Annotated[str, TEXT, Key(meaning="what it is called", tighter="special", default=ANSWER)] = ANSWER
    note: Annotated[str | None, TEXT, Key(meaning="a remark, kept", tighter="free", default="none")] = None
    pattern: Annotated[
        str | None, PATTERN, Key(meaning="what the whole answer matches", tighter="fixed", axis="action surface")
    ] = None
    required: Annotated[
        tuple[str, ...],
        PATTERNS,
        Key(
            meaning="patterns that have to be in it",
            tighter="more",
            axis="action surface",
            default="none",
            nullable=False,
        ),
    ] = ()
    forbidden: Annotated[
        tuple[str, ...],
        PATTERNS,
        Key(
            meaning="patterns that may not be in it",
            tighter="more",
            axis="action surface",
            default="none",
            nullable=False,
        ),
    ] = ()
    hosts: Annotated[
        tuple[str, ...] | None,
        HOSTS,
        Key(
            meaning="the only hosts that its links and images lead to",
            tighter="fewer",
            axis="action surface",
            nullable=False,
        ),
    ] = None
    hosts_once_read: Annotated[
        tuple[str, ...] | None,
        NAMES,
        Key(
            meaning="tools that read private data: `hosts` holds once one of them was called",
            tighter="special",
            default="always",
            nullable=False,
        ),
    ] = None
    length_max: Annotated[
        int | None, COUNT, Key(meaning="longest text", tighter="lower", axis="action surface", unit="characters")
    ] = None
    json_schema: Annotated[
        str | None, SCHEMA, Key(meaning="what it is, read as JSON", tighter="fixed", axis="action surface")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _parsed(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return value
        if not isinstance(value, str):
            raise refused(value, "a form of answer", 'a name ("quote"), or {name: quote, forbidden: [...]}')
        words = text(value)
        noted = _NOTED.fullmatch(words)
        if noted is not None and noted[2].strip():
            return {"name": noted[1], "note": noted[2]}
        return {"name": words}

    @model_validator(mode="after")
    def _reads_need_hosts(self) -> OutputForm:
        if self.hosts_once_read is not None and self.hosts is None:
            raise SpecError(
                "hosts_once_read says when `hosts` holds, and there are none",
                key="hosts_once_read",
                allowed="{hosts: [docs.example.com], hosts_once_read: [read_file]}",
            )
        return self

    @model_serializer(mode="wrap")
    def _shortest(self, handler: SerializerFunctionWrapHandler) -> Any:
        written = {"name": self.name, **{k: v for k, v in handler(self).items() if v is not None}}
        if set(written) <= {"name", "note"}:
            return f"{self.name} ({self.note})" if self.note else self.name
        return written

    short_schema: ClassVar[dict[str, Any]] = {"type": "string", "minLength": 1}

    @property
    def label(self) -> str:
        """What identifies the form in its list."""
        return self.name


def check_forms(forms: tuple[OutputForm, ...] | None) -> tuple[OutputForm, ...] | None:
    """The forms, none of them called like another."""
    seen: set[str] = set()
    for form in forms or ():
        if form.name in seen:
            raise SpecError(f"{form.name!r} is listed twice", value=form.name)
        seen.add(form.name)
    return forms


#: The rules of a form, in the order in which they are looked at.
_RULES = ("length_max", "pattern", "required", "forbidden", "hosts", "json_schema")


def rules(forms: Iterable[OutputForm]) -> Iterator[tuple[str, str, Any]]:
    """The rules of every form, as the core names them: (form, rule, value)."""
    for form in forms:
        for name in _RULES:
            value = getattr(form, name)
            if name == "hosts" and form.hosts_once_read is not None:
                both = {"hosts": value, "tools": form.hosts_once_read}
                yield form.name, "hosts_once_read", json.dumps(both, sort_keys=True)
            elif value is not None and (value != () or name == "hosts"):
                yield form.name, name, value


def once_read(b: Any, a: Any) -> bool:
    """``hosts_once_read``: always is tightest, then the more tools."""
    return b is None or (a is not None and WITHIN["more"](b, a))


def on_refused(b: Any, a: Any) -> bool:
    """``on_refused_output``: an approver may let an answer pass, asking the model again never does."""
    return bool(a == "approval" or b != "approval")


#: Keys whose order is their own.
OWN_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "hosts_once_read": once_read,
    "on_refused_output": on_refused,
}

"""The lists of a specification that people write in words: tools with notes, and sentences.

An entry of one word names a tool; what follows it in parentheses is a note. An entry of several words is prose:
it is kept, and bounds nothing unless ``enforced_by`` names the tools through which the thing would happen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import SerializerFunctionWrapHandler, WrapSerializer, model_serializer, model_validator

from ..core.errors import SpecError
from .keys import AMOUNT, COUNT, NAME, NAMES, PATTERN, TEXT, USD, Key, Kind, choice, distinct, listed, refused, text
from .section import Section

_NOTED = re.compile(r"([^\s()]+)\s*\((.*)\)", re.DOTALL)
AnyEntry = TypeVar("AnyEntry", bound="Entry")
_ENTRY = 'a tool ("read_file"), a tool with a note ("write_file (sandbox only)") or a sentence'

ONE_OF = Kind(
    name="list of values",
    read=lambda value: tuple(_scalar(item) for item in listed(value)),
    write=lambda items: sorted(items, key=lambda item: (type(item).__name__, item)),
    schema={"type": "array", "items": {"type": ["string", "number", "boolean"]}},
    text=lambda items: ", ".join(map(str, items)) or "none",
)
_HOST = re.compile(r"(\*\.)?(\[[0-9A-Fa-f:.]+\]|[^\s/@:?#\[\]*]+)(:[0-9]{1,5})?")


def _host(value: Any) -> str:
    if not isinstance(value, str) or _HOST.fullmatch(value) is None:
        raise refused(value, "a host", "a host such as example.com, example.com:8443 or *.example.com")
    return value


HOSTS = Kind(
    name="list of hosts",
    read=lambda value: distinct(tuple(_host(item) for item in listed(value))),
    write=sorted,
    schema={"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True},
    text=lambda items: ", ".join(items) or "none",
)
_ARGUMENT = choice("path", "tenant", "user")


def _scalar(value: Any) -> Any:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) or type(value).__name__ == "Decimal":
        return AMOUNT.write(AMOUNT.read(value))
    raise refused(value, "a plain value", "texts, numbers, true, false")


class ArgumentRule(Section):
    """What one argument of a tool may be. Written short as its ``kind``: ``{path: path}``."""

    kind: Annotated[
        str | None,
        _ARGUMENT,
        Key(
            meaning="path: inside data_access_scope.roots; tenant, user: the one of the scope",
            tighter="fixed",
            axis="data scope",
        ),
    ] = None
    one_of: Annotated[
        tuple[Any, ...] | None,
        ONE_OF,
        Key(meaning="the only values", tighter="fewer", axis="data scope", nullable=False),
    ] = None
    min: Annotated[int | None, AMOUNT, Key(meaning="smallest number", tighter="higher", axis="data scope")] = None
    max: Annotated[int | None, AMOUNT, Key(meaning="largest number", tighter="lower", axis="data scope")] = None
    pattern: Annotated[
        str | None, PATTERN, Key(meaning="what the whole text matches", tighter="fixed", axis="data scope")
    ] = None
    hosts: Annotated[
        tuple[str, ...] | None,
        HOSTS,
        Key(meaning="the only hosts that a URL leads to", tighter="fewer", axis="data scope", nullable=False),
    ] = None
    length_max: Annotated[
        int | None, COUNT, Key(meaning="longest text", tighter="lower", axis="data scope", unit="characters")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @model_serializer(mode="wrap")
    def _shortest(self, handler: SerializerFunctionWrapHandler) -> Any:
        written = handler(self)
        return written["kind"] if set(written) == {"kind"} else written

    short_schema: ClassVar[dict[str, Any]] = {"enum": ["path", "tenant", "user"]}


class Entry(Section):
    """One line of ``forbidden`` or the reversibility envelope: a name, or prose."""

    tool: Annotated[str | None, NAME, Key(meaning="a tool", tighter="special", default="none")] = None
    note: Annotated[str | None, TEXT, Key(meaning="a remark, kept", tighter="free", default="none")] = None
    entry: Annotated[str | None, TEXT, Key(meaning="a sentence", tighter="special", default="none")] = None
    enforced_by: Annotated[
        tuple[str, ...] | None,
        NAMES,
        Key(meaning="the tools through which it would happen", tighter="special", default="none", nullable=False),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _parsed(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return value
        if not isinstance(value, str):
            raise refused(value, "an entry", _ENTRY)
        words = text(value)
        noted = _NOTED.fullmatch(words)
        if noted is not None:
            return {"tool": noted[1], "note": noted[2]} if noted[2].strip() else {"tool": noted[1]}
        return {"entry": words} if re.search(r"\s", words) else {"tool": words}

    @model_validator(mode="after")
    def _is_one(self) -> Entry:
        if (self.tool is None) == (self.entry is None):
            raise SpecError("an entry is either a tool or a sentence", allowed="one of tool, entry")
        if self.enforced_by is not None and (self.entry is None or not self.enforced_by):
            raise SpecError(
                "enforced_by maps a sentence to at least one tool",
                key="enforced_by",
                value=self.enforced_by,
                allowed="{entry: a sentence, enforced_by: [tool, ...]}",
            )
        return self

    @model_serializer(mode="wrap")
    def _shortest(self, handler: SerializerFunctionWrapHandler) -> Any:
        written = {k: v for k, v in handler(self).items() if v is not None}
        if set(written) <= {"tool", "note"}:
            return f"{self.tool} ({self.note})" if self.note else self.tool
        prose = (
            set(written) == {"entry"}
            and re.search(r"\s", str(self.entry))
            and not _NOTED.fullmatch(str(self.entry))
        )
        return self.entry if prose else written

    short_schema: ClassVar[dict[str, Any]] = {"type": "string", "minLength": 1}

    @property
    def label(self) -> str:
        """The name, or the sentence: what identifies the entry in its list."""
        return self.tool if self.tool is not None else str(self.entry)

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that the entry is about; none for prose that nothing enforces."""
        return (self.tool,) if self.tool is not None else self.enforced_by or ()

    @property
    def is_unenforced(self) -> bool:
        """Whether it is prose that names no tool."""
        return not self.tools


class AllowedTool(Entry):
    """One line of ``allowed``: a tool, with limits of its own."""

    max_calls: Annotated[
        int | None,
        COUNT,
        Key(meaning="calls of this tool in a run", tighter="lower", axis="action surface", unit="calls"),
    ] = None
    args: Annotated[
        dict[str, ArgumentRule] | None, Key(meaning="rules by argument", tighter="special", axis="data scope")
    ] = None
    price_usd: Annotated[
        int | None, USD, Key(meaning="price of a call, as in tool_prices_usd", tighter="special", default="none")
    ] = None

    @model_validator(mode="after")
    def _limits_need_a_tool(self) -> AllowedTool:
        given = [k for k in ("max_calls", "args", "price_usd", "enforced_by") if getattr(self, k) is not None]
        if self.tool is None and given:
            raise SpecError(f"{given[0]} needs a tool", key=given[0], allowed="{tool: name, ...}")
        return self


def check_distinct(entries: tuple[AnyEntry, ...] | None) -> tuple[AnyEntry, ...] | None:
    """The entries, none of them about the same tool or sentence as another."""
    seen: set[str] = set()
    for entry in entries or ():
        if entry.label in seen:
            raise SpecError(f"{entry.label!r} is listed twice", value=entry.label)
        seen.add(entry.label)
    return entries


def _in_order(entries: Any, handler: SerializerFunctionWrapHandler) -> Any:
    if entries is None:
        return None
    return sorted(handler(entries), key=lambda item: str(item if isinstance(item, str) else sorted(item.items())))


IN_ORDER = WrapSerializer(_in_order)

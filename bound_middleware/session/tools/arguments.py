"""Whether the arguments of a call keep the rules of its tool.

Rules of the specification (``kind`` apart, which is the data scope's) hold for a named argument, for each item of a
list, and below a dotted name (``order.amount``). What the model leaves out is the tool's own default and is not
judged. What is of another type than a rule speaks of is refused: no text is a number, no bool either. A tool that
has rules takes no argument that its schema does not name.

A rule in Python is a pure function of the arguments: whatever it returns but ``True``, or raises, refuses the call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ...core.errors import SpecError
from ...core.limits import ArgumentLimit, Limits
from .call import Fault
from .exact import compared, number
from .hosts import is_listed
from .patterns import Unjudged, matches
from .schema import faults as schema_faults

Rule = Callable[[Mapping[str, Any]], Any]
#: How much of a value a person is shown.
SHOWN_CHARS_MAX = 120
_MISSING = object()


def checked_rules(rules: Any) -> Mapping[str, Rule]:
    """Rules in Python by tool. Raises ``SpecError`` for what is no mapping of names to functions."""
    if rules is None:
        return {}
    if not isinstance(rules, Mapping) or not all(isinstance(k, str) and callable(v) for k, v in rules.items()):
        raise SpecError("not rules by tool", key="argument_rules", allowed="a mapping of tools to functions")
    return dict(rules)


def faults(
    limits: Limits,
    tool: str,
    args: Mapping[str, Any] | None,
    *,
    schema: Mapping[str, Any] | None = None,
    check_schema: bool = False,
    rule: Rule | None = None,
) -> tuple[Fault, ...]:
    """What is wrong with the arguments of a call of a tool.

    Args:
        limits: with the rules.
        tool: its exact name.
        args: the arguments; ``None``: they could not be read.
        schema: the JSON Schema of the arguments.
        check_schema: whether to compare with it, because nobody else will.
        rule: a rule in Python.
    """
    rows = _rows(limits.argument_rules, tool)
    if not isinstance(args, Mapping):
        if not rows and rule is None and not check_schema and not _has_kind(limits.argument_rules, tool):
            return ()
        text = "the arguments cannot be read"
        return (Fault(person=text, model=text),)
    found: list[Fault] = []
    if check_schema and schema is not None:
        found += [Fault(person=text, model=text) for text in schema_faults(args, schema)]
    elif schema is not None and (rows or _has_kind(limits.argument_rules, tool)):
        found += [Fault(person=text, model=text) for text in _extra(args, schema)]
    for argument, name, limit in rows:
        for value in _values(args, argument):
            why = _RULES[name](value, limit)
            if why is not None:
                found.append(Fault(person=f"{argument}: {_shown(value)} {why[0]}", model=f"{argument}: {why[1]}"))
    if rule is not None and not found:
        found += _by_function(rule, args)
    return tuple(found)


@lru_cache(maxsize=256)
def _rows(
    rules: tuple[tuple[str, str, str, ArgumentLimit], ...], tool: str
) -> tuple[tuple[str, str, ArgumentLimit], ...]:
    return tuple(
        (argument, rule, limit) for name, argument, rule, limit in rules if name == tool and rule != "kind"
    )


def _has_kind(rules: Iterable[tuple[str, str, str, ArgumentLimit]], tool: str) -> bool:
    return any(row[0] == tool for row in rules)


def _values(args: Mapping[str, Any], argument: str) -> Iterator[Any]:
    """The values that a rule speaks of; none when the argument is left out."""
    found = args.get(argument, _MISSING)
    if found is _MISSING and "." in argument:
        head, _, rest = argument.partition(".")
        for inner in _items(args.get(head, _MISSING)):
            if isinstance(inner, Mapping):
                yield from _values(inner, rest)
            elif inner is not _MISSING:
                # Not the shape that the rule speaks of: judged as it is, and refused for its type.
                yield _Shapeless(inner)
        return
    if found is not _MISSING:
        yield from _items(found)


class _Shapeless:
    """A value where a mapping was to be."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def _items(value: Any) -> Iterator[Any]:
    if not isinstance(value, list | tuple | set | frozenset):
        yield value
        return
    for item in value:
        yield from _items(item)


Why = tuple[str, str] | None
_NO_TEXT = ("is not a text", "has to be a text")
_NO_NUMBER = ("is not a number", "has to be a number")


def _one_of(value: Any, limit: Any) -> Why:
    if any(_same(value, option) for option in limit):
        return None
    named = [option for option in limit if isinstance(option, str)]
    told = f"has to be one of {', '.join(named)}" if named and len(named) == len(limit) else "is not allowed"
    return f"is not one of {', '.join(map(str, limit)) or 'nothing'}", told


def _same(value: Any, option: Any) -> bool:
    if isinstance(option, bool | str) or isinstance(value, bool | str):
        return type(value) is type(option) and value == option
    given, wanted = number(value), number(option)
    return given is not None and wanted is not None and given == wanted


def _pattern(value: Any, limit: Any) -> Why:
    if not isinstance(value, str):
        return _NO_TEXT
    try:
        if matches(limit, value):
            return None
    except Unjudged as unjudged:
        return f"cannot be judged: {unjudged}", "cannot be judged; make it shorter"
    return f"is not of the form {limit}", "does not have the form that it needs"


def _length(value: Any, limit: Any) -> Why:
    if not isinstance(value, str):
        return _NO_TEXT
    return (f"is longer than {limit} characters", "is too long") if len(value) > limit else None


def _least(value: Any, limit: Any) -> Why:
    given = number(value)
    if given is None:
        return _NO_NUMBER
    return (f"is less than {_plain(limit)}", "is too small") if compared(given, limit) < 0 else None


def _most(value: Any, limit: Any) -> Why:
    given = number(value)
    if given is None:
        return _NO_NUMBER
    return (f"is more than {_plain(limit)}", "is too large") if compared(given, limit) > 0 else None


def _hosts(value: Any, limit: Any) -> Why:
    if isinstance(value, str) and is_listed(value, limit):
        return None
    return "leads to no host of the list", f"has to lead to one of {', '.join(limit) or 'no host'}"


_RULES: Mapping[str, Callable[[Any, Any], Why]] = {
    "one_of": _one_of,
    "pattern": _pattern,
    "length_max": _length,
    "least_nano": _least,
    "most_nano": _most,
    "hosts": _hosts,
}


def _plain(nano: int) -> str:
    return f"{Decimal(nano).scaleb(-9).normalize():f}"


def _extra(args: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    named = schema.get("properties")
    if schema.get("additionalProperties") or not isinstance(named, Mapping):
        return
    for argument in args:
        if argument not in named:
            yield f"{_shown(argument)}: there is no such argument"


def _by_function(rule: Rule, args: Mapping[str, Any]) -> list[Fault]:
    try:
        said = rule(copy.deepcopy(dict(args)))
    except Exception as error:  # noqa: BLE001 - a rule that fails has not said yes
        return [Fault(person=f"the rule raised {type(error).__name__}", model="the arguments are not allowed")]
    if said is True:
        return []
    text = said if isinstance(said, str) and said else "the arguments are not allowed"
    return [Fault(person=f"the rule said: {_shown(said)}", model=text)]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."

"""Regular expressions on what a model wrote, in time that is bounded whatever it wrote.

``re`` tries one way after another, and a pattern such as ``(a+)+`` takes it longer than anybody waits for forty
letters. Here all ways are followed at once: a pattern becomes a small machine whose states are walked letter by
letter. The pattern is read by the parser of ``re``, so that it means the same.

What such a machine cannot do (back references, conditions, atomic groups) is ``Unjudged``, and so is a pattern that
would need more than ``STATES_MAX`` states. Looking ahead from each place of a long text takes the square of its
length, and one look inside of another more; a text for which more than ``WORK_MAX`` is walked is ``Unjudged`` too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

STATES_MAX = 5_000
#: Longer texts are not judged: what is meant to be compared with a pattern is shorter.
TEXT_CHARS_MAX = 20_000
#: States and letters that are walked for one text, those of looks ahead and behind included: some seconds.
WORK_MAX = 10_000_000
#: Steps that are remembered for a pattern.
_STEPS_KEPT = 4_096

Letter = Callable[[str], bool]


@dataclass(slots=True)
class _Text:
    """A text that is being judged, and how much work may still be done for it."""

    letters: str
    left: int = field(default_factory=lambda: WORK_MAX)

    def costs(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise Unjudged("the pattern takes too long for this text")


Guard = Callable[[_Text, int], bool]


class Unjudged(ValueError):
    """A pattern or a text that cannot be judged in bounded time."""


@lru_cache(maxsize=256)
def _machine(pattern: str) -> _Machine:
    return _Machine(pattern)


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text is as the pattern says.

    Raises:
        Unjudged: see the top of this module.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise Unjudged(f"the text is longer than {TEXT_CHARS_MAX} characters")
    return _machine(pattern).matches(_Text(text), 0, len(text))


def spans(pattern: str, text: str) -> Iterator[tuple[int, int]]:
    """Where something in a text is as the pattern says: from left to right, the longest at each place.

    Raises:
        Unjudged: see the top of this module.
    """
    machine, judged, at = _machine(pattern), _Text(text), 0
    while at < len(text):
        end = machine.longest(judged, at)
        if end > at:
            yield at, end
        at = max(end, at + 1)


def may_backtrack(pattern: str) -> bool:
    """Whether ``re`` could try more ways than there are letters: what repeats without an end has a choice in it."""
    return _has_choice(parser.parse(pattern), repeated=False)


def _has_choice(items: Any, *, repeated: bool) -> bool:
    for op, value in items:
        if op in (c.MAX_REPEAT, c.MIN_REPEAT):
            least, most, inner = value
            if repeated and least != most:
                return True
            if _has_choice(inner, repeated=repeated or most == c.MAXREPEAT):
                return True
        elif op is c.BRANCH:
            if repeated or any(_has_choice(branch, repeated=repeated) for branch in value[1]):
                return True
        elif op is c.SUBPATTERN:
            if _has_choice(value[3], repeated=repeated):
                return True
        elif op in (c.ASSERT, c.ASSERT_NOT) and _has_choice(value[1], repeated=repeated):
            return True
    return False


class _Machine:
    """States with letters to the next one, and free steps, some of them only where a guard holds."""

    def __init__(self, pattern: str) -> None:
        self.letters: list[tuple[Letter, int] | None] = []
        self.free: list[list[tuple[Guard | None, int]]] = []
        parsed = parser.parse(pattern)
        self.start, self.end = self._state(), self._state()
        self._build(list(parsed), parsed.state.flags, self.start, self.end)
        self._guarded = any(guard for steps in self.free for guard, _ in steps)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: _Text, at: int, end: int) -> bool:
        """Whether what is between two places is as the pattern says."""
        return self.end in self._run(text, at, end, whole=True)

    def begins(self, text: _Text, at: int) -> bool:
        """Whether some text that begins at a place is as the pattern says."""
        return bool(self._run(text, at, len(text.letters), whole=False))

    def longest(self, text: _Text, at: int) -> int:
        """Where the longest text ends that begins at a place and is as the pattern says; the place, for none."""
        states, end = self._closure((self.start,), text, at), at
        for i in range(at, len(text.letters)):
            if not states:
                break
            states = self._step(states, text, i)
            end = i + 1 if self.end in states else end
        return end

    def _run(self, text: _Text, at: int, end: int, *, whole: bool) -> frozenset[int]:
        states = self._closure((self.start,), text, at)
        for i in range(at, end):
            if not states or (not whole and self.end in states):
                break
            states = self._step(states, text, i)
        return states if whole or self.end in states else frozenset()

    def _step(self, states: frozenset[int], text: _Text, i: int) -> frozenset[int]:
        text.costs(1)
        letter = text.letters[i]
        key = (states, letter)
        known = None if self._guarded else self._steps.get(key)
        if known is not None:
            return known
        moved = [step[1] for s in states if (step := self.letters[s]) is not None and step[0](letter)]
        found = self._closure(moved, text, i + 1)
        if not self._guarded and len(self._steps) < _STEPS_KEPT:
            self._steps[key] = found
        return found

    def _closure(self, states: Iterable[int], text: _Text, at: int) -> frozenset[int]:
        found: set[int] = set()
        todo = list(states)
        while todo:
            state = todo.pop()
            if state not in found:
                found.add(state)
                todo += [to for guard, to in self.free[state] if guard is None or guard(text, at)]
        text.costs(len(found))
        return frozenset(found)

    # -- building ------------------------------------------------------------------------------------------

    def _state(self) -> int:
        if len(self.free) >= STATES_MAX:
            raise Unjudged("the pattern is too large")
        self.letters.append(None)
        self.free.append([])
        return len(self.free) - 1

    def _build(self, items: list[Any], flags: int, begin: int, end: int) -> None:
        at = begin
        for position, (op, value) in enumerate(items):
            to = end if position == len(items) - 1 else self._state()
            self._one(op, value, flags, at, to)
            at = to
        if not items:
            self.free[begin].append((None, end))

    def _one(self, op: Any, value: Any, flags: int, begin: int, end: int) -> None:
        if op in (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN):
            self.letters[begin] = (_letter(op, value, flags), end)
        elif op is c.BRANCH:
            for branch in value[1]:
                first = self._state()
                self.free[begin].append((None, first))
                self._build(list(branch), flags, first, end)
        elif op is c.SUBPATTERN:
            _, add, remove, inner = value
            self._build(list(inner), (flags | add) & ~remove, begin, end)
        elif op in (c.MAX_REPEAT, c.MIN_REPEAT):
            least, most, inner = value
            self._repeat(least, most, inner, flags, begin, end)
        elif op is c.AT:
            self.free[begin].append((_place(value, flags), end))
        elif op in (c.ASSERT, c.ASSERT_NOT):
            self.free[begin].append((_look(op, value, flags), end))
        else:
            raise Unjudged(f"the pattern has a {str(op).lower().replace('_', ' ')}")

    def _repeat(self, least: int, most: int, inner: Any, flags: int, begin: int, end: int) -> None:
        at = begin
        for _ in range(least):
            to = self._state()
            self._build(list(inner), flags, at, to)
            at = to
        if most == c.MAXREPEAT:
            first, last = self._state(), self._state()
            self.free[at] += [(None, first), (None, end)]
            self._build(list(inner), flags, first, last)
            self.free[last] += [(None, first), (None, end)]
            return
        for _ in range(most - least):
            first, to = self._state(), self._state()
            self.free[at] += [(None, first), (None, end)]
            self._build(list(inner), flags, first, to)
            at = to
        self.free[at].append((None, end))


def _letter(op: Any, value: Any, flags: int) -> Letter:
    """Asks ``re`` itself about one letter, and remembers what it said."""
    if op is c.ANY:
        return (lambda letter: True) if flags & re.DOTALL else (lambda letter: letter != "\n")
    source = _class_of([(c.NEGATE, None), (c.LITERAL, value)] if op is c.NOT_LITERAL else value, op)
    compiled = re.compile(source, flags & (re.IGNORECASE | re.ASCII))
    return lru_cache(maxsize=512)(lambda letter: compiled.fullmatch(letter) is not None)


_CATEGORIES = {
    c.CATEGORY_DIGIT: r"\d",
    c.CATEGORY_NOT_DIGIT: r"\D",
    c.CATEGORY_SPACE: r"\s",
    c.CATEGORY_NOT_SPACE: r"\S",
    c.CATEGORY_WORD: r"\w",
    c.CATEGORY_NOT_WORD: r"\W",
}


def _class_of(items: Any, op: Any) -> str:
    """A class in brackets that means the same as the parsed one."""
    if op is c.LITERAL:
        return f"[{_escaped(items)}]"
    parts = []
    for kind, value in items:
        if kind is c.NEGATE:
            parts.append("^")
        elif kind is c.LITERAL:
            parts.append(_escaped(value))
        elif kind is c.RANGE:
            parts.append(f"{_escaped(value[0])}-{_escaped(value[1])}")
        else:
            parts.append(_CATEGORIES[value])
    return f"[{''.join(parts)}]"


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


_WORD = re.compile(r"\w")
_ASCII_WORD = re.compile(r"\w", re.ASCII)


def _place(where: Any, flags: int) -> Guard:
    """A place in the text, as ``^``, ``$``, ``\\A``, ``\\Z`` and ``\\b`` mean it."""
    lines = bool(flags & re.MULTILINE)
    word = _ASCII_WORD if flags & re.ASCII else _WORD

    def edge(text: str, at: int) -> bool:
        before = at > 0 and word.match(text[at - 1]) is not None
        return before != (at < len(text) and word.match(text[at]) is not None)

    if where is c.AT_BEGINNING:
        return lambda text, at: at == 0 or (lines and text.letters[at - 1] == "\n")
    if where is c.AT_BEGINNING_STRING:
        return lambda text, at: at == 0
    if where is c.AT_END:
        return lambda text, at: _ends(text.letters, at, lines)
    if where is c.AT_END_STRING:
        return lambda text, at: at == len(text.letters)
    if where is c.AT_BOUNDARY:
        return lambda text, at: edge(text.letters, at)
    return lambda text, at: not edge(text.letters, at)


def _ends(text: str, at: int, lines: bool) -> bool:
    return at == len(text) or (text[at] == "\n" and (lines or at == len(text) - 1))


def _look(op: Any, value: Any, flags: int) -> Guard:
    """A look ahead, or behind, from a place: one more machine."""
    direction, inner = value
    wanted = op is c.ASSERT
    machine = _Machine.__new__(_Machine)
    machine.letters, machine.free, machine._steps = [], [], {}
    machine.start, machine.end = machine._state(), machine._state()
    machine._build(list(inner), flags, machine.start, machine.end)
    machine._guarded = any(guard for steps in machine.free for guard, _ in steps)
    if direction > 0:
        return lambda text, at: machine.begins(text, at) is wanted
    width = inner.getwidth()[0]
    return lambda text, at: (at >= width and machine.matches(text, at - width, at)) is wanted

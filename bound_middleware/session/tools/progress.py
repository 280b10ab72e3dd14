"""Whether the calls of a run still bring anything new, and how many of its turns failed in a row.

A turn is one message of the model with all of its calls. Rules:

1. A call brings something new when it has not come to this result with these arguments before in the run; then
   everything that was counted begins again. So polling, or working through a list, never counts.
2. ``identical``: so often a call with these arguments came to the same result since then, one after the other.
3. ``same``: so often in a row this tool came to the same result, whatever it was asked.
4. ``cycle``: the last calls repeat the ones before them, two or more at a time, and this one would go on so.
5. ``failed``: so many turns in a row had a call that failed. How many failed in one turn makes no difference.
6. A call that is tried again is one call, with its last result. Its place is that in the message, whenever it ends;
   one whose result is not known yet counts as if it brought nothing new.
7. Tools that the specification exempts are not looked at for 1 to 4.
"""

from __future__ import annotations

import hashlib
from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...core.limits import Limits
from ..approvals import canonical

#: Results that are remembered to tell what is new, and calls among which a cycle is looked for.
SEEN_KEPT = 10_000
#: Longer cycles are not looked for.
CYCLE_MOST = 256
#: Turns that are open at a time: agents inside the tools of an agent may share its session.
TURNS_OPEN_MOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What the gateway looks at before a call."""

    identical: int = 0
    same: int = 0
    cycle: bool = False
    failed: int = 0


@dataclass(slots=True, eq=False)
class Entry:
    """One call of a turn: which, and its result once it is known (``None``: it runs, or waits)."""

    turn: str
    place: int
    tool: str
    key: str
    result: str | None = None
    failed: bool = False


class Progress:
    """The calls of one run, in the order of its turns. Not thread-safe; its owner locks."""

    def __init__(self, limits: Limits) -> None:
        self._exempt = limits.unwatched_tools
        self._open: OrderedDict[str, list[Entry]] = OrderedDict()
        self._failed = 0
        self._counted = _Counted(min(limits.cycle_window or 0, CYCLE_MOST))

    def begin(self, turn: str, place: int, tool: str, args: Any) -> Entry:
        """Note that a call of a turn is proposed; one that is tried again has its old place."""
        self._close(but=turn)
        entries = self._open.setdefault(turn, [])
        key = _digest(tool, canonical(args))
        for entry in entries:
            if entry.place == place and entry.key == key:
                return entry
        entry = Entry(turn, place, tool, key)
        insort(entries, entry, key=lambda other: other.place)
        return entry

    def finish(self, entry: Entry, result: str, *, failed: bool) -> None:
        """What a call came to."""
        entry.result, entry.failed = result, failed
        if entry not in self._open.get(entry.turn, ()):
            # Its turn was given up because too many were open.
            self._count([entry])

    def forget(self, entry: Entry) -> None:
        """The call was not made after all, or nobody will know its result."""
        entries = self._open.get(entry.turn, [])
        if entry in entries and entry.result is None:
            entries.remove(entry)

    def signs(self, entry: Entry) -> Signs:
        """What is known before a call, with those before it in its turn."""
        if entry.tool in self._exempt:
            return Signs(failed=self._failed)
        identical, result = self._counted.identical(entry.key)
        same, tools_result = self._counted.same(entry.tool)
        for other in self._before(entry):
            if other.key == entry.key:
                # While nothing is known of the ones before, they are taken for the same.
                is_new = None not in (other.result, result) and other.result != result
                identical, result = 1 if is_new else identical + 1, other.result or result
            if other.tool == entry.tool and other.result is not None:
                same, tools_result = same + 1 if other.result == tools_result else 1, other.result
        return Signs(identical=identical, same=same, cycle=self._counted.goes_on(entry.key), failed=self._failed)

    def glance(self, tool: str, args: Any) -> Signs:
        """The same for a call that is not proposed yet."""
        self._close()
        return self.signs(Entry("", 0, tool, _digest(tool, canonical(args))))

    def awaits(self, entry: Entry) -> bool:
        """Whether an equal call before it in its turn has no result yet."""
        return any(other.key == entry.key and other.result is None for other in self._before(entry))

    def failed_turns(self) -> int:
        """Failed turns in a row, the last one included: what counts before the model is asked again."""
        self._close()
        return self._failed

    def _before(self, entry: Entry) -> Iterator[Entry]:
        for other in self._open.get(entry.turn, ()):
            if other is entry:
                return
            yield other

    def _close(self, but: str | None = None) -> None:
        """Count the turns whose calls have all ended, and the oldest ones when too many are open."""
        for turn, entries in list(self._open.items()):
            over = len(self._open) > TURNS_OPEN_MOST or all(entry.result is not None for entry in entries)
            if turn != but and over:
                del self._open[turn]
                self._count(entries)

    def _count(self, entries: list[Entry]) -> None:
        done = [entry for entry in entries if entry.result is not None]
        for entry in done:
            if entry.tool not in self._exempt:
                self._counted.add(entry.key, entry.tool, entry.result or "")
        if done:
            self._failed = self._failed + 1 if any(entry.failed for entry in done) else 0


class _Counted:
    """The counters of rules 1 to 4, over the turns that are closed."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._since: dict[str, int] = {}
        self._latest: OrderedDict[str, str] = OrderedDict()
        self._by_tool: dict[str, tuple[int, str]] = {}
        self._last: list[tuple[str, str]] = []

    def add(self, key: str, tool: str, result: str) -> None:
        both = _digest(key, result)
        if both not in self._seen:
            self._since = {key: 1}
        elif self._latest.get(key) == result:
            self._since[key] = self._since.get(key, 0) + 1
        else:
            self._since[key] = 1
        self._seen[both] = None
        self._latest[key] = result
        for known in (self._seen, self._latest):
            if len(known) > SEEN_KEPT:
                known.popitem(last=False)
        times, before = self._by_tool.get(tool, (0, ""))
        self._by_tool[tool] = (times + 1 if before == result else 1, result)
        if self._window:
            self._last.append((key, result))
            del self._last[: -2 * self._window]

    def identical(self, key: str) -> tuple[int, str | None]:
        return self._since.get(key, 0), self._latest.get(key)

    def same(self, tool: str) -> tuple[int, str | None]:
        return self._by_tool.get(tool, (0, None))

    def goes_on(self, key: str) -> bool:
        last = self._last
        return any(
            last[-n:] == last[-2 * n : -n] and last[-n][0] == key and len({other for other, _ in last[-n:]}) > 1
            for n in range(2, min(self._window, len(last) // 2) + 1)
        )


def result_of(content: Any) -> str:
    """A name for what a call came to: equal for equal answers."""
    return _digest(content if isinstance(content, str) else canonical(content))


def _digest(*parts: str) -> str:
    text = "\x1f".join(parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()

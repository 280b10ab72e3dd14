"""A folder whose files can be brought back to how they were before a run wrote to them.

What the run wrote is the difference between the folder before and after each guarded node; what others write in
between is theirs. ``window`` is open around a node; ``restored`` takes back what windows recorded since a mark.
Ignored files and ``.git`` are never read or touched; that an ignored file changed is told.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..core.errors import SpecError
from ..core.usage import count
from ..ledgers.owners import Owner, is_gone, this_process
from .workspace_ignore import Ignored, Rules, Verdicts
from .workspace_plan import Plan, planned, replanned
from .workspace_restore import carried_out, resumed
from .workspace_store import Entry, Result, Store, Window
from .workspace_tree import Limits, Root, Scanner, Tree, WorkspaceError, changes

#: Well above the sources of a large project; what is generated or installed is ignored in any case.
FILES_MAX = 50_000
FILE_BYTES_MAX = 64 * 2**20
TOTAL_BYTES_MAX = 2**30


class Workspace:
    """The files below ``path`` that are not ignored: by git's rules in a repository, else by a list of our own.

    Args:
        path: the folder. It must exist.
        state: a private folder for contents and journal, outside of ``path`` when the run must not reach it;
            default ``.bound/workspace`` inside, which ignores itself.
        files_max, file_bytes_max, total_bytes_max: what may be stored at most, inclusive; more is an error before
            the node runs.

    Raises:
        SpecError: no such folder, a limit is no count, or the platform cannot walk folders by descriptor.
    """

    blocking = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | None = None,
        files_max: int = FILES_MAX,
        file_bytes_max: int = FILE_BYTES_MAX,
        total_bytes_max: int = TOTAL_BYTES_MAX,
    ) -> None:
        if not isinstance(path, (str, os.PathLike)) or not os.path.isdir(path):
            raise SpecError("no such folder", key="workspace", value=path, allowed="the path of a folder")
        if os.rename not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise SpecError("this platform cannot walk folders by descriptor", key="workspace", value=path)
        self.path = os.path.realpath(path)
        self.state = (
            os.path.realpath(state) if state is not None else os.path.join(self.path, ".bound", "workspace")
        )
        inside = os.path.relpath(self.state, self.path)
        if inside == ".":
            raise SpecError("the private folder is the workspace itself", key="state", value=state)
        #: Nothing of our own is part of the workspace: ``.bound`` as a whole, or the folder that was given.
        self._private = None if inside.startswith("..") else ".bound" if state is None else inside
        self._limits = Limits(
            files_max=count(files_max, "files_max"),
            file_bytes_max=count(file_bytes_max, "file_bytes_max"),
            total_bytes_max=count(total_bytes_max, "total_bytes_max"),
        )
        with _lock:
            self._shared = _shared.setdefault(f"{self.path}\0{self.state}", _Shared(Store(Path(self.state))))
        self.store = self._shared.store

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self.path, self.state, asdict(self._limits)))

    @property
    def reads(self) -> int:
        """How many files were read to compare or store them; for tests and measurements."""
        return self._shared.scanner.reads

    def head(self) -> int:
        """A mark: the number of changes recorded so far. What is ignored from now on is what the rules say now."""
        with self._shared.lock:
            self.store.accept_rules()
            return self.store.head()

    def mark(self, thread_id: str, *, since: int, behind: Callable[[str], bool]) -> int:
        """As ``head``; before the first change of the thread after ``since`` whose checkpoint lies ``behind``."""
        with self._shared.lock:
            later = [entry.order for entry in self.store.since(thread_id, since) if behind(entry.checkpoint_id)]
            return min(later) - 1 if later else self.head()

    def enter(self, *, thread_id: str, checkpoint_id: str = "", node: str = "") -> None:
        """A guarded node begins. Windows of parallel nodes are one window.

        Raises:
            WorkspaceError: there is more than the limits allow, or another process is at work here.
        """
        with self._shared.lock:
            if self._shared.active == 0:
                with self._root() as root:
                    self._settle(root)
                    self._look(root)
                    self._remember(thread_id=thread_id, checkpoint_id=checkpoint_id, node=node)
            self._shared.active += 1

    def leave(self, *, thread_id: str, checkpoint_id: str = "", node: str = "") -> None:
        """It ended, or failed. What changed since the last look is recorded as the run's."""
        shared = self._shared
        with shared.lock, self._root() as root:
            if self.store.restore() is not None:
                self._settle(root)
            before = shared.ignored
            assert before is not None
            shared.active -= 1
            window = _window(shared.tree, before.rules, thread_id=thread_id, checkpoint_id=checkpoint_id, node=node)
            self._record(root, shared.tree, before.rules, before=before, window=window)
            if shared.active:
                self._look(root)
                self._remember(thread_id=thread_id, checkpoint_id=checkpoint_id, node=node)
            else:
                self.store.close_window()

    @contextmanager
    def window(self, *, thread_id: str, checkpoint_id: str = "", node: str = "") -> Iterator[None]:
        """``enter`` and ``leave`` around what is inside."""
        self.enter(thread_id=thread_id, checkpoint_id=checkpoint_id, node=node)
        try:
            yield
        finally:
            self.leave(thread_id=thread_id, checkpoint_id=checkpoint_id, node=node)

    def plan(self, *, thread_id: str, since: int = 0, checkpoint_id: str = "") -> Plan:
        """What ``restored`` would do now. Changes nothing on the disk."""
        with self._shared.lock, self._root() as root:
            intent = self.store.restore()
            if intent is None:
                return planned(root, self._chosen(root, thread_id, since, checkpoint_id))
            # Listing changes nothing, so a restore that was cut off is not finished by it either.
            self._refuse_if_at_work(intent.owner)
            return replanned(root, intent.wanted, intent.left, intent.sealed)

    def restored(self, *, thread_id: str, since: int = 0, checkpoint_id: str = "", request: str = "") -> Plan:
        """Take back what the run of this thread changed; what was restored, and what was left and why.

        Args:
            thread_id: whose changes.
            since: a mark; the changes after it.
            checkpoint_id: the changes of nodes that started from this checkpoint or a later one.
            request: names the rollback that this is part of. When the same one comes again before anything else
                was recorded, because its process died before it could keep the report, the report is the same.
        """
        shared = self._shared
        with shared.lock, self._root() as root:
            entries = self._chosen(root, thread_id, since, checkpoint_id)
            window = self.store.window() if shared.active else None
            if window is not None and shared.ignored is not None:
                # A parallel node is at work: what it wrote so far stays, and is the run's.
                self._record(root, shared.tree, shared.ignored.rules, before=shared.ignored, window=window)
            owner = str(this_process())
            plan = planned(root, entries)
            if entries:
                plan = carried_out(root, self.store, plan, entries, owner=owner, thread_id=thread_id)
                self.store.add_result(thread_id, plan.restored, plan.left)
                self.store.end_restore()
            if window is not None:
                # What was restored is not a change of the node that is at work.
                self._look(root)
                self.store.open_window(replace(window, tree=shared.tree))
            return self._told(plan, thread_id, request)

    def _chosen(self, root: Root, thread_id: str, since: int, checkpoint_id: str) -> list[Entry]:
        self._settle(root)
        entries = self.store.since(thread_id, since)
        return [entry for entry in entries if entry.checkpoint_id >= checkpoint_id]

    def _look(self, root: Root) -> None:
        shared = self._shared
        self.store.prepare()
        shared.ignored = self._ignored(root)
        shared.tree = self._scan(root, shared.ignored, store=True)
        # What git said of paths that are gone, or by other rules, is not worth its memory.
        shared.verdicts = shared.ignored.verdicts

    def _ignored(self, root: Root, rules: Rules | None = None) -> Ignored:
        changed, verdicts = self.store.changed_rules(), self._shared.verdicts
        return Ignored(root.path, self._private, changed=changed, verdicts=verdicts, rules=rules)

    def _scan(self, root: Root, ignored: Ignored, *, store: bool = False) -> Tree:
        try:
            return self._shared.scanner.tree(root, ignored.left_out, store=self._limits if store else None)
        finally:
            ignored.close()

    def _record(
        self, root: Root, tree: Tree, rules: Rules, *, before: Ignored | None, window: Window, unknown: bool = False
    ) -> None:
        """Record what became of a tree, as far as the rules of then let it be seen."""
        ignored = self._ignored(root, rules)
        changed = changes(tree, self._scan(root, ignored))
        self.store.keep_changed_rules(ignored.changed_since(rules))
        aside = () if before is None else ignored.changed_files(before)
        if changed or aside:
            entry = Entry(
                order=0,
                thread_id=window.thread_id,
                checkpoint_id=window.checkpoint_id,
                node=window.node,
                changes=changed,
                unknown=unknown,
                ignored=aside,
            )
            self.store.append(entry)

    def _remember(self, **whose: str) -> None:
        assert self._shared.ignored is not None
        rules = self._shared.ignored.rules
        self.store.open_window(_window(self._shared.tree, rules, **whose))

    def _settle(self, root: Root) -> None:
        """Finish what processes that are gone left unfinished: first a restore, then the window of a node."""
        window, intent = self.store.window(), self.store.restore()
        for begun in (window, intent):
            if begun is not None:
                self._refuse_if_at_work(begun.owner)
        if intent is not None:
            if window is not None:
                tree = {path: node for path, node in window.tree.items() if path not in intent.wanted}
                tree |= {path: then for path, (_, then) in intent.wanted.items() if then is not None}
                self._shared.tree = tree
                self.store.open_window(replace(window, tree=tree))
            done = resumed(root, self.store, intent, owner=str(this_process()))
            self.store.add_result(intent.thread_id, done.restored, done.left)
            self.store.end_restore()
        if self._shared.active == 0:
            self._settle_window(root)
            self.store.clean()

    def _refuse_if_at_work(self, other: str) -> None:
        owner, here = Owner.parse(other), this_process()
        if owner is not None and owner != here and not is_gone(owner, here):
            raise WorkspaceError(f"process {owner.pid} is at work in this workspace; wait for it", path=self.path)

    def _told(self, plan: Plan, thread_id: str, request: str) -> Plan:
        """With what was done for this thread and not told, or told to the same request: a report is whole."""
        result, order = self.store.result(thread_id), self.store.head()
        if not result.told or (request and (request, order) == (result.request, result.order)):
            plan = plan.after(result)
        if request:
            told = Result(
                restored=list(plan.restored), left=list(plan.left), told=True, request=request, order=order
            )
            self.store.keep_result(thread_id, told)
        else:
            self.store.drop_result(thread_id)
        return plan

    def _settle_window(self, root: Root) -> None:
        """A window that another process left open: whose its changes are cannot be told; they are only listed."""
        window = self.store.window()
        if window is None:
            return
        rules = Rules(texts=window.texts, tracked=window.tracked, changed=self.store.changed_rules())
        self._record(root, window.tree, rules, before=None, window=window, unknown=True)
        self.store.close_window()

    @contextmanager
    def _root(self) -> Iterator[Root]:
        try:
            root = Root(self.path)
        except OSError as error:
            raise WorkspaceError(f"the folder cannot be opened: {error.strerror}", path=self.path) from error
        try:
            yield root
        finally:
            root.close()


class _Shared:
    """What all objects for one folder have in common in this process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lock = threading.RLock()
        self.active = 0
        self.tree: Tree = {}
        self.ignored: Ignored | None = None
        self.verdicts: Verdicts = {}
        self.scanner = Scanner(keep=store.keep, kept=store.has)


def workspace_of(value: Any) -> Workspace | None:
    """A workspace from what a user may give for one: a path, a ``Workspace``, or ``None``."""
    return value if value is None or isinstance(value, Workspace) else Workspace(value)


def _window(tree: Tree, rules: Rules, **whose: str) -> Window:
    owner = str(this_process())
    return Window(owner=owner, tree=tree, texts=rules.texts, tracked=rules.tracked, **whose)


def _rebuilt(path: str, state: str, limits: dict[str, int]) -> Workspace:
    inside = os.path.join(path, ".bound", "workspace")
    return Workspace(path, state=None if state == inside else state, **limits)


_lock = threading.Lock()
_shared: dict[str, _Shared] = {}

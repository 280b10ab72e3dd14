"""Python programs, run unchanged as ``__main__`` of this process.

``sys.argv``, ``sys.path[0]`` and the attributes of ``__main__`` are what the interpreter itself would have set,
and ``__main__`` stays in place when the program has ended, for its threads and its ``atexit`` functions. That is
why ``runpy``, which takes it away again, is not used.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType, TracebackType
from typing import Any

from ..core.errors import BoundExceeded, SpecError
from . import FAILED, INTERRUPTED, NO, OK

#: The result of a program: it has none.
NOTHING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program or graph ended.

    ``code`` is the exit code that it asked for; ``stop`` the bound that ended it, when one did; ``failed`` says
    that it ended with an error of its own.
    """

    code: int = OK
    stop: BoundExceeded | None = None
    failed: bool = False


class Program:
    """A script, a folder or archive with a ``__main__``, or a module (``-m``), with its arguments.

    Args:
        target: the path as given, or the name of the module.
        arguments: ``sys.argv[1:]`` of the program.
        is_module: whether ``target`` is the name of a module.

    Raises:
        SpecError: there is no such file.
    """

    def __init__(self, target: str, arguments: Sequence[str], *, is_module: bool = False) -> None:
        if not is_module and not os.path.exists(target):
            raise SpecError(f"there is no file {target!r}", key="TARGET", value=target, nearest=_near(target))
        self.target, self.arguments, self.is_module = target, list(arguments), is_module
        self.result = NOTHING

    @property
    def title(self) -> str:
        """What a person calls it."""
        return f"-m {self.target}" if self.is_module else self.target

    def run(self, session: Any) -> Ended:
        """Run it to its end, with the threads that the interpreter would have waited for.

        Raises:
            SpecError: there is no such module, or no ``__main__`` in a folder or archive.
        """
        ours = sys.argv[1:2] == ["run"]
        ended = self._main()
        try:
            _await_threads(process_ends=ours)
        except KeyboardInterrupt:
            return Ended(code=INTERRUPTED, stop=ended.stop, failed=True)
        return ended

    def _main(self) -> Ended:
        main = ModuleType("__main__")
        main.__dict__.update(__builtins__=builtins, __annotations__={}, __cached__=None)
        try:
            code = self._prepared(main)
            sys.modules["__main__"] = main
            exec(code, main.__dict__)
        except SystemExit as stop:
            return exited(stop)
        except KeyboardInterrupt:
            return Ended(code=INTERRUPTED, failed=True)
        except _NoSuchModule as error:
            raise SpecError(str(error), key="TARGET", value=self.target) from None
        except BaseException as error:  # noqa: BLE001 - shown as the interpreter shows it
            return ended_by(error)
        return Ended()

    def _prepared(self, main: ModuleType) -> CodeType:
        """The code, with ``sys`` and the attributes of ``__main__`` set for it."""
        from importlib.machinery import SourceFileLoader
        from pkgutil import get_importer

        if self.is_module:
            sys.argv = ["-m", *self.arguments]
            _set_path0(os.getcwd())
            return self._of_spec(main, _module_spec(self.target))
        sys.argv = [self.target, *self.arguments]
        finder: Any = get_importer(self.target)
        if finder is None:
            _set_path0(os.path.dirname(os.path.realpath(self.target)))
            path = os.path.abspath(self.target)
            main.__file__, main.__package__ = path, None
            main.__loader__ = SourceFileLoader("__main__", path)
            with open(path, "rb") as file:
                return compile(file.read(), path, "exec", dont_inherit=True)
        _set_path0(os.path.abspath(self.target))
        spec = finder.find_spec("__main__", None)
        if spec is None:
            raise _NoSuchModule(f"there is no __main__ in {self.target!r}")
        return self._of_spec(main, spec, argv0=self.target)

    def _of_spec(self, main: ModuleType, spec: Any, argv0: str | None = None) -> CodeType:
        code: CodeType | None = spec.loader.get_code(spec.name) if hasattr(spec.loader, "get_code") else None
        if code is None:
            raise _NoSuchModule(f"there is no Python code in {spec.name!r}")
        sys.argv[0] = argv0 or spec.origin
        main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
        main.__file__ = spec.origin
        main.__dict__["__cached__"] = spec.cached
        return code


class _NoSuchModule(Exception):
    """A target that cannot be found; not an ``ImportError``, which the program itself may raise."""


def ended_by(error: BaseException) -> Ended:
    """The end of what raised this. Anything but a bound's own error is shown with its traceback."""
    stop = _stop_behind(error)
    if _is_stop(error):
        return Ended(code=NO, stop=stop)
    _show(error)
    return Ended(code=FAILED if stop is None else NO, stop=stop, failed=True)


def _show(error: BaseException) -> None:
    """Print the traceback of a program as the interpreter does, through ``sys.excepthook``, without our frames."""
    tail = _without_ours(error.__traceback__)
    error.__traceback__ = tail
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    try:
        sys.excepthook(type(error), error, tail)
    except Exception:  # noqa: BLE001 - a broken hook of the program must not hide its error
        traceback.print_exception(error)


def _is_stop(error: BaseException) -> bool:
    """Whether it is a bound's error, or a group (of a ``TaskGroup``) of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_stop(e) for e in error.exceptions)
    return isinstance(error, BoundExceeded)


def _stop_behind(error: BaseException) -> BoundExceeded | None:
    """The bound behind an error that a program made of it: raised from it, while handling it, or grouped."""
    seen: set[int] = set()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is None or id(link) in seen:
            continue
        if isinstance(link, BoundExceeded):
            return link
        seen.add(id(link))
        links += [link.__cause__, None if link.__suppress_context__ else link.__context__]
        links += link.exceptions if isinstance(link, BaseExceptionGroup) else ()
    return None


def _without_ours(link: TracebackType | None) -> TracebackType | None:
    folder = os.path.dirname(__file__)
    while link is not None:
        file = link.tb_frame.f_code.co_filename
        if os.path.dirname(file) != folder and not file.startswith("<frozen "):
            break
        link = link.tb_next
    return link


def exited(stop: SystemExit) -> Ended:
    """What ``sys.exit`` means: nothing is 0, a number itself, anything else is printed and 1."""
    if stop.code is None or isinstance(stop.code, int):
        code = (stop.code or 0) & 0xFF
        return Ended(code=code, failed=code != 0)
    print(stop.code, file=sys.stderr)
    return Ended(code=FAILED, failed=True)


def _set_path0(folder: str) -> None:
    """Replace what the interpreter put first for ``bound`` itself; with ``-P`` it put nothing there."""
    if getattr(sys.flags, "safe_path", False):
        return
    sys.path[:1] = [folder]


def _module_spec(name: str) -> Any:
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            package, spec = name, find_spec(f"{name}.__main__")
            if spec is None:
                raise _NoSuchModule(f"{package!r} is a package without __main__")
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _NoSuchModule(f"there is no module {name!r}") from None
        raise
    except ValueError:
        spec = None
    if spec is None or spec.loader is None:
        raise _NoSuchModule(f"there is no module {name!r}")
    return spec


def _await_threads(*, process_ends: bool) -> None:
    """Wait for the threads of a program that has ended, as the interpreter does before it ends.

    Where the process is the program's own, the interpreter's own function does it: it also ends the idle workers
    of executors that nobody shut down, which can be waited for in no other way.
    """
    shutdown = getattr(threading, "_shutdown", None)
    if process_ends and shutdown is not None and threading.current_thread() is threading.main_thread():
        shutdown()
        return
    me = threading.current_thread()
    for thread in threading.enumerate():
        if thread is not me and not thread.daemon and not _is_worker(thread):
            thread.join()


def _is_worker(thread: threading.Thread) -> bool:
    from concurrent.futures import thread as pools

    return thread in getattr(pools, "_threads_queues", {})


def _near(target: str) -> str | None:
    from difflib import get_close_matches

    folder, name = os.path.split(target)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return None
    close = get_close_matches(name, [n for n in names if n.endswith(".py")], 1, 0.7)
    return os.path.join(folder, close[0]) if close else None

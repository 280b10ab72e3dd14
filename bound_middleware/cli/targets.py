"""Graphs, runnables and factories named on the command line: find, load, invoke, show what they answer."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..core.errors import SpecError
from . import INTERRUPTED
from .programs import Ended, ended_by, exited

if TYPE_CHECKING:
    from ..session.session import BoundSession

CONFIG_FILE = "langgraph.json"
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
#: What LangGraph and LangChain say when something that is only asynchronous is called otherwise.
_ASYNC_ONLY = re.compile(r"ainvoke|astream|\basync|synchronous|sync invocation", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTarget:
    """An object in a module or a file. ``root`` is a folder that its imports start from."""

    title: str
    source: str
    attribute: str
    root: Path | None = None

    @property
    def is_file(self) -> bool:
        return self.source.endswith(".py") or os.sep in self.source or "/" in self.source


class GraphRun:
    """One invocation of a graph; ``result`` is what it answered, ``None`` until then."""

    def __init__(self, target: GraphTarget, given: Any) -> None:
        self.target, self.given = target, given
        self.result: Any = None

    @property
    def title(self) -> str:
        """What a person calls it."""
        return self.target.title

    def run(self, session: BoundSession) -> Ended:
        """Load and invoke it.

        Raises:
            SpecError: there is no such object, it cannot be invoked, or a specification in its code is wrong.
        """

        def unused() -> bool:
            usage = session.usage
            return not usage.model_calls and not usage.tool_calls

        try:
            self.result = answer(load(self.target), self.given, unused)
        except SpecError:
            raise
        except SystemExit as stop:
            return exited(stop)
        except KeyboardInterrupt:
            return Ended(code=INTERRUPTED, failed=True)
        except BaseException as error:  # noqa: BLE001 - shown as the interpreter shows it
            return ended_by(error)
        return Ended()


def find(target: str) -> GraphTarget | None:
    """The graph that a target names; ``None`` when it can only be a program.

    Raises:
        SpecError: ``langgraph.json`` is named and has no such graph, or is wrong.
    """
    if os.path.exists(target):
        return None
    source, colon, attribute = target.rpartition(":")
    if colon and source and _NAME.fullmatch(attribute):
        if source.endswith(".json"):
            return _configured(Path(source), attribute, target)
        return GraphTarget(title=target, source=source, attribute=attribute)
    if not colon and os.path.exists(CONFIG_FILE) and not target.endswith(".py"):
        return _configured(Path(CONFIG_FILE), target, target)
    return None


def _configured(config: Path, name: str, title: str) -> GraphTarget:
    try:
        data = json.loads(config.read_text(encoding="utf-8"))
        graphs = data["graphs"]
        entry = graphs.get(name)
    except OSError as error:
        raise SpecError(f"the file cannot be read: {error.strerror}", file=str(config)) from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise SpecError('the file has no "graphs": {NAME: "FILE.py:OBJECT"}', file=str(config)) from None
    if isinstance(entry, dict):
        entry = entry.get("path")
    if not isinstance(entry, str) or ":" not in entry:
        raise SpecError(
            f"there is no graph {name!r}", key="graphs", file=str(config), allowed=", ".join(map(str, graphs))
        )
    source, _, attribute = entry.rpartition(":")
    root = config.resolve().parent
    if source.endswith(".py") or "/" in source:
        source = str(root / source)
    return GraphTarget(title=title, source=source, attribute=attribute, root=root)


def load(target: GraphTarget) -> Any:
    """The object that a target names, its module imported as the interpreter would.

    Raises:
        SpecError: there is no such file, module or object.
    """
    if target.root is not None:
        sys.path.insert(0, str(target.root))
    value: Any = _file(Path(target.source)) if target.is_file else _module(target.source)
    for part in target.attribute.split("."):
        if not hasattr(value, part):
            from difflib import get_close_matches

            names = [n for n in vars(value) if not n.startswith("_")] if hasattr(value, "__dict__") else []
            close = get_close_matches(part, names, 1)
            raise SpecError(f"{target.source!r} has no {part!r}", key="TARGET", nearest=close[0] if close else None)
        value = getattr(value, part)
    return value


def _module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise SpecError(f"there is no module {name!r}", key="TARGET") from None
        raise


def _file(path: Path) -> ModuleType:
    """The module of a file; inside a package it gets its full name, so that relative imports work."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = path.resolve()
    if not path.is_file():
        raise SpecError(f"there is no file {str(path)!r}", key="TARGET")
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    if len(names) > 1:
        return importlib.import_module(".".join(names))
    name = path.stem if path.stem not in sys.modules else f"{path.stem}__target"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SpecError(f"{str(path)!r} is no Python file", key="TARGET")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def answer(value: Any, given: Any, unused: Callable[[], bool]) -> Any:
    """What a graph, builder, runnable or factory answers to an input.

    It is invoked synchronously where that works, else asynchronously; a factory that is asynchronous, and what
    it opens, live in one event loop with the call.

    Args:
        value: what the target names.
        given: the text or JSON value of ``--input``; ``None`` when there is none.
        unused: whether no call was made yet, so that trying again repeats nothing.

    Raises:
        SpecError: it is none of these, or needs an input.
    """
    made = resolved(value)
    if inspect.isawaitable(made) or hasattr(made, "__aenter__"):
        return asyncio.run(_aanswer(made, given))
    if hasattr(made, "__enter__") and not _invocable(made):
        with made as opened:
            return answer(opened, given, unused)
    runnable = _checked(made)
    asked = _input(runnable, given)
    if _async_only(runnable):
        return asyncio.run(runnable.ainvoke(asked))
    try:
        return runnable.invoke(asked)
    except (TypeError, NotImplementedError) as error:
        if not (_ASYNC_ONLY.search(str(error)) and unused() and hasattr(runnable, "ainvoke")):
            raise
    return asyncio.run(runnable.ainvoke(asked))


async def _aanswer(made: Any, given: Any) -> Any:
    if inspect.isawaitable(made):
        made = resolved(await made)
    if hasattr(made, "__aenter__"):
        async with made as opened:
            return await _aanswer(resolved(opened), given)
    runnable = _checked(made)
    return await runnable.ainvoke(_input(runnable, given))


def _invocable(value: Any) -> bool:
    return callable(getattr(value, "invoke", None)) or callable(getattr(value, "ainvoke", None))


def resolved(value: Any) -> Any:
    """A runnable as it is, a builder compiled, a factory called; a factory with one parameter gets a config."""
    if _invocable(value) and not inspect.isclass(value):
        return value
    if callable(getattr(value, "compile", None)) and hasattr(value, "add_node"):
        return value.compile()
    if not callable(value) or hasattr(value, "__aenter__") or hasattr(value, "__enter__"):
        return value
    needed = [
        p
        for p in inspect.signature(value).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 1:
        raise SpecError(
            f"{getattr(value, '__name__', value)!r} needs {len(needed)} arguments",
            key="TARGET",
            allowed="a factory without arguments, or with a config alone",
        )
    made = value({"configurable": {}}) if needed else value()
    return made if inspect.isawaitable(made) or made is value else resolved(made)


def _checked(value: Any) -> Any:
    if _invocable(value):
        return value
    raise SpecError(
        f"a {type(value).__name__} cannot be invoked",
        key="TARGET",
        allowed="a graph, a builder, a runnable, or a function that returns one",
    )


def _async_only(runnable: Any) -> bool:
    """Whether a part of a graph or sequence is known to have no synchronous form."""
    if getattr(runnable, "func", False) is None or not hasattr(runnable, "invoke"):
        return getattr(runnable, "afunc", None) is not None or not hasattr(runnable, "invoke")
    if hasattr(runnable, "afunc") and not hasattr(runnable, "func"):
        return True
    tools = getattr(runnable, "tools_by_name", None)
    if isinstance(tools, Mapping):
        found = [t for t in tools.values() if getattr(t, "func", 0) is None and getattr(t, "coroutine", None)]
        return bool(found)
    nodes = getattr(runnable, "nodes", None)
    if isinstance(nodes, Mapping):
        return any(_async_only(getattr(node, "bound", node)) for node in nodes.values())
    steps = getattr(runnable, "steps", None)
    return isinstance(steps, list | tuple) and any(_async_only(step) for step in steps)


# -- input and output --------------------------------------------------------------------------------------


def read_input(text: str | None) -> Any:
    """The value of ``--input``: JSON, or else text; ``@PATH`` and ``-`` are read first.

    Raises:
        SpecError: the file cannot be read.
    """
    if text is None:
        return None
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"the file cannot be read: {error}", key="--input") from None
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict | list) else text


def _input(runnable: Any, given: Any) -> Any:
    """What to invoke a runnable with: a text, or a list of messages, becomes the state of a graph of messages."""
    channels = getattr(runnable, "channels", None)
    takes_messages = isinstance(channels, Mapping) and "messages" in channels
    if given is None:
        if takes_messages or not isinstance(channels, Mapping):
            raise SpecError("there is no input", key="--input", allowed="JSON, text, @FILE or - for stdin")
        return {}
    if takes_messages and isinstance(given, str):
        return {"messages": [{"role": "user", "content": given}]}
    return {"messages": given} if takes_messages and isinstance(given, list) else given


def text_of(result: Any) -> str:
    """A result for a person: the text of the last message where there are messages, else text or JSON."""
    messages = result.get("messages") if isinstance(result, Mapping) else None
    last = messages[-1] if isinstance(messages, list) and messages else result
    if isinstance(last, str):
        return last
    text = getattr(last, "text", None)
    if isinstance(text, str):
        return str(text)
    return json.dumps(plain(result), indent=2, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A result as JSON values; what has no such form is given as its text."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str, inf_nan_mode="strings")

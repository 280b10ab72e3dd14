"""The command line: ``bound COMMAND``.

Each command is a module of this package with ``add_arguments(parser)`` and ``run(args) -> int``; it is imported
when it is chosen, so that ``bound --help`` costs little more than an interpreter. Data goes to stdout, talk to
stderr. Exit codes: 0 fine, 1 the tool failed, 2 usage or specification error, 3 the answer is no.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..core.errors import BoundError

OK, FAILED, USAGE, NO = 0, 1, 2, 3
INTERRUPTED = 130
_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})

#: name -> (module under this package, help in one line)
COMMANDS = {
    "evaluate": ("evaluate", "decide on an action from four scores"),
    "evaluate-workflow": ("evaluate_workflow", "decide from the signals of a coding agent's run"),
    "evaluate-contract": ("evaluate_contract", "decide on a step from its contract and the evidence"),
    "assess": ("assess", "tell whether the checks of a plan look measurable"),
    "spec": ("spec", "explain, lint, compare a specification; its JSON Schema"),
    "gate": ("gate", "completion gates: run, waive, repair in bounded loops"),
    "run": ("run", "run a Python program under a specification"),
    "demo": ("demo", "see every bound at work, without a network or a key"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    if sys.stderr is None:
        # Closed by the caller. Talk would go to stdout instead, into the data.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        return _written(list(sys.argv[1:] if argv is None else argv))
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            _drop(sys.stderr)


def _written(arguments: list[str]) -> int:
    """The exit code of a command whose answer was written, too; ``FAILED`` where it was not."""
    name = arguments[0] if arguments else ""
    why = None
    try:
        code = _chosen(name, arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        elif code == OK and name != "run":
            why, code = "it is closed", FAILED
    except BrokenPipeError:
        # Nobody reads any more. Not a success: what was cut off may have been the answer.
        _drop(sys.stdout)
        return FAILED
    except OSError as error:
        # What was opened by name has said so itself.
        if error.filename is not None or error.errno not in _WRITE_ERRORS:
            raise
        _drop(sys.stdout)
        why, code = error.strerror, FAILED
    if why is not None:
        try:  # noqa: SIM105 - help is to import nothing
            print(f"error: the output cannot be written: {why}", file=sys.stderr)
        except OSError:
            pass
    return code


def _chosen(name: str, arguments: list[str]) -> int:
    if name in COMMANDS:
        return _guarded(name, arguments[1:])
    if name in ("-h", "--help", "--version"):
        print(f"bound-middleware {_version()}" if name == "--version" else _help())
        return OK
    print(_unknown(name) if name else _help(), file=sys.stderr)
    return USAGE


def _drop(stream: Any) -> None:
    """Sends what is left in a buffer nowhere: it would fail again when the interpreter ends."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _guarded(name: str, arguments: list[str]) -> int:
    from ..core.errors import BoundError, SpecError

    try:
        return _run(name, arguments)
    except SystemExit as stop:  # argparse has printed what it has to say
        return stop.code if isinstance(stop.code, int) else OK if stop.code is None else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BoundError as error:
        _report(error, as_json="--json" in arguments)
        return USAGE if isinstance(error, SpecError) else FAILED


def _run(name: str, arguments: list[str]) -> int:
    import argparse

    module = _module(name)
    if module is None:
        return USAGE
    summary, _, rest = (module.__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog=f"bound {name}", description=summary, epilog=rest.strip() or None)
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(arguments))
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: bound COMMAND ... | bound --help | bound --version",
            "",
            "Bounds LLM agents from the outside.",
            "",
            "commands:",
            *(f"  {name:<{width}}  {words}" for name, (_, words) in COMMANDS.items()),
            "",
            "'bound COMMAND --help' says more.",
        ]
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("bound-middleware")
    except PackageNotFoundError:
        return "(not installed)"


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, 1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(COMMANDS)}"
    return f"error: no command {name!r}{hint}"


def _module(name: str) -> Any:
    from importlib import import_module

    full = f"{__name__}.{COMMANDS[name][0]}"
    try:
        return import_module(full)
    except ModuleNotFoundError as error:
        if error.name == full:
            print(f"error: the command {name!r} is not part of this installation", file=sys.stderr)
            return None
        print(f"error: {name!r} needs the package {error.name!r}, which is not installed", file=sys.stderr)
        return None


def _report(error: BoundError, *, as_json: bool) -> None:
    if not as_json:
        print(f"error: {error}", file=sys.stderr)
        return
    import json

    names = ("key", "allowed", "nearest", "file", "line")
    fields = {name: getattr(error, name, None) for name in names}
    message = getattr(error, "message", str(error))
    print(json.dumps({"error": error.code, "message": message, **fields, "text": str(error)}), file=sys.stderr)

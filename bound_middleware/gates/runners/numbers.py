"""Finds the number of a metric in what a command wrote. Only a plain, finite number is one."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from ...decision.collectors.junit import ReportError
from ...decision.collectors.process import Run
from ...decision.collectors.report_file import located, parse_json, read
from .base import GateSite

if TYPE_CHECKING:
    from ..contract import Parser

#: ``1_000``, digits of other scripts, ``inf`` and ``true`` are no numbers here, though Python could read them.
_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?\s*", re.ASCII)
_FILE_BYTES_MAX = 32 * 1024 * 1024
_PART = re.compile(r"(?:[^.\\]|\\.)+")


class NoNumber(Exception):
    """There is no number where one should be; the text says what is there."""


def number_of(parser: Parser, done: Run, site: GateSite, cwd: str) -> float:
    """The number that a parser finds.

    Raises:
        NoNumber: there is none.
    """
    data = _source(parser, done, site, cwd)
    if parser.type == "json":
        try:
            return _finite(_at(parse_json(data), parser.path or ""), parser.path or "")
        except ReportError as error:
            raise NoNumber(str(error)) from None
    match = re.search(parser.pattern or "", data.decode("utf-8", "replace"), re.MULTILINE)
    if match is None:
        raise NoNumber("the pattern matches nothing")
    if match[parser.group] is None:
        raise NoNumber(f"the group {parser.group!r} takes no part in the match")
    return _finite(match[parser.group], f"group {parser.group}")


def _source(parser: Parser, done: Run, site: GateSite, cwd: str) -> bytes:
    if parser.source == "file":
        try:
            path = located(site.root / cwd, parser.file or "")
            return read(path, bytes_max=_FILE_BYTES_MAX)[0]
        except ReportError as error:
            raise NoNumber(str(error)) from None
    output = done.stdout if parser.source == "stdout" else done.stderr
    if not output.complete:
        raise NoNumber(f"more than {site.contract.settings.output_limit} bytes of {parser.source}")
    return output.data


def _at(value: Any, path: str) -> Any:
    for part in _PART.findall(path):
        name = re.sub(r"\\(.)", r"\1", part)
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and re.fullmatch(r"-?[0-9]{1,9}", name, re.ASCII):
            position = int(name)
            if not -len(value) <= position < len(value):
                raise NoNumber(f"{path}: a list of {len(value)} has no position {position}")
            value = value[position]
        else:
            raise NoNumber(f"{path}: there is no {name!r}")
    return value


def _finite(value: Any, where: str) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoNumber(f"{where}: {repr(value)[:60]} is no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise NoNumber(f"{where}: the number is not finite")
    return number

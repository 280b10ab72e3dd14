"""What the commands that decide have in common: criteria, files, output, exit codes. Nothing heavy at import."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from . import NO, OK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel, ValidationError

    from ..decision.models import EvaluationResult

    M = TypeVar("M", bound=BaseModel)

#: Evidence is written by programs: more than a person reviews, less than what hurts.
FILE_CHARS_MAX = 16 * 1024 * 1024
_NUMBER = re.compile(r"^-(?:\d|\.\d|inf|nan)", re.IGNORECASE)


def add_once(parser: argparse.ArgumentParser) -> None:
    """Makes every flag that is added from here on one that may be given once: the last of two is no answer.

    ``--x`` and ``--no-x`` are one flag, and so are an abbreviation and the whole.
    """
    for name, kind in ((None, argparse._StoreAction), ("store_true", argparse._StoreTrueAction)):
        parser.register("action", name, _once(kind))
    parser.register("action", "boolean", _once(argparse.BooleanOptionalAction))


def _once(kind: type[argparse.Action]) -> type[argparse.Action]:
    class Once(kind):  # type: ignore[valid-type, misc]
        given = False

        def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
            from ..core.errors import SpecError

            if self.given:
                raise SpecError("is given twice", key=self.option_strings[0], value=values, allowed="once")
            self.given = bool(self.option_strings)
            super().__call__(parser, namespace, values, option_string)

    return Once


def number(text: str) -> float:
    """A number as JSON writes it, or one that is refused later. Raises ValueError."""
    return float(_plain(text))


def count(text: str) -> int:
    """A whole number. Raises ValueError."""
    return int(_plain(text))


def _plain(text: str) -> str:
    # Python also reads 1_0 and the digits of other scripts: nobody writes them on purpose.
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text


def add_criteria(parser: argparse.ArgumentParser, *, threshold: float | None = None) -> None:
    """Adds the flags of the criteria, ``--exit-code`` and ``--json``. The threshold may have a default."""
    # Without this a value such as -1e-5 would be taken for a flag.
    parser._negative_number_matcher = _NUMBER
    for name, letter in (("acceptance", "W_A"), ("influence", "W_I"), ("risk", "W_R"), ("cost", "W_C")):
        parser.add_argument(f"--{name}-weight", type=number, metavar="W", help=f"{letter}, >= 0 (default 1)")
    parser.add_argument("--weight", type=number, metavar="W", help="the older name of --acceptance-weight")
    parser.add_argument(
        "--threshold",
        type=number,
        required=threshold is None,
        default=threshold,
        metavar="T",
        help="ACCEPT from this score on, >= 0" + ("" if threshold is None else f" (default {threshold:g})"),
    )
    parser.add_argument("--retry-margin", type=number, metavar="M", help="RETRY down to T - M, >= 0 (default 0.1)")
    parser.add_argument(
        "--rollback-risk-threshold",
        type=number,
        metavar="R",
        help="ROLLBACK from this risk on, 0 to 1 (default 0.8)",
    )
    parser.add_argument("--exit-code", action="store_true", help="exit with 3 for every decision but ACCEPT")
    parser.add_argument("--json", action="store_true", help="print errors as JSON too; results always are")


def add_action(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say what is judged."""
    parser.add_argument("--action", required=True, metavar="TEXT", help="the proposed action")
    parser.add_argument("--goal", required=True, metavar="TEXT", help="the larger goal that it serves")
    parser.add_argument("--context", metavar="TEXT", help="more about it; kept out of the result")


def criteria_of(args: argparse.Namespace) -> Any:
    """The checked criteria. Raises SpecError."""
    from ..decision.rules import parse_criteria

    names = ("acceptance_weight", "influence_weight", "risk_weight", "cost_weight", "weight")
    return parse_criteria(
        {name: getattr(args, name) for name in (*names, "threshold", "retry_margin", "rollback_risk_threshold")}
    )


def check_action(args: argparse.Namespace) -> None:
    """Raises SpecError when there is nothing to judge."""
    from ..core.errors import SpecError

    for name in ("action", "goal"):
        if not getattr(args, name).strip():
            raise SpecError("must not be empty or only spaces", key=f"--{name}")


def print_decision(payload: Mapping[str, Any], steering: str, args: argparse.Namespace) -> int:
    """Prints the result to stdout and the text about it to stderr, and returns the exit code."""
    print(json.dumps(payload, indent=2, allow_nan=False), flush=True)
    print(steering, file=sys.stderr)
    return NO if args.exit_code and payload["decision"] != "ACCEPT" else OK


def payload_of(result: EvaluationResult) -> dict[str, Any]:
    """A result in the order of ``bound evaluate``, and its provenance."""
    from ..decision.rules import Evaluation

    values = {name: getattr(result, name) for name in Evaluation._fields}
    numbers = {"acceptance", "influence", "risk", "cost"}
    values["scores"] = result.scores.model_dump(include=numbers)
    values["weights"] = result.weights.model_dump()
    if result.provenance is not None:
        values["provenance"] = {
            dimension: [row.model_dump() for row in rows] for dimension, rows in result.provenance.items()
        }
    return values


def model_criteria(args: argparse.Namespace) -> Any:
    """The criteria as the model. Raises SpecError."""
    from ..decision.models import BoundCriteria, BoundWeights

    found = criteria_of(args)
    return BoundCriteria(**{**found._asdict(), "weights": BoundWeights(**found.weights._asdict())})


def read_data(path: str, what: str) -> dict[str, Any]:
    """The mapping in a YAML or JSON file; ``-`` is standard input.

    Raises:
        SpecError: it cannot be read, is too large, or holds no mapping.
    """
    from ..core.errors import SpecError
    from ..spec.source import parse

    file = "<stdin>" if path == "-" else path
    try:
        if path == "-":
            text = sys.stdin.read(FILE_CHARS_MAX + 1)
        else:
            with open(path, encoding="utf-8-sig") as stream:
                text = stream.read(FILE_CHARS_MAX + 1)
    except UnicodeDecodeError:
        raise SpecError("is no text in UTF-8", file=file) from None
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", file=file) from None
    if len(text) > FILE_CHARS_MAX:
        raise SpecError(f"more than {FILE_CHARS_MAX:,} characters", file=file)
    if path.endswith(".json") or (path == "-" and text.lstrip().startswith("{")):
        return _json(text, file, what)
    try:
        return parse(text, file=file).data
    except SpecError as error:
        message = error.message.replace("a specification", f"a {what}")
        raise SpecError(message, key=error.key, file=file, line=error.line) from None


def _json(text: str, file: str, what: str) -> dict[str, Any]:
    from ..core.errors import SpecError
    from ..decision.collectors.junit import ReportError
    from ..decision.collectors.report_file import parse_json

    try:
        data = parse_json(text.encode())
    except ReportError as error:
        raise SpecError(str(error), file=file) from None
    if not isinstance(data, dict):
        raise SpecError(f"a {what} is a mapping, this is a {type(data).__name__}", file=file)
    return data


def built(model: type[M], data: Mapping[str, Any], file: str) -> M:
    """A model of what was read. Raises SpecError that names the first key that is wrong, and how many more are.

    Types are those of JSON, and strict: "no" and 1 are no truth, "3" and 1.0 are no count.
    """
    from pydantic import ValidationError

    from ..core.errors import SpecError

    try:
        return model.model_validate_json(json.dumps(dict(data), default=_number), strict=True)
    except (TypeError, ValueError) as error:
        if not isinstance(error, ValidationError):
            raise SpecError(f"cannot be written as JSON: {error}", file=file) from None
        raise _fault(error, model, file) from None


def _number(value: object) -> float:
    """A number of YAML, which is read exactly; of JSON it is a double."""
    from decimal import Decimal

    if not isinstance(value, Decimal):
        raise TypeError(f"there is a {type(value).__name__}")
    return float(value)


def _fault(error: ValidationError, model: type[BaseModel], file: str) -> Exception:
    from difflib import get_close_matches

    from ..core.errors import SpecError

    faults = error.errors(include_url=False, include_context=False)
    # A key that is misspelt is also one that is missing: its typo says more.
    first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    key = ".".join(str(part) for part in first["loc"]) or None
    message = str(first["msg"]).removeprefix("Value error, ")
    more = len(faults) - 1
    nearest = None
    if first["type"] == "extra_forbidden":
        message = "unknown key"
        close = get_close_matches(str(first["loc"][-1]), _names(model, first["loc"][:-1]), 1)
        nearest = close[0] if close else None
    text = f"{message} (and {more} more)" if more else message
    return SpecError(text, key=key, file=file, nearest=nearest)


def _names(model: Any, path: tuple[int | str, ...]) -> list[str]:
    """The keys of the model at a path of lists and models."""
    from typing import get_args

    def inner(kind: Any) -> Any:
        if hasattr(kind, "model_fields"):
            return kind
        return next((found for part in get_args(kind) if (found := inner(part)) is not None), None)

    for part in path:
        if isinstance(part, str) and model is not None:
            field = model.model_fields.get(part)
            model = None if field is None else inner(field.annotation)
    return [] if model is None else list(model.model_fields)

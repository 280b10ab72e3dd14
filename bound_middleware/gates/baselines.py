"""The committed numbers that ratchets compare with: ``{version: 1, baselines: {id: number}}``."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import BoundError

if TYPE_CHECKING:
    from .contract import GateContract

_BYTES_MAX = 1 << 20


class BaselineError(BoundError):
    """The file of the baselines cannot be used, or a change to it was refused."""

    code = "baseline_error"


class Baselines:
    """The baselines of one project; each change is a new file, to be reviewed and committed."""

    def __init__(self, path: Path, values: Mapping[str, float]) -> None:
        self.path, self.values = path, dict(values)

    @classmethod
    def load(cls, root: Path, contract: GateContract) -> Baselines:
        """Those of a contract; none where there is no file.

        Raises:
            BaselineError: the file leads out of the project, or holds something else.
        """
        path = root / contract.settings.baselines
        try:
            if not path.resolve().is_relative_to(root.resolve()):
                raise BaselineError(f"{contract.settings.baselines} leads out of the project")
            if not path.exists():
                return cls(path, {})
            if path.stat().st_size > _BYTES_MAX:
                raise BaselineError(f"{path.name} has more than {_BYTES_MAX} bytes")
            data = json.loads(path.read_bytes(), object_pairs_hook=_unique)
        except (OSError, RuntimeError, ValueError, RecursionError) as error:
            raise BaselineError(f"{path.name} cannot be read: {error}") from None
        if not isinstance(data, dict) or data.get("version") != 1 or not isinstance(data.get("baselines"), dict):
            raise BaselineError(f"{path.name} is no file of baselines: version 1 and baselines by id")
        return cls(path, {key: _number(path.name, key, value) for key, value in data["baselines"].items()})

    def get(self, constraint_id: str) -> float | None:
        """The baseline of a ratchet, ``None`` where there is none yet."""
        return self.values.get(constraint_id)

    def update(self, values: Mapping[str, float]) -> None:
        """Writes the file anew with these numbers in place of the old ones.

        Raises:
            BaselineError: a number is not finite, or the file cannot be written.
        """
        for key, value in values.items():
            _number(self.path.name, key, value)
        merged = {**self.values, **values}
        text = json.dumps({"version": 1, "baselines": merged}, indent=2, sort_keys=True, allow_nan=False) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd, temporary = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
            try:
                with open(fd, "w", encoding="utf-8") as file:
                    os.fchmod(file.fileno(), 0o644)
                    file.write(text)
                os.replace(temporary, self.path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise BaselineError(f"{self.path.name} cannot be written: {error.strerror}") from None
        self.values = merged


def _number(file: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BaselineError(f"{file}: the baseline of {key} is no finite number")
    return float(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found

"""Is a file there, is it not empty, is it of this step, and what is its digest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import SpecError
from .base import Collector, Look
from .finding import invalid, stale, verdict
from .junit import ReportError
from .report_file import Absent, located, mark, sha256, written_since
from .site import Site

_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Artifact(Collector):
    """A regular file within the workspace.

    Args:
        path: relative to the workspace; links that lead out of it are refused.
        min_bytes: the least size, inclusive.
        sha256: the digest that it must have; a file that has it is *verified*.
        fresh: whether it must have been written since the step began, where that is known.
    """

    path: str
    min_bytes: int = 1
    sha256: str | None = None
    fresh: bool = True

    def __post_init__(self) -> None:
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            raise SpecError(
                "is no SHA-256 digest", key="sha256", value=self.sha256, allowed="64 hexadecimal digits"
            )
        if isinstance(self.min_bytes, bool) or not isinstance(self.min_bytes, int) or self.min_bytes < 0:
            raise SpecError("is no size", key="min_bytes", value=self.min_bytes, allowed="whole bytes >= 0")

    def look(self, site: Site) -> Look:
        source = f"artifact {self.path}"
        try:
            found, size = sha256(located(site.workspace, self.path))
        except Absent as error:
            # Known not to be there is an answer, not a lack of one.
            return Look(finding=verdict(False, str(error)), source=source)
        except ReportError as error:
            return Look(finding=invalid(str(error)), source=source)
        told = f"sha256:{found}"
        if self.fresh and site.step is not None and not written_since(size, site.step.started_ns):
            return Look(finding=stale(f"{self.path!r} is older than the step"), source=source, digest=told)
        big = size.size_bytes >= self.min_bytes
        finding = verdict(big, f"{size.size_bytes} bytes{'' if big else f', at least {self.min_bytes} asked'}")
        if not big or self.sha256 is None:
            return Look(finding=finding, source=source, digest=told)
        wanted = _SHA256.fullmatch(self.sha256)
        same = wanted is not None and wanted[1].lower() == found
        finding = verdict(same, f"{size.size_bytes} bytes, digest {'as asked' if same else f'is {told}'}")
        return Look(finding=finding, source=source, digest=told, provenance="verified")


def produced(workspace: Path, paths: tuple[str, ...], since_ns: int | None) -> tuple[str, ...]:
    """Those of the expected paths that are regular files, written since a moment where one is given."""
    found = []
    for path in paths:
        try:
            file = located(workspace, path)
        except ReportError:
            continue
        seen = mark(file) if file.is_file() else None
        if seen is not None and (since_ns is None or written_since(seen, since_ns)):
            found.append(path)
    return tuple(found)

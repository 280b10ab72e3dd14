"""Where runners work, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from ...core.redaction import Redactor, names_a_secret
from ...decision.collectors.process import Clock, Run, SystemClock, run
from ..values import Category, Result, Verdict
from ..watch import Watch

if TYPE_CHECKING:
    from ..contract import Constraint, GateContract

#: What every command may see: where programs, homes, certificates and caches are, and in which language to speak.
#: Everything else is named in the contract, so that a key of one tool is not shown to all the others.
ALLOWED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR", "TEMP"),
    *("TMP", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "CI", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHON*", "PYENV_*"),
    *("UV_*", "NODE_*", "NVM_*", "NPM_CONFIG_*", "COREPACK_*", "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOROOT"),
    *("GOCACHE", "GOMODCACHE", "JAVA_HOME", "XDG_*", "SSL_CERT_FILE", "SSL_CERT_DIR", "SOURCE_DATE_EPOCH"),
    *("GIT_*", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "BOUND_COMMAND"),
)
_MARGIN_BYTES = 65_536
TRUNCATED = "[output truncated]"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSite:
    """What a runner is given. ``environment`` is the whole one: a command sees the part it is allowed to."""

    root: Path
    contract: GateContract
    watch: Watch
    environment: Mapping[str, str]
    redact: Redactor
    clock: Clock = field(default_factory=SystemClock)
    stop: Event = field(default_factory=Event)
    goal: str | None = None

    def environment_for(self, names: Iterable[str] = ()) -> dict[str, str]:
        """The usual variables, those of the settings and ``names``; ``PREFIX_*`` and ``*`` stand for many.

        Of the usual ones none whose name tells of a secret, such as ``UV_PUBLISH_TOKEN``: that has to be named.
        """
        usual = allowed(self.environment, ALLOWED).items()
        named = allowed(self.environment, (*self.contract.settings.environment, *names))
        return {key: value for key, value in usual if not names_a_secret(key)} | named

    def command(
        self,
        argv: tuple[str, ...],
        *,
        timeout_ms: int,
        environment: Mapping[str, str],
        cwd: str = ".",
        given: Path | None = None,
    ) -> Run:
        """Runs a command below the root with closed standard input, or with a file."""
        return run(
            argv,
            cwd=self.root / cwd,
            environment=environment,
            timeout_ms=timeout_ms,
            output_bytes_max=self.contract.settings.output_limit,
            clock=self.clock,
            stop=self.stop,
            given=given,
        )

    def tail(self, done: Run) -> str:
        """The end of what a command said, both outputs one after the other, redacted and then cut."""
        limit = self.contract.settings.evidence_output_limit
        parts = [_end(part.data, limit + _MARGIN_BYTES) for part in (done.stdout, done.stderr)]
        texts = [part.decode("utf-8", "replace").strip() for part in parts]
        said = self.redact("\n".join(text for text in texts if text)).encode()
        whole = all(
            o.complete and len(o.data) == len(p) for o, p in zip((done.stdout, done.stderr), parts, strict=True)
        )
        if whole and len(said) <= limit:
            return said.decode()
        return f"{TRUNCATED}\n{said[-limit:].decode('utf-8', 'ignore')}"


def _end(data: bytes, size: int) -> bytes:
    """About the last bytes: to look for secrets in all of a flood takes longer than the command.

    It begins with a whole line where there is one, so that no half of a secret is at its beginning.
    """
    if len(data) <= size:
        return data
    end = data[-size:]
    return end[end.find(b"\n", 0, _MARGIN_BYTES) + 1 :]


class Runner(Protocol):
    """Finds out about one constraint of its kind. What it raises becomes a blocking ``error``."""

    def __call__(self, constraint: Any, site: GateSite) -> Result: ...


def found(
    constraint: Constraint, verdict: Verdict, message: str = "", *, category: Category = "constraint", **more: Any
) -> Result:
    """A result of a constraint."""
    return Result(
        constraint_id=constraint.id,
        kind=constraint.kind,
        verdict=verdict,
        enforcement=constraint.enforcement,
        message=message,
        category=category,
        **more,
    )


def allowed(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The variables that the names cover; a ``*`` at the end of a name stands for any rest."""
    exact, prefixes = set(), []
    for name in names:
        if name.endswith("*"):
            prefixes.append(name[:-1])
        else:
            exact.add(name)
    starts = tuple(prefixes)
    return {key: value for key, value in environment.items() if key in exact or key.startswith(starts)}

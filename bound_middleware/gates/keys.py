"""The keys of evidence: what a constraint depends on, told apart into its inputs and what surrounds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .baselines import BaselineError, Baselines
from .digests import framed, input_digest
from .runners.base import GateSite
from .surroundings import surroundings_digest

if TYPE_CHECKING:
    from .contract import Constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """``inputs`` is shown and waived by; ``whole`` adds the surroundings and is what evidence is reused by."""

    inputs: str
    whole: str


def key_of(constraint: Constraint, site: GateSite, *, bundle: str | None = None) -> Key:
    """The key of a constraint as things are now.

    Args:
        bundle: the digest of all that a rubric is judged on.

    Raises:
        watch.Unreadable: a watched file cannot be read.
    """
    contract, more = site.contract, [bundle] if bundle is not None else []
    if constraint.kind == "artifact":
        more.append(site.watch.one(constraint.path))
    if constraint.kind == "ratchet":
        more.append(_baseline(constraint.id, site))
    inputs = input_digest(
        constraint_id=constraint.id,
        contract_digest=contract.digest,
        constraint=contract.canonical["constraints"][constraint.id],
        tree=site.watch.tree(constraint.watch),
        more=more,
    )
    around = ""
    if constraint.kind in ("command", "metric", "ratchet"):
        around = surroundings_digest(
            constraint.argv,
            cwd=site.root / constraint.cwd,
            environment=site.environment_for(constraint.environment),
        )
    return Key(inputs=inputs, whole=framed(inputs, around))


def _baseline(constraint_id: str, site: GateSite) -> str:
    try:
        return repr(Baselines.load(site.root, site.contract).get(constraint_id))
    except BaselineError:
        return "unreadable"

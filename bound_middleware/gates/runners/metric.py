"""A number that a command gives, against a threshold or against its baseline."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..baselines import BaselineError, Baselines
from ..values import Result
from .base import GateSite
from .command import as_result, execute
from .numbers import NoNumber, number_of

if TYPE_CHECKING:
    from ..contract import Metric, Ratchet

_HOLDS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le, "eq": operator.eq}
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "eq": "=="}


def run_metric(constraint: Metric, site: GateSite) -> Result:
    """The result of a ``metric``: plain comparison, no tolerance."""
    measured = _measured(constraint, site)
    if measured.value is None:
        return measured
    threshold = constraint.threshold
    holds = _HOLDS[threshold.operator](measured.value, threshold.value)
    message = f"{measured.value:.15g} {_SIGNS[threshold.operator]} {threshold.value:.15g}"
    return replace(measured, verdict="pass" if holds else "fail", message=message if holds else f"not {message}")


def run_ratchet(constraint: Ratchet, site: GateSite) -> Result:
    """The result of a ``ratchet``: the number is no worse than its baseline, give or take the tolerance."""
    measured = _measured(constraint, site)
    if measured.value is None:
        return measured
    try:
        baseline = Baselines.load(site.root, site.contract).get(constraint.id)
    except BaselineError as error:
        return replace(measured, verdict="error", message=str(error))
    if baseline is None:
        told = f"{measured.value:.15g}, and there is no baseline yet: record one"
        return replace(measured, verdict="error", message=told)
    holds = not is_worse(constraint, measured.value, baseline)
    word = "rise above" if constraint.direction == "must_not_increase" else "fall below"
    message = f"{measured.value:.15g} must not {word} {baseline:.15g}"
    return replace(measured, verdict="pass" if holds else "fail", message=message)


def is_worse(constraint: Ratchet, value: float, baseline: float) -> bool:
    """Whether a number is worse than a baseline by more than the tolerance."""
    if constraint.direction == "must_not_increase":
        return value > baseline + constraint.tolerance
    return value < baseline - constraint.tolerance


def _measured(constraint: Metric | Ratchet, site: GateSite) -> Result:
    """With a ``value`` when there is one to compare, else as it is to be reported."""
    ended = execute(constraint, site)
    result = as_result(constraint, ended, site)
    if ended.verdict != "pass":
        return result
    try:
        return replace(result, value=number_of(constraint.parser, ended.run, site, constraint.cwd))
    except NoNumber as error:
        return replace(result, verdict="error", message=site.redact(str(error)))

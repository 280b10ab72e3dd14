"""Answers: one flow judges each of them before it leaves, whichever entrance holds it."""

from __future__ import annotations

from .answer import Answer
from .judge import Judged, is_held, judge, tries, was_judged
from .rules import check_forms, checked_rules

__all__ = ["Answer", "Judged", "check_forms", "checked_rules", "is_held", "judge", "tries", "was_judged"]

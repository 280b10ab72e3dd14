"""The suite that every ledger passes. Subclass it, give a factory, inherit the tests.

class TestMyLedger(LedgerConformance):
    def make_ledger(self, tmp_path):
        return MyLedger(tmp_path / "ledger")

    def reopen(self, ledger):          # only where ledger.durable is True
        return MyLedger(ledger.path)
"""

from __future__ import annotations

from typing import Any, ClassVar

from .ledger_admission_laws import AdmissionLaws
from .ledger_closing_laws import ClosingLaws
from .ledger_sharing_laws import SharingLaws

_GUARD = "test_no_inherited_test_has_vanished"


class LedgerConformance(AdmissionLaws, ClosingLaws, SharingLaws):
    """Tests of the ``Ledger`` protocol, for pytest. None of them sleeps; together they take a few seconds.

    A test that a ledger cannot pass yet is overridden by one that is marked ``xfail`` or ``skip``, with a reason;
    any other override fails the suite. A test that does not apply raises ``unittest.SkipTest``.
    """

    laws: ClassVar[tuple[str, ...]]
    """The names of the inherited tests."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if getattr(cls, _GUARD, None) is not getattr(LedgerConformance, _GUARD):
            raise TypeError(f"{cls.__name__} overrides {_GUARD}, which makes sure that no test is missing")

    def test_no_inherited_test_has_vanished(self) -> None:
        lost = [name for name in self.laws if not _is_kept(type(self), name)]
        if lost:
            raise AssertionError(
                f"{type(self).__name__} replaces inherited tests: {', '.join(lost)}\n"
                "  mark the override xfail or skip, with a reason, so that the report shows it"
            )


def _is_kept(suite: type, name: str) -> bool:
    test = getattr(suite, name, None)
    if test is getattr(LedgerConformance, name):
        return True
    marks = getattr(test, "pytestmark", ())
    return any(mark.name in ("xfail", "skip") and mark.kwargs.get("reason") for mark in marks)


LedgerConformance.laws = tuple(
    sorted(name for name in dir(LedgerConformance) if name.startswith("test_") and name != _GUARD)
)

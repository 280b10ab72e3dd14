"""The suite notices when one of its tests is gone, and says what a ledger's author has forgotten."""

import pytest

from bound_middleware.ledgers import MemoryLedger
from bound_middleware.testing import LedgerConformance


class Complete(LedgerConformance):
    def make_ledger(self, tmp_path):
        return MemoryLedger()


def test_a_suite_with_every_test_passes_the_guard():
    Complete().test_no_inherited_test_has_vanished()


@pytest.mark.parametrize("replacement", [None, lambda self, tmp_path: None, "not a test"])
def test_a_test_that_was_replaced_fails_the_guard_by_name(replacement):
    suite = type("Suite", (Complete,), {"test_settling_twice_changes_nothing": replacement})
    with pytest.raises(AssertionError, match="Suite replaces inherited tests: test_settling_twice_changes_nothing"):
        suite().test_no_inherited_test_has_vanished()


def test_a_test_that_a_mixin_hides_fails_the_guard():
    class Mixin:
        def test_releasing_gives_everything_back(self):
            pass

    suite = type("Suite", (Mixin, Complete), {})
    with pytest.raises(AssertionError, match="test_releasing_gives_everything_back"):
        suite().test_no_inherited_test_has_vanished()


@pytest.mark.parametrize("mark", [pytest.mark.xfail, pytest.mark.skip])
def test_an_override_that_the_report_shows_is_allowed_with_a_reason(mark):
    def override(self, tmp_path):
        pass

    shown = type("Suite", (Complete,), {"test_any_text_is_an_id": mark(reason="ids are ASCII")(override)})
    shown().test_no_inherited_test_has_vanished()

    def silent(self, tmp_path):
        pass

    hidden = type("Suite", (Complete,), {"test_any_text_is_an_id": mark()(silent)})
    with pytest.raises(AssertionError, match="with a reason"):
        hidden().test_no_inherited_test_has_vanished()


def test_the_guard_itself_cannot_be_overridden():
    with pytest.raises(TypeError, match="makes sure that no test is missing"):
        type("Suite", (Complete,), {"test_no_inherited_test_has_vanished": None})


def test_a_suite_without_a_factory_says_what_to_define(tmp_path):
    with pytest.raises(NotImplementedError, match="make_ledger"):
        LedgerConformance().test_releasing_gives_everything_back(tmp_path)


def test_a_durable_ledger_without_reopen_says_what_to_define(tmp_path):
    class Durable(MemoryLedger):
        durable = True

    suite = type("Suite", (Complete,), {"make_ledger": lambda self, tmp_path: Durable()})
    with pytest.raises(NotImplementedError, match="reopen"):
        suite().test_a_durable_ledger_remembers_everything(tmp_path)


def test_the_suite_has_many_laws_and_all_of_them_are_tests():
    assert len(LedgerConformance.laws) >= 40
    assert all(callable(getattr(LedgerConformance, name)) for name in LedgerConformance.laws)

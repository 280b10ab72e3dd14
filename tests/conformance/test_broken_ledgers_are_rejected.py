"""The suite rejects every ledger with a fault, by the law that names the fault."""

from pathlib import Path

import pytest

from bound_middleware.core.errors import LedgerError
from bound_middleware.ledgers import MemoryLedger
from bound_middleware.testing import LedgerConformance

from . import broken_admission, broken_closing
from .broken import BROKEN, laws_broken_by

LAWS = [name.removeprefix("test_") for name in LedgerConformance.laws]
#: These fail by an error of their own, not by a wrong answer.
RAISING = {"BelongsToOneThread", "ClosesOnce", "HasNoLock"}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_ledger_fails_the_law_that_it_breaks(name: str, tmp_path: Path):
    ledger, laws = BROKEN[name]
    broken = laws_broken_by(ledger, laws, tmp_path)
    assert set(broken) == set(laws)
    assert name in RAISING or all(isinstance(e, (AssertionError, LedgerError)) for e in broken.values())


def test_a_right_ledger_breaks_no_law(tmp_path: Path):
    assert laws_broken_by(MemoryLedger, LAWS, tmp_path) == {}


def test_every_law_rejects_some_broken_ledger():
    named = {law for _, laws in BROKEN.values() for law in laws}
    assert named == set(LAWS)


def test_the_message_names_the_rule_and_both_values(tmp_path: Path):
    class Suite(LedgerConformance):
        def make_ledger(self, tmp_path):
            return broken_closing.SettlesTwice()

    with pytest.raises(AssertionError) as failure:
        Suite().test_settling_twice_changes_nothing(tmp_path)
    text = str(failure.value)
    assert "a settled hold books nothing more" in text
    assert "expected: (False, {}, {})" in text
    assert "but was:  (True, {'tokens': 5}, {})" in text


def test_the_broken_ledgers_are_many():
    modules = {ledger.__module__ for ledger, _ in BROKEN.values()}
    assert modules == {broken_admission.__name__, broken_closing.__name__}
    assert len(BROKEN) >= 40

"""The register of broken ledgers, and the laws that one of them breaks."""

from collections.abc import Iterable
from pathlib import Path
from unittest import SkipTest

from bound_middleware.ledgers import MemoryLedger
from bound_middleware.testing import LedgerConformance

BROKEN: dict[str, tuple[type[MemoryLedger], tuple[str, ...]]] = {}


def rejected_by(*laws: str):
    """The laws that must fail on a ledger; others may fail as well."""

    def register(ledger: type[MemoryLedger]) -> type[MemoryLedger]:
        BROKEN[ledger.__name__] = (ledger, laws)
        return ledger

    return register


def laws_broken_by(ledger: type[MemoryLedger], laws: Iterable[str], tmp_path: Path) -> dict[str, Exception]:
    """Those of ``laws`` that fail and how, run as pytest would: each on a ledger of its own."""

    class Suite(LedgerConformance):
        def make_ledger(self, tmp_path):
            return ledger()

        def reopen(self, ledger):
            return type(ledger)()

    broken = {}
    for law in laws:
        folder = tmp_path / law
        folder.mkdir()
        try:
            getattr(Suite(), f"test_{law}")(folder)
        except SkipTest:
            continue
        except Exception as failure:
            broken[law] = failure
    return broken

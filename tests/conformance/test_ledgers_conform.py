"""The ledger suite on every ledger of this package."""

from pathlib import Path

from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.testing import LedgerConformance


class TestMemoryLedger(LedgerConformance):
    def make_ledger(self, tmp_path: Path) -> MemoryLedger:
        return MemoryLedger()


class TestSqliteLedger(LedgerConformance):
    def make_ledger(self, tmp_path: Path) -> SqliteLedger:
        return SqliteLedger(tmp_path / "ledger.db")

    def reopen(self, ledger: SqliteLedger) -> SqliteLedger:
        return SqliteLedger(ledger.path)

"""A process that makes a marker of a session on a file, says it, and ends. ``issue PATH``"""

import sys

from bound_middleware import BoundSession
from bound_middleware.ledgers import SqliteLedger

if __name__ == "__main__":
    spec = {"bounds": {"token_budget": {"total": 1_000}}}
    session = BoundSession(spec, ledger=SqliteLedger(sys.argv[2]), session_id="r1")
    sys.stdout.write(session.marker("scout", tokens=400))

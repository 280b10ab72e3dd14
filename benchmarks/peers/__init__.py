"""What `benchmarks/peers.py` is made of: terms, entrances, published peers, scenarios, table."""

import os

# Before anything reads them: a proxy would get the calls to the local server, a tracer their contents.
for _name in list(os.environ):
    if _name.lower().endswith("_proxy") or _name.startswith(("LANGSMITH_", "LANGCHAIN_")):
        del os.environ[_name]

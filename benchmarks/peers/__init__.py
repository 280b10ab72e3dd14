"""What `benchmarks/peers.py` is made of: terms, entrances, published peers, scenarios, table."""

"""The deterministic core: values, arithmetic and rules; no clock, no ids, no I/O, no framework.

Everything here is a pure function of its arguments, so that a recorded decision can be computed again.
"""

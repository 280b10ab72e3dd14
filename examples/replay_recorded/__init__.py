"""Recorded agent runs, replayed under bounds; ``examples/replay_recorded.py`` says what for.

``records`` reads the runs and knows what they cost, ``replay`` takes one through a bounded agent, ``checks``
compares, ``command`` is the command line.
"""

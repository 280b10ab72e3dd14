"""The tests of the little project fail on purpose, and belong to the example."""

collect_ignore = ["project"]

"""What a user reported: two units in one duration."""

from durations import seconds


def test_hours_and_minutes():
    assert seconds("1h30m") == 5400


def test_all_units():
    assert seconds("2h15m10s") == 8110

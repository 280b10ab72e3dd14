"""What has worked so far."""

import pytest
from durations import seconds


@pytest.mark.parametrize(("text", "expected"), [("2h", 7200), ("45s", 45), ("100m", 6000)])
def test_one_unit(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "h", "x1h"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"unit|invalid literal"):
        seconds(text)

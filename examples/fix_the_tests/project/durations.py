"""Durations such as ``1h30m``, in seconds."""

UNITS = {"h": 3600, "m": 60, "s": 1}


def seconds(text):
    """How many seconds ``text`` is. Raises ``ValueError`` where it is no duration."""
    total, number = 0, ""
    for char in text:
        if char in UNITS:
            total += int(number) * UNITS[char]
        else:
            number += char
    if number == text:
        raise ValueError(f"no unit in {text!r}")
    return total

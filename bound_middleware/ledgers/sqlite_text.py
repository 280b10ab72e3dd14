"""How ids, labels and amounts are written in the columns of a ledger's file."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from ..core.ledger import Labels
from ..core.usage import Amounts

#: Marks an id that a column of text cannot hold as it is: one with a lone surrogate, or with this mark.
_ESCAPED = "json:"


def id_text(id: str) -> str:
    """Any id as text of a column; nearly always itself, so that the file can be read by a person."""
    if id.isascii() and not id.startswith(_ESCAPED):
        return id
    try:
        id.encode()
    except UnicodeEncodeError:
        return _ESCAPED + json.dumps(id)
    return _ESCAPED + json.dumps(id) if id.startswith(_ESCAPED) else id


def id_from(text: str) -> str:
    return str(json.loads(text.removeprefix(_ESCAPED))) if text.startswith(_ESCAPED) else text


def amounts_text(amounts: Amounts) -> str:
    """A JSON object of exact integers, in half the time that ``json.dumps`` takes."""
    return "{" + ",".join([f"{_quoted(meter)}:{amount:d}" for meter, amount in amounts.items()]) + "}"


def amounts_from(text: str) -> dict[str, int]:
    amounts: dict[str, int] = json.loads(text)
    return amounts


@lru_cache(maxsize=1_024)
def labels_text(labels: Labels) -> str:
    return json.dumps([labels.model, labels.tool, labels.agent])


@lru_cache(maxsize=1_024)
def labels_from(text: str) -> Labels:
    model, tool, agent = json.loads(text)
    return Labels(model=model, tool=tool, agent=agent)


@lru_cache(maxsize=1_024)
def _quoted(meter: Any) -> str:
    return json.dumps(meter)

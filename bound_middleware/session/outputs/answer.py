"""An answer as an adapter hands it over."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is about to leave.

    ``text`` is the answer, of a structured one its JSON. ``beside`` is what leaves with it: other texts, addresses
    of images. ``whole`` is false for what a model says beside its tool calls: that is not the answer, so what an
    answer has to have is not asked of it. ``called`` are the tools that the conversation shows to have been called.
    """

    id: str
    text: str
    beside: tuple[str, ...] = ()
    whole: bool = True
    called: Collection[str] = ()

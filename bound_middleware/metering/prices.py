"""Prices of models and of tools: the names that the rest of the package imports."""

from __future__ import annotations

from ..core.limits import Limits
from .price_book import PriceBook, StalePricesWarning
from .rates import Rate, RateSource, Tier

__all__ = ["PriceBook", "Rate", "RateSource", "StalePricesWarning", "Tier", "tool_price_nanousd"]


def tool_price_nanousd(limits: Limits, tool_name: str) -> int | None:
    """Nano-dollars that one call of the tool costs, or ``None`` when it has no price and must be refused.

    A listed tool costs what is listed, by exact name; any other what ``on_unpriced_tool`` says: ``"free"`` is 0.
    """
    for name, price in limits.tool_prices_nanousd:
        if name == tool_name:
            return price
    if limits.on_unpriced_tool == "refuse":
        return None
    return 0 if limits.on_unpriced_tool == "free" else limits.on_unpriced_tool

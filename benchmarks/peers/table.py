"""The table as text and as markdown, and what must hold of our own rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .terms import OUTPUT_NANOUSD, Cell, Column, Entrance

WIDTH = 80
LEAST_USED = 0.8
"""Where calls fit, so much of the budget must be used; a bound that refuses everything is none."""
IN_FLIGHT_TOKENS = 1
"""What a server generates between the chunk that is cut and the end of the connection."""

Cells = dict[tuple[str, str], Cell | None]
"""By the names of entrance and column; ``None`` where the entrance has no such place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cell that does not hold, and why."""

    entrance: str
    column: str
    cell: str
    why: str

    def __str__(self) -> str:
        return f"{self.entrance} / {self.column}: {self.cell}: {self.why}"


def faults(cell: Cell, column: Column, entrance: Entrance) -> list[str]:
    """What does not hold of a cell of ours."""
    return _of_figure(cell, column) if column.asks_figure else _of_money(cell, column, entrance)


def _of_money(cell: Cell, column: Column, entrance: Entrance) -> list[str]:
    found = []
    chunks = max(entrance.chunks_over or 0, column.chunks_over)
    most = cell.budget_nanousd + chunks * (1 + IN_FLIGHT_TOKENS) * OUTPUT_NANOUSD
    if column.refused:
        most = 0
    if cell.spent_nanousd > most:
        found.append(f"spent {cell.spent_nanousd} of {most} nano-USD")
    if not column.refused and cell.spent_nanousd < LEAST_USED * cell.budget_nanousd:
        found.append(f"used less than {LEAST_USED:.0%} of the budget")
    if cell.error or not cell.ending:
        found.append(f"ended with {cell.error}" if cell.error else "ended as if all were well")
    if cell.agreement in ("#", ""):
        found.append(_says(cell))
    return found


def _of_figure(cell: Cell, column: Column) -> list[str]:
    found = [f"ended with {cell.ending}"] if cell.ending else []
    ratio = cell.ratio
    exact = cell.agreement == "="
    near = cell.agreement == "~" and ratio is not None and abs(ratio - 1) <= column.tolerance
    if not exact and not near:
        found.append(_says(cell))
    return found


def _says(cell: Cell) -> str:
    if cell.figure is None:
        return "says nothing"
    flag = ", flagged" if cell.figure.estimated else ", not flagged"
    return f"says {cell.figure.nanousd}, true {cell.spent_nanousd} nano-USD{flag}"


def findings(cells: Cells, columns: Iterable[Column], entrances: Iterable[Entrance]) -> list[Finding]:
    """All cells of these entrances that do not hold."""
    found = []
    columns = tuple(columns)
    for entrance in entrances:
        for column in columns:
            cell = cells.get((entrance.name, column.name))
            if cell is not None and (why := faults(cell, column, entrance)):
                found.append(
                    Finding(entrance=entrance.name, column=column.name, cell=cell.text(), why="; ".join(why))
                )
    return found


def checks(cells: Cells, columns: Sequence[Column], entrances: Sequence[Entrance]) -> list[str]:
    """A line for each of our rows, and one for each cell that does not hold."""
    found = findings(cells, columns, entrances)
    lines = []
    for entrance in entrances:
        made = [c for column in columns if (c := cells.get((entrance.name, column.name))) is not None]
        bad = [finding for finding in found if finding.entrance == entrance.name]
        verdict = "holds" if not bad else f"{len(bad)} DO NOT HOLD"
        lines.append(f"{entrance.name + ':':18}{len(made)} cells, {verdict}")
        lines += [f"    {finding.column}: {finding.cell}: {finding.why}" for finding in bad]
    return lines


def as_text(cells: Cells, columns: Sequence[Column], entrances: Sequence[Entrance]) -> str:
    """Scenarios down, entrances across, in blocks of at most 80 characters."""
    label = max(len(column.head) for column in columns) + 1
    lines: list[str] = []
    block: list[list[str]] = []
    used = label
    for entrance in entrances:
        made = [cells.get((entrance.name, column.name)) for column in columns]
        texts = [entrance.name, *("-" if cell is None else cell.text(names=False) for cell in made)]
        width = max(map(len, texts)) + 1
        if block and used + width > WIDTH:
            lines += [*_block(columns, block, label), ""]
            block, used = [], label
        block.append([text.rjust(width) for text in texts])
        used += width
    lines += _block(columns, block, label)
    others = [
        (cell.entrance, cell.column, cell.error) for cell in cells.values() if cell is not None and cell.error
    ]
    lines += [f"X of {entrance}, {column}: {error}" for entrance, column, error in others]
    return "\n".join(lines)


def _block(columns: Sequence[Column], block: list[list[str]], label: int) -> list[str]:
    heads = ["", *(column.head for column in columns)]
    return [head.ljust(label) + "".join(texts[i] for texts in block) for i, head in enumerate(heads)]


def as_markdown(cells: Cells, columns: Sequence[Column], entrances: Sequence[Entrance]) -> str:
    """Entrances down, scenarios across."""
    lines = [f"| entrance | {' | '.join(column.head for column in columns)} |", "| --- " * (len(columns) + 1) + "|"]
    for entrance in entrances:
        made = [cells.get((entrance.name, column.name)) for column in columns]
        lines.append(f"| {entrance.name} | {' | '.join('-' if c is None else c.text() for c in made)} |")
    return "\n".join(lines)


def as_readme(cells: Cells, columns: Sequence[Column], entrances: Sequence[Entrance]) -> str:
    """Scenarios down, entrances across, in markdown, as the README has it."""
    lines = [
        f"| case | {' | '.join(entrance.name for entrance in entrances)} |",
        "| --- " * (len(entrances) + 1) + "|",
    ]
    for column in columns:
        made = [cells.get((entrance.name, column.name)) for entrance in entrances]
        lines.append(f"| {column.head} | {' | '.join('-' if c is None else c.text() for c in made)} |")
    return "\n".join(lines)

"""The layout of a table fits it to a width: some columns may be left out, else each row becomes a block of lines."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_GAP = "  "
_INDENT = "    "
_LEAST = 20
"""Characters that a wrapped text gets at least, however narrow the terminal is."""

Paint = Callable[[str, str], str]
"""(text of the cell, the cell as it is padded) -> what is sent to the terminal."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells of a table, printable, and what may be done to make them fit.

    Attributes:
        right: of each column, whether it is aligned to the right.
        optional: columns that are left out where they do not fit, the last one first.
        notes: one per row, printed below it; "" for none; () for no row has one.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]
    optional: Sequence[str] = ()
    notes: Sequence[str] = ()


def lay_out(grid: Grid, width: int, paint: Paint) -> Iterator[str]:
    """Yield the lines of a table, none longer than `width` characters unless a single word is."""
    shown = _fitting(grid, width)
    if shown is None:
        yield from _blocks(grid, width, paint)
        return
    widths = _widths(grid)
    yield _line([(grid.columns[at], widths[at], grid.right[at]) for at in shown])
    yield _GAP.join("-" * widths[at] for at in shown)
    for number, row in enumerate(grid.rows):
        yield _line([(row[at], widths[at], grid.right[at]) for at in shown], paint)
        if grid.notes and grid.notes[number]:
            yield from wrapped(grid.notes[number], width, _INDENT)


def wrapped(text: str, width: int, indent: str, first: str | None = None) -> list[str]:
    """Return a text in lines of at most `width` characters; a longer word is left whole, to be copied.

    Args:
        indent: what each line begins with; `first`: the first one, when that is another.
    """
    begin = indent if first is None else first
    room = max(width, len(indent) + _LEAST)
    lines = textwrap.wrap(
        text, room, initial_indent=begin, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return lines or [begin.rstrip()]


def _fitting(grid: Grid, width: int) -> list[int] | None:
    """Return the positions of the columns that fit; None when not even those do that cannot be left out."""
    widths, shown = _widths(grid), list(range(len(grid.columns)))
    droppable = [grid.columns.index(name) for name in grid.optional]
    while sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) > width:
        if not droppable:
            return None
        shown.remove(droppable.pop())
    return shown


def _widths(grid: Grid) -> list[int]:
    return [max([_cells(name), *(_cells(row[at]) for row in grid.rows)]) for at, name in enumerate(grid.columns)]


def _cells(text: str) -> int:
    """Return how many characters wide a terminal shows a text: one of East Asia takes two, an accent none."""
    if text.isascii():
        return len(text)
    return sum((unicodedata.east_asian_width(one) in "WF") + (not unicodedata.combining(one)) for one in text)


def _line(cells: Sequence[tuple[str, int, bool]], paint: Paint | None = None) -> str:
    aligned = []
    for text, width, right in cells:
        room = " " * (width - _cells(text))
        padded = room + text if right else text + room
        aligned.append(padded if paint is None else paint(text, padded))
    return _GAP.join(aligned).rstrip()


def _blocks(grid: Grid, width: int, paint: Paint) -> Iterator[str]:
    """Yield each row as a block: a line per column, its name and its value; blocks are a blank line apart."""
    names = max(len(name) for name in grid.columns)
    for number, row in enumerate(grid.rows):
        if number:
            yield ""
        for name, text in zip(grid.columns, row, strict=True):
            lines = wrapped(text, width, " " * names + _GAP, name.ljust(names) + _GAP)
            yield from [paint(text, lines[0])] if len(lines) == 1 else lines
        if grid.notes and grid.notes[number]:
            yield from wrapped(grid.notes[number], width, _INDENT)

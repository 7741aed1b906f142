"""Fit a table to a width: omit columns, else wrap one, else print rows as blocks."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

_GAP = "  "
_INDENT = "    "
_LEAST = 20
"""Minimum width of wrapped text in characters, however narrow the terminal is."""

Paint = Callable[[str, str], str]
"""(text of the cell, the cell as it is padded) -> what is sent to the terminal."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Printable cells of a table, and how they may be made to fit.

    Attributes:
        right: per column, whether it is right-aligned.
        optional: columns that are dropped if the table does not fit, the last one first.
        notes: one per row, printed below it, "" if the row has none; () if no row has a note.
        breakable: whether to break a word that is longer than its column, for data that need not be copied.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]
    optional: Sequence[str] = ()
    notes: Sequence[str] = ()
    breakable: bool = False


def lay_out(grid: Grid, width: int, paint: Paint) -> Iterator[str]:
    """Yield the lines of a table, none longer than `width` characters unless a single word is."""
    widths = _widths(grid)
    shown = _without_optional(grid, widths, width)
    if _total(widths, shown) > width and not _wraps_one(grid, widths, shown, width):
        yield from _blocks(grid, width, paint)
        return
    yield _line([(grid.columns[at], widths[at], grid.right[at]) for at in shown])
    yield _GAP.join("-" * widths[at] for at in shown)
    for number, row in enumerate(grid.rows):
        for line in zip_longest(*(_cell_lines(grid, row[at], widths[at]) for at in shown), fillvalue=""):
            yield _line([(text, widths[at], grid.right[at]) for text, at in zip(line, shown, strict=True)], paint)
        if grid.notes and grid.notes[number]:
            yield from wrapped(grid.notes[number], width, _INDENT)


def wrapped(text: str, width: int, indent: str, first: str | None = None, *, break_words: bool = False) -> list[str]:
    """Return a text in lines of at most `width` characters. A longer word stays whole, so that it can be copied.

    Args:
        indent: prefix of each line. first: prefix of the first line, if it differs.
        break_words: break a longer word.
    """
    begin = indent if first is None else first
    room = max(width, len(indent) + _LEAST)
    lines = textwrap.wrap(
        text,
        room,
        initial_indent=begin,
        subsequent_indent=indent,
        break_long_words=break_words,
        break_on_hyphens=False,
    )
    return lines or [begin.rstrip()]


def _without_optional(grid: Grid, widths: Sequence[int], width: int) -> list[int]:
    """Return the positions of the columns to show. Drops optional ones, the last first, until the rest fits."""
    shown, droppable = list(range(len(grid.columns))), [grid.columns.index(name) for name in grid.optional]
    while droppable and _total(widths, shown) > width:
        shown.remove(droppable.pop())
    return shown


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1)


def _wraps_one(grid: Grid, widths: list[int], shown: Sequence[int], width: int) -> bool:
    """Shrink the widest text column to the space that the others leave. Returns False, without a change, if it cannot.

    A word that is longer than that stays whole. In the last column it may extend beyond the table.
    """
    texts = [at for at in shown if not grid.right[at]]
    if not texts:
        return False
    widest = max(texts, key=lambda at: widths[at])
    room = width - (_total(widths, shown) - widths[widest])
    if room < max(_LEAST, _cells(grid.columns[widest])):
        return False
    fits = all(_cells(line) <= room for row in grid.rows for line in _cell_lines(grid, row[widest], room))
    if not fits and widest != shown[-1]:
        return False
    widths[widest] = room
    return True


def _cell_lines(grid: Grid, text: str, width: int) -> list[str]:
    return [text] if _cells(text) <= width else wrapped(text, width, "", break_words=grid.breakable)


def _widths(grid: Grid) -> list[int]:
    return [max([_cells(name), *(_cells(row[at]) for row in grid.rows)]) for at, name in enumerate(grid.columns)]


def _cells(text: str) -> int:
    """Return the width of a text in terminal cells: an East Asian character takes 2, a combining accent 0."""
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
    """Yield each row as a block with one line per column, name and value. A blank line separates blocks."""
    names = max(len(name) for name in grid.columns)
    for number, row in enumerate(grid.rows):
        if number:
            yield ""
        for name, text in zip(grid.columns, row, strict=True):
            lines = wrapped(text, width, " " * names + _GAP, name.ljust(names) + _GAP)
            yield from [paint(text, lines[0])] if len(lines) == 1 else lines
        if grid.notes and grid.notes[number]:
            yield from wrapped(grid.notes[number], width, _INDENT)

"""Draw column charts with characters, in eighths of a character or as stacked parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rich.text import Text

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_WIDEST = 4
_GAP_FROM = 2
"""A column of at least this many characters leaves one of them empty as a gap."""


@dataclass(frozen=True, slots=True)
class Part:
    """How to draw a part of stacked columns."""

    glyph: str
    style: str


def column_width(columns: int, width: int) -> int:
    """Return the width of each column in characters."""
    return max(1, min(_WIDEST, width // max(columns, 1)))


def columns(values: Sequence[float | None], height: int, column: int, style: str) -> list[Text]:
    """Return the lines of a chart from 0 to the largest value, top first; None leaves its column empty.

    A value above 0 is drawn with at least an eighth of a character.
    """
    top = max((value for value in values if value is not None), default=0) or 1
    eighths = [0 if not value or value < 0 else max(1, round(value / top * height * 8)) for value in values]
    lines = []
    for level in reversed(range(height)):
        filled = [_EIGHTHS[min(8, max(0, value - level * 8))] for value in eighths]
        lines.append(Text("".join(_cell(glyph, column) for glyph in filled), style=style))
    return lines


def stacked(
    values: Sequence[Mapping[str, float] | None], parts: Mapping[str, Part], height: int, column: int
) -> list[Text]:
    """Return the lines of a chart with columns that consist of parts, the first at the bottom.

    A character shows the part at its middle. With 4 lines for 8 s, the middles are at 1, 3, 5 and 7 s. A column of 3 s
    of `plan` and 5 s of `data` then has two lines of `plan` (1 s, 3 s) below two lines of `data`.
    """
    top = max((sum(value.values()) for value in values if value is not None), default=0) or 1
    lines = []
    for level in reversed(range(height)):
        middle = (level + 0.5) / height * top
        line = Text()
        for value in values:
            name = _part_at(value or {}, parts, middle)
            part = parts.get(name) if name is not None else None
            line.append(_cell(part.glyph if part else " ", column), part.style if part else "")
        lines.append(line)
    return lines


def _part_at(value: Mapping[str, float], parts: Mapping[str, Part], at: float) -> str | None:
    ends = accumulate(value.get(name, 0) for name in parts)
    return next((name for name, end in zip(parts, ends, strict=True) if at <= end), None)


def _cell(glyph: str, column: int) -> str:
    return glyph * (column - 1) + " " if column >= _GAP_FROM else glyph

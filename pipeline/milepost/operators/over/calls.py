"""Parse functions over ordered rows, such as `avg(price) rows 9 preceding`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from milepost.language import FLOATS, INTEGERS, ColumnType, did_you_mean

RANKS = ("row_number", "rank", "dense_rank")
"""Functions of a row's position."""
NEIGHBOURS = ("lag", "lead")
"""Functions that return the value of a row at a distance."""
AGGREGATES = ("count", "sum", "avg", "min", "max")
FRAMED = (*AGGREGATES, "first_value", "last_value")
"""Functions that read the rows of a frame."""
FUNCTIONS = (*RANKS, *NEIGHBOURS, *FRAMED)

UNAVAILABLE = ("cume_dist", "nth_value", "ntile", "percent_rank")
"""Functions of other engines that are not available in this version."""

SYNTAX = (
    "row_number(), rank(), dense_rank(), lag(x), lag(x, 2), lead(x), lead(x, 2), count(*), count(x), sum(x), avg(x), "
    "min(x), max(x), first_value(x), last_value(x); those from count on also with rows 9 preceding, or rows between 9 "
    "preceding and current row"
)
MOST_ROWS = 999_999_999
"""The greatest distance of lag, lead and the edges of a frame. No partition has more rows."""

_MAX_DIGITS = 38
_COLUMN = r"(?:`[^`]+`|[^\s()`,*]+)"
_CALL = re.compile(rf"\s*(\w+)\s*\(\s*(\*|{_COLUMN})?\s*(?:,\s*(\d+)\s*)?\)\s*(.*?)\s*", re.DOTALL)
_EDGE = r"(unbounded\s+preceding|unbounded\s+following|current\s+row|\d+\s+preceding|\d+\s+following)"
_FRAME = re.compile(rf"rows\s+(?:between\s+{_EDGE}\s+and\s+{_EDGE}|{_EDGE})", re.IGNORECASE)
_BARE = re.compile(r"[^\s()`,*]+")
_REFUSED = {
    r"\b(?:ignore|respect)\s+nulls\b": "IGNORE NULLS is not available in this version",
    r"\(\s*distinct\b": "DISTINCT is not available in this version; aggregate first",
    r"\bfilter\s*\(": "a filter is not available in this version; compute a column that is null in other rows in sql",
    r"^\s*(?:lag|lead)\b[^,]*,[^,]*,": "a default is not available in this version; use coalesce in sql downstream",
    r"\b(?:range|groups)\s+(?:between|unbounded|current|\d)": "a frame of RANGE or GROUPS is not available in this "
    "version; write rows",
}
"""Pattern in a call -> why it is refused."""


@dataclass(frozen=True, slots=True)
class RowFrame:
    """Rows from one distance to another before (negative) or after the current row. None: no limit on that side."""

    # rows between 9 preceding and current row            RowFrame(-9, 0)
    # rows between unbounded preceding and 1 following    RowFrame(None, 1)

    first: int | None
    last: int | None

    def __str__(self) -> str:
        return f"rows between {_edge(self.first, 'preceding')} and {_edge(self.last, 'following')}"


@dataclass(frozen=True, slots=True)
class OverCall:
    """One function of an operator.

    Attributes:
        function: one of FUNCTIONS.
        column: the input column. None for the ranks and ``count(*)``.
        distance: for lag and lead, how many rows before or after the current one.
        frame: the rows that the function reads. None: as in SQL, those up to the last one that ties with the current
            row in the order, or without an order the whole partition.
    """

    function: str
    column: str | None = None
    distance: int = 1
    frame: RowFrame | None = None

    def __str__(self) -> str:
        """Return the canonical text, which `parse_over` reads back."""
        column = self.column if self.column is None or _BARE.fullmatch(self.column) else f"`{self.column}`"
        arguments = column or ("*" if self.function == "count" else "")
        if self.function in NEIGHBOURS:
            arguments += f", {self.distance}"
        return f"{self.function}({arguments})" + (f" {self.frame}" if self.frame else "")

    @property
    def needs_order(self) -> bool:
        """Whether the result depends on the order of rows."""
        return self.function not in AGGREGATES or self.frame is not None


def _edge(distance: int | None, unbounded: str) -> str:
    if distance is None:
        return f"unbounded {unbounded}"
    if not distance:
        return "current row"
    return f"{abs(distance)} {'preceding' if distance < 0 else 'following'}"


def parse_over(text: object) -> OverCall:
    """Parse a function.

    Raises:
        ValueError: the text is not a call, or its function or frame is not available in this version.
    """
    if isinstance(text, OverCall):
        return text
    for pattern, reason in _REFUSED.items():
        if isinstance(text, str) and re.search(pattern, text, re.IGNORECASE):
            raise ValueError(f"{text!r}: {reason}")
    match = _CALL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        example = "a function such as row_number(), lag(x) or avg(x) rows 9 preceding"
        raise ValueError(f"expected {example}, got {text!r}")
    function, column, distance, frame = match[1].lower(), match[2], match[3], match[4]
    if function in UNAVAILABLE:
        raise ValueError(f"`{function}` is not available in this version; available: {', '.join(FUNCTIONS)}")
    if function not in FUNCTIONS:
        raise ValueError(f"{text!r}: there is no function `{function}`; {did_you_mean(function, FUNCTIONS)}")
    if function in RANKS and (column or distance):
        raise ValueError(f"{text!r}: {function} takes no column")
    if function not in RANKS and (column is None or (column == "*" and function != "count")):
        raise ValueError(f"{text!r}: name a column")
    if distance is not None and function not in NEIGHBOURS:
        raise ValueError(f"{text!r}: only lag and lead take a distance")
    if len(distance or "") > len(str(MOST_ROWS)):
        raise ValueError(f"{text!r}: a distance is at most {MOST_ROWS:,} rows")
    if frame and function not in FRAMED:
        raise ValueError(f"{text!r}: {function} takes no frame")
    name = None if column in (None, "*") else column.strip("`")
    return OverCall(function, name, int(distance or 1), parse_frame(frame) if frame else None)


def parse_frame(text: str) -> RowFrame:
    """Parse a frame, such as `rows between 9 preceding and current row`. Raises ValueError: it is not a frame."""
    match = _FRAME.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a frame such as `rows between 9 preceding and current row`, got {text!r}")
    first, last = (match[1], match[2]) if match[3] is None else (match[3], "current row")
    frame = RowFrame(_distance(first), _distance(last))
    if first.casefold().endswith("following") and frame.first is None:
        raise ValueError(f"{text!r}: a frame cannot begin at unbounded following")
    if last.casefold().endswith("preceding") and frame.last is None:
        raise ValueError(f"{text!r}: a frame cannot end at unbounded preceding")
    if frame.first is not None and frame.last is not None and frame.first > frame.last:
        raise ValueError(f"{text!r}: the frame ends before it begins")
    return frame


def _distance(edge: str) -> int | None:
    number, side = edge.casefold().split()
    if number == "unbounded":
        return None
    if number == "current":
        return 0
    if len(number) > len(str(MOST_ROWS)):
        raise ValueError(f"a frame ends at most {MOST_ROWS:,} rows from the current one; write unbounded {side}")
    return int(number) if side == "following" else -int(number)


def over_type_problem(call: OverCall, type_: ColumnType | None) -> str | None:
    """Return why `call` cannot take a column of this type, or None. An unknown type (None) is not checked."""
    if type_ is None or call.function not in ("sum", "avg", "min", "max"):
        return None
    if call.function in ("sum", "avg"):
        return None if type_.is_number else f"{call.function} needs numbers, but {call.column} is {type_}"
    is_ordered = not type_.is_nested and type_.kind != "binary"
    return None if is_ordered else f"{call.function} cannot order values of type {type_}"


def over_type(call: OverCall, types: Mapping[str, ColumnType | None]) -> ColumnType | None:
    """Return the type of the output column, which is Spark's, or None if it depends on a type that only Spark knows."""
    # sum(decimal(12,2))  decimal(22,2)
    # avg(decimal(12,2))  decimal(16,6)
    if call.function in RANKS:
        return ColumnType("int32")
    if call.function == "count":
        return ColumnType("int64")
    type_ = types.get(str(call.column))
    if type_ is None or call.function not in ("sum", "avg"):
        return type_
    if type_.kind == "decimal":
        digits, places = (10, 0) if call.function == "sum" else (4, 4)
        precision, scale = (min(_MAX_DIGITS, number) for number in (type_.precision + digits, type_.scale + places))
        return ColumnType("decimal", precision=precision, scale=scale)
    if call.function == "sum" and type_.kind in INTEGERS:
        return ColumnType("int64")
    assert type_.kind in (*INTEGERS, *FLOATS), type_
    return ColumnType("float64")

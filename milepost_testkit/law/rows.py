"""Random rows for the laws: few values, many edge cases, each row decoded from an integer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

MINUTE_US = 60_000_000
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("f", pa.float64()),
        ("i", pa.int32()),
        ("x", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", tz="UTC")),
    ]
)
TYPES = {
    "k": "string", "f": "float64", "i": "int32", "x": "float64", "d": "decimal(9,2)", "b": "bool",
    "t": "timestamp[us, UTC]",
}  # fmt: skip

KEYS = ("a", "b", None, "", "AA", "a longer key, which is no inlined one")
FLOAT_KEYS = (1.5, 0.0, -0.0, None, float("nan"))
WHOLE = (0, 1, -1, None, 2**31 - 1, -(2**31))
VALUES = (0.25, -0.5, 1024.0, None, float("nan"), -0.0)
"""Sums of them are exact in whatever order: what is left of floats are zeros and NaN."""
PRICES = (Decimal("0.01"), Decimal("-9999999.99"), None, Decimal("12.50"))
FLAGS = (True, False, None)
MINUTES = (0, 30, 59, 60, -1, -30, -60, -90, 45, 15, 90, -20)
EDGES_US = (0, 0, -1, 1)
STEP_MINUTES = 30
BEGIN_MINUTES = -60
"""The first epochs are before 1970."""


@dataclass(frozen=True)
class Domain:
    """The possible values of rows.

    Attributes:
        minutes, edges_us: offsets of a row's time from the time of its epoch, added together.
    """

    keys: Sequence[str | None] = KEYS
    floats: Sequence[float | None] = FLOAT_KEYS
    whole: Sequence[int | None] = WHOLE
    values: Sequence[float | None] = VALUES
    prices: Sequence[Decimal | None] = PRICES
    flags: Sequence[bool | None] = FLAGS
    minutes: Sequence[int] = MINUTES
    edges_us: Sequence[int] = EDGES_US

    @property
    def columns(self) -> tuple[Sequence[Any], ...]:
        """The values per column, in the order of `SCHEMA`, without the time."""
        return self.keys, self.floats, self.whole, self.values, self.prices, self.flags


WIDE = Domain()
NARROW = Domain(
    keys=("a", "b"),
    floats=(1.5, 0.0),
    whole=(7, 10, 5, 8, 6),
    values=(0.25, 1024.0, -0.5, 2.0, 8.0),
    prices=(Decimal("0.01"), Decimal("12.50"), Decimal("3.00"), Decimal("7.25")),
    flags=(True, False),
    minutes=(0, 30, -30, 60),
    edges_us=(0, -1, 1),
)
"""Few keys, so that rows tie and replace each other, but enough values that a value lies between two others. The times
are those at which rules change.
"""
APART = replace(NARROW, keys=("a", ""))
"""Each of the two keys belongs to a different one of two subtasks."""


def of_key(number: int, place: int) -> int:
    """Return the number of a row of `APART` with the key at index `place` and otherwise equal values."""
    unit = len(APART.minutes) * len(APART.edges_us)
    return number + (place - number // unit % len(APART.keys)) * unit


class Digits:
    """An integer read digit by digit, lowest first, each in its own base.

    17 picked from 3 choices, then from 4, gives the indices 2 (17 % 3) and 1 (5 % 4).
    """

    def __init__(self, number: int) -> None:
        self._rest = number

    def pick(self, choices: Sequence[Any]) -> Any:
        self._rest, digit = divmod(self._rest, len(choices))
        return choices[digit]


ROWS = len(KEYS) * len(FLOAT_KEYS) * len(WHOLE) * len(VALUES) * len(PRICES) * len(FLAGS) * len(MINUTES) * len(EDGES_US)


def rows_table(numbers: Sequence[int], epoch: int, domain: Domain = WIDE) -> pa.Table:
    """Return the rows that these numbers encode. Their times advance with the epochs, out of order."""
    rows = []
    for number in numbers:
        digits = Digits(number)
        minute, edge = digits.pick(domain.minutes), digits.pick(domain.edges_us)
        values = [digits.pick(choices) for choices in domain.columns]
        rows.append((*values, (BEGIN_MINUTES + STEP_MINUTES * epoch + minute) * MINUTE_US + edge))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)

"""Comparisons of a left and a right column, as `condition` of a join lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from milepost.language import check_column_name

SWAPPED = {"=": "=", "<>": "<>", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Symbol -> the symbol with which its sides are swapped."""
_TEXT = re.compile(r"\s*([^<>=!]+?)\s*(<=>|<=|>=|<>|<|>|=)\s*([^<>=!]+?)\s*")
_RIGHT, _LEFT = "right.", "left."


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares a left with a right column, as Spark does. Only `<=>` is true for a null: if both are null.

    Attributes:
        symbol: `=`, `<>`, `<=>`, `<`, `<=`, `>` or `>=`; the left column comes first.
    """

    left: str
    symbol: str
    right: str

    @property
    def text(self) -> str:
        """The comparison as a spec writes it."""
        return f"{self.left} {self.symbol} {_RIGHT}{self.right}"


def _parse(value: object) -> Comparison:
    """Return the comparison of a text such as ``paid_at <= right.closed_at``. Raises ValueError.

    >>> _parse("right.limit >= amount").text
    'amount <= right.limit'
    """
    if isinstance(value, Comparison):
        return value
    match = _TEXT.fullmatch(value) if isinstance(value, str) else None
    sides = [] if match is None else [match[1], match[3]]
    if match is None or sum(side.startswith(_RIGHT) for side in sides) != 1:
        raise ValueError(
            "expected a comparison of a left and a right column, such as `amount <= right.limit`, with one of "
            f"{', '.join(SWAPPED)}; got {value!r}"
        )
    swapped = sides[0].startswith(_RIGHT)
    left, right = reversed(sides) if swapped else sides
    symbol = SWAPPED[match[2]] if swapped else match[2]
    names = check_column_name(left.removeprefix(_LEFT)), check_column_name(right.removeprefix(_RIGHT))
    return Comparison(names[0], symbol, names[1])


ComparisonText = Annotated[
    Comparison,
    BeforeValidator(_parse),
    PlainSerializer(lambda comparison: comparison.text),
    WithJsonSchema({"type": "string", "description": "amount <= right.limit"}),
]

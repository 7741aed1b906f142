"""Which sides of a join emit unmatched rows, and what left columns show of right ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from milepost.language import FLOATS, INTEGERS, ColumnType, Path, Problem
from milepost.operators.base.key_types import key_family
from milepost.operators.base.output_rows import OutputRows
from milepost.operators.base.two_inputs import TwoInputs

LEFT_ALONE = ("semi", "anti")
"""Values of `how` that emit only left columns."""
RIGHT_UNMATCHED = ("right", "full")
"""Values of `how` that emit unmatched right rows."""
UNMATCHED_SIDES: Mapping[str, tuple[int, ...]] = {"left": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}
"""Positions of the inputs that emit their unmatched rows. Other values of `how` emit none."""


def unmatched_right_problems(
    operator: TwoInputs, how: str, pairs: Sequence[tuple[str, str]], inputs: Sequence[OutputRows], path: Path
) -> Iterator[Problem]:
    """Yield why left columns cannot hold the values of an unmatched right row.

    Args:
        pairs: the left columns that show right values in such a row, and the right columns.
    """
    left, right = inputs
    for left_name, right_name in pairs:
        types = left.type_of(left_name), right.type_of(right_name)
        if types[0] is not None and types[1] is not None and not _holds(types[0], types[1]):
            message = f"`how: {how}` stores {operator.inputs[1]}.{right_name} ({types[1]}) in {left_name} ({types[0]})"
            hint = f"which cannot hold it; CAST {left_name} in a `sql` operator before the join"
            yield Problem((*path, "how"), f"{message}, {hint}")


def _holds(type_: ColumnType, values: ColumnType) -> bool:
    """Return whether `type_` can hold all values of the type `values`."""
    if key_family(type_) != key_family(values):
        return False
    for ladder in (INTEGERS, FLOATS):
        if type_.kind in ladder:
            return ladder.index(type_.kind) >= ladder.index(values.kind)
    if type_.kind == "timestamp":
        return _UNITS.index(type_.unit) >= _UNITS.index(values.unit)
    return type_.precision >= values.precision


_UNITS = ("s", "ms", "us", "ns")

"""Output columns and common key types of joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from milepost.errors import InvalidRequest

LEFT, RIGHT = 0, 1

_GUESSED_BYTES = 48
"""Estimated size of a value of variable width."""


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """Output columns of a join.

    Attributes:
        fields: output fields.
        sides: LEFT or RIGHT, for each field.
        names: name of each field in its input.
    """

    fields: tuple[pa.Field, ...]
    sides: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, uid: str, inputs: Sequence[pa.Schema], right_key: Sequence[str], renamed: Mapping[str, str]
    ) -> JoinedColumns:
        """Return the columns of the left row, then those of the right row without its key.

        Args:
            renamed: new name -> column of the right input.
        Raises:
            InvalidRequest: a name occurs twice, or a renamed column does not exist.
        """
        new = {old: name for name, old in renamed.items()}
        right = [field for field in inputs[RIGHT] if field.name not in right_key]
        unknown = sorted(set(new) - {field.name for field in right})
        if unknown:
            raise InvalidRequest(
                f"operator {uid!r}: `columns` renames right.{unknown[0]}, which its right input does not have beside "
                "its key. Nothing was changed.",
                hint=f"It has: {', '.join(field.name for field in right)}.",
            )
        fields = [*inputs[LEFT], *(field.with_name(new.get(field.name, field.name)) for field in right)]
        names = [field.name for field in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidRequest(
                f"operator {uid!r}: column {twice[0]!r} would come twice: from its left and from its right input. "
                "Nothing was changed.",
                hint=f"columns: {{right_{twice[0]}: right.{twice[0]}}}",
            )
        left = len(inputs[LEFT])
        sides = (LEFT,) * left + (RIGHT,) * len(right)
        return cls(tuple(fields), sides, (*inputs[LEFT].names, *(field.name for field in right)))

    @classmethod
    def of_left(cls, left: pa.Schema) -> JoinedColumns:
        """Return only the columns of the left row."""
        return cls(tuple(left), (LEFT,) * len(left), tuple(left.names))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(list(self.fields))

    def joined(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Join two tables row by row."""
        sides = left, right
        values = [sides[side].column(name) for side, name in zip(self.sides, self.names, strict=True)]
        return pa.table(values, names=self.schema.names).cast(self.schema)

    def padded(self, side: int, rows: pa.Table, under: Mapping[str, str]) -> pa.Table:
        """Return rows of one side, with nulls in the columns of the other side.

        Args:
            under: for rows of the right side, its columns to show in columns of the left side: left -> right column.
        """
        nulls = pa.nulls(rows.num_rows)
        values = []
        for own, name in zip(self.sides, self.names, strict=True):
            source = name if own == side else under.get(name) if side == RIGHT else None
            values.append(nulls if source is None else rows.column(source))
        return pa.table(values, names=self.schema.names).cast(self.schema)

    def of_side(self, side: int) -> list[str]:
        """Return the columns of one input that are in the output, in order."""
        return [name for name, own in zip(self.names, self.sides, strict=True) if own == side]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row. The size of text and nested values is estimated."""
        return sum(_width(field.type) for field in self.fields)


def _width(data_type: pa.DataType) -> int:
    try:
        return max(1, int(data_type.bit_width) // 8)
    except ValueError:
        return _GUESSED_BYTES


def common_types(
    uid: str, keys: Sequence[tuple[str, str]], schemas: Sequence[pa.Schema], what: str = "key"
) -> list[pa.DataType]:
    """Return for each pair of columns the type that represents both exactly. Raises InvalidRequest: none exists."""
    common_per_key = []
    for left, right in keys:
        types = schemas[LEFT].field(left).type, schemas[RIGHT].field(right).type
        common = common_key_type(*types)
        if common is None:
            raise InvalidRequest(
                f"operator {uid!r}: {what} {left} of its left input is {types[LEFT]}, {right} of its right input is "
                f"{types[RIGHT]}: values of one are not values of the other. Nothing was changed.",
                hint="CAST one of them in a `sql` operator before it.",
            )
        common_per_key.append(common)
    return common_per_key


def check_unmatched_right(uid: str, how: str, shown: Sequence[tuple[str, str]], schemas: Sequence[pa.Schema]) -> None:
    """Raises InvalidRequest: a left column cannot hold the value that an unmatched right row shows in it.

    Args:
        shown: pairs of a left column, and the right column that it shows.
    """
    for left, right in shown:
        types = schemas[LEFT].field(left).type, schemas[RIGHT].field(right).type
        if common_key_type(*types) != types[LEFT]:
            raise InvalidRequest(
                f"operator {uid!r}: `how: {how}` shows right.{right} ({types[RIGHT]}) in {left} ({types[LEFT]}), which "
                "does not hold it. Nothing was changed.",
                hint=f"CAST {left} in a `sql` operator before it.",
            )


def common_key_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that represents both types exactly, with equal values in one key group. None: none exists.

    int32, int64                             int64
    timestamp[s], timestamp[us]              timestamp[us]
    decimal128(10, 2), decimal128(12, 2)     decimal128(12, 2)
    int64, float64                           None
    """
    if left == right:
        return left
    for ladder in _LADDERS:
        if left in ladder and right in ladder:
            return max(left, right, key=ladder.index)
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and (left.tz is None) == (right.tz is None):
        finest = max(left, right, key=lambda type_: _UNITS.index(type_.unit) if type_.unit in _UNITS else len(_UNITS))
        return finest if finest.unit in _UNITS else None
    if pa.types.is_decimal(left) and pa.types.is_decimal(right) and left.scale == right.scale:
        return max(left, right, key=lambda type_: type_.precision)
    return None


_LADDERS = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
)
_UNITS = ("s", "ms", "us")

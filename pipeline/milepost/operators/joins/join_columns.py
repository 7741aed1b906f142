"""The columns of an operator that pairs rows of two inputs: those that come out, and the types of their common key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from milepost.errors import InvalidRequest

LEFT, RIGHT = 0, 1

_GUESSED_BYTES = 48
"""Of a value of no fixed width."""


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The columns of a join's output.

    Attributes:
        fields: of the output. sides: of each, whose it is. names: of each, what it is called there.
    """

    fields: tuple[pa.Field, ...]
    sides: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, uid: str, inputs: Sequence[pa.Schema], right_key: Sequence[str], renamed: Mapping[str, str]
    ) -> JoinedColumns:
        """Return the left row's columns, then the right's without its key.

        Args:
            renamed: new name -> column of the right input.
        Raises:
            InvalidRequest: a name is there twice, or one that is renamed is not there.
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
        """Return the left row's columns alone."""
        return cls(tuple(left), (LEFT,) * len(left), tuple(left.names))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(list(self.fields))

    def joined(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return pairs: row by row, one of each side."""
        sides = left, right
        values = [sides[side].column(name) for side, name in zip(self.sides, self.names, strict=True)]
        return pa.table(values, names=self.schema.names).cast(self.schema)

    def padded(self, side: int, rows: pa.Table, under: Mapping[str, str]) -> pa.Table:
        """Return rows of one side alone, with null in the columns of the other one.

        Args:
            under: of the right side, what it shows in columns of the left one: left column -> its own.
        """
        nulls = pa.nulls(rows.num_rows)
        values = []
        for own, name in zip(self.sides, self.names, strict=True):
            source = name if own == side else under.get(name) if side == RIGHT else None
            values.append(nulls if source is None else rows.column(source))
        return pa.table(values, names=self.schema.names).cast(self.schema)

    def of_side(self, side: int) -> list[str]:
        """Return the columns of one input that come out, in order."""
        return [name for name, own in zip(self.names, self.sides, strict=True) if own == side]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; of text and nested values a guess."""
        return sum(_width(field.type) for field in self.fields)


def _width(data_type: pa.DataType) -> int:
    try:
        return max(1, int(data_type.bit_width) // 8)
    except ValueError:
        return _GUESSED_BYTES


def common_types(uid: str, keys: Sequence[tuple[str, str]], schemas: Sequence[pa.Schema]) -> list[pa.DataType]:
    """Return of each pair of key columns the type that holds both exactly. Raises InvalidRequest: there is none."""
    found = []
    for left, right in keys:
        types = schemas[LEFT].field(left).type, schemas[RIGHT].field(right).type
        common = common_key_type(*types)
        if common is None:
            raise InvalidRequest(
                f"operator {uid!r}: key {left} of its left input is {types[LEFT]}, {right} of its right input is "
                f"{types[RIGHT]}: values of one are not values of the other. Nothing was changed.",
                hint="CAST one of them in a `sql` operator before it.",
            )
        found.append(common)
    return found


def common_key_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both exactly, equal ones in one key group; None: there is none.

    Signed integers among themselves, floats, decimals of one scale, and times of one kind.
    """
    if left == right:
        return left
    for ladder in _LADDERS:
        if left in ladder and right in ladder:
            return max(left, right, key=ladder.index)
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and (left.tz is None) == (right.tz is None):
        finest = max(left, right, key=lambda one: _UNITS.index(one.unit) if one.unit in _UNITS else len(_UNITS))
        return finest if finest.unit in _UNITS else None
    if pa.types.is_decimal(left) and pa.types.is_decimal(right) and left.scale == right.scale:
        return max(left, right, key=lambda one: one.precision)
    return None


_LADDERS = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
)
_UNITS = ("s", "ms", "us")

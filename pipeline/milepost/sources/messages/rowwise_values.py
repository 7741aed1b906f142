"""Decode message values one by one into values of the declared columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from milepost.sources.contract import BadRecord
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.kernel.declared_columns import DeclaredColumns


class ValueDecoder(Protocol):
    """Decodes values as rows of the declared columns; picklable.

    Attributes:
        schema: of the rows.
    """

    schema: pa.Schema

    def decode(self, values: pa.Array) -> pa.RecordBatch:
        """Return one row per value.

        Args:
            values: binary, without nulls.
        Raises:
            UNDECODABLE: a value cannot be decoded. `errors` finds out which.
        """

    def errors(self, key: str, values: pa.Array) -> dict[int, BadRecord]:
        """Return the error of each value that cannot be decoded, by its index. `key` is that of their object."""


class BadValue(ValueError):
    """A value that cannot be decoded.

    Attributes:
        column, value: the bad column and its value as text; None: it is not one column.
        reason: a clause without the value.
        ends: whether no later message may be read, so that it cannot become a dead letter.
    """

    def __init__(
        self, reason: str, column: str | None = None, value: str | None = None, *, detail: str = "", ends: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason, self.column, self.value, self.detail, self.ends = reason, column, value, detail, ends


class EndingValue(BadRecord):
    """A message after which no row may be read. It never becomes a dead letter."""


UNDECODABLE = (*DATA_ERRORS, UnicodeError, OverflowError, BadValue)
"""What decoding raises because of the data."""

ReadValue: TypeAlias = Callable[[bytes], Sequence[Any]]
"""Returns the values of all declared columns. Raises BadValue."""


class RowwiseValues:
    """Implements `ValueDecoder` for a function that decodes one value; picklable if that is."""

    def __init__(self, declared: DeclaredColumns, read: ReadValue) -> None:
        self.schema = declared.schema
        self._declared, self._read = declared, read

    def decode(self, values: pa.Array) -> pa.RecordBatch:
        read = self._read
        return self._rows([read(value) for value in values.to_pylist()])

    def errors(self, key: str, values: pa.Array) -> dict[int, BadRecord]:
        found: dict[int, BadRecord] = {}
        for at, value in enumerate(values.to_pylist()):
            try:
                row = self._read(value)
            except BadValue as bad:
                shown = value.decode("utf-8", "replace") if bad.value is None and bad.column is None else bad.value
                make = EndingValue if bad.ends else BadRecord
                found[at] = make(key, None, bad.column, shown, bad.reason, engine_message=bad.detail)
                continue
            try:
                self._rows([row])
            except UNDECODABLE:
                found[at] = self._explain(key, row)
        return found

    def _rows(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Return rows of the declared columns. Raises UNDECODABLE."""
        fields = self._declared.file_schema
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
        return self._declared.timed(pa.RecordBatch.from_arrays(arrays, schema=fields))

    def _explain(self, key: str, row: Sequence[Any]) -> BadRecord:
        """Return the error of a row that Arrow refuses, or that has no event time."""
        for field, value in zip(self._declared.file_schema, row, strict=True):
            try:
                array = pa.array([value], field.type)
            except UNDECODABLE as error:
                is_text = isinstance(error, UnicodeError)
                reason = "is not valid UTF-8" if is_text else f"is not of type {self._declared.types[field.name]}"
                return BadRecord(key, None, field.name, str(value), reason)
            if field.name == self._declared.event_time:
                try:
                    self._declared.timed(pa.RecordBatch.from_arrays([array], schema=pa.schema([field])))
                except UNDECODABLE:
                    shown = None if value is None else str(array[0].as_py())
                    return BadRecord(key, None, field.name, shown, self._declared.fault(array[0]))
        return BadRecord(key, None, None, None, "cannot be read")

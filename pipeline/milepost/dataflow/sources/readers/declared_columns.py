"""Declared columns of a source: those of its files, then those that it takes from an object's key."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from milepost.dataflow.sources.path_columns import PathColumns
from milepost.spec.values.types import ColumnType, to_arrow


class DeclaredColumns:
    """What a source declares of its rows; picklable.

    Attributes:
        source: name, for messages.
        types: of the columns of a file, in order; others that a file has are ignored.
        in_file: their schema. required: those of them that each object has; one that lacks another reads as null.
        in_path: the columns of the key. schema: of a row, both.
        event_time: column of a file that may not be null; None: it has none.
    """

    def __init__(
        self,
        source: str,
        columns: Mapping[str, ColumnType],
        *,
        event_time: str | None = None,
        optional: Collection[str] = (),
        partitions: Mapping[str, ColumnType] | None = None,
    ) -> None:
        """Take what the spec says.

        Args:
            event_time: of a column of either kind. optional: columns that an object may lack.
            partitions: columns taken from the key.
        """
        self.source, self.types = source, dict(columns)
        self.in_file = pa.schema([(name, to_arrow(type_)) for name, type_ in columns.items()])
        self.required = [name for name in columns if name not in optional]
        self.in_path = PathColumns(partitions or {})
        self.schema = pa.schema([*self.in_file, *self.in_path.fields])
        self.event_time = event_time if event_time in columns else None

    def or_optional(self, column: str) -> str:
        """Return how a column that an object lacks could be read all the same, as the end of a sentence, or nothing."""
        return "" if column == self.event_time else "; name it in `optional_columns` where an object may lack it"

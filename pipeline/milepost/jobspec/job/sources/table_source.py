"""What the specs of sources that are open tables share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from milepost.jobspec.job.sources.landed_source import LandedSourceSpec, LandRules
from milepost.language import ColumnName, Size, Type, parse_start

_MAX_NUMBER = 1 << 63


def _parse_start(value: object) -> str | int:
    if isinstance(value, str):
        return parse_start(value)
    if type(value) is not int or not 0 <= value < _MAX_NUMBER:
        raise ValueError("expected earliest, latest, a time, or the number of a version or snapshot")
    return value


TableStart = Annotated[
    Any,
    BeforeValidator(_parse_start),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "description": "earliest, latest or a time"},
                {"type": "integer", "minimum": 0},
            ]
        }
    ),
]


class TableLandLimits(LandRules):
    """When a table is landed, and limits on what a landing appends to the log as one record.

    A landing appends as many records as it needs.

    Attributes:
        by: reference: epochs read the table's files where they are. An epoch or a backfill that needs a file which the
            table has deleted is refused, and the file is named. copy: rows are copied into the source's log, and the
            table may delete its files.
        max_bytes: maximum size of the data files per record. A record has at least one data file, and whole ones.
    """

    refused_keys: ClassVar[Mapping[str, str]] = {
        "max_rows": "is not for a table: a record has whole data files; write `max_bytes`"
    }

    by: Literal["reference", "copy"] = "reference"
    max_bytes: Annotated[Size, Field(ge=1)] = 256_000_000


class TableSourceSpec(LandedSourceSpec):
    """Rows that are appended to an open table.

    Attributes:
        columns: columns of the table that are read, by name, with the types that they have in the table. A row that was
            written before a column was added has null in it, and columns that are not declared are ignored. The order
            matters: a new table has its columns in this order, and it breaks ties between rows.
        land: how the source is landed.
    """

    columns: Annotated[dict[ColumnName, Type], Field(alias="schema", min_length=1)]
    start: TableStart = "earliest"
    land: TableLandLimits = TableLandLimits()

    @property
    def identity(self) -> dict[str, str]:
        """The table is known by its id once it is landed; the log has that."""
        return {"format": self.format, "start": str(self.start)}

"""Partition rows: all rows of a file have one value in each partition column, recorded in the table's log.

The columns stay in the files too. Polars 2.1 reads a missing partition column as null unless the path has its value,
and Milepost's paths have no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.language.times import scalar_text
from milepost.sinks.parquet_files.partition_values import has_partition_type, partition_text
from milepost.sinks.parquet_files.table_files import TableFiles
from milepost.tables.records import PartitionValues, StagedFile, StagingContext

MAX_PARTITIONS = 1000
"""Number of partitions that one subtask may write in one epoch. Each is at least one file."""


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """The partitioning of a table.

    Attributes:
        columns: at least one. takes_empty_text: whether the format distinguishes an empty text from null.
    """

    columns: tuple[str, ...]
    takes_empty_text: bool

    def check(self, sink: str, schema: pa.Schema) -> None:
        """Refuse rows that cannot be partitioned so. Raises InvalidRequest, naming the column."""
        for name in self.columns:
            if name not in schema.names:
                raise InvalidRequest(
                    f"sink {sink}: `partition_by` names {name!r}, and its rows have {', '.join(schema.names)}. "
                    "Nothing was published.",
                    column=name,
                )
            if not has_partition_type(schema.field(name).type):
                raise InvalidRequest(
                    f"sink {sink}: `partition_by` names {name!r} of the type {schema.field(name).type}; available: "
                    "string, signed whole numbers, bool, date, and timestamp in microseconds. Nothing was published.",
                    hint="partition by a column with the row's day, `CAST(at AS DATE) AS day`",
                    column=name,
                )


def check_partition(sink: str, file: StagedFile, by: PartitionBy | None) -> None:
    """Refuse a file of a table with other partition columns. Raises InvalidRequest."""
    actual, stated = tuple(name for name, _ in file.partition), () if by is None else by.columns
    if actual != stated:
        raise InvalidRequest(
            f"sink {sink}: its table is partitioned by {', '.join(actual) or 'nothing'}, but `partition_by` says "
            f"{', '.join(stated) or 'nothing'}. Nothing was published.",
            hint=f"write `partition_by: {list(actual)}`",
            sink=sink,
        )


class PartitionFiles:
    """Stages rows as files of one partition each."""

    def __init__(self, sink: str, files: TableFiles, by: PartitionBy) -> None:
        self._sink, self._files, self._by = sink, files, by

    def stage(self, tables: Iterable[pa.Table], context: StagingContext) -> tuple[StagedFile, ...]:
        """Write the rows durably, in their order within each partition.

        Beyond `context.held_bytes` of buffered rows, the largest partition is written. It may get another file later.

        Raises: InvalidRequest: too many values, or one that the format cannot distinguish from null.
        """
        waiting = dict[PartitionValues, list[pa.Table]]()
        written = list[StagedFile]()

        def write(values: PartitionValues) -> None:
            rows, waiting[values] = waiting[values], []
            file = self._files.stage(rows, context, f"{context.subtask}-{len(written)}")
            if file is not None:
                written.append(replace(file, partition=values))

        held = 0
        for rows in tables:
            self._by.check(self._sink, rows.schema)
            for values, part in self._parts(rows):
                self._check_values(values, known=waiting)
                waiting.setdefault(values, []).append(part)
                held += part.nbytes
            while held > context.held_bytes:
                sizes = {values: sum(part.nbytes for part in parts) for values, parts in waiting.items()}
                largest = max(sizes, key=sizes.__getitem__)
                write(largest)
                held -= sizes[largest]
        for values in waiting:
            write(values)
        return tuple(written)

    def _parts(self, rows: pa.Table) -> Iterator[tuple[PartitionValues, pa.Table]]:
        """Yield the rows of each combination of values. Raises InvalidRequest: a time that no log can represent."""
        for part in split_by_values(rows, self._by.columns):
            yield tuple((name, self._text(name, part.column(name)[0])) for name in self._by.columns), part

    def _text(self, name: str, value: pa.Scalar) -> str | None:
        try:
            return partition_text(value.as_py())
        except (OverflowError, ValueError):
            raise InvalidRequest(
                f"sink {self._sink}: a row has {scalar_text(value)} in {name!r}, a column of `partition_by`; "
                "a partition value must be in the years 1 to 9999. Nothing was published.",
                hint="filter such rows out in a sql operator, replace the value by null, or use another column",
                sink=self._sink,
                column=name,
            ) from None

    def _check_values(self, values: PartitionValues, known: dict[PartitionValues, list[pa.Table]]) -> None:
        if values in known:
            return
        columns = ", ".join(self._by.columns)
        if len(known) >= MAX_PARTITIONS:
            raise InvalidRequest(
                f"sink {self._sink}: an epoch has rows of more than {MAX_PARTITIONS} values of `partition_by` "
                f"({columns}) in one subtask, and each would be a file. Nothing was published.",
                hint="partition by a column of fewer values, such as a date; or let epochs read less "
                "(limits_per_epoch)",
                sink=self._sink,
            )
        empty = [name for name, text in values if text == ""]
        if empty and not self._by.takes_empty_text:
            raise InvalidRequest(
                f"sink {self._sink}: a row has an empty text in {empty[0]!r}, a column of `partition_by`, which Delta "
                "stores as null. Nothing was published.",
                hint="replace it by null or another text in a sql operator: `NULLIF(column, '')`",
                sink=self._sink,
            )


def split_by_values(rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each combination of values, in their order. Combinations are ordered by their first row.

    Each column is dictionary-encoded, and the codes are combined into one number per row, which a stable sort groups::

        rows (a 1) (b 1) (a 2) (b 1)    codes 0 2 1 2     ->  (a 1), (b 1) (b 1), (a 2)
    """
    if not rows.num_rows:
        return
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in columns:
        encoded = pc.dictionary_encode(rows.column(name).combine_chunks(), null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False)
        _, codes = np.unique(codes * (int(own.max()) + 1) + own, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, stop in sorted(zip(starts, [*starts[1:], len(order)], strict=True), key=lambda ends: order[ends[0]]):
        yield rows if len(starts) == 1 else rows.take(pa.array(order[start:stop]))

"""Read a sample with the reader of the proposed source, and correct the proposal where it refuses a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from milepost.jobspec.job import FileSourceSpec
from milepost.protocol.records import ObjectStore
from milepost.sources.contract import BadObject, BadRecord, ObjectReader, SourceObject, whole_object
from milepost.sources.formats import build_reader
from milepost.sources.inference.proposal import ProposedColumn, refused, shown
from milepost.sources.inference.text_types import STRING

MAX_ROWS = 50_000
"""Rows of each Parquet file that are read at most, in whole batches. Text is limited by its bytes (`HEAD_BYTES`)."""

_MAX_BAD_RATIO = 0.1
_NAME = "sample"


@dataclass(frozen=True, slots=True)
class SampleFiles:
    """The files of a sample, as the reader reads them.

    Attributes:
        names: key in `store` -> key of the file that it is the beginning of.
    """

    store: ObjectStore
    objects: Sequence[SourceObject]
    names: Mapping[str, str]

    def describe(self, bad: BadRecord) -> str:
        """Return the error of a record with the name of its file."""
        return str(bad).replace(bad.key, self.names.get(bad.key, bad.key), 1)


@dataclass(frozen=True, slots=True)
class ReadSample:
    """What the reader read.

    Attributes:
        columns: as declared, after corrections. rows: in their types.
        bad_records: how many records it refused, and why the first one, as one line; None: none.
        is_whole: whether no file has more rows than were read.
    """

    columns: tuple[ProposedColumn, ...]
    rows: pa.Table
    bad_records: str | None
    is_whole: bool


def read_sample(
    format_: str, options: Mapping[str, Any], columns: Sequence[ProposedColumn], files: SampleFiles
) -> ReadSample:
    """Read the sample in the proposed types. A column with a value that the reader refuses becomes a string, or is not
    declared, and the sample is read again.

    Raises:
        InvalidRequest: no column is left, or records cannot be read in any type.
    """
    columns = tuple(columns)
    most_rows = MAX_ROWS if format_ == "parquet" else None
    while True:
        declared = [column for column in columns if column.type is not None]
        if not declared:
            reasons = "; ".join(f"{shown(column.name)}: {column.note}" for column in columns[:3])
            raise refused(f"no column can be declared ({reasons}).", "Write the spec by hand, or convert the files.")
        reader = build_reader(_NAME, _spec(format_, options, declared))
        culprit: BadRecord | None = None
        try:
            rows, bad, is_whole = _read(reader, files, _rows_of, most_rows)
        except BadRecord as error:
            culprit = error
            if error.column is None and not isinstance(error, BadObject):
                rows, bad, is_whole = _salvaged(reader, files, most_rows)
                culprit = next((one for one in bad if one.column is not None), None)
        if culprit is None:
            _require_few(bad, rows.num_rows, files)
            return ReadSample(columns, rows, _summary(bad, rows.num_rows, files), is_whole)
        if culprit.column not in [column.name for column in declared]:
            raise refused(f"{files.describe(culprit)}.", "Correct the file, or choose others by a pattern.")
        columns = tuple(
            _corrected(column, culprit, format_, files) if column.name == culprit.column else column
            for column in columns
        )


def _corrected(column: ProposedColumn, bad: BadRecord, format_: str, files: SampleFiles) -> ProposedColumn:
    value = f"{shown(bad.value)} " if bad.value is not None else ""
    reason = f"{value}{bad.clause}"
    if format_ == "csv" and column.type != STRING:
        return replace(column, type=STRING, note=f"{reason}: declared as string", time_format=None)
    if format_ == "json" and column.type not in (None, STRING) and column.type.kind in ("timestamp", "date"):
        return replace(column, type=STRING, note=f"{reason}: declared as string")
    if column.type == STRING and format_ == "csv":
        raise refused(f"{files.describe(bad)}.", "Correct the file, or choose others by a pattern.")
    return replace(column, type=None, note=reason)


def _spec(format_: str, options: Mapping[str, Any], columns: Sequence[ProposedColumn]) -> FileSourceSpec:
    document = {
        "format": format_,
        "path": "sample/*",
        "options": dict(options),
        "schema": {column.name: column.type for column in columns},
        "optional_columns": [column.name for column in columns if column.is_optional],
    }
    return FileSourceSpec.model_validate(document)


_Rows = Callable[[ObjectReader, SampleFiles, SourceObject], Iterator[pa.RecordBatch | BadRecord]]


def _rows_of(reader: ObjectReader, files: SampleFiles, obj: SourceObject) -> Iterator[pa.RecordBatch | BadRecord]:
    return reader.read_part(files.store, whole_object(obj))


def _salvaged_of(reader: ObjectReader, files: SampleFiles, obj: SourceObject) -> Iterator[pa.RecordBatch | BadRecord]:
    return reader.salvage_part(files.store, whole_object(obj))


def _salvaged(
    reader: ObjectReader, files: SampleFiles, most_rows: int | None
) -> tuple[pa.Table, list[BadRecord], bool]:
    try:
        return _read(reader, files, _salvaged_of, most_rows)
    except BadObject as error:
        raise refused(f"{files.describe(error)}.", "Correct the file, or choose others by a pattern.") from error


def _read(
    reader: ObjectReader, files: SampleFiles, rows_of: _Rows, most_rows: int | None
) -> tuple[pa.Table, list[BadRecord], bool]:
    """Return rows, bad records and whether these are all of every file. Raises: as the reader.

    Args:
        most_rows: of each file, after which no further batch is read; None: all.
    """
    batches: list[pa.RecordBatch] = []
    bad: list[BadRecord] = []
    is_whole = True
    for obj in files.objects:
        count = 0
        for item in rows_of(reader, files, obj):
            if most_rows is not None and count >= most_rows:
                is_whole = False
                break
            if isinstance(item, BadRecord):
                bad.append(item)
                continue
            batches.append(item)
            count += item.num_rows
    return pa.Table.from_batches(batches, schema=reader.schema), bad, is_whole


def _summary(bad: Sequence[BadRecord], rows: int, files: SampleFiles) -> str | None:
    """Return how many records cannot be read, and the place and reason of the first, without its text."""
    if not bad:
        return None
    key, line = bad[0].location
    place = files.names.get(key, key) + (f", line {line}" if line is not None else "")
    return f"{len(bad):,} of {len(bad) + rows:,} records, such as {place}: {bad[0].clause}"


def _require_few(bad: Sequence[BadRecord], rows: int, files: SampleFiles) -> None:
    """Refuse files with many records that cannot be read."""
    if len(bad) > _MAX_BAD_RATIO * (len(bad) + rows):
        raise refused(
            f"{len(bad):,} of {len(bad) + rows:,} records cannot be read, such as {files.describe(bad[0])}.",
            "Correct the files, or write the spec by hand, with `bad_records: dead_letter` and `options`.",
        )

"""The reader of each source format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from milepost.jobspec.job import SourceSpec
from milepost.protocol.records import ObjectStore
from milepost.sources import csv, json_lines, messages, parquet
from milepost.sources.contract import LineReader, ObjectReader, SourceObject
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.file_columns import FileColumns

FORMATS: dict[str, Callable[[DeclaredColumns, Mapping[str, Any]], ObjectReader]] = {
    "csv": lambda declared, options: csv.CsvReader(declared, options),  # noqa: PLW0108 - imported when called
    "json": lambda declared, _: json_lines.JsonLinesReader(declared),
    "parquet": lambda declared, _: parquet.ParquetReader(declared),
}
"""Format -> its reader, from the declared columns and the options. A format is imported when its reader is built.

`SOURCE_FORMATS` has what a spec may declare.
"""


def build_reader(name: str, spec: SourceSpec, files: Mapping[str, FileColumns] | None = None) -> ObjectReader:
    """Return the reader of a source. It can be pickled and reads the same in every process.

    Args:
        name: name of the source, for messages.
        spec: may be unresolved, because no connection field is used.
        files: columns of the data files of a table that are read where they are, by URI; None: there are none.

    Raises:
        InvalidRequest: an option has a value that its reader does not accept.
    """
    layout = spec.layout
    if layout.messages is not None:
        return messages.MessageReader(name, layout.messages, spec.event_time)
    declared = DeclaredColumns(
        name,
        spec.columns,
        event_time=spec.event_time,
        optional=layout.optional_columns,
        partitions=layout.partitions,
    )
    if files:
        return parquet.LandedFileReader(declared, files)
    return FORMATS[layout.format](declared, layout.options)


def record_places(
    name: str, spec: SourceSpec, store: ObjectStore, obj: SourceObject
) -> Iterator[int | tuple[str, int, int]]:
    """Yield where each record of an object begins, in order, bad records included.

    For text that is its line, for messages topic, partition and offset, and otherwise the number of its row. Lines and
    rows count from 1. A message without a row is left out.

    Raises: BadObject: it cannot be read. CommitConflict, NotFound: it was changed or deleted.
    """
    reader = build_reader(name, spec)
    if isinstance(reader, LineReader):
        return reader.record_lines(store, obj)
    if isinstance(reader, messages.MessageReader):
        return reader.message_places(store, obj)
    return count(1)

"""The reader of each source format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from milepost.jobspec.job import SourceSpec
from milepost.protocol.records import ObjectStore
from milepost.sources import csv, json_lines, messages, parquet
from milepost.sources.contract import ObjectReader, SourceObject
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


def record_lines(name: str, spec: SourceSpec, store: ObjectStore, obj: SourceObject) -> Iterator[int]:
    """Yield the line at which each record of an object begins, from 1; nothing for a format without lines.

    Raises: BadObject: it cannot be read. CommitConflict, NotFound: it was changed or deleted.
    """
    reader = build_reader(name, spec)
    if isinstance(reader, csv.CsvReader | json_lines.JsonLinesReader):
        yield from reader.record_lines(store, obj)

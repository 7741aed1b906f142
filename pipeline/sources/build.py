"""From a source's spec to its reader."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pipeline.config.spec import SourceSpec
from pipeline.protocol.errors import InvalidRequest, NotFound
from pipeline.protocol.object_store import ObjectStore
from pipeline.sources.contract import SourceObject, SourceReader
from pipeline.sources.csv import CsvReader
from pipeline.sources.json_lines import JsonLinesReader
from pipeline.sources.parquet import ParquetReader


def build_reader(name: str, spec: SourceSpec) -> SourceReader:
    """Return the reader of a source: picklable, the same in every process.

    Args:
        name: of the source, for messages.
        spec: resolved or not; no connection field is used.

    Raises:
        InvalidRequest: an option or a type that the format cannot do, or a column declared twice.
    """
    twice = sorted(spec.columns.keys() & spec.partitions.keys())
    if twice:
        raise InvalidRequest(f"sources.{name}: column {twice[0]} is declared both in schema and in partitions.")
    if spec.format == "csv":
        return CsvReader(
            name, spec.columns, event_time=spec.event_time, partitions=spec.partitions, options=spec.options
        )
    if spec.options:
        raise InvalidRequest(f"sources.{name}.options: format {spec.format} has no options in this version.")
    reader = JsonLinesReader if spec.format == "json" else ParquetReader
    return reader(name, spec.columns, event_time=spec.event_time, partitions=spec.partitions)


def read_planned(
    reader: SourceReader, store: ObjectStore, obj: SourceObject, on_missing: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a planned object; none when it is gone and the source says skip.

    Args:
        on_missing: fail or skip.

    Raises:
        BadRecord, CommitConflict: as the reader. NotFound: the object is gone and `on_missing` is fail.
    """
    try:
        yield from reader.read(store, obj)
    except NotFound:
        if on_missing != "skip":
            raise

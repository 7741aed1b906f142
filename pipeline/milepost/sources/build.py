"""Build the reader of a source from its spec."""

from __future__ import annotations

from milepost.jobspec.job import SourceSpec
from milepost.sources.contract import ObjectReader
from milepost.sources.readers.csv import CsvReader
from milepost.sources.readers.declared_columns import DeclaredColumns
from milepost.sources.readers.json_lines import JsonLinesReader
from milepost.sources.readers.parquet import ParquetReader


def build_reader(name: str, spec: SourceSpec) -> ObjectReader:
    """Return the reader of a source. It can be pickled and reads the same in every process.

    Args:
        name: name of the source, for messages.
        spec: may be unresolved, because no connection field is used.

    Raises:
        InvalidRequest: an option has a value that its reader does not accept.
    """
    declared = DeclaredColumns(
        name,
        spec.columns,
        event_time=spec.event_time,
        optional=spec.optional_columns,
        partitions=spec.partitions,
    )
    if spec.format == "csv":
        return CsvReader(declared, spec.options)
    return JsonLinesReader(declared) if spec.format == "json" else ParquetReader(declared)

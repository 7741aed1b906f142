"""Check each sink's keys against its format, and sinks against each other."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.jobspec.job.availability import not_available
from milepost.jobspec.job.spec import BUCKET_FORMATS, JobSpec
from milepost.language import Path, Problem

_KEYS_OF_FORMATS = {
    "path": ("parquet", "delta", "iceberg"),
    "catalog": ("iceberg",),
    "table": ("iceberg", "postgres"),
    "dsn": ("postgres",),
    "conn_id": ("postgres",),
}
"""Sink key -> formats that have it. Postgres needs exactly one of `dsn` and `conn_id`."""


def sink_problems(spec: JobSpec) -> list[Problem]:
    """Return the problems of the sinks, except those of their inputs."""
    return [
        *_keys(spec),
        *_databases(spec),
        *_shared_tables(spec),
        *_buckets(spec),
        *_partitions(spec),
        *_adopted(spec),
    ]


def _keys(spec: JobSpec) -> Iterator[Problem]:
    for index, sink in enumerate(spec.sinks):
        for key, formats in _KEYS_OF_FORMATS.items():
            value = getattr(sink, key)
            if value is None and sink.format in formats and key == "path":
                yield Problem(("sinks", index), "`path` is missing")
            elif value is None and sink.format in formats and key in ("catalog", "table"):
                yield Problem(("sinks", index, key), f"format: {sink.format} needs `{key}`")
            elif value is not None and sink.format not in formats:
                listed = " and ".join(filter(None, (", ".join(formats[:-1]), formats[-1])))
                message = f"`{key}` applies to format: {listed}; sink {sink.name} has format: {sink.format}"
                yield Problem(("sinks", index, key), message)


def _databases(spec: JobSpec) -> Iterator[Problem]:
    for index, sink in enumerate(spec.sinks):
        if sink.format != "postgres":
            continue
        if (sink.dsn is None) == (sink.conn_id is None):
            needs_one = "format: postgres needs `dsn` or `conn_id`"
            message = needs_one if sink.dsn is None else "`conn_id` already determines it; remove one of them"
            yield Problem(("sinks", index, "dsn"), message)
        if sink.mode != "upsert":
            message = f"{not_available(f'mode: {sink.mode}')} for format: postgres; available: upsert"
            yield Problem(("sinks", index, "mode"), message)
        if sink.table is not None and sink.table.count(".") != 1:
            yield Problem(("sinks", index, "table"), f"expected SCHEMA.TABLE, got {sink.table!r}")


def _shared_tables(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each sink that has the same table as another, in a database or in one catalog."""
    tables: dict[tuple[str, ...], str] = {}
    for index, sink in enumerate(spec.sinks):
        if sink.table is None or sink.format not in _KEYS_OF_FORMATS["table"]:
            continue
        catalog = ("",) if sink.catalog is None else (sink.catalog.uri, sink.catalog.name)
        other = tables.setdefault((sink.format, *catalog, sink.table), sink.name)
        if other != sink.name:
            message = f"{sink.table} is also the table of sink {other}; give each sink its own table"
            yield Problem(("sinks", index, "table"), message)


def _buckets(spec: JobSpec) -> Iterator[Problem]:
    most = spec.checkpointing.max_parallelism
    for index, sink in enumerate(spec.sinks):
        if sink.buckets is not None and not sink.by_buckets:
            actual = f"sink {sink.name} has mode: {sink.mode}, format: {sink.format}"
            message = f"`buckets` applies to mode: upsert of delta and iceberg; {actual}"
            yield Problem(("sinks", index, "buckets"), message)
        elif sink.buckets is not None and sink.buckets > most:
            message = f"expected at most checkpointing.max_parallelism, {most}, got {sink.buckets}"
            yield Problem(("sinks", index, "buckets"), message)


def _partitions(spec: JobSpec) -> Iterator[Problem]:
    for index, sink in enumerate(spec.sinks):
        if sink.partition_by is None:
            continue
        path: Path = ("sinks", index, "partition_by")
        if sink.format not in BUCKET_FORMATS:
            message = f"`partition_by` applies to format: delta and iceberg; sink {sink.name} has format: {sink.format}"
            yield Problem(path, message)
        elif sink.mode == "upsert":
            yield Problem(path, "`partition_by` applies to mode: append and changelog; mode: upsert has `buckets`")
        for column in sink.partition_by:
            if "(" in column:
                hint = "add a column, `CAST(at AS DATE) AS day`, and partition by it"
                yield Problem(path, f"{not_available(column)}: tables are partitioned by columns; {hint}")


def _adopted(spec: JobSpec) -> Iterator[Problem]:
    for index, sink in enumerate(spec.sinks):
        if sink.adopt and sink.format == "postgres":
            message = f"{not_available('adopt')} for format: postgres; name a table that does not exist yet"
            yield Problem(("sinks", index, "adopt"), message)
        if sink.adopt and sink.format == "parquet":
            message = "a table of `format: parquet` is always created by Milepost, so it cannot be adopted"
            yield Problem(("sinks", index, "adopt"), message)

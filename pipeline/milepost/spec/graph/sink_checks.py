"""Sink checks compare what a spec says of each sink with its format, and the sinks with one another."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.spec.job.availability import not_available
from milepost.spec.job.spec import BUCKET_FORMATS, JobSpec
from milepost.spec.values.problems import Path, Problem

_KEYS_OF_FORMATS = {
    "path": ("parquet", "delta", "iceberg"),
    "catalog": ("iceberg",),
    "table": ("iceberg", "postgres"),
    "dsn": ("postgres",),
    "conn_id": ("postgres",),
}
"""Key of a sink -> formats that have it; `dsn` and `conn_id` are needed by one of them together."""


def sink_problems(spec: JobSpec) -> list[Problem]:
    """Return what is wrong with the sinks of a spec, but for what they read."""
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
            said = getattr(sink, key)
            if said is None and sink.format in formats and key == "path":
                yield Problem(("sinks", index), "`path` is missing")
            elif said is None and sink.format in formats and key in ("catalog", "table"):
                yield Problem(("sinks", index, key), f"format: {sink.format} needs `{key}`")
            elif said is not None and sink.format not in formats:
                of = " and ".join(filter(None, (", ".join(formats[:-1]), formats[-1])))
                yield Problem(("sinks", index, key), f"`{key}` is of format: {of}; sink {sink.name} is {sink.format}")


def _databases(spec: JobSpec) -> Iterator[Problem]:
    for index, sink in enumerate(spec.sinks):
        if sink.format != "postgres":
            continue
        if (sink.dsn is None) == (sink.conn_id is None):
            message = "format: postgres needs `dsn` or `conn_id`" if sink.dsn is None else "`conn_id` says it already"
            yield Problem(("sinks", index, "dsn"), message)
        if sink.mode != "upsert":
            message = f"{not_available(f'mode: {sink.mode}')} for format: postgres; available: upsert"
            yield Problem(("sinks", index, "mode"), message)
        if sink.table is not None and sink.table.count(".") != 1:
            yield Problem(("sinks", index, "table"), f"expected SCHEMA.TABLE, got {sink.table!r}")


def _shared_tables(spec: JobSpec) -> Iterator[Problem]:
    """Yield sinks whose table has another one's name: in a database, or in one catalog as the spec writes it."""
    tables: dict[tuple[str, ...], str] = {}
    for index, sink in enumerate(spec.sinks):
        if sink.table is None or sink.format not in _KEYS_OF_FORMATS["table"]:
            continue
        place = ("",) if sink.catalog is None else (sink.catalog.uri, sink.catalog.name)
        other = tables.setdefault((sink.format, *place, sink.table), sink.name)
        if other != sink.name:
            message = f"{sink.table} is the table of sink {other}; give each sink a table of its own"
            yield Problem(("sinks", index, "table"), message)


def _buckets(spec: JobSpec) -> Iterator[Problem]:
    most = spec.checkpointing.max_parallelism
    for index, sink in enumerate(spec.sinks):
        if sink.buckets is not None and not sink.by_buckets:
            said = f"sink {sink.name} is mode: {sink.mode}, format: {sink.format}"
            yield Problem(("sinks", index, "buckets"), f"`buckets` is of mode: upsert on delta and iceberg; {said}")
        elif sink.buckets is not None and sink.buckets > most:
            message = f"more buckets than key groups: {sink.buckets}, and checkpointing.max_parallelism is {most}"
            yield Problem(("sinks", index, "buckets"), message)


def _partitions(spec: JobSpec) -> Iterator[Problem]:
    for index, sink in enumerate(spec.sinks):
        if sink.partition_by is None:
            continue
        path: Path = ("sinks", index, "partition_by")
        if sink.format not in BUCKET_FORMATS:
            yield Problem(path, f"`partition_by` is of format: delta and iceberg; sink {sink.name} is {sink.format}")
        elif sink.mode == "upsert":
            yield Problem(path, "`partition_by` is of mode: append and changelog; upsert has `buckets` of keys")
        for column in sink.partition_by:
            if "(" in column:
                hint = "add a column, `CAST(at AS DATE) AS day`, and partition by it"
                yield Problem(path, f"{not_available(column)}: tables are partitioned by columns; {hint}")


def _adopted(spec: JobSpec) -> Iterator[Problem]:
    for index, sink in enumerate(spec.sinks):
        if sink.adopt and sink.format == "postgres":
            why = f"{not_available('adopt')} for format: postgres; name a table that does not exist yet"
            yield Problem(("sinks", index, "adopt"), why)
        if sink.adopt and sink.format == "parquet":
            why = "only Milepost makes and reads a table of `format: parquet`, so there is none of others to adopt"
            yield Problem(("sinks", index, "adopt"), why)

"""Check each sink's keys against its format, and sinks against each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from milepost.jobspec.job.sources.iceberg_source import IcebergSourceSpec
from milepost.jobspec.job.spec import JobSpec, SinkSpec
from milepost.language import FORMAT_KEYS, SINK_FORMATS, Path, Problem, not_available

_S3_TABLES = re.compile(r"^https://s3tables\.|^arn:[^:]+:s3tables:|(^|:)s3tablescatalog(/|$)")
"""Its address, its buckets as a warehouse, and its catalog in AWS Glue."""


def sink_problems(spec: JobSpec) -> list[Problem]:
    """Return the problems of the sinks, except those of their inputs."""
    problems: list[Problem] = []
    for index, sink in enumerate(spec.sinks):
        path: Path = ("sinks", index)
        problems += [*_keys(sink, path), *_mode(sink, path), *_database(sink, path), *_partitions(sink, path)]
        problems += _s3_tables(sink, path)
        problems += _buckets(sink, path, spec.checkpointing.max_parallelism)
    return [*problems, *_shared_tables(spec)]


def _keys(sink: SinkSpec, path: Path) -> Iterator[Problem]:
    format_ = SINK_FORMATS[sink.format]
    for key in FORMAT_KEYS:
        value = getattr(sink, key)
        if value is None and key in format_.required_keys:
            at = path if key == "path" else (*path, key)
            yield Problem(at, "`path` is missing" if key == "path" else f"format: {sink.format} needs `{key}`")
        elif value not in (None, False) and key not in format_.keys:
            yield Problem((*path, key), dict(format_.refused_keys).get(key) or _foreign_key(sink, key))


def _foreign_key(sink: SinkSpec, key: str) -> str:
    *others, last = [format_.name for format_ in SINK_FORMATS.values() if key in format_.keys]
    listed = " and ".join(filter(None, (", ".join(others), last)))
    return f"`{key}` applies to format: {listed}; sink {sink.name} has format: {sink.format}"


def _mode(sink: SinkSpec, path: Path) -> Iterator[Problem]:
    format_ = SINK_FORMATS[sink.format]
    if sink.mode not in format_.modes:
        refusal = not_available(f"mode: {sink.mode}")
        yield Problem((*path, "mode"), f"{refusal} for format: {sink.format}; available: {', '.join(format_.modes)}")


def _database(sink: SinkSpec, path: Path) -> Iterator[Problem]:
    if not SINK_FORMATS[sink.format].is_database:
        return
    if (sink.dsn is None) == (sink.conn_id is None):
        needs_one = f"format: {sink.format} needs `dsn` or `conn_id`"
        message = needs_one if sink.dsn is None else "`conn_id` already determines it; remove one of them"
        yield Problem((*path, "dsn"), message)
    if sink.table is not None and sink.table.count(".") != 1:
        yield Problem((*path, "table"), f"expected SCHEMA.TABLE, got {sink.table!r}")


def _s3_tables(sink: SinkSpec, path: Path) -> Iterator[Problem]:
    if sink.catalog is not None and any(map(_S3_TABLES.search, (sink.catalog.uri, *sink.catalog.options.values()))):
        reason = "it chooses the location of each table, and a sink has a `path`; use another catalog"
        yield Problem((*path, "catalog"), f"{not_available('catalog: S3 Tables')}: {reason}")


def _buckets(sink: SinkSpec, path: Path, most: int) -> Iterator[Problem]:
    if sink.buckets is None or not SINK_FORMATS[sink.format].is_open:
        return
    if not sink.by_buckets:
        yield Problem((*path, "buckets"), f"`buckets` applies to mode: upsert; sink {sink.name} has mode: {sink.mode}")
    elif sink.buckets > most:
        message = f"expected at most checkpointing.max_parallelism, {most}, got {sink.buckets}"
        yield Problem((*path, "buckets"), message)


def _partitions(sink: SinkSpec, path: Path) -> Iterator[Problem]:
    if sink.by_buckets and sink.partition_by is not None:
        message = "`partition_by` applies to mode: append and changelog; mode: upsert has `buckets`"
        yield Problem((*path, "partition_by"), message)
    for column in sink.partition_by or ():
        if "(" in column:
            hint = "add a column, `CAST(at AS DATE) AS day`, and partition by it"
            message = f"{not_available(column)}: tables are partitioned by columns; {hint}"
            yield Problem((*path, "partition_by"), message)


def _shared_tables(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each sink that has the same table as another, in a database or in one catalog.

    A source that is such a table would read in each epoch what the one before wrote.
    """
    tables: dict[tuple[str, ...], str] = {}
    for index, sink in enumerate(spec.sinks):
        if sink.table is None or "table" not in SINK_FORMATS[sink.format].keys:
            continue
        catalog = ("",) if sink.catalog is None else (sink.catalog.uri, sink.catalog.name)
        other = tables.setdefault((sink.format, *catalog, sink.table), sink.name)
        if other != sink.name:
            message = f"{sink.table} is also the table of sink {other}; give each sink its own table"
            yield Problem(("sinks", index, "table"), message)
    for name, source in spec.sources.items():
        if isinstance(source, IcebergSourceSpec):
            writer = tables.get((source.format, source.catalog.uri, source.catalog.name, source.table))
            if writer is not None:
                yield Problem(("sources", name, "table"), f"this is the table of sink {writer}; read the sink's input")

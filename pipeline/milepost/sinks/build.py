"""Construct sinks from the spec: complete for the job master, staging only for tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.extras import require
from milepost.jobspec.graph import SinkInput
from milepost.jobspec.job import PostgresAccess, SinkSpec
from milepost.language import SINK_FORMATS
from milepost.protocol.records import ObjectStore
from milepost.sinks.buckets.bucket_staging import BucketStaging
from milepost.sinks.buckets.table_buckets import BucketPlan, OwnedKeys
from milepost.sinks.contract import Sink, SinkMode, StagingSink
from milepost.sinks.formats import delta, iceberg, parquet, postgres
from milepost.sinks.parquet_files.partitions import PartitionBy
from milepost.sinks.parquet_files.table_files import TableFiles
from milepost.sinks.staging.compaction import CompactionStaging, MaintenancePlan, compacted_buckets
from milepost.sinks.staging.join_staging import JoinStaging
from milepost.sinks.staging.small_files import JoinPlan
from milepost.sinks.staging.table_staging import TableStaging
from milepost.sinks.table.table_sink import TableSink
from milepost.sinks.table_format import TableFormat
from milepost.tables.records import ContentsRecords, MarkRecords


def build_staging(
    spec: SinkSpec,
    rows: SinkInput,
    store: ObjectStore,
    plan: BucketPlan | None,
    owned: OwnedKeys | None,
    maintenance: MaintenancePlan | None = None,
) -> StagingSink:
    """Return the staging part of a sink. It contacts nothing, and needs no library of a format.

    Args:
        rows: the sink's input. store: an object store with the sink's path as its root.
        plan: for a table of buckets; None for others. owned: keys of the subtask; None if it owns none.
        maintenance: what the subtask does to existing files; None for nothing.
    """
    if plan is not None:
        assert owned is not None, "rows with a key come from an operator, whose subtasks own keys"
        routing_key = rows.key if rows.routing_key is None else rows.routing_key
        return BucketStaging(spec.name, key=rows.key, routing_key=routing_key, store=store, plan=plan, owned=owned)
    statistics = SINK_FORMATS[spec.format].is_open
    staging = TableStaging(
        spec.name,
        mode=SinkMode(spec.mode),
        key=rows.key,
        store=store,
        op=rows.op,
        statistics=statistics,
        partition=_partition(spec),
    )
    if maintenance is None:
        return staging
    if isinstance(maintenance, JoinPlan):
        files = TableFiles(spec.name, store, statistics=statistics)
        return JoinStaging(staging, files, maintenance, rows.key if spec.mode == "upsert" else None)
    assert owned is not None, "rows with a key come from an operator, whose subtasks own keys"
    return CompactionStaging(staging, compacted_buckets(spec.name, rows.key, store, maintenance, owned), store)


def build_sink(
    spec: SinkSpec,
    rows: SinkInput,
    *,
    job: str,
    store: ObjectStore,
    job_store: ObjectStore,
    records: ContentsRecords,
    retention_ms: int,
    find_access: Callable[[], PostgresAccess],
    identity: Callable[[], str],
) -> Sink:
    """Return the sink. Contacts nothing.

    Args:
        job: the job's name. rows, store: as in `build_staging`.
        job_store: the store of its marks. records: of the job's tables.
        retention_ms: age of the oldest checkpoint that a rollback may go back to.
        find_access: returns how to reach the database of a Postgres table.
        identity: returns the job's identity; called once the job has one.
    Raises:
        EnvironmentUnusable: the library of its format is not installed.
    """
    return TableSink(
        spec.name,
        job=job,
        mode=SinkMode(spec.mode),
        key=rows.key,
        store=store,
        format_name=spec.format,
        table_format=_format(_Table(spec, rows.key, store, retention_ms, find_access)),
        by_buckets=spec.by_buckets,
        marks=MarkRecords(job_store, spec.name),
        records=records,
        op=rows.op,
        retention_ms=retention_ms,
        identity=identity,
        adopts=spec.adopt,
        partition=_partition(spec),
    )


def _partition(spec: SinkSpec) -> PartitionBy | None:
    if not spec.partition_by:
        return None
    takes_empty_text = SINK_FORMATS[spec.format].distinguishes_empty_text
    return PartitionBy(spec.partition_by, takes_empty_text=takes_empty_text)


@dataclass(frozen=True, slots=True)
class _Table:
    """What the formats need of a sink; see `build_sink`."""

    spec: SinkSpec
    key: tuple[str, ...]
    store: ObjectStore
    retention_ms: int
    find_access: Callable[[], PostgresAccess]


def _parquet(table: _Table) -> TableFormat:
    return parquet.ParquetFormat(table.store)


def _delta(table: _Table) -> TableFormat:
    spec = table.spec
    return delta.DeltaFormat(spec.name, table.store, table.retention_ms, spec.partition_by or ())


def _iceberg(table: _Table) -> TableFormat:
    from milepost.tables.iceberg import CatalogConfig, CatalogKind

    spec, catalog = table.spec, table.spec.catalog
    assert catalog is not None and spec.table is not None, "the spec is checked"
    if catalog.is_on_aws:
        require("s3", f"the catalog of sink {spec.name}")
    kind, name = CatalogKind(catalog.type), tuple(spec.table.split("."))
    config = CatalogConfig(kind, catalog.uri, name, catalog.name, catalog.options)
    return iceberg.IcebergFormat(spec.name, config, table.store, spec.partition_by or ())


def _postgres(table: _Table) -> TableFormat:
    spec = table.spec
    assert spec.table is not None, "the spec is checked"
    schema, _, name = spec.table.partition(".")
    return postgres.PostgresFormat(
        spec.name, key=table.key, find_access=table.find_access, table=(schema, name), store=table.store
    )


FORMATS: dict[str, Callable[[_Table], TableFormat]] = {
    "parquet": _parquet,
    "delta": _delta,
    "iceberg": _iceberg,
    "postgres": _postgres,
}
"""Format -> how its table is opened, which imports its library. `SINK_FORMATS` has what a spec may declare."""


def _format(table: _Table) -> TableFormat:
    name = table.spec.format
    if not SINK_FORMATS[name].is_managed:
        require(name, f"sink {table.spec.name}")
    return FORMATS[name](table)

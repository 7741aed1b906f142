"""Construct sinks from the spec: complete for the job master, staging only for tasks."""

from __future__ import annotations

from collections.abc import Callable

from milepost.extras import require
from milepost.jobspec.graph import SinkInput
from milepost.jobspec.job import BUCKET_FORMATS, PostgresAccess, SinkSpec
from milepost.protocol.records import ObjectStore
from milepost.sinks.contract import Sink, SinkMode, StagingSink
from milepost.sinks.files.partitions import PartitionBy
from milepost.sinks.files.table_files import TableFiles
from milepost.sinks.formats.parquet_format import ParquetFormat
from milepost.sinks.records.contents import ContentsRecords
from milepost.sinks.records.marks import MarkRecords
from milepost.sinks.staging.bucket_staging import BucketStaging
from milepost.sinks.staging.compaction import CompactionStaging, MaintenancePlan, compacted_buckets
from milepost.sinks.staging.join_staging import JoinStaging
from milepost.sinks.staging.small_files import JoinPlan
from milepost.sinks.staging.table_buckets import BucketPlan, OwnedKeys
from milepost.sinks.staging.table_staging import TableStaging
from milepost.sinks.table.table_sink import TableSink
from milepost.sinks.table_format import TableFormat

_DISTINGUISH_EMPTY_TEXT = ("iceberg",)
"""Formats whose partition values distinguish an empty text from null."""


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
        rows: what the sink reads. store: an object store whose root is the sink's path.
        plan: for a table of buckets; None for others. owned: keys of the subtask; None if it owns none.
        maintenance: what the subtask does to existing files; None for nothing.
    """
    if plan is not None:
        assert owned is not None, "rows with a key come from an operator, whose subtasks own keys"
        routing_key = rows.key if rows.routing_key is None else rows.routing_key
        return BucketStaging(spec.name, key=rows.key, routing_key=routing_key, store=store, plan=plan, owned=owned)
    statistics = spec.format in BUCKET_FORMATS
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
        form=_format(spec, rows, store, retention_ms, find_access),
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
    return PartitionBy(spec.partition_by, takes_empty_text=spec.format in _DISTINGUISH_EMPTY_TEXT)


def _format(
    spec: SinkSpec,
    rows: SinkInput,
    store: ObjectStore,
    retention_ms: int,
    find_access: Callable[[], PostgresAccess],
) -> TableFormat:
    if spec.format == "parquet":
        return ParquetFormat(store)
    require(spec.format, f"sink {spec.name}")
    if spec.format == "postgres":
        from milepost.sinks.formats.postgres.postgres_format import PostgresFormat

        assert spec.table is not None, "the spec is checked"
        schema, _, table = spec.table.partition(".")
        return PostgresFormat(spec.name, key=rows.key, find_access=find_access, table=(schema, table), store=store)
    if spec.format == "iceberg":
        from milepost.sinks.formats.iceberg.catalogs import CatalogConfig, CatalogKind
        from milepost.sinks.formats.iceberg.iceberg_format import IcebergFormat

        assert spec.catalog is not None and spec.table is not None, "the spec is checked"
        catalog, name = spec.catalog, tuple(spec.table.split("."))
        config = CatalogConfig(CatalogKind(catalog.type), catalog.uri, name, catalog.name, catalog.options)
        return IcebergFormat(spec.name, config, store, spec.partition_by or ())
    from milepost.sinks.formats.delta.delta_format import DeltaFormat

    return DeltaFormat(spec.name, store, retention_ms, spec.partition_by or ())

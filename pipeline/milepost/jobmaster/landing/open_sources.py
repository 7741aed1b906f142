"""Open the external system of a landed source, by its format. Modules that need an extra are imported then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from milepost.extras import require
from milepost.jobmaster.job.checks.store_checks import head_within_deadline
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.job import (
    DeltaSourceSpec,
    DltSourceSpec,
    IcebergSourceSpec,
    KafkaSourceSpec,
    LandedSourceSpec,
    MilepostSourceSpec,
    NexmarkSourceSpec,
    PostgresSourceSpec,
    PythonSourceSpec,
)
from milepost.language import arrow_schema, start_time_ms
from milepost.operators.process import read_function
from milepost.protocol.landed import SLOT
from milepost.protocol.records import ObjectStore, child_url
from milepost.sources.landed import (
    LandedSource,
    SchemaRegistry,
    TableReading,
    WithSchemas,
    open_dlt_source,
    open_kafka_source,
    open_milepost_source,
    open_nexmark_source,
)
from milepost.storage import open_store

S = TypeVar("S", bound=LandedSourceSpec)


@dataclass(frozen=True, slots=True)
class _Opening(Generic[S]):
    """A source to open. Attributes: as the arguments of `open_source`."""

    context: JobContext
    name: str
    spec: S
    may_create: bool
    slot: str | None

    def table(self: _Opening[Any], *, by_reference: bool) -> TableReading:
        """Return how an open table is read, for a spec of one."""
        spec = self.spec
        return TableReading(self.name, spec.columns, spec.event_time, spec.start, spec.land.max_bytes, by_reference)


def open_source(
    context: JobContext, name: str, spec: LandedSourceSpec, *, may_create: bool = False, slot: str | None = None
) -> LandedSource:
    """Open the external system of a source for one landing.

    Args:
        may_create: whether a new log may create what it needs there, such as a replication slot.
        slot: replication slot to read; None: that of the source's log.
    Raises: InvalidRequest, SourceUnreachable.
    """
    extra, open_ = _FORMATS[spec.format]
    if extra is not None:
        require(extra, f"source {name} (format: {spec.format})")
    return open_(_Opening(context, name, spec, may_create, slot))


def _nexmark(source: _Opening[NexmarkSourceSpec]) -> LandedSource:
    spec = source.spec
    return open_nexmark_source(
        spec.identity,
        arrow_schema(spec.columns),
        events=spec.events,
        seed=spec.seed,
        events_per_second=spec.events_per_second,
        total=spec.total,
        max_rows=spec.land.max_rows,
        max_bytes=spec.land.max_bytes,
    )


def _kafka(source: _Opening[KafkaSourceSpec]) -> LandedSource:
    spec, value = source.spec, source.spec.value
    is_time = isinstance(spec.start, str) and spec.start not in ("earliest", "latest")
    kafka = open_kafka_source(
        source.name,
        spec.topics,
        {**spec.client, "bootstrap.servers": spec.bootstrap_servers},
        start_time_ms(spec.start) if is_time else spec.start,
        max_rows=spec.land.max_rows,
        max_bytes=spec.land.max_bytes,
    )
    if value.registry is None:
        return kafka
    require("registry", f"source {source.name} (value: {{format: {value.format}}})")
    access = source.context.job.registry_access(source.name)
    login = access.username, access.password, access.ca_location
    return WithSchemas(kafka, SchemaRegistry(source.name, value.format.upper(), access.url, *login))


def _delta(source: _Opening[DeltaSourceSpec]) -> LandedSource:
    from milepost.sources.landed import open_delta_source

    spec, store = source.spec, source.context.store_at(source.spec.path)
    return open_delta_source(source.table(by_reference=spec.land.by == "reference"), store.config.url, store)


def _iceberg(source: _Opening[IcebergSourceSpec]) -> LandedSource:
    from milepost.sources.landed import open_iceberg_source

    spec, job = source.spec, source.context.job
    reading = source.table(by_reference=spec.land.by == "reference")
    where = spec.catalog, spec.table, spec.branch
    if spec.catalog.is_on_aws:
        require("s3", f"the catalog of source {source.name}")
    access = job.store_config("s3://")  # region and credentials for a catalog on AWS
    return open_iceberg_source(reading, *where, lambda url: open_store(job.store_config(url)), access)


def _milepost(source: _Opening[MilepostSourceSpec]) -> LandedSource:
    spec, job, table = source.spec, source.context.job, source.context.store_at(source.spec.path)
    storage = job.storage_url if spec.storage is None else job.url(spec.storage)

    def open_job(upstream: str) -> ObjectStore:
        return open_store(job.store_config(child_url(storage, upstream)))

    return open_milepost_source(source.table(by_reference=False), table.config.url, table, open_job)


def _dlt(source: _Opening[DltSourceSpec]) -> LandedSource:
    spec, folder = source.spec, source.context.job.module_dir
    return open_dlt_source(source.name, spec.identity, spec.resource, folder, spec.columns, spec.event_time)


def _postgres(source: _Opening[PostgresSourceSpec]) -> LandedSource:
    from milepost.sources.landed import PostgresTable, TableName, open_postgres_source

    spec, context = source.spec, source.context
    table = PostgresTable(
        TableName(*spec.table.split(".")),
        spec.publication,
        tuple(spec.key),
        spec.table_columns,
        spec.metadata,
        copies=spec.start == "copy",
    )
    return open_postgres_source(
        source.name,
        table,
        partial(context.job.source_access, source.name),
        spec.columns,
        spec.event_time,
        slot=source.slot or _slot(context, source.name),
        max_rows=spec.land.max_rows,
        max_bytes=spec.land.max_bytes,
        may_create=source.may_create,
    )


def _slot(context: JobContext, name: str) -> str:
    """Return the replication slot of a source: the slot in its log, or else the name for a new log."""
    from milepost.sources.landed import slot_name

    newest = context.source_log(name).newest()
    if newest is not None and SLOT in newest.record.identity:
        return str(newest.record.identity[SLOT])
    identity = "" if head_within_deadline(context) is None else context.identity
    return slot_name(context.spec.name, context.stored_name(name), identity)


def _python(source: _Opening[PythonSourceSpec]) -> LandedSource:
    from milepost.sources.landed import open_python_source

    spec = source.spec
    code = read_function(source.name, spec.source, source.context.job.module_dir, owner=f"source {source.name}")
    return open_python_source(
        source.name,
        spec.identity,
        code,
        spec.options,
        spec.columns,
        spec.event_time,
        max_rows=spec.land.max_rows,
        max_bytes=spec.land.max_bytes,
    )


_FORMATS: Mapping[str, tuple[str | None, Callable[[_Opening[Any]], LandedSource]]] = {
    "nexmark": (None, _nexmark),
    "kafka": ("kafka", _kafka),
    "delta": ("delta", _delta),
    "iceberg": ("iceberg", _iceberg),
    "milepost": (None, _milepost),
    "dlt": ("dlt", _dlt),
    "postgres": ("postgres", _postgres),
    "python": ("spark", _python),
}
"""Format -> the extra that it needs, and how it is opened."""

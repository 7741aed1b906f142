"""Open the published table of another job as a source."""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.job import MilepostSourceSpec
from milepost.protocol.records import ObjectStore, child_url
from milepost.sources.landed import LandedSource, open_milepost_source
from milepost.storage import open_store


def open_upstream_table(context: JobContext, name: str, spec: MilepostSourceSpec) -> LandedSource:
    """Open a table for one landing. Contacts nothing.

    Args:
        name: of the source.
    """
    job, table = context.job, context.store_at(spec.path)
    storage = job.storage_url if spec.storage is None else job.url(spec.storage)

    def open_job(upstream: str) -> ObjectStore:
        return open_store(job.store_config(child_url(storage, upstream)))

    return open_milepost_source(
        name,
        table.config.url,
        table,
        open_job,
        spec.columns,
        spec.event_time,
        start=spec.start,
        max_bytes=spec.land.max_bytes,
    )

"""Check that every stored object of an idle job is needed, after a collection without grace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from milepost.jobmaster import JobMaster
from milepost.jobmaster.retention.fsck import classify_objects
from milepost.jobmaster.retention.reachability import walk_job
from milepost.jobspec.load.load import LoadedJob
from milepost.protocol.records.locations import child_url
from milepost.protocol.retention.reach import ObjectStatus

_NEEDED = frozenset(
    {
        ObjectStatus.REFERENCED,
        ObjectStatus.LOG,
        ObjectStatus.OWNED,
        ObjectStatus.UNCLAIMED,
        ObjectStatus.FIGURES,
    }
)
"""How what stays may stand. An input record that no epoch claims, and rows of figures, stay on purpose."""


def check_whole(job: LoadedJob) -> None:
    """Check that no object is missing, damaged or foreign, and that all checkpoints are readable.

    Raises: AssertionError.
    """
    audit = JobMaster(job).reports.fsck()
    assert audit.exit_code == 0 and not audit.foreign and audit.complete, audit
    assert not audit.unreadable_lists, audit
    assert all("the spec does not have the sink" in line for line in audit.unasked), audit


def check_reachable(job: LoadedJob, client: Any, bucket: str, prefixes: Iterable[str]) -> int:
    """Check that each listed object below some prefixes is reachable from a root.

    Returns: their number. Raises: AssertionError: an object is unreachable.
    """
    master = JobMaster(job)
    reach = walk_job(master.context)
    assert reach.complete, reach.faults
    stores: dict[str | None, str] = {one.name: one.opened.sink.store.config.url for one in reach.tables}
    stores[None] = master.context.store.config.url
    placed = {child_url(stores[item.sink], item.stat.key): item for item in classify_objects(reach)}
    idle = [f"{url}: {item.status.value}" for url, item in placed.items() if item.status not in _NEEDED]
    assert not idle, f"after gc without grace these are left: {idle}"
    lists = client.get_paginator("list_objects_v2")
    pages = (page for prefix in prefixes for page in lists.paginate(Bucket=bucket, Prefix=prefix))
    stored = {f"s3://{bucket}/{one['Key']}" for page in pages for one in page.get("Contents", ())}
    unknown = stored - placed.keys()
    assert not unknown, f"no walk comes to {sorted(unknown)}"
    return len(stored)

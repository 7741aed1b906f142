"""Detect published files that were deleted by hand or by a lifecycle rule. Readers fail; epochs may not notice."""

from __future__ import annotations

from contextlib import suppress

from milepost.errors import EnvironmentUnusable, InvalidRequest, StateCorrupt, StoreUnavailable
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import is_named_by_spec, sink_for
from milepost.storage.concurrency import prefetch
from milepost.tables.records import DATA, TableContents

MAX_FILES = 10_000
"""Tables with more files are skipped here, since a listing takes a request per thousand. `verify` checks them."""


def check_published(context: JobContext) -> None:
    """Check that the files of the head's tables exist, by one listing per table.

    Unreachable stores are skipped: the caller that needs one reports it.

    Raises: StateCorrupt: files are missing.
    """
    with suppress(StoreUnavailable, EnvironmentUnusable, InvalidRequest):
        head = context.log.head()
        base = None if head is None else context.base_metadata(head.state, head.state.timeline().head)
        if base is None:
            return
        for name, contents in base.tables.items():
            missing = _missing(context, name, contents)
            if missing and _is_head(context, base.checkpoint_id):
                raise StateCorrupt(
                    f"sink {name}: {len(missing)} of the {contents.files} files of its table at checkpoint "
                    f"{contents.checkpoint_id} are missing, {missing[0]} among them. Their rows cannot be read.",
                    hint=f"Put them back from a copy of the store: milepost verify {context.spec.name} lists them",
                    sink=name,
                )


def _missing(context: JobContext, name: str, contents: TableContents) -> list[str]:
    if contents.files > MAX_FILES or not is_named_by_spec(context, name, contents):
        return []
    sink = sink_for(context, name, contents)
    stored = prefetch(sink.store, lambda: {stat.key for stat in sink.store.list(DATA)}, "published-files")
    files = sink.files(contents)
    existing = stored()
    return [file.key for file in files if file.key not in existing]


def _is_head(context: JobContext, checkpoint_id: int) -> bool:
    """Return whether a checkpoint still is the head: retention may delete files of one that no longer is."""
    head = context.log.head()
    return head is not None and head.state.timeline().head == checkpoint_id

"""Published files that a hand or a lifecycle rule deleted: readers of the table fail, and epochs may not notice."""

from __future__ import annotations

from contextlib import suppress

from milepost.dataflow.sinks.records.contents import TableContents
from milepost.dataflow.sinks.records.table_keys import DATA
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import leads_to, table_at
from milepost.protocol.records.errors import EnvironmentUnusable, InvalidRequest, StateCorrupt, StoreUnavailable
from milepost.storage.concurrency.background import begin_beside

MAX_FILES = 10_000
"""Of a table with more files none is looked for here: that takes a listing per thousand. `verify` looks for them."""


def check_published(context: JobContext) -> None:
    """Look for the files of the head's tables, by a listing of each.

    What cannot be reached is skipped: whoever needs it reports that.

    Raises: StateCorrupt: files are gone.
    """
    with suppress(StoreUnavailable, EnvironmentUnusable, InvalidRequest):
        head = context.log.head()
        base = None if head is None else context.base_metadata(head.state, head.state.timeline().head)
        if base is None:
            return
        for name, contents in base.tables.items():
            gone = _missing(context, name, contents)
            if gone and _is_head(context, base.checkpoint_id):
                raise StateCorrupt(
                    f"sink {name}: {len(gone)} of the {contents.files} files that its table consists of at checkpoint "
                    f"{contents.checkpoint_id} are missing, {gone[0]} among them. Nothing was changed.",
                    hint=f"put them back from a copy of the store: milepost verify {context.spec.name} lists them",
                    sink=name,
                )


def _missing(context: JobContext, name: str, contents: TableContents) -> list[str]:
    if contents.files > MAX_FILES or not leads_to(context, name, contents):
        return []
    sink = table_at(context, name, contents)
    stored = begin_beside(sink.store, lambda: {stat.key for stat in sink.store.list(DATA)}, "published-files")
    files = sink.files(contents)
    there = stored()
    return [file.key for file in files if file.key not in there]


def _is_head(context: JobContext, checkpoint_id: int) -> bool:
    """Return whether a checkpoint still is the head: retention may delete files of one that no longer is."""
    head = context.log.head()
    return head is not None and head.state.timeline().head == checkpoint_id

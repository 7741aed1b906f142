"""Compute an epoch's change to a table's contents, on top of foreign rewrites."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.errors import CommitConflict
from milepost.tables.records import Committable, ContentsChange, JoinedFile, StagedFile, with_replacement_digests


def epoch_change(
    sink: str,
    committable: Committable,
    rewritten: ContentsChange,
    joined: tuple[JoinedFile, ...] = (),
    current: Sequence[StagedFile] = (),
    *,
    by_buckets: bool,
) -> ContentsChange:
    """Return an epoch's change to the contents of a sink's table, including foreign rewrites.

    Args:
        rewritten: the foreign rewrites since the newest move.
        joined: the joined files whose inputs are all live still. current: the table's files now.
        by_buckets: whether the table consists of buckets only.
    Raises: CommitConflict: a foreign rewrite replaced files that the epoch's subtasks had read.
    """
    if committable.whole:
        return ContentsChange(committable.buckets or committable.files, whole=True)
    added = committable.files
    if committable.replaced or committable.buckets:
        # In other formats the buckets hold the rows from before the epoch, so the epoch's changes are layered on top.
        added = committable.buckets if by_buckets else (*_compacted(committable, current), *committable.files)
    change = ContentsChange(added, committable.replaced, joined=joined)
    replaced, foreign = set(change.removed), {file.key for file in rewritten.added}
    if by_buckets and (foreign - replaced or replaced.intersection(rewritten.removed)):
        raise CommitConflict(
            f"sink {sink}: another writer compacted files of its table while the epoch ran. Nothing was published.",
            hint="run the epoch again",
            sink=sink,
        )
    return change.after(rewritten)


def _compacted(committable: Committable, current: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
    replaced = {*committable.replaced}
    return with_replacement_digests(committable.buckets, [file for file in current if file.key in replaced])

"""An epoch changes the contents of a table by what its subtasks staged, after what others made of it meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.errors import CommitConflict
from milepost.sinks.records.committables import Committable, JoinedFile, StagedFile
from milepost.sinks.records.contents import ContentsChange
from milepost.sinks.records.shown_rows import in_place_of


def epoch_change(
    sink: str,
    committable: Committable,
    rewritten: ContentsChange,
    joined: tuple[JoinedFile, ...] = (),
    known: Sequence[StagedFile] = (),
    *,
    by_buckets: bool,
) -> ContentsChange:
    """Return what an epoch does to the contents of a sink's table, after what others rewrote.

    Args:
        joined: of what its subtasks joined, what still can be. known: files of the table as it is.
        by_buckets: whether the table is files of key groups alone.
    Raises: CommitConflict: they rewrote what the epoch's subtasks had read.
    """
    if committable.whole:
        return ContentsChange(committable.buckets or committable.files, whole=True)
    added = committable.files
    if committable.replaced or committable.buckets:
        # Elsewhere they are made of what was there before the epoch, whose changes lie above.
        added = committable.buckets if by_buckets else (*_compacted(committable, known), *committable.files)
    change = ContentsChange(added, committable.replaced, joined=joined)
    gone, foreign = set(change.removed), {file.key for file in rewritten.added}
    if by_buckets and (foreign - gone or gone.intersection(rewritten.removed)):
        raise CommitConflict(
            f"sink {sink}: another writer put files of its table together while the epoch ran. Nothing was published.",
            hint="run the epoch again",
            sink=sink,
        )
    return change.after(rewritten)


def _compacted(committable: Committable, known: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
    wanted = {*committable.replaced}
    return in_place_of(committable.buckets, [file for file in known if file.key in wanted])

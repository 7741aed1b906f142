"""Find the job's files in a table whose mark is lost, from the table's log.

A staged file is recognised by its key. A file that another writer made from staged files, by a compaction or an UPDATE,
has a foreign key, and only the commit that made the replacement shows its origin. It counts as the job's. If it counted
as an external append, it would stay live alongside the files that it was made from.

    live: j (from staged a b), x     log: +a +b +x,  -a -b +j     ->  own: j, unknown: none
    the log begins after -a -b +j    (expired)                    ->  own: none, unknown: j x
"""

from __future__ import annotations

from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.table_keys import staged_by
from milepost.sinks.table_format import OpenTable


def find_own_files(table: OpenTable) -> tuple[dict[str, StagedFile], tuple[str, ...]]:
    """Return the live files with rows of the job, and the keys of live files of unknown origin.

    The origin is unknown for a file that mixes rows of the job with foreign rows, and for one whose commit has expired.
    """
    live = table.live_files() or {}
    own = {key: StagedFile(key, 0, size, "") for key, size in live.items() if staged_by(key) is not None}
    if len(own) == len(live):
        return own, ()
    derived, explained = dict[str, StagedFile](), set[str]()
    for commit in table.history():
        explained |= {file.key for file in commit.added}
        inputs = {key for key in commit.removed if staged_by(key) is not None or key in derived}
        if inputs:
            derived |= {file.key: file for file in commit.added if staged_by(file.key) is None}
        if inputs and inputs != commit.removed:
            explained -= {file.key for file in commit.added}
    own |= {key: file for key, file in derived.items() if key in live and key in explained}
    return own, tuple(sorted(key for key in live if key not in own and (key in derived or key not in explained)))

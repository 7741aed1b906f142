"""A table whose mark nobody knows is told from its own log: which of its live files hold rows of ours.

What we staged lies at keys of its own. What another writer made of such files, in a compaction or an UPDATE, does not,
and only the commit that put it in their place says so. It counts as ours then, as it does where the mark is known;
taken for rows that others appended, it would stay beside the files that it was made of.
"""

from __future__ import annotations

from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.table_keys import staged_by
from milepost.sinks.table_format import OpenTable


def files_of_ours(table: OpenTable) -> tuple[dict[str, StagedFile], tuple[str, ...]]:
    """Return the live files that hold rows of ours, and the keys of those of which nobody knows.

    Those are files in which ours were put together with others, and ones that the log no longer has the commits of.
    """
    live = table.live() or {}
    ours = {key: StagedFile(key, 0, size, "") for key, size in live.items() if staged_by(key) is not None}
    if len(ours) == len(live):
        return ours, ()
    made, known = dict[str, StagedFile](), set[str]()
    for commit in table.history():
        known |= {file.key for file in commit.added}
        taken = {key for key in commit.removed if staged_by(key) is not None or key in made}
        if taken:
            made |= {file.key: file for file in commit.added if staged_by(file.key) is None}
        if taken and taken != commit.removed:
            known -= {file.key for file in commit.added}
    ours |= {key: file for key, file in made.items() if key in live and key in known}
    return ours, tuple(sorted(key for key in live if key not in ours and (key in made or key not in known)))

"""Detect foreign commits, and map rewritten files back to the job's files.

A rewrite is harmless if it declares that it keeps the rows, and all its inputs are files of the job. Its outputs then
replace them. Any other commit that removes files of the job is a fault. A later commit can undo the fault: each file
of the newest move must be live again, either itself or in exactly one rewrite.

    move: A B    OPTIMIZE A B -> C      DELETE C -> D      RESTORE D -> C      no fault: C holds the rows of A and B
    move: A      OPTIMIZE A X -> C      RESTORE C -> A X                       no fault: A is live again, X is foreign
    move: A      DELETE A -> D                                                 fault: D has changed rows of the job
    move: A      OPTIMIZE A X -> C                                             fault, mixed: C has foreign rows as well
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from milepost.sinks.table_format import ForeignCommit, OpenTable
from milepost.tables.records import StagedFile, staged_by


@dataclass(frozen=True, slots=True)
class ForeignChanges:
    """The job's files after foreign commits.

    Attributes:
        files: live files with rows of the job, by key.
        resurrected: files of earlier moves that a restore made live again, by key.
        fault: why the rows differ from those of the newest move; None if they do not.
        is_mixed: whether a file mixes rows of the job with foreign rows.
    """

    files: Mapping[str, StagedFile]
    resurrected: Mapping[str, StagedFile]
    fault: str | None
    is_mixed: bool


def follow_foreign_commits(moved: Sequence[StagedFile], commits: Iterable[ForeignCommit]) -> ForeignChanges:
    """Follow the job's files through foreign commits.

    Args:
        moved: the job's files after its newest move. commits: later foreign commits, oldest first.
    """
    own = {file.key: file for file in moved}
    sources = {file.key: frozenset([file.key]) for file in moved}  # file -> the moved files whose rows it has exactly
    resurrected, foreign = dict[str, StagedFile](), set[str]()
    fault, is_mixed = None, False
    for commit in commits:
        if commit.keeps_rows and commit.removed & resurrected.keys():
            fault, is_mixed = (
                fault or f"its version {commit.version} ({commit.operation}) merged rows that the job had removed",
                True,
            )
        resurrected = {key: file for key, file in resurrected.items() if key not in commit.removed}
        resurrected |= {file.key: file for file in commit.added if _is_from_earlier_move(file, sources)}
        inputs = commit.removed & own.keys()
        foreign |= {key for key in commit.removed - inputs if staged_by(key) is None}
        restored = {file.key: file for file in commit.added if file.key in sources}
        if not inputs and not restored:
            continue
        mixes = bool(inputs) and inputs != commit.removed
        if mixes or restored or not commit.keeps_rows:
            mixture = " together with foreign rows" if mixes else ""
            fault = fault or f"its version {commit.version} ({commit.operation}) changed rows of this job{mixture}"
            is_mixed = is_mixed or mixes
        elif len(commit.added) == 1 and inputs <= sources.keys():
            sources[commit.added[0].key] = frozenset().union(*(sources[key] for key in inputs))
        own = {key: file for key, file in own.items() if key not in inputs}
        outputs = {} if not inputs else {file.key: file for file in commit.added if file.key not in foreign}
        own |= {key: file for key, file in (outputs | restored).items() if key not in resurrected}
    if fault is not None and _is_complete(own, sources, len(moved)):
        fault, is_mixed = None, False
    return ForeignChanges(own, resurrected, fault, is_mixed)


def _is_from_earlier_move(file: StagedFile, sources: Mapping[str, frozenset[str]]) -> bool:
    return staged_by(file.key) is not None and file.key not in sources


def _is_complete(own: Mapping[str, StagedFile], sources: Mapping[str, frozenset[str]], moved: int) -> bool:
    """Return whether the files hold the rows of all moved files, each exactly once."""
    if not own.keys() <= sources.keys():
        return False
    keys = [source for key in own for source in sources[key]]
    return len(keys) == moved == len({*keys})


def find_own_files(table: OpenTable) -> tuple[dict[str, StagedFile], tuple[str, ...]]:
    """Return the live files with rows of the job, and the keys of live files of unknown origin.

    For a table with an unknown newest move. A staged file is recognized by its key. A file that another writer made
    from staged files has a foreign key, and only the commit that made it shows its origin. It counts as the job's: as
    an external append, it would stay live alongside the files that it was made from. The origin is unknown for a file
    that mixes rows of the job with foreign rows, and for one with an expired commit.

        live: j (from staged a b), x     log: +a +b +x,  -a -b +j     ->  own: j, unknown: none
        the log begins after -a -b +j    (expired)                    ->  own: none, unknown: j x
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

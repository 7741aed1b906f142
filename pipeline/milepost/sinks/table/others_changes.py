"""What the commits of others since our newest move made of the files that it left: from which rows of ours are where.

A rewrite that says that it keeps the rows, and whose inputs were all ours, puts other files in their place. Any other
commit that takes files of ours out is a fault, unless others put all back: then each file that the move left, or one
rewrite of it, is there again, and nothing that was made of it otherwise.

    move: A B    OPTIMIZE A B -> C    DELETE C -> D    RESTORE: D -> C    no fault: C is A and B
    move: A      OPTIMIZE A X -> C (X of others)       RESTORE: C -> A X  no fault: A is there again, X is of others
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.table_keys import staged_by
from milepost.sinks.table_format import ForeignCommit


@dataclass(frozen=True, slots=True)
class OthersChanges:
    """What became of our files.

    Attributes:
        files: that have rows of ours now, by key. back: files of earlier moves that are live again.
        fault: why these are not the rows that we left; None: they are. is_mixed: rows of others are in them.
    """

    files: Mapping[str, StagedFile]
    back: Mapping[str, StagedFile]
    fault: str | None
    is_mixed: bool


def changes_of_others(left: Sequence[StagedFile], commits: Iterable[ForeignCommit]) -> OthersChanges:
    """Follow files through the commits of others.

    Args:
        left: what our newest move left. commits: since then, oldest first.
    """
    ours = {file.key: file for file in left}
    holds = {file.key: frozenset([file.key]) for file in left}  # of which that were left it has exactly the rows
    back, theirs = dict[str, StagedFile](), set[str]()
    fault, is_mixed = None, False
    for commit in commits:
        if commit.keeps_rows and commit.removed & back.keys():
            fault, is_mixed = fault or f"its version {commit.version} ({commit.what}) mixed rows of before in", True
        back = {key: file for key, file in back.items() if key not in commit.removed}
        back |= {file.key: file for file in commit.added if _is_of_before(file, holds)}
        taken = commit.removed & ours.keys()
        theirs |= {key for key in commit.removed - taken if staged_by(key) is None}
        returned = {file.key: file for file in commit.added if file.key in holds}
        if not taken and not returned:
            continue
        mixes = bool(taken) and taken != commit.removed
        if mixes or returned or not commit.keeps_rows:
            others = " together with rows of others" if mixes else ""
            fault = fault or f"its version {commit.version} ({commit.what}) changed rows of this job{others}"
            is_mixed = is_mixed or mixes
        elif len(commit.added) == 1 and taken <= holds.keys():
            holds[commit.added[0].key] = frozenset().union(*(holds[key] for key in taken))
        ours = {key: file for key, file in ours.items() if key not in taken}
        made = {} if not taken else {file.key: file for file in commit.added if file.key not in theirs}
        ours |= {key: file for key, file in (made | returned).items() if key not in back}
    if fault is not None and _is_all(ours, holds, len(left)):
        fault, is_mixed = None, False
    return OthersChanges(ours, back, fault, is_mixed)


def _is_of_before(file: StagedFile, holds: Mapping[str, frozenset[str]]) -> bool:
    return staged_by(file.key) is not None and file.key not in holds


def _is_all(ours: Mapping[str, StagedFile], holds: Mapping[str, frozenset[str]], left: int) -> bool:
    """Return whether files hold all that were left, each once."""
    if not ours.keys() <= holds.keys():
        return False
    held = [key for one in ours for key in holds[one]]
    return len(held) == left == len({*held})

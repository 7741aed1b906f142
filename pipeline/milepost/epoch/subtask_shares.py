"""Subtask shares say what each subtask of an epoch did for each node of the job graph, and for each sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from milepost.codec import Count

SOURCE = "source"
SINK = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskShare:
    """What one subtask did for one node of the job graph, or for one sink; None is no part of that.

    Attributes:
        node: name of the source, uid of the operator, or name of the sink. kind: ``source``, ``sink``, or that of the
            operator.
        level, subtask: of the Spark task that hosted it.
        rows_in: of a source read; of a sink staged. rows_out: None also for SQL that is part of other SQL.
        bad_records: of a source, in its dead letters.
        files: objects of a source that were read, files that were written for a sink. bytes: of those files.
        unaligned: it stopped before the end of its input.
    """

    node: str
    kind: str
    level: int
    subtask: int
    rows_in: Count | None = None
    rows_out: Count | None = None
    late_rows: Count | None = None
    bad_records: Count | None = None
    files: Count | None = None
    bytes: Count | None = None
    unaligned: bool = False


def shares_of(shares: Iterable[SubtaskShare], node: str, *kinds: str) -> tuple[SubtaskShare, ...]:
    """Return the shares of a source or sink, by its kind; without a kind those of an operator. In subtasks' order."""
    own = (share for share in shares if share.node == node)
    return tuple(one for one in own if (one.kind in kinds if kinds else one.kind not in (SOURCE, SINK)))

"""Work of each subtask of an epoch, per node of the job graph and per sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from milepost.codec import Count

SOURCE = "source"
SINK = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskShare:
    """Work of one subtask for one node of the job graph, or for one sink. None where a figure does not apply.

    Attributes:
        node: name of the source, uid of the operator, or name of the sink.
        kind: ``source``, ``sink``, or the kind of the operator.
        level, subtask: identity of the Spark task that hosted it.
        rows_in: rows in. For a source, rows read. For a sink, rows staged.
        rows_out: rows out. None also for SQL that is part of other SQL.
        bad_records: for a source, records in its dead letters.
        files: for a source, objects read. For a sink, files written.
        bytes: size of those files.
        unaligned: the subtask stopped before the end of its input.
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
    """Return the shares of a node with one of these kinds, or without kinds those of an operator, in subtask order."""
    own = (share for share in shares if share.node == node)
    return tuple(one for one in own if (one.kind in kinds if kinds else one.kind not in (SOURCE, SINK)))

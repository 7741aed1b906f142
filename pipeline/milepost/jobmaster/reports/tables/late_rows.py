"""The operators whose late rows a table lacks."""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph import late_outputs
from milepost.operators.base import BAD


def late_row_nodes(context: JobContext, sink: str) -> set[str]:
    """Return the uids of the nodes upstream of a table. Rows that are late at one of them are not in the table.

    A table of late rows has those of its operator:

        rows -> pairs -> totals -> table      lacks the late rows of `pairs` and of `totals`
                totals.late -----> latecomers lacks those of `pairs`
    """
    graph = context.graph
    read = graph.sink_inputs[sink]
    read = read if read.rejected_by is None else graph.sink_inputs[read.rejected_by]
    late = late_outputs(context.spec).get(read.output)
    unvisited = [] if read.part == BAD else [read.uid] if late is None else [graph.nodes[read.uid].inputs[late[1]]]
    upstream: set[str] = set()
    while unvisited:
        uid = unvisited.pop()
        if uid not in upstream:
            upstream.add(uid)
            unvisited += graph.nodes[uid].inputs
    return upstream

"""Derive each subtask's share of the work, per graph node and sink, from acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from milepost.codec import Count, from_json
from milepost.epoch import SINK, SubtaskShare
from milepost.jobmaster.run.payloads import iter_payloads
from milepost.jobspec.graph import JobGraph, Node
from milepost.protocol.exchange import Acknowledgement, VerifiedAnswers
from milepost.sources import BadInput
from milepost.tables.records import StagedRows


def subtask_shares(graph: JobGraph, verified: VerifiedAnswers) -> tuple[SubtaskShare, ...]:
    """Return the shares of all subtasks: first of the nodes in topological order, then of the sinks."""
    by_node: dict[str, list[SubtaskShare]] = {}
    for node in graph.nodes.values():
        shares_of = _row_wise_shares(node, verified, by_node) if node.is_row_wise else _node_shares(node, verified)
        by_node[node.uid] = list(shares_of)
    shares = [share for node_shares in by_node.values() for share in node_shares]
    for sink in graph.sink_inputs:
        shares += [_sink_share(sink, ack, payload) for ack, payload in iter_payloads(verified, "sinks", sink)]
    return tuple(shares)


def _node_shares(node: Node, verified: VerifiedAnswers) -> Iterator[SubtaskShare]:
    for ack, payload in iter_payloads(verified, "sources", node.uid):
        yield _source_share(node, ack, payload)
    for ack, payload in iter_payloads(verified, "operators", node.uid):
        counts = {name: payload[name] for name in ("rows_in", "rows_out", "late_rows", "unaligned")}
        yield SubtaskShare(node=node.uid, kind=node.kind, level=ack.level, subtask=ack.subtask, **counts)


def _row_wise_shares(
    node: Node, verified: VerifiedAnswers, by_node: Mapping[str, Sequence[SubtaskShare]]
) -> Iterator[SubtaskShare]:
    """Yield the shares of a stateless operator, one per subtask that has rows of one of its inputs.

    Subtasks do not count the input of such an operator, so it is the output of its inputs on the same subtask: a union
    of `a` (3 rows out on subtask 0) and `b` (2 rows out) has 5 rows in there.
    """
    inputs: dict[tuple[int, int], list[Count | None]] = {}
    for name in node.inputs:
        for share in by_node[name]:
            inputs.setdefault((share.level, share.subtask), []).append(share.rows_out)
    for ack in verified.acknowledgements:
        rows = inputs.get((ack.level, ack.subtask))
        if rows is None:
            continue
        counted = [count for count in rows if count is not None]
        yield SubtaskShare(
            node=node.uid,
            kind=node.kind,
            level=ack.level,
            subtask=ack.subtask,
            # SQL over retractable input also reads the retraction rows, which its input does not count.
            rows_in=sum(counted) if len(counted) == len(rows) and (node.shown or not node.retracts) else None,
            rows_out=_mapping(ack.payload["row_wise"]).get(node.uid),
        )


def _mapping(payload: object) -> Mapping[str, Any]:
    assert isinstance(payload, Mapping), "an acknowledgement maps node names to payloads"
    return payload


def _source_share(node: Node, ack: Acknowledgement, payload: Mapping[str, Any]) -> SubtaskShare:
    bad = from_json(BadInput, payload["bad"], node.uid).records if "bad" in payload else 0
    return SubtaskShare(
        node=node.uid,
        kind=node.kind,
        level=ack.level,
        subtask=ack.subtask,
        rows_in=payload["rows"],
        rows_out=payload["rows"],
        bad_records=bad,
        files=payload["objects"] - len(payload["missing"]),
    )


def _sink_share(sink: str, ack: Acknowledgement, payload: Any) -> SubtaskShare:
    staged = from_json(StagedRows, payload, "staged rows")
    files = (*staged.files, *staged.buckets, *(joined.file for joined in staged.joined))
    return SubtaskShare(
        node=sink,
        kind=SINK,
        level=ack.level,
        subtask=ack.subtask,
        rows_in=staged.rows,
        files=len(files),
        bytes=sum(file.size for file in files),
    )

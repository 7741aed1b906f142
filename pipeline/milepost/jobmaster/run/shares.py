"""Shares are made of verified acknowledgements: what each subtask did for each node of the graph, and each sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from milepost.codec.fields import Count
from milepost.codec.records import from_json
from milepost.epoch.subtask_shares import SINK, SubtaskShare
from milepost.jobspec.graph.graph import JobGraph, Node
from milepost.protocol.exchange.acknowledgements import Acknowledgement, VerifiedAnswers
from milepost.sinks.records.committables import StagedRows
from milepost.sources.bad_input import BadInput


def subtask_shares(graph: JobGraph, verified: VerifiedAnswers) -> tuple[SubtaskShare, ...]:
    """Return every subtask's shares: of the nodes in topological order, then of the sinks."""
    found: dict[str, list[SubtaskShare]] = {}
    for node in graph.nodes.values():
        found[node.uid] = list(_row_wise(node, verified, found) if node.is_row_wise else _of_node(node, verified))
    shares = [share for shares in found.values() for share in shares]
    for sink in graph.sink_inputs:
        shares += [_staged(sink, ack, one) for ack, one in _said(verified, "sinks", sink)]
    return tuple(shares)


def _of_node(node: Node, verified: VerifiedAnswers) -> Iterator[SubtaskShare]:
    for ack, one in _said(verified, "sources", node.uid):
        yield _read(node, ack, one)
    for ack, one in _said(verified, "operators", node.uid):
        counts = {name: one[name] for name in ("rows_in", "rows_out", "late_rows", "unaligned")}
        yield SubtaskShare(node=node.uid, kind=node.kind, level=ack.level, subtask=ack.subtask, **counts)


def _row_wise(
    node: Node, verified: VerifiedAnswers, found: Mapping[str, Sequence[SubtaskShare]]
) -> Iterator[SubtaskShare]:
    """Yield the shares of an operator without state: of each subtask that has rows of one of its inputs."""
    given: dict[tuple[int, int], list[Count | None]] = {}
    for name in node.inputs:
        for share in found[name]:
            given.setdefault((share.level, share.subtask), []).append(share.rows_out)
    for ack in verified.acknowledgements:
        rows = given.get((ack.level, ack.subtask))
        if rows is None:
            continue
        counted = [one for one in rows if one is not None]
        yield SubtaskShare(
            node=node.uid,
            kind=node.kind,
            level=ack.level,
            subtask=ack.subtask,
            # SQL over what updates change reads rows that its input does not count.
            rows_in=sum(counted) if len(counted) == len(rows) and (node.shown or not node.retracts) else None,
            rows_out=_mapping(ack.payload["row_wise"]).get(node.uid),
        )


def _said(verified: VerifiedAnswers, part: str, name: str) -> Iterator[tuple[Acknowledgement, Any]]:
    """Yield what each subtask says of a source, an operator or a sink, with its acknowledgement."""
    for ack in verified.acknowledgements:
        said = ack.payload.get(part)
        if isinstance(said, Mapping) and name in said:
            yield ack, said[name]


def _mapping(said: object) -> Mapping[str, Any]:
    assert isinstance(said, Mapping), "what a subtask says of its nodes is by name"
    return said


def _read(node: Node, ack: Acknowledgement, said: Mapping[str, Any]) -> SubtaskShare:
    bad = from_json(BadInput, said["bad"], node.uid).records if "bad" in said else 0
    return SubtaskShare(
        node=node.uid,
        kind=node.kind,
        level=ack.level,
        subtask=ack.subtask,
        rows_in=said["rows"],
        rows_out=said["rows"],
        bad_records=bad,
        files=said["objects"] - len(said["missing"]),
    )


def _staged(sink: str, ack: Acknowledgement, said: Any) -> SubtaskShare:
    staged = from_json(StagedRows, said, "staged rows")
    files = (*staged.files, *staged.buckets, *(one.file for one in staged.joined))
    return SubtaskShare(
        node=sink,
        kind=SINK,
        level=ack.level,
        subtask=ack.subtask,
        rows_in=staged.rows,
        files=len(files),
        bytes=sum(file.size for file in files),
    )

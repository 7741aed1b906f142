"""Filled sinks take all rows of an operator's state once, because their table has missed some."""

from __future__ import annotations

from milepost.epoch.metadata import CheckpointMetadata
from milepost.spec.graph.graph import JobGraph, Node

_SHOW_THEIR_STATE = ("aggregate", "top", "latest")


def filled_sinks(base: CheckpointMetadata | None, graph: JobGraph) -> frozenset[str]:
    """Return the sinks of the latest rows of which an epoch stages every row, by their names.

    A sink that is new in the spec of a job with state, or that was out of it for some epochs, would else show the keys
    alone that change from now on. Only of kinds whose output is a function of their live state. The sinks of
    the base checkpoint say it, not when a table was written last: a migration continues those of others as they are.

    Args:
        base: the checkpoint that the epoch continues; None: the empty state.
    """
    if base is None:
        return frozenset()
    return frozenset(
        name
        for name, rows in graph.sink_inputs.items()
        if rows.mode == "upsert"
        and not rows.part
        and graph.nodes[graph.keyed_by(rows.uid)].kind in _SHOW_THEIR_STATE
        and graph.keyed_by(rows.uid) in base.operators
        and name not in base.sinks
    )


def operators_that_begin(base: CheckpointMetadata | None, graph: JobGraph) -> frozenset[str]:
    """Return the operators without state that read updates of others with state: those begin with all their rows.

    A row that is taken back would else be one that they never got.
    """
    return frozenset(uid for uid, producers in _continued(base, graph).items() if not _cannot_tell(producers))


def operators_short_of_rows(base: CheckpointMetadata | None, graph: JobGraph) -> dict[str, str]:
    """Return operators that cannot begin so, with what they read: a window or function, whose state is not its rows."""
    found = {uid: _cannot_tell(producers) for uid, producers in _continued(base, graph).items()}
    return {uid: nodes[0].uid for uid, nodes in found.items() if nodes}


def _cannot_tell(producers: list[Node]) -> list[Node]:
    return [node for node in producers if node.kind not in _SHOW_THEIR_STATE]


def _continued(base: CheckpointMetadata | None, graph: JobGraph) -> dict[str, list[Node]]:
    """Return what has state and gives updates, by the operators without state that read them, themselves or by SQL."""
    found: dict[str, list[Node]] = {}
    known = set() if base is None else set(base.operators)
    for node in graph.stateful:
        waiting = [] if node.uid in known else [graph.nodes[name] for name in node.inputs]
        while waiting:
            read = waiting.pop()
            if read.retracts and not read.is_stateful:
                waiting += [graph.nodes[name] for name in read.inputs]
            elif read.retracts and read.uid in known:
                found.setdefault(node.uid, []).append(read)
    return found

"""Filled sinks take all rows of an operator's state once, because their table has missed some."""

from __future__ import annotations

from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobspec.graph.graph import JobGraph

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


def seeded_operators(base: CheckpointMetadata | None, graph: JobGraph) -> frozenset[str]:
    """Return the operators without state that read updates of others with state: those begin with all their rows.

    A row that is taken back would else be one that they never got.
    """
    if base is None:
        return frozenset()

    def goes_on(uid: str) -> bool:
        node = graph.nodes[uid]
        if not node.retracts:
            return False
        return uid in base.operators if node.is_stateful else any(map(goes_on, node.inputs))

    new = (node for node in graph.stateful if node.uid not in base.operators)
    return frozenset(node.uid for node in new if any(map(goes_on, node.inputs)))

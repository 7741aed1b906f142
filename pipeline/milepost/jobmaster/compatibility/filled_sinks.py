"""Find sinks and operators that must first receive all rows of an existing state."""

from __future__ import annotations

from milepost.epoch import CheckpointMetadata
from milepost.jobspec.graph import JobGraph


def filled_sinks(base: CheckpointMetadata | None, graph: JobGraph) -> frozenset[str]:
    """Return the names of upsert sinks for which the epoch stages every row of the state.

    A sink that is new in the spec, or was missing from it for some epochs, would otherwise show only the keys that
    change from now on. Example: operator `totals` has 1,000 keys, and this epoch changes 3 of them. A sink that
    checkpoint 7 did not have gets 1,000 rows in checkpoint 8, a sink that it had gets 3.

    This is limited to operators whose output is a function of their live state. The rule looks at the sinks of the
    base checkpoint, not at when a table was last written, because a migration leaves the tables of other sinks as
    they are.

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
        and graph.nodes[graph.keyed_by(rows.uid)].publishes_state
        and (graph.keyed_by(rows.uid) in base.operators or name in base.tables)
        and name not in base.sinks
    )


def seeded_operators(base: CheckpointMetadata | None, graph: JobGraph) -> frozenset[str]:
    """Return new stateful operators that read updates of operators with recorded state.

    They start with all current rows of that state. Otherwise they could get a retraction of a row that they never got.
    """
    if base is None:
        return frozenset()

    def has_recorded_state(uid: str) -> bool:
        node = graph.nodes[uid]
        if not node.retracts:
            return False
        return uid in base.operators if node.is_stateful else any(map(has_recorded_state, node.inputs))

    new = (node for node in graph.stateful if node.uid not in base.operators)
    return frozenset(node.uid for node in new if any(map(has_recorded_state, node.inputs)))

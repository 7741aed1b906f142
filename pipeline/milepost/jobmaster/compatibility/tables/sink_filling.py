"""Find sinks and operators that must first receive all rows of an existing state."""

from __future__ import annotations

from milepost.epoch import CheckpointMetadata
from milepost.jobspec.graph import JobGraph, SinkInput
from milepost.operators.base import UPDATES


def filled_sinks(base: CheckpointMetadata | None, graph: JobGraph) -> frozenset[str]:
    """Return the names of upsert and changelog sinks for which the epoch stages every row of the state.

    A sink that is new in the spec, or was missing from it for some epochs, would otherwise show only the keys that
    change from now on. Example: operator `totals` has 1,000 keys, and this epoch changes 3 of them. A sink that
    checkpoint 7 did not have gets 1,000 rows in checkpoint 8, a sink that it had gets 3.

    This is limited to operators whose output is a function of their live state. The rule looks at the sinks of the
    base checkpoint, not at when a table was last written, because a migration leaves the tables of other sinks as
    they are. A changelog that comes back is not filled: its readers would miss the deletes of the time between.

    Args:
        base: the checkpoint that the epoch continues; None: the empty state.
    """
    if base is None:
        return frozenset()

    def misses_rows(name: str, rows: SinkInput) -> bool:
        has_state = graph.keyed_by(rows.uid) in base.operators
        return has_state or name in base.tables if rows.mode == "upsert" else has_state and name not in base.tables

    new = {name: rows for name, rows in graph.sink_inputs.items() if name not in base.sinks}
    return frozenset(name for name, rows in new.items() if can_be_filled(rows, graph) and misses_rows(name, rows))


def can_be_filled(rows: SinkInput, graph: JobGraph) -> bool:
    """Return whether the rows of a sink are a function of state, so that a new table can begin with all of them."""
    is_keyed = rows.mode in ("upsert", "changelog") and not rows.part and graph.nodes[rows.uid].output_kind == UPDATES
    return is_keyed and graph.nodes[graph.keyed_by(rows.uid)].publishes_state


def missed_rows(name: str, base: CheckpointMetadata, graph: JobGraph) -> str:
    """Return, as text, what the table of a sink that comes back to the spec lacks; "": nothing, or it does not."""
    rows = graph.sink_inputs[name]
    if name in base.sinks or name not in base.tables or rows.mode == "upsert":
        return ""
    text = f"the spec of checkpoint {base.checkpoint_id} did not have it: its table lacks the rows of the time between"
    hint = "; with a new name and path it begins with all current rows" if can_be_filled(rows, graph) else ""
    return f"{text}{hint}"


def begins_from_state(base: CheckpointMetadata, graph: JobGraph) -> bool:
    """Return whether the next epoch has sinks or operators that receive all rows of an existing state."""
    return bool(filled_sinks(base, graph) | seeded_operators(base, graph))


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

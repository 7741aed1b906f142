"""Refuse a spec that cannot continue a checkpoint's rows in flight or ended event time.

Rows in flight belong to the spec that produced them. After the last epoch of `run --drain` event time has ended, so
every new row would be late in an operator with late rows or timers. Both are checked before anything is planned.
"""

from __future__ import annotations

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobmaster.compatibility.edits import without_refilled
from milepost.jobmaster.job.code import LoadedCode
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph import JobGraph, analyse, input_signatures, late_outputs
from milepost.jobspec.job import JobSpec
from milepost.jobspec.load import sorted_spec
from milepost.protocol.records import ManifestState


def check_continuable(context: JobContext, base: CheckpointMetadata | None, loaded: LoadedCode) -> None:
    """Refuse rows in flight of another spec, and operators whose event time has ended. Raises InvalidRequest."""
    if base is not None:
        for refusal in refusals(context.job.spec, base, loaded.graph, loaded).values():
            raise refusal


def refusals(
    spec: JobSpec, base: CheckpointMetadata, graph: JobGraph, loaded: LoadedCode | None
) -> dict[str, InvalidRequest]:
    """Return, by uid, why operators cannot continue: rows in flight of another spec, or ended event time.

    Args:
        loaded: None: no process class was loaded. What depends on one is not checked.
    """
    base = without_refilled(spec, graph, base)  # rows in flight before refilled state are dropped with it
    refused = _rows_in_flight(spec, base, graph, loaded)
    return refused | _ended_event_time(spec, base, graph, loaded) if base.final else refused


def is_drained(state: ManifestState, base: CheckpointMetadata | None) -> bool:
    """Return whether the head is the last epoch of the running incarnation, so that the job only has to be finished."""
    if base is None or not base.final:
        return False
    return all(result.head != base.checkpoint_id for result in state.results)


def restored_firing(base: CheckpointMetadata | None, uid: str) -> tuple[int | None, ...]:
    """Return the firing watermarks that an operator's subtasks continue.

    They restart after the last epoch of an earlier incarnation: operators that may continue it have no timers.
    """
    snapshot = base.operators.get(uid) if base is not None else None
    if base is None or snapshot is None:
        return ()
    return (None,) * len(snapshot.firing) if base.final else snapshot.firing


def _rows_in_flight(
    spec: JobSpec, base: CheckpointMetadata, graph: JobGraph, loaded: LoadedCode | None
) -> dict[str, InvalidRequest]:
    current, refused = input_signatures(spec, graph), {}
    for uid, snapshot in base.operators.items():
        recorded = {channel.signature for channel in snapshot.channels if channel is not None}
        if uid not in current or not has_known_columns(graph, uid) or not recorded - {current[uid]}:
            continue
        if recorded - {current[uid], _sorted_signature(spec, loaded, uid)}:
            refused[uid] = InvalidRequest(
                f"operator {uid}: checkpoint {base.checkpoint_id} has {snapshot.in_flight_bytes} bytes of its input in "
                "flight, and the spec changes what produces them: the columns of an upstream operator, or the SQL in "
                "between. Nothing was written.",
                hint=f"restore the spec and process them: milepost run {spec.name} --until-caught-up; or end "
                f"the job with that spec: milepost run {spec.name} --drain",
                uid=uid,
            )
    return refused


def _sorted_signature(spec: JobSpec, loaded: LoadedCode | None, uid: str) -> str:
    """Return the signature of an operator's input with sorted columns, as earlier versions recorded it in Airflow.

    The rows are the same, because an operator reads columns by name.
    """
    outputs = {} if loaded is None else {name: function.declared.output for name, function in loaded.functions.items()}
    sorted_columns = sorted_spec(spec)
    graph, _ = analyse(sorted_columns, outputs)
    return "" if graph is None else input_signatures(sorted_columns, graph)[uid]


def has_known_columns(graph: JobGraph, uid: str) -> bool:
    """Return whether the columns of all nodes upstream of an operator are known."""
    return all(graph.nodes[name].columns_known and has_known_columns(graph, name) for name in graph.nodes[uid].inputs)


def _ended_event_time(
    spec: JobSpec, base: CheckpointMetadata, graph: JobGraph, loaded: LoadedCode | None
) -> dict[str, InvalidRequest]:
    timed = {uid for uid, _ in late_outputs(spec).values()}
    return {
        node.uid: InvalidRequest(
            f"operator {node.uid}: its event time ended with checkpoint {base.checkpoint_id}, the last one of a "
            "drained job. All its timers have fired, and every new row would be late. Nothing was written.",
            hint=f"roll back to the checkpoint before it: milepost rollback {spec.name} --to {base.base}; or give the "
            "operator a new uid, which starts empty, and add --allow-non-restored-state",
            uid=node.uid,
        )
        for node in graph.stateful
        if node.uid in base.operators and (node.uid in timed or _has_timers(loaded, node.uid))
    }


def _has_timers(loaded: LoadedCode | None, uid: str) -> bool:
    return loaded is not None and uid in loaded.functions and loaded.functions[uid].declared.timers

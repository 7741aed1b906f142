"""Rows in flight, or an ended event time, bind the spec that continues a checkpoint.

A spec that does not fit is refused before anything is planned, with what to do: rows in flight belong to the spec that
made them, and after the last epoch of `run --drain` every new row would be late where event time has ended: in what
has late rows, and in functions with timers.
"""

from __future__ import annotations

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.code import LoadedCode
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph.checks import late_outputs
from milepost.jobspec.graph.graph import JobGraph, analyse
from milepost.jobspec.graph.in_flight import input_signatures
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.sorted_spec import sorted_spec
from milepost.protocol.records.manifest_state import ManifestState


def check_continuable(context: JobContext, base: CheckpointMetadata | None, loaded: LoadedCode) -> None:
    """Raises InvalidRequest unless rows in flight fit the spec, and no operator's event time has ended."""
    if base is not None:
        for refusal in refusals(context.job.spec, base, loaded.graph, loaded).values():
            raise refusal


def refusals(
    spec: JobSpec, base: CheckpointMetadata, graph: JobGraph, loaded: LoadedCode | None
) -> dict[str, InvalidRequest]:
    """Return why operators cannot go on behind their rows in flight, or behind the end of their event time, by uid.

    Args:
        loaded: None: no class was loaded; what depends on one is not judged.
    """
    found = _rows_in_flight(spec, base, graph, loaded)
    return found | _event_time(spec, base, graph, loaded) if base.final else found


def is_drained(state: ManifestState, base: CheckpointMetadata | None) -> bool:
    """Return whether the head was the last epoch of the running incarnation, which has only to be finished."""
    if base is None or not base.final:
        return False
    return all(result.head != base.checkpoint_id for result in state.results)


def restored_firing(base: CheckpointMetadata | None, uid: str) -> tuple[int | None, ...]:
    """Return the firing watermarks that an operator's subtasks continue.

    After the last epoch of an earlier incarnation they begin anew: the operators that may continue it fire nothing.
    """
    snapshot = base.operators.get(uid) if base is not None else None
    if base is None or snapshot is None:
        return ()
    return (None,) * len(snapshot.firing) if base.final else snapshot.firing


def _rows_in_flight(
    spec: JobSpec, base: CheckpointMetadata, graph: JobGraph, loaded: LoadedCode | None
) -> dict[str, InvalidRequest]:
    now, found = input_signatures(spec, graph), {}
    for uid, snapshot in base.operators.items():
        made_by = {channel.signature for channel in snapshot.channels if channel is not None}
        if uid not in now or not has_known_columns(graph, uid) or not made_by - {now[uid]}:
            continue
        if made_by - {now[uid], _sorted_signature(spec, loaded, uid)}:
            found[uid] = InvalidRequest(
                f"operator {uid}: checkpoint {base.checkpoint_id} has {snapshot.in_flight_bytes} bytes of its input in "
                "flight, and the spec has changed what makes them: the columns of its producers, or the SQL between. "
                "Nothing was written.",
                hint=f"put the spec back and let it work them off: milepost run {spec.name} --until-caught-up; or end "
                f"the job with that spec: milepost run {spec.name} --drain",
                uid=uid,
            )
    return found


def _sorted_signature(spec: JobSpec, loaded: LoadedCode | None, uid: str) -> str:
    """Return the signature of an operator's input as earlier versions recorded it in Airflow: of sorted columns.

    The rows are the same: an operator takes their columns by name.
    """
    outputs = {} if loaded is None else {name: one.declared.output for name, one in loaded.functions.items()}
    former = sorted_spec(spec)
    graph, _ = analyse(former, outputs)
    return "" if graph is None else input_signatures(former, graph)[uid]


def has_known_columns(graph: JobGraph, uid: str) -> bool:
    """Return whether the columns of everything that an operator's input descends from are."""
    return all(graph.nodes[name].columns_known and has_known_columns(graph, name) for name in graph.nodes[uid].inputs)


def _event_time(
    spec: JobSpec, base: CheckpointMetadata, graph: JobGraph, loaded: LoadedCode | None
) -> dict[str, InvalidRequest]:
    timed = {uid for uid, _ in late_outputs(spec).values()}
    return {
        node.uid: InvalidRequest(
            f"operator {node.uid}: its event time ended with checkpoint {base.checkpoint_id}, the last one of a "
            "drained job: all that waited for it has come out, and every new row would be late. Nothing was "
            "written.",
            hint=f"go back to before it: milepost rollback {spec.name} --to {base.base}; or give it a new uid, which "
            "begins empty, and add --allow-non-restored-state",
            uid=node.uid,
        )
        for node in graph.stateful
        if node.uid in base.operators and (node.uid in timed or _has_timers(loaded, node.uid))
    }


def _has_timers(loaded: LoadedCode | None, uid: str) -> bool:
    return loaded is not None and uid in loaded.functions and loaded.functions[uid].declared.timers

"""Find where a replay begins: at the empty state, or at the state of a retained checkpoint.

A row depends on all input of its key since the first epoch. If some of it can no longer be read, the replay begins at
the oldest retained checkpoint after it. Earlier rows are then known only as state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from milepost.epoch import CheckpointMetadata
from milepost.errors import CheckpointError, InvalidRequest, NotFound, SourceChanged
from milepost.jobmaster.backfill.consumed_input import consumed_by
from milepost.jobmaster.backfill.replay import RecordedRange, lineage_since, recorded_ranges
from milepost.jobmaster.backfill.replay_check import check_objects
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.tables.tables import Tables
from milepost.jobmaster.tracing.origin import StartState
from milepost.jobmaster.tracing.selection import KnownValues, selected
from milepost.jobspec.graph import JobGraph
from milepost.operators.base import SIDES, RowTrace
from milepost.protocol.landed import is_reference, void_span_read
from milepost.protocol.records import NO_CHECKPOINT, CheckpointId
from milepost.sources import SourceObject

_NAMED = 3
"""Maximum number of unreadable objects in the reason of a cut."""

MOST_STATE_BYTES = 1 << 30
"""Maximum state of a checkpoint at which a replay may begin. Its process restores the state of all keys."""

_STATE_ROWS = 20
"""Maximum number of state rows that are shown per table."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a replay begins.

    Attributes:
        base: metadata of the checkpoint; None: the empty state. ranges: the input since then.
        reason: why it is not the empty state; None if it is.
    """

    base: CheckpointMetadata | None
    ranges: tuple[RecordedRange, ...]
    reason: str | None = None


def find_start(context: JobContext, at: CheckpointId, since: int | None) -> Start:
    """Return where the replay up to a checkpoint begins.

    Args:
        since: a retained checkpoint; None: the empty state, or the oldest checkpoint since which all input can be read.
    Raises:
        NotFound: `since` is not a retained ancestor.
        SourceChanged, InvalidRequest: there is no checkpoint since which all input can be read.
    """
    lineage = [one.checkpoint_id for one in lineage_since(context, at, NO_CHECKPOINT)]
    retained = [one for one in lineage[:-1] if context.head().state.checkpoint(one) is not None]
    if since is not None:
        if since not in retained:
            raise NotFound(
                f"job {context.spec.name}: checkpoint {since} is not a retained checkpoint before {at}; those are: "
                f"{', '.join(map(str, retained)) or 'none'}. Nothing was read.",
                checkpoint_id=since,
            )
        return _start(context, CheckpointId(since), at, "the trace began there")
    try:
        return _start(context, NO_CHECKPOINT, at, None)
    except (InvalidRequest, SourceChanged) as error:
        error.hint = "a row is traced only if all recorded input since a retained checkpoint can be read again"
        for point in retained:
            if point >= _newest_fault(error):
                try:
                    return _start(context, point, at, _reason(error))
                except (InvalidRequest, SourceChanged):
                    continue
        raise


def _start(context: JobContext, point: CheckpointId, at: CheckpointId, reason: str | None) -> Start:
    """Return the start at one checkpoint. Raises SourceChanged, InvalidRequest: not all input can be read since."""
    state = context.head().state
    base, end = context.base_metadata(state, int(point)), context.base_metadata(state, int(at))
    size = 0 if base is None else sum(handle.size for handle in base.handles())
    if size > MOST_STATE_BYTES:
        raise InvalidRequest(
            f"job {context.spec.name}: checkpoint {point} has {size:,} bytes of state, more than the "
            f"{MOST_STATE_BYTES:,} that a trace restores in one process. Nothing was changed."
        )
    lineage = lineage_since(context, at, point)
    consumed = consumed_by(context, base), consumed_by(context, end)
    ranges = recorded_ranges(context, lineage, None, *consumed, drained=True)
    check_objects(context, [item for item in ranges if not item.is_empty])
    _check_true_rows(context, ranges)
    referring = {name for item in ranges for name, objects in item.objects.items() if any(map(_is_file, objects))}
    if referring:
        raise InvalidRequest(
            f"job {context.spec.name}: source {min(referring)} reads the files of a table where they are: tracing "
            "their rows is not available in this version. Nothing was changed.",
            source=min(referring),
        )
    return Start(base, ranges, reason)


def _check_true_rows(context: JobContext, ranges: Sequence[RecordedRange]) -> None:
    """Check that no epoch has read records that became void later. A replay would skip them. Raises InvalidRequest."""
    for name in sorted({name for item in ranges for name in item.landed}):
        newest = context.source_log(name).newest()
        voids = () if newest is None else newest.record.voids
        for item in ranges:
            landed = item.landed.get(name)
            if landed is not None and void_span_read(landed.end, voids) is not None:
                raise InvalidRequest(
                    f"job {context.spec.name}: checkpoint {item.checkpoint_id} has read records of source {name} "
                    "that became void later: tracing over them is not available in this version. Nothing was read.",
                    checkpoint_id=int(item.checkpoint_id),
                    source=name,
                )


def _is_file(obj: SourceObject) -> bool:
    """Return whether an object of a log is a data file of a table, which the log refers to."""
    return is_reference(obj.key)


def _newest_fault(error: CheckpointError) -> int:
    """Return the newest checkpoint with input that cannot be read, as far as an error names it; 0 if it names none."""
    objects = error.details.get("objects")
    named = [one.get("checkpoint_id") for one in objects] if isinstance(objects, list) else []
    ids = [one for one in (*named, error.details.get("checkpoint_id")) if isinstance(one, int)]
    return max(ids, default=0)


def _reason(error: CheckpointError) -> str:
    """Return the first line of an error, with the first objects that it names."""
    line = error.message.splitlines()[0].removesuffix(" Nothing was changed.").rstrip(".")
    line = line.partition(": ")[2] if line.startswith("job ") else line
    objects = error.details.get("objects")
    names = [str(one.get("key")) for one in objects[:_NAMED]] if isinstance(objects, list) else []
    return f"{line}: {', '.join(names)}" if names else line


def start_state(
    context: JobContext, graph: JobGraph, base: CheckpointMetadata, needed: Mapping[str, Sequence[KnownValues]]
) -> tuple[StartState, ...]:
    """Return the state of the row's keys at the checkpoint where the replay begins.

    Args:
        needed: known values of the rows of each node.
    """
    found = []
    for name, table in base.state_tables.items():
        known = _known_keys(context, graph, name, table.uid, needed)
        if not known or any(not one.columns for one in known):
            continue
        rows = Tables(context).state_values(name, int(base.checkpoint_id))
        tables = [part for part in (selected(piece, known) for piece in rows) if part.num_rows]
        if tables:
            found.append(StartState(name, pa.concat_tables(tables).slice(0, _STATE_ROWS)))
    return tuple(found)


def _known_keys(
    context: JobContext, graph: JobGraph, table: str, uid: str, needed: Mapping[str, Sequence[KnownValues]]
) -> list[KnownValues]:
    """Return the known keys of one state table; [] if its operator is not upstream of the row."""
    if uid not in needed or uid not in graph.nodes:
        return []
    spec, nodes = context.spec.operator(uid), [graph.nodes[name] for name in graph.nodes[uid].inputs]
    sides = {uid: 0} | {f"{uid}.{name}": side for side, name in enumerate(SIDES)}
    if table not in sides:
        return []  # rows that it derives from its other tables
    side = sides[table]
    key = {one if isinstance(one, str) else one[side] for one in getattr(spec, "key", ())}
    traces = spec.row_traces([tuple(node.columns) for node in nodes], [node.event_time for node in nodes])
    of_side = [trace for trace in traces if trace.position == side]
    return [
        KnownValues({name: values for name, values in known.items() if name in key} | _known_window(one, trace))
        for one in needed[uid]
        for trace in of_side
        for known in (one.through(trace, uid, picked=False).columns,)
    ]


def _known_window(row: KnownValues, trace: RowTrace) -> dict[str, Sequence[Any]]:
    """Return the known bounds of a window of fixed length. The state of a session may have others than its row."""
    if trace.span is None or trace.span.is_session:
        return {}
    return {name: row.columns[name] for name in (trace.span.start, trace.span.end) if name in row.columns}

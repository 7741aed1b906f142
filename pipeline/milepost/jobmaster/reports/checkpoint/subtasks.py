"""Subtask details tell what one subtask did for one node of the graph; spreads tell how even a node's subtasks are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from milepost.epoch.iso_times import watermark_text
from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.subtask_shares import SINK, SOURCE, SubtaskShare, shares_of
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import token_prefix
from milepost.state.runs.handles import StateHandle

_OF_A_SOURCE = ("read_ms", "emit_ms", "total_ms")
_OF_THE_TASK = ("exchange_wait_ms", "async_wait_ms", "total_ms")
_OF_A_SINK = ("stage_ms",)
_OF_AN_OPERATOR = ("restore_ms", "process_ms", "emit_ms", "sync_ms", "async_ms", "alignment_ms")

SPREAD_FIGURES = ("rows_in", "rows_out", "late_rows", "full_bytes", "uploaded_bytes", "in_flight_bytes", "bytes")
"""Figures of subtasks whose spread is told, with that of every time."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The least, the middle and the greatest of a figure of a node's subtasks."""

    min: float
    median: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskDetails:
    """What one subtask did for a node; None is no part of that, or was not measured.

    Attributes:
        subtask: its index among the node's, from 0. attempt: of its Spark task, from 0.
        files, bytes: as in `SubtaskShare`.
        state_rows, full_bytes: of its state; a file that subtasks share counts for each. uploaded_bytes: of those, what
            this epoch wrote.
        watermark: up to which it has fired.
        slices: as in `OperatorTimes`.
        unaligned: it stopped before the end of its input, and left `in_flight_bytes`.
        times: milliseconds. Of a task that hosts several operators `exchange_wait_ms`, `async_wait_ms` and `total_ms`
            are of all of them, and `stage_ms` is of all its sinks.
    """

    subtask: int
    attempt: int | None
    rows_in: int | None
    rows_out: int | None
    late_rows: int | None
    bad_records: int | None
    files: int | None
    bytes: int | None
    state_rows: int | None = None
    full_bytes: int | None = None
    uploaded_bytes: int | None = None
    watermark: str | None = None
    in_flight_bytes: int | None = None
    slices: int | None = None
    unaligned: bool = False
    times: Mapping[str, int]


_NOT_RECORDED = "not recorded"


class Subtasks:
    """The subtasks of an epoch, node by node.

    Args:
        metadata: of a checkpoint; one that no epoch made has no subtasks.
    """

    def __init__(self, metadata: CheckpointMetadata) -> None:
        self._metadata = metadata
        last = sorted(metadata.tasks, key=lambda task: task.attempt)
        self._tasks = {(one.level, one.subtask): one for one in last}

    def of_source(self, name: str) -> tuple[SubtaskDetails, ...]:
        """Return what each subtask of a source read."""
        return tuple(self._details(at, one, _OF_A_SOURCE) for at, one in self._numbered(name, SOURCE))

    def of_sink(self, name: str) -> tuple[SubtaskDetails, ...]:
        """Return what each subtask staged for a sink."""
        return tuple(self._details(at, one, _OF_A_SINK) for at, one in self._numbered(name, SINK))

    def of_operator(self, uid: str) -> tuple[SubtaskDetails, ...]:
        """Return what each subtask of an operator did; one without state works in its inputs' tasks, unmeasured."""
        if uid not in self._metadata.operators:
            return tuple(self._details(at, one, ()) for at, one in self._numbered(uid))
        found = [self._details(at, one, _OF_THE_TASK, uid) for at, one in self._numbered(uid)]
        return tuple(self._with_state(uid, one) for one in found)

    def operators(self) -> dict[str, str]:
        """Return the kind of each operator, in topological order; of one that no subtask ran, that of its state."""
        ran = {one.node: one.kind for one in self._metadata.shares if one.kind not in (SOURCE, SINK)}
        recorded = self._metadata.signatures.get("operators", {})
        kept = [uid for uid in self._metadata.operators if uid not in ran]
        return ran | {uid: recorded.get(uid, {}).get("kind", _NOT_RECORDED) for uid in kept}

    def _numbered(self, node: str, *kinds: str) -> Iterable[tuple[int, SubtaskShare]]:
        return enumerate(shares_of(self._metadata.shares, node, *kinds))

    def _details(self, index: int, share: SubtaskShare, names: Sequence[str], uid: str = "") -> SubtaskDetails:
        task = self._tasks.get((share.level, share.subtask))
        times = {} if task is None else {name: getattr(task, name) for name in names}
        operator = None if task is None else task.operators.get(uid)
        if operator is not None:
            times |= {name: getattr(operator, name) for name in _OF_AN_OPERATOR}
        return SubtaskDetails(
            subtask=index,
            attempt=None if task is None else task.attempt,
            rows_in=share.rows_in,
            rows_out=share.rows_out,
            late_rows=share.late_rows,
            bad_records=share.bad_records,
            files=share.files,
            bytes=share.bytes,
            slices=None if operator is None else operator.slices,
            unaligned=share.unaligned,
            times={name: spent for name, spent in times.items() if spent is not None},
        )

    def _with_state(self, uid: str, one: SubtaskDetails) -> SubtaskDetails:
        snapshot = self._metadata.operators[uid]
        handles = [table.handles[one.subtask] for table in snapshot.tables.values()]
        channel = snapshot.channels[one.subtask]
        return replace(
            one,
            state_rows=sum(handle.live_rows for handle in handles),
            full_bytes=sum(handle.full_bytes for handle in handles),
            uploaded_bytes=uploaded_bytes(self._metadata, handles),
            watermark=watermark_text(snapshot.firing[one.subtask]),
            in_flight_bytes=0 if channel is None else channel.bytes,
        )


def uploaded_bytes(metadata: CheckpointMetadata, handles: Iterable[StateHandle]) -> int:
    """Return what of some state the checkpoint's own epoch wrote."""
    own = token_prefix(CheckpointId(metadata.checkpoint_id), FencingToken(metadata.token))
    return sum({run.key: run.size for handle in handles for run in handle.runs if run.key.startswith(own)}.values())


def spreads(subtasks: Sequence[SubtaskDetails]) -> dict[str, Spread]:
    """Return the spread of each figure that every subtask has, by its name; {} of less than two subtasks."""
    if len(subtasks) < 2:
        return {}
    figures: dict[str, list[int | None]] = {name: [getattr(one, name) for one in subtasks] for name in SPREAD_FIGURES}
    figures |= {name: [one.times.get(name) for one in subtasks] for name in subtasks[0].times}
    return {name: found for name, values in figures.items() if (found := _spread(values)) is not None}


def _spread(values: Sequence[int | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Spread(min(known), median(known), max(known))

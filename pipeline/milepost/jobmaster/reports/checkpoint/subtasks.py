"""Report the work of each subtask per graph node, and how evenly it is spread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from milepost.epoch import SINK, SOURCE, CheckpointMetadata, SubtaskShare, shares_of, watermark_text
from milepost.protocol.records import CheckpointId, FencingToken, token_prefix
from milepost.state.runs import StateHandle

_OF_A_SOURCE = ("read_ms", "emit_ms", "total_ms")
_OF_THE_TASK = ("exchange_wait_ms", "async_wait_ms", "total_ms")
_OF_A_SINK = ("stage_ms",)
_OF_AN_OPERATOR = ("restore_ms", "process_ms", "emit_ms", "sync_ms", "async_ms", "alignment_ms")

SPREAD_FIGURES = ("rows_in", "rows_out", "late_rows", "full_bytes", "uploaded_bytes", "in_flight_bytes", "bytes")
"""Figures with a reported spread over subtasks, in addition to all times."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of a figure over a node's subtasks."""

    min: float
    median: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskDetails:
    """The work of one subtask for a node. A figure is None if it does not apply or was not measured.

    Attributes:
        subtask: its index among the node's subtasks, from 0. attempt: of its Spark task, from 0.
        files, bytes: as in `SubtaskShare`.
        state_rows, full_bytes: of its state; a file shared by several subtasks counts for each. uploaded_bytes: the
            part that this epoch wrote.
        watermark: up to which it has fired.
        slices: as in `OperatorTimes`.
        unaligned: whether it stopped before the end of its input, leaving `in_flight_bytes`.
        times: milliseconds. If a task hosts several operators, `exchange_wait_ms`, `async_wait_ms` and `total_ms`
            cover all of them, and `stage_ms` covers all its sinks.
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
    """The subtasks of an epoch, by node.

    Args:
        metadata: of a checkpoint; one that was not made by an epoch has no subtasks.
    """

    def __init__(self, metadata: CheckpointMetadata) -> None:
        self._metadata = metadata
        by_attempt = sorted(metadata.tasks, key=lambda task: task.attempt)
        self._tasks = {(task.level, task.subtask): task for task in by_attempt}  # the last attempt wins

    def of_source(self, name: str) -> tuple[SubtaskDetails, ...]:
        """Return the reads of each subtask of a source."""
        return tuple(self._details(index, share, _OF_A_SOURCE) for index, share in self._numbered(name, SOURCE))

    def of_sink(self, name: str) -> tuple[SubtaskDetails, ...]:
        """Return the staged output of each subtask for a sink."""
        return tuple(self._details(index, share, _OF_A_SINK) for index, share in self._numbered(name, SINK))

    def of_operator(self, uid: str) -> tuple[SubtaskDetails, ...]:
        """Return the work of each subtask of an operator.

        A stateless operator runs inside its inputs' tasks, so it has no times of its own.
        """
        if uid not in self._metadata.operators:
            return tuple(self._details(index, share, ()) for index, share in self._numbered(uid))
        details = [self._details(index, share, _OF_THE_TASK, uid) for index, share in self._numbered(uid)]
        return tuple(self._with_state(uid, item) for item in details)

    def operators(self) -> dict[str, str]:
        """Return the kind of each operator, in topological order.

        If no subtask ran it, its kind is that recorded with its state.
        """
        ran = {share.node: share.kind for share in self._metadata.shares if share.kind not in (SOURCE, SINK)}
        recorded = self._metadata.signatures.get("operators", {})
        idle = [uid for uid in self._metadata.operators if uid not in ran]
        return ran | {uid: recorded.get(uid, {}).get("kind", _NOT_RECORDED) for uid in idle}

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

    def _with_state(self, uid: str, details: SubtaskDetails) -> SubtaskDetails:
        snapshot = self._metadata.operators[uid]
        handles = [table.handles[details.subtask] for table in snapshot.tables.values()]
        channel = snapshot.channels[details.subtask]
        return replace(
            details,
            state_rows=sum(handle.live_rows for handle in handles),
            full_bytes=sum(handle.full_bytes for handle in handles),
            uploaded_bytes=uploaded_bytes(self._metadata, handles),
            watermark=watermark_text(snapshot.firing[details.subtask]),
            in_flight_bytes=0 if channel is None else channel.bytes,
        )


def uploaded_bytes(metadata: CheckpointMetadata, handles: Iterable[StateHandle]) -> int:
    """Return the bytes of the handles' runs that the checkpoint's own epoch wrote."""
    own = token_prefix(CheckpointId(metadata.checkpoint_id), FencingToken(metadata.token))
    return sum({run.key: run.size for handle in handles for run in handle.runs if run.key.startswith(own)}.values())


def spreads(subtasks: Sequence[SubtaskDetails]) -> dict[str, Spread]:
    """Return, by name, the spread of each figure that every subtask has; {} for fewer than two subtasks.

    Example: three subtasks with rows_in 10, 40 and 100 give `{"rows_in": Spread(min=10, median=40, max=100)}`.
    """
    if len(subtasks) < 2:
        return {}
    figures: dict[str, list[int | None]] = {
        name: [getattr(details, name) for details in subtasks] for name in SPREAD_FIGURES
    }
    figures |= {name: [details.times.get(name) for details in subtasks] for name in subtasks[0].times}
    return {name: spread for name, values in figures.items() if (spread := _spread(values)) is not None}


def _spread(values: Sequence[int | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Spread(min(known), median(known), max(known))

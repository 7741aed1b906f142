"""Record the times and counts of one task attempt.

Times differ between otherwise identical attempts (I12). The last level sends its metrics to the driver with the
acknowledgement, but outside its digest. Rows that cross an exchange contain none, because Spark compares the rows of a
repeated task with those that they replace. There each attempt stores an object instead,
`chk-<id>/t<token>/metrics/<level>-<subtask>-a<attempt>.json`.

An attempt whose snapshot is not acknowledged stores its metrics so far as `…-incomplete.json`. A repeated source
attempt does so when it starts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from milepost.codec import to_json
from milepost.epoch.timing import OperatorTimes, TaskTimes, attempts_prefix
from milepost.storage import NO_REQUESTS, REQUEST_COUNTER, StoreRequests

_OPERATOR_PARTS = ("restore_ms", "process_ms", "emit_ms", "sync_ms")


@dataclass(slots=True)
class TaskMetrics:
    """Times and counts of one attempt of one subtask, in the form of `TaskTimes`.

    The parts of an attempt follow one another, and each mark ends one. Uploads run in parallel with them. Marks at
    1.0 s (read_ms), 1.5 s (process_ms) and 1.7 s (read_ms) give read_ms 1.2 s and process_ms 0.5 s.

    Attributes:
        attempt: Spark's attempt number, from 0. Never part of identity.
        bytes_in, buffers_in: size of the input. A source has no buffers.
        incomplete: whether a snapshot of the subtask ended without an acknowledgement.
        marks: part -> seconds.
        working_on: operator that the next marks are attributed to; None: no operator.
    """

    level: int
    subtask: int
    attempt: int
    rows_in: int = 0
    bytes_in: int = 0
    buffers_in: int | None = None
    alignment_ms: int = 0
    in_flight_bytes: int = 0
    left_ms: int | None = None
    incomplete: bool = False
    marks: dict[str, float] = field(default_factory=dict)
    working_on: str | None = None
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    _started: float = field(default_factory=time.monotonic)
    _last: float = field(default_factory=time.monotonic)
    _requests_at_start: StoreRequests = field(default_factory=REQUEST_COUNTER.totals)
    _uploads: list[tuple[str, float]] = field(default_factory=list)
    _operator_marks: dict[str, dict[str, float]] = field(default_factory=dict)
    _aligned_ms: dict[str, int] = field(default_factory=dict)
    _slices: dict[str, int | None] = field(default_factory=dict)
    _work_spans: dict[str, tuple[float, float]] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        """Add the time since the previous mark to `name`."""
        now = time.monotonic()
        self._add(name, now - self._last, now)
        self._last = now

    def attribute(self, name: str, seconds: float) -> None:
        """Add time that has just passed to `name`, and exclude it from the part that the next mark ends."""
        self._add(name, seconds, time.monotonic())
        self._last += seconds

    def record_input(self, buffers: int, size: int) -> None:
        """Record the complete input of the task's channels."""
        self.buffers_in, self.bytes_in = buffers, size

    def record_upload(self, uid: str, seconds: float) -> None:
        """Record the upload of one table of an operator's snapshot. Thread-safe."""
        self._uploads.append((uid, seconds))

    def record_alignment(self, uid: str, duration_ms: int, in_flight_bytes: int) -> None:
        """Record that an operator has reached its barrier."""
        self._aligned_ms[uid] = duration_ms
        self.alignment_ms = max(self.alignment_ms, duration_ms)
        self.in_flight_bytes += in_flight_bytes

    def record_slices(self, uid: str, slices: int | None) -> None:
        """Record the number of slices in which an operator processed its input; None: not sliced."""
        self._slices[uid] = slices

    def file_name(self, ended: str) -> str:
        """Return the name of the object that stores the metrics.

        Args:
            ended: `COMPLETE` or `INCOMPLETE`.
        """
        return f"{attempts_prefix(self.level, self.subtask)}{self.attempt}{ended}"

    def times(self, own_put: StoreRequests = NO_REQUESTS) -> TaskTimes:
        """Return the metrics. A part that the task does not have is None.

        Args:
            own_put: the request that stores the metrics, if any. Requests counted here are not counted again.
        """
        return TaskTimes(
            level=self.level,
            subtask=self.subtask,
            attempt=self.attempt,
            started_ms=self.started_ms,
            total_ms=round((time.monotonic() - self._started) * 1000),
            read_ms=self._ms("read_ms"),
            exchange_wait_ms=self._ms("receive_ms"),
            restore_ms=self._ms("restore_ms"),
            process_ms=self._ms("process_ms"),
            emit_ms=self._ms("emit_ms"),
            sync_ms=self._ms("sync_ms"),
            stage_ms=self._ms("stage_ms"),
            async_ms=round(max(seconds for _, seconds in self._uploads) * 1000) if self._uploads else None,
            async_wait_ms=self._ms("async_wait_ms"),
            rows=self.rows_in,
            bytes=self.bytes_in,
            buffers=self.buffers_in,
            alignment_ms=self.alignment_ms,
            in_flight_bytes=self.in_flight_bytes,
            left_ms=self.left_ms,
            requests=REQUEST_COUNTER.take(self._requests_at_start, own_put),
            operators={uid: self._operator(uid, marks) for uid, marks in self._operator_marks.items()},
        )

    def encode(self, own_put: StoreRequests) -> bytes:
        """Return the stored form of `times`."""
        return json.dumps(to_json(self.times(own_put)), sort_keys=True).encode()

    def _add(self, name: str, seconds: float, now: float) -> None:
        parts = [self.marks]
        if self.working_on is not None:
            parts.append(self._operator_marks.setdefault(self.working_on, {}))
            since, _ = self._work_spans.get(self.working_on, (now - seconds, now))
            self._work_spans[self.working_on] = since, now
        for marks in parts:
            marks[name] = marks.get(name, 0.0) + seconds

    def _operator(self, uid: str, marks: Mapping[str, float]) -> OperatorTimes:
        spent = {name: round(marks.get(name, 0.0) * 1000) for name in _OPERATOR_PARTS}
        uploads_ms = round(1000 * sum(seconds for uploaded, seconds in self._uploads if uploaded == uid))
        from_ms, to_ms = (round((at - self._started) * 1000) for at in self._work_spans[uid])
        return OperatorTimes(
            **spent,
            async_ms=uploads_ms,
            alignment_ms=self._aligned_ms.get(uid, 0),
            from_ms=max(0, from_ms),
            to_ms=max(0, to_ms),
            slices=self._slices.get(uid),
        )

    def _ms(self, name: str) -> int | None:
        return round(self.marks[name] * 1000) if name in self.marks else None

"""Task output flows from a task's operator stage to its output stage.

Where a level has SQL, Spark's own projection runs between the two, so the items cross the JVM as rows of a wide frame:
`control` (binary, JSON header plus payload) or one struct column per node. See `sql_projection.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from milepost.codec import from_json, to_json
from milepost.protocol.exchange import Decline, SubtaskAck, decode_answer, encode_answer
from milepost.state.buffers import Buffer


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that one node of the job graph puts out.

    Attributes:
        lateness_us: of a stateful operator: the stamp that its consumers judge them by. None for rows of a source.
        distinct: whether no two of these rows are known to be of one output key; said of updates alone.
        part: rows of two parts of a node, both above 0, never share an output key; 0 = nothing is known.
    """

    node: str
    rows: pa.Table
    lateness_us: int | None = None
    distinct: bool = False
    part: int = 0


@dataclass(frozen=True, slots=True)
class Stamped:
    """The stamp of all rows that follow, up to the next one; on the way through the JVM only."""

    lateness_us: int | None


@dataclass(frozen=True, slots=True)
class Forward:
    """A buffer that a later level needs: passed on as it came."""

    subtask: int
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class RowsDone:
    """No more rows follow: the output stage sends the barrier. The operator stage has not snapshotted anything yet."""


@dataclass(frozen=True, slots=True)
class SnapshotStarted:
    """The operator stage's state is frozen and being uploaded: the output stage may stage its sinks meanwhile."""


@dataclass(frozen=True, slots=True)
class OperatorStageEnd:
    """The operator stage's part of the acknowledgement; the last item but for a declined epoch.

    Attributes:
        ack: JSON: per operator its runs and counts, per source its rows and newest event time.
        consumed: channel -> digest of the acknowledgement consumed on it.
        carried: distinct acknowledgements of all earlier levels.
        measured: JSON: what this attempt measured, as `TaskTimes` describes it.
    """

    ack: Mapping[str, Any]
    consumed: Mapping[int, str] = field(default_factory=dict)
    carried: tuple[SubtaskAck, ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Declined:
    """The operator stage, or a sender before it, refuses the checkpoint. The last item."""

    decline: Decline


TaskOutput = Rows | Forward | RowsDone | SnapshotStarted | OperatorStageEnd | Declined
Control = Stamped | Forward | RowsDone | SnapshotStarted | OperatorStageEnd | Declined


def encode_control(item: Control) -> bytes:
    """Return a control item as one binary value: a JSON header line, then the payload."""
    payload: bytes = b""
    header: dict[str, Any]
    if isinstance(item, Stamped):
        header = {"item": "stamped", "lateness_us": item.lateness_us}
    elif isinstance(item, Forward):
        buffer = item.buffer
        header = {"item": "forward", "subtask": item.subtask, "operator": buffer.operator, "producer": buffer.producer}
        header |= {"lateness_us": buffer.lateness_us, "oldest_us": buffer.oldest_us}
        payload = buffer.body()
    elif isinstance(item, RowsDone):
        header = {"item": "rows_done"}
    elif isinstance(item, SnapshotStarted):
        header = {"item": "snapshot_started"}
    elif isinstance(item, OperatorStageEnd):
        header = {
            "item": "end",
            "ack": item.ack,
            "consumed": {str(channel): digest for channel, digest in item.consumed.items()},
            "carried": to_json(item.carried),
            "measured": item.measured,
        }
    else:
        header = {"item": "declined", "decline": encode_answer(item.decline)}
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode() + b"\n" + payload


def decode_control(body: bytes) -> Control:
    """Return the inverse of `encode_control`."""
    head, payload = body.split(b"\n", 1)
    header = json.loads(head)
    kind = header["item"]
    if kind == "stamped":
        return Stamped(header["lateness_us"])
    if kind == "forward":
        times = (header["lateness_us"], header["oldest_us"])
        return Forward(header["subtask"], Buffer(header["operator"], header["producer"], *times, payload))
    if kind == "rows_done":
        return RowsDone()
    if kind == "snapshot_started":
        return SnapshotStarted()
    if kind == "end":
        return OperatorStageEnd(
            header["ack"],
            {int(channel): digest for channel, digest in header["consumed"].items()},
            tuple(from_json(SubtaskAck, item, "acknowledgement") for item in header["carried"]),
            header["measured"],
        )
    answer = decode_answer(header["decline"])
    assert isinstance(answer, Decline)
    return Declined(answer)

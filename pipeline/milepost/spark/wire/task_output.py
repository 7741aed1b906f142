"""Items that flow from a task's operator stage to its output stage.

In a level with SQL, Spark's projection runs between the two. The items then cross the JVM as rows of a wide frame, with
a column `control` (binary: JSON header, newline, payload) and one struct column per node that SQL reads. Other rows are
control items. See `sql_projection.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from milepost.codec import from_json, to_json
from milepost.protocol.exchange import Decline, SubtaskAck, decode_answer, encode_answer
from milepost.spark.wire.arrow_streams import decode_stream, encode_stream
from milepost.state.buffers import Buffer


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that one output of the job graph emits.

    Attributes:
        node: name of the output.
        lateness_us: stamp of a stateful operator's rows, by which consumers decide lateness. None for a source.
        distinct: whether each of these rows has another output key. Set for updates only.
        part: rows of two parts of a node, both above 0, never share an output key; 0: unknown.
        object: the source object that they were read from; None: several, or of a stateful operator, or not needed.
    """

    node: str
    rows: pa.Table
    lateness_us: int | None = None
    distinct: bool = False
    part: int = 0
    object: str | None = None


@dataclass(frozen=True, slots=True)
class Stamped:
    """The stamp and object of all rows up to the next `Stamped`. Used only on the way through the JVM."""

    lateness_us: int | None
    object: str | None = None


@dataclass(frozen=True, slots=True)
class Forward:
    """A buffer that a later level needs, forwarded unchanged."""

    subtask: int
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class RowsDone:
    """The rows are complete, so the output stage sends the barrier. The operator stage has no snapshot yet."""


@dataclass(frozen=True, slots=True)
class SnapshotStarted:
    """The operator stage has frozen its state and uploads it. The output stage stages its sinks concurrently."""


@dataclass(frozen=True, slots=True)
class OperatorStageEnd:
    """The operator stage's part of the acknowledgement. The last item, unless the subtask declines.

    Attributes:
        ack: JSON with the runs and counts of each operator, or the rows and newest event time of each source.
        consumed: channel -> digest of the acknowledgement that was consumed on it.
        carried: distinct acknowledgements of all earlier levels.
        measured: JSON with the metrics of this attempt, in the form of `TaskTimes`.
    """

    ack: Mapping[str, Any]
    consumed: Mapping[int, str] = field(default_factory=dict)
    carried: tuple[SubtaskAck, ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Declined:
    """The operator stage or an upstream sender declines the checkpoint. The last item."""

    decline: Decline


TaskOutput = Rows | Forward | RowsDone | SnapshotStarted | OperatorStageEnd | Declined
Control = Stamped | Rows | Forward | RowsDone | SnapshotStarted | OperatorStageEnd | Declined


def encode_control(item: Control) -> bytes:
    """Encode a control item as one binary value: a JSON header line, then the payload.

    `Stamped(5)` is `{"item":"stamped","lateness_us":5}` and a newline. A `Forward` of 8,000 bytes is its header, a
    newline and these bytes. `Rows` are their header, a newline and an Arrow stream.
    """
    payload: bytes = b""
    header: dict[str, Any]
    if isinstance(item, Stamped):
        header = {"item": "stamped", "lateness_us": item.lateness_us}
        header |= {} if item.object is None else {"object": item.object}
    elif isinstance(item, Rows):
        header = {"item": "rows", "node": item.node, "lateness_us": item.lateness_us, "object": item.object}
        header |= {"distinct": item.distinct, "part": item.part}
        payload = encode_stream(item.rows)
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
    """Decode a control item, the inverse of `encode_control`."""
    head, payload = body.split(b"\n", 1)
    header = json.loads(head)
    kind = header["item"]
    if kind == "stamped":
        return Stamped(header["lateness_us"], header.get("object"))
    if kind == "rows":
        rows = decode_stream(payload)
        return Rows(header["node"], rows, header["lateness_us"], header["distinct"], header["part"], header["object"])
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

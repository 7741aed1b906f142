"""What flows inside one Spark task, from its host (source or stateful subtask) to its tail.

Where a level has SQL, Spark's own projection runs between the two, so the items cross the JVM as rows of a wide frame:
`control` (binary, JSON header plus payload) or one struct column per node. See `sql_projection.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pipeline.protocol.acknowledgements import Decline, decode_answer, encode_answer
from pipeline.protocol.barrier import Barrier


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that one node of the job graph puts out."""

    node: str
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Forward:
    """A buffer that a later level needs: passed on as it came."""

    subtask: int
    operator: str
    producer: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class RowsDone:
    """No more rows follow: the tail may stage its sinks while the host still uploads state."""


@dataclass(frozen=True, slots=True)
class HostEnd:
    """The host's part of the acknowledgement; the last item but for a declined epoch.

    Attributes:
        ack: JSON: per operator its runs and counts, per source its rows and newest event time.
        consumed: channel -> digest of the barrier consumed on it.
        carried: distinct barriers of all earlier levels.
    """

    ack: Mapping[str, Any]
    consumed: Mapping[int, str] = field(default_factory=dict)
    carried: tuple[Barrier, ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """The host, or a sender before it, refuses the checkpoint. The last item."""

    decline: Decline


Item = Rows | Forward | RowsDone | HostEnd | Declined
Control = Forward | RowsDone | HostEnd | Declined


def encode_control(item: Control) -> bytes:
    """A control item as one binary value: a JSON header line, then the payload."""
    payload = b""
    header: dict[str, Any]
    if isinstance(item, Forward):
        header = {"item": "forward", "subtask": item.subtask, "operator": item.operator, "producer": item.producer}
        payload = item.payload
    elif isinstance(item, RowsDone):
        header = {"item": "rows_done"}
    elif isinstance(item, HostEnd):
        header = {
            "item": "end",
            "ack": item.ack,
            "consumed": {str(channel): digest for channel, digest in item.consumed.items()},
            "carried": [barrier.to_json() for barrier in item.carried],
        }
    else:
        header = {"item": "declined", "decline": encode_answer(item.decline)}
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode() + b"\n" + payload


def decode_control(body: bytes) -> Control:
    """The inverse of `encode_control`."""
    head, payload = body.split(b"\n", 1)
    header = json.loads(head)
    kind = header["item"]
    if kind == "forward":
        return Forward(header["subtask"], header["operator"], header["producer"], payload)
    if kind == "rows_done":
        return RowsDone()
    if kind == "end":
        return HostEnd(
            header["ack"],
            {int(channel): digest for channel, digest in header["consumed"].items()},
            tuple(Barrier.from_json(item) for item in header["carried"]),
        )
    answer = decode_answer(header["decline"])
    assert isinstance(answer, Decline)
    return Declined(answer)

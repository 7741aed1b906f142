"""Channel state: the buffers that an unaligned checkpoint overtook, in one file per task (DESIGN 4.3).

`chk-<id>/t<token>/channel/<sha256>.arrow` is an Arrow IPC file with one row per buffer. The operators of a task share
it. The next epoch processes the rows of an operator in this order, before any new input. Channel state belongs to one
checkpoint and is never carried by reference into another.

Example: an operator `join` with two buffers of `orders` in flight, and `totals` with one buffer of `join`:

    operator  producer  sequence  lateness_us  oldest_us  narrowed_payload
    join      orders    0         null         5          <bytes>
    join      orders    1         null         7          <bytes>
    totals    join      0         4            5          <bytes>
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from milepost.codec import Count, Sha256, Text
from milepost.errors import NotFound, StateCorrupt
from milepost.protocol.records import OwnKey
from milepost.state.buffers.buffers import Buffer, owned_part
from milepost.state.runs.identity import CheckpointObjects, StateIdentity

_SCHEMA = pa.schema(
    [
        pa.field("operator", pa.string(), nullable=False),
        pa.field("producer", pa.string(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("lateness_us", pa.int64()),
        pa.field("oldest_us", pa.int64()),
        pa.field("narrowed_payload", pa.large_binary(), nullable=False),
    ]
)

_SUFFIX = ".arrow"


@dataclass(frozen=True, slots=True)
class ChannelStateHandle:
    """The in-flight buffers of one operator in one subtask at one checkpoint.

    Attributes:
        key: object key of the file, relative to the job's root. All operators of a task share one file.
        size: bytes of the file. sha256: lower-case hex of its content.
        uid: operator. key_groups: half-open range this subtask owns.
        buffers: number of this operator's buffers, at least 1. bytes: size of their payloads.
        oldest_us: minimum event time in them; None without event time.
        signature: signature of the operator's inputs, which determines its buffers (`jobspec/graph/in_flight.py`).
    """

    key: OwnKey
    size: Count
    sha256: Sha256
    uid: Text
    key_groups: range
    buffers: Count
    bytes: Count
    oldest_us: int | None
    signature: Text

    def check(self) -> str | None:
        """Return why the values contradict each other; None if they are consistent."""
        return None if self.buffers else "buffers is 0, expected at least 1: without buffers there is no channel state"


@dataclass(frozen=True, slots=True)
class ChannelFile:
    """Encoded channel state of one task: the object to upload, and a handle per operator with buffers in it."""

    key: str
    body: bytes
    handles: Mapping[str, ChannelStateHandle]


def encode_channel_state(
    in_flight: Mapping[str, Sequence[Buffer]], *, directory: str, key_groups: range, signatures: Mapping[str, str]
) -> ChannelFile | None:
    """Encode the in-flight buffers of a task's operators into one file, or return None if there are none.

    Args:
        in_flight: operator -> its buffers, in the order in which they are to be processed.
        directory: prefix of the object key, relative to the job's root. Ends in ``/``.
        key_groups: key groups that the subtask owns. signatures: operator -> signature of its inputs.
    """
    rows = [(index, buffer) for _, buffers in sorted(in_flight.items()) for index, buffer in enumerate(buffers)]
    if not rows:
        return None
    table = pa.table(
        [
            pa.array([buffer.operator for _, buffer in rows], pa.string()),
            pa.array([buffer.producer for _, buffer in rows], pa.string()),
            pa.array([index for index, _ in rows], pa.int64()),
            pa.array([buffer.lateness_us for _, buffer in rows], pa.int64()),
            pa.array([buffer.oldest_us for _, buffer in rows], pa.int64()),
            _payloads([buffer for _, buffer in rows]),
        ],
        schema=_SCHEMA,
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SCHEMA) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    sha256 = hashlib.sha256(body).hexdigest()
    key = f"{directory}{sha256}{_SUFFIX}"
    handles = {
        uid: ChannelStateHandle(
            key=key,
            size=len(body),
            sha256=sha256,
            uid=uid,
            key_groups=key_groups,
            buffers=len(buffers),
            bytes=sum(buffer.size for buffer in buffers),
            oldest_us=oldest_in_flight(buffers),
            signature=signatures[uid],
        )
        for uid, buffers in in_flight.items()
        if buffers
    }
    return ChannelFile(key, body, handles)


def oldest_in_flight(buffers: Iterable[Buffer]) -> int | None:
    """Return the minimum event time of buffers, or None if they have none."""
    return min((buffer.oldest_us for buffer in buffers if buffer.oldest_us is not None), default=None)


def restore_channel_state(
    identity: StateIdentity,
    handles: Iterable[ChannelStateHandle | None],
    objects: CheckpointObjects,
    routing_keys: Mapping[str, tuple[str, ...]],
) -> tuple[Buffer, ...]:
    """Return the buffers that one subtask must process first, in order, for any parallelism at the checkpoint.

    If the subtask owns the whole range of a former subtask, its buffers are returned without decoding. Otherwise they
    are filtered by the key group of their rows.

    Args:
        identity: of the operator under its current uid. It may have been renamed after the checkpoint.
        handles: handles of the operator's former subtasks, in order; None for one without channel state.
        routing_keys: edge name -> columns by which its rows were exchanged.
    Raises:
        StateCorrupt: a file is missing, altered or does not match its handle.
        StoreUnavailable, EnvironmentUnusable: from the store.
    """
    restored: list[Buffer] = []
    own, keys = identity.key_groups, identity.keys
    for handle in handles:
        if handle is None or handle.key_groups.stop <= own.start or own.stop <= handle.key_groups.start:
            continue
        buffers = _read(handle, identity.uid, objects)
        if own.start <= handle.key_groups.start and handle.key_groups.stop <= own.stop:
            restored += buffers
        else:
            parts = (
                owned_part(buffer, routing_keys[buffer.producer], keys.hasher, own, identity.max_parallelism)
                for buffer in buffers
            )
            restored += (part for part in parts if part is not None)
    return tuple(restored)


def _payloads(buffers: Sequence[Buffer]) -> pa.Array:
    return pa.array([item.body() for item in buffers], pa.large_binary())


def _read(handle: ChannelStateHandle, operator: str, objects: CheckpointObjects) -> list[Buffer]:
    def refused(problem: str) -> StateCorrupt:
        return objects.unusable("channel state", handle.key, handle.uid, problem)

    try:
        body = objects.store.get(handle.key)
    except NotFound as error:
        raise refused("it is missing") from error
    if len(body) != handle.size:
        raise refused(f"it has {len(body)} bytes, its handle says {handle.size}")
    if (found := hashlib.sha256(body).hexdigest()) != handle.sha256:
        raise refused(f"its sha256 is {found}, its handle says {handle.sha256}")
    try:
        table = pa.ipc.open_file(body).read_all()
    except MemoryError:  # among pyarrow's errors too: it is about the process
        raise
    except pa.ArrowException as error:
        raise refused(f"it is not a readable Arrow file ({error})") from error
    if not table.schema.equals(_SCHEMA):
        raise refused(f"it has the columns {table.schema.names}")
    columns = [table.column(name).to_pylist() for name in _SCHEMA.names[:-1]]
    payloads = [value for chunk in table.columns[-1].chunks for value in chunk]
    buffers = [
        Buffer(operator, producer, lateness_us, oldest_us, payloads[index].as_buffer())
        for index, (uid, producer, _, lateness_us, oldest_us) in enumerate(zip(*columns, strict=True))
        if uid == handle.uid
    ]
    sequence = [number for uid, number in zip(columns[0], columns[2], strict=True) if uid == handle.uid]
    if sequence != list(range(handle.buffers)) or sum(buffer.size for buffer in buffers) != handle.bytes:
        raise refused(f"it holds {len(buffers)} of the {handle.buffers} buffers that its handle says")
    return buffers

"""The `_metadata` object of a checkpoint: all that belongs to it, in one document.

JSON, versioned. Written once per token, before the commit point; the commit refers to it by key, size and SHA-256, so
nobody finds it by name afterwards (I7). References in it are relative to the job's root and are checked when read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from milepost.dataflow.quality.verdict import GateVerdict
from milepost.dataflow.sinks.contract import Committable, decode_schema, encode_schema
from milepost.dataflow.sources.event_times import RowsAhead
from milepost.epoch.metadata_formats import from_format_1, from_format_2, from_format_3, from_format_4
from milepost.epoch.task_times import TaskTimes
from milepost.epoch.throughput import Pace
from milepost.protocol.codec.packing import packed, restored, shortened, unpacked
from milepost.protocol.codec.records import from_json, to_json
from milepost.protocol.exchange.watermarks import operator_watermark
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.ids import KEY_HASH_SECRET_PATTERN
from milepost.state.buffers.channel_state import ChannelStateHandle
from milepost.state.layers.key_hash import KeyHash
from milepost.state.runs.handles import StateHandle
from milepost.storage.layout import require_own_key

METADATA_FORMAT = 5


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """One source at the end of the epoch.

    Attributes:
        watermark_us: after the epoch; None is minus infinity.
        finished: the epoch was the job's last one: operators took the source for ended, and their watermark for
            END_OF_TIME_US.
        consumed: runs of the set of consumed object versions, oldest first.
        rows, objects: read in this epoch. missing: planned objects that were gone and skipped.
        newest_event_us: newest event time delivered so far that counts for the watermark; None: none, or not known.
        ahead_rows: rows read in this epoch that do not count for the watermark: too far ahead of their trigger.
        ahead: the first objects that have such rows. furthest_us: their furthest event time delivered so far.
        ahead_since: checkpoint that delivered the first of them; None: none, or from before they were told apart.
        skipped: objects that the plan passed over, by why, as in `SourceInput`. bad_names: likewise.
    """

    watermark_us: int | None
    consumed: tuple[ObjectHandle, ...]
    rows: int
    objects: int
    missing: tuple[str, ...]
    finished: bool = False
    newest_event_us: int | None = None
    ahead_rows: int = 0
    ahead: tuple[RowsAhead, ...] = ()
    furthest_us: int | None = None
    ahead_since: int | None = None
    skipped: dict[str, int] = field(default_factory=dict)
    bad_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """One stateful operator at the end of the epoch. Tuples have one entry per subtask, in order.

    Attributes:
        key: key of its state. state_schema: Arrow, with the stored name of each column (`state/runs/evolution.py`).
        handles: state. firing: firing watermarks. channels: rows in flight; None for a subtask that left none.
        processed_bytes: of the buffers that a subtask processed.
    """

    key: tuple[str, ...]
    routing_key: tuple[str, ...]
    state_schema: pa.Schema
    handles: tuple[StateHandle, ...]
    firing: tuple[int | None, ...]
    channels: tuple[ChannelStateHandle | None, ...]
    processed_bytes: tuple[int, ...]
    rows_in: int
    rows_out: int
    late_rows: int

    @property
    def firing_us(self) -> int | None:
        """The least firing watermark of its subtasks: what all of them have fired."""
        return operator_watermark(self.firing)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of the buffers that its subtasks left in flight."""
        return sum(channel.bytes for channel in self.channels if channel is not None)


@dataclass(frozen=True, slots=True)
class SinkSnapshot:
    """One sink's part of the checkpoint.

    Attributes:
        predecessor: checkpoint id of the mark it must follow; None for the sink's first (I14).
        location: of the table it was staged for, as `JobContext.sink_location` names it.
    """

    committable: Committable
    predecessor: int | None
    location: str


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """How far one sink's table is: the newest checkpoint of this lineage that has it, and where the table lies."""

    checkpoint_id: int
    location: str


@dataclass(frozen=True, slots=True)
class AcknowledgedSubtask:
    """The one attempt of a subtask that the checkpoint is made of (I7)."""

    level: int
    subtask: int
    attempt_digest: str
    consumed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """Everything of one checkpoint.

    Attributes:
        code: what ran, by name: ``milepost`` and ``<uid>: <module>`` -> SHA-256; `code_hash` is of all of it. Empty in
            checkpoints from before it was recorded.
        hasher: the key hash of its state and of its rows in flight.
        marks: position of every sink of this lineage, also of those that the spec has dropped: what a sink that comes
            back must follow.
        unaligned: a subtask stopped before the end of its input.
        held_back: why the epoch read less than its sources' limits allow; None when it did not.
        pace: how much input its subtasks can take.
        started_ms: when its trigger began, by the wall clock of that machine; None when nobody measured it.
        timings: milliseconds of the driver, by step up to the commit point. tasks: what each Spark attempt measured.
    """

    job: str
    checkpoint_id: int
    epoch: int
    timeline: str
    token: int
    base: int
    code_hash: str
    code: Mapping[str, str]
    spec_hash: str
    spec_text: str
    signatures: Mapping[str, Any]
    max_parallelism: int
    hasher: KeyHash
    plan: ObjectHandle
    sources: Mapping[str, SourceSnapshot]
    operators: Mapping[str, OperatorSnapshot]
    sinks: Mapping[str, SinkSnapshot]
    marks: Mapping[str, SinkPosition]
    acknowledged: tuple[AcknowledgedSubtask, ...]
    verdict: GateVerdict
    unaligned: bool = False
    held_back: str | None = None
    pace: Pace = field(default_factory=Pace)
    started_ms: int | None = None
    timings: Mapping[str, int] = field(default_factory=dict)
    tasks: tuple[TaskTimes, ...] = ()

    def encode(self) -> bytes:
        document = {
            "format": METADATA_FORMAT,
            "job": self.job,
            "checkpoint_id": self.checkpoint_id,
            "epoch": self.epoch,
            "timeline": self.timeline,
            "token": self.token,
            "base": self.base,
            "code_hash": self.code_hash,
            "code": dict(self.code),
            "spec_hash": self.spec_hash,
            "spec_text": self.spec_text,
            "signatures": self.signatures,
            "max_parallelism": self.max_parallelism,
            "key_hash_secret": self.hasher.secret,
            "plan": shortened(to_json(self.plan)),
            "sources": {name: _source_json(item) for name, item in self.sources.items()},
            "operators": {uid: _operator_json(item) for uid, item in self.operators.items()},
            "sinks": {
                name: {
                    "committable": to_json(item.committable),
                    "predecessor": item.predecessor,
                    "location": item.location,
                }
                for name, item in self.sinks.items()
            },
            "marks": {name: [item.checkpoint_id, item.location] for name, item in self.marks.items()},
            "acknowledged": [
                [item.level, item.subtask, item.attempt_digest, dict(item.consumed)] for item in self.acknowledged
            ],
            "verdict": to_json(self.verdict),
            "unaligned": self.unaligned,
            "held_back": self.held_back,
            "pace": to_json(self.pace),
            "started_ms": self.started_ms,
            "timings": dict(self.timings),
            "tasks": packed(to_json(self.tasks)),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    def references(self) -> Iterator[str]:
        """Every stored object of the job that the checkpoint needs, `_metadata` itself left out."""
        yield self.plan.key
        for source in self.sources.values():
            yield from (handle.key for handle in source.consumed)
        for operator in self.operators.values():
            for handle in operator.handles:
                yield from (run.key for run in handle.runs)
            yield from (channel.key for channel in operator.channels if channel is not None)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of all buffers in flight: what the next epoch processes before anything new."""
        return sum(operator.in_flight_bytes for operator in self.operators.values())

    @property
    def final(self) -> bool:
        """Whether its epoch ended the job's input: every timer and window has fired."""
        return any(source.finished for source in self.sources.values())


def decode_metadata(body: bytes, key: str) -> CheckpointMetadata:
    """Read a `_metadata` object. Raises StateCorrupt: unreadable, another format, or a reference outside the job."""
    try:
        document = json.loads(body)
        if document["format"] == 1:
            document = from_format_1(document)
        if document["format"] == 2:
            document = from_format_2(document)
        if document["format"] == 3:
            document = from_format_3(document)
        if document["format"] == 4:
            document = from_format_4(document)
        if document["format"] != METADATA_FORMAT:
            raise StateCorrupt(
                f"{key}: format {document['format']}, expected 1 to {METADATA_FORMAT}",
                hint="it was written by another version of Milepost",
            )
        metadata = _decode(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateCorrupt(f"{key}: not a readable checkpoint: {error!r}", hint="milepost verify JOB") from error
    for reference in metadata.references():
        require_own_key(reference)
    return metadata


def _decode(document: Mapping[str, Any]) -> CheckpointMetadata:
    return CheckpointMetadata(
        job=document["job"],
        checkpoint_id=document["checkpoint_id"],
        epoch=document["epoch"],
        timeline=document["timeline"],
        token=document["token"],
        base=document["base"],
        code_hash=document["code_hash"],
        code=document["code"],
        spec_hash=document["spec_hash"],
        spec_text=document["spec_text"],
        signatures=document["signatures"],
        max_parallelism=document["max_parallelism"],
        hasher=_hasher(document["key_hash_secret"]),
        plan=from_json(ObjectHandle, restored(document["plan"]), "plan"),
        sources={name: _source(item, name) for name, item in document["sources"].items()},
        operators={uid: _operator(item) for uid, item in document["operators"].items()},
        sinks={
            name: SinkSnapshot(
                from_json(Committable, item["committable"], "committable"), item["predecessor"], item["location"]
            )
            for name, item in document["sinks"].items()
        },
        marks={name: SinkPosition(*item) for name, item in document["marks"].items()},
        acknowledged=tuple(AcknowledgedSubtask(*item) for item in document["acknowledged"]),
        verdict=from_json(GateVerdict, document["verdict"], "gate verdict"),
        unaligned=document["unaligned"],
        held_back=document["held_back"],
        pace=from_json(Pace, document["pace"], "pace"),
        started_ms=_optional_ms(document["started_ms"], "started_ms"),
        timings={name: _ms(value, name) for name, value in document["timings"].items()},
        tasks=tuple(from_json(TaskTimes, task, "task") for task in unpacked(document["tasks"])),
    )


def _hasher(secret: object) -> KeyHash:
    if secret is not None and not (isinstance(secret, str) and KEY_HASH_SECRET_PATTERN.fullmatch(secret)):
        raise StateCorrupt("checkpoint metadata: the key hash secret is not 32 hexadecimal digits")  # it is not shown
    return KeyHash(secret)


def _ms(value: object, name: str) -> int:
    if type(value) is not int or value < 0:
        raise StateCorrupt(f"checkpoint metadata: {name} is {value!r}, expected milliseconds")
    return value


def _optional_ms(value: object, name: str) -> int | None:
    return None if value is None else _ms(value, name)


def _source_json(item: SourceSnapshot) -> dict[str, Any]:
    document: dict[str, Any] = shortened(to_json(item))
    return document | {"consumed": packed(document["consumed"])}


def _source(item: Mapping[str, Any], name: str) -> SourceSnapshot:
    whole = restored({**item, "consumed": unpacked(item["consumed"])})
    return from_json(SourceSnapshot, whole, f"source {name}")


def _operator_json(item: OperatorSnapshot) -> dict[str, Any]:
    return {
        "key": list(item.key),
        "routing_key": list(item.routing_key),
        "state_schema": encode_schema(item.state_schema),
        "handles": to_json(item.handles),
        "firing": list(item.firing),
        "channels": to_json(item.channels),
        "processed_bytes": list(item.processed_bytes),
        "rows_in": item.rows_in,
        "rows_out": item.rows_out,
        "late_rows": item.late_rows,
    }


def _operator(item: Mapping[str, Any]) -> OperatorSnapshot:
    handles = tuple(from_json(StateHandle, handle, "state handle") for handle in item["handles"])
    per_subtask = {name: tuple(item[name]) for name in ("firing", "channels", "processed_bytes")}
    for name, values in per_subtask.items():
        if len(values) != len(handles):
            raise StateCorrupt(f"checkpoint metadata: {name} has {len(values)} entries for {len(handles)} subtasks")
    return OperatorSnapshot(
        key=tuple(item["key"]),
        routing_key=tuple(item["routing_key"]),
        state_schema=decode_schema(item["state_schema"]),
        handles=handles,
        firing=per_subtask["firing"],
        channels=tuple(
            None if one is None else from_json(ChannelStateHandle, one, "channel state handle")
            for one in per_subtask["channels"]
        ),
        processed_bytes=per_subtask["processed_bytes"],
        rows_in=item["rows_in"],
        rows_out=item["rows_out"],
        late_rows=item["late_rows"],
    )

"""The `_metadata` object of a checkpoint, which describes and references all of its parts.

It is versioned JSON, written once per token and before the commit point. The commit refers to it by key, size and
SHA-256, so no reader looks it up by name (I7). References in it are relative to the job's root and are checked on read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from milepost.codec import (
    Count,
    OmitNone,
    StoredAs,
    StoredName,
    dump,
    expand_handles,
    from_json,
    load_document,
    pack,
    shorten_handles,
    to_json,
    unpack,
)
from milepost.epoch.dimensions import DimensionSnapshot
from milepost.epoch.skipped_at_start import SkippedAtStart
from milepost.epoch.subtask_shares import SubtaskShare
from milepost.epoch.timing.task_times import TaskTimes
from milepost.epoch.timing.throughput import ThroughputEstimate
from milepost.errors import StateCorrupt
from milepost.protocol.exchange import operator_watermark
from milepost.protocol.landed import LogPosition
from milepost.protocol.records import KEY_HASH_SECRET_PATTERN, ObjectHandle
from milepost.quality import GateVerdict, current_verdict
from milepost.sources import BadInput, RowsAhead
from milepost.state.buffers import ChannelStateHandle
from milepost.state.layers import KeyHash
from milepost.state.runs import StateHandle
from milepost.storage import StoreRequests, require_own_key
from milepost.tables.records import ArrowSchema, TableContents


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """One source at the end of the epoch.

    Attributes:
        watermark_us: watermark after the epoch. None is minus infinity.
        consumed: runs of the set of consumed object versions, oldest first.
        rows, objects: numbers of rows and objects read in this epoch.
        missing: planned objects that no longer existed and were skipped.
        finished: the epoch was the job's last one, so operators saw the source as ended, with watermark END_OF_TIME_US.
        newest_event_us: newest event time delivered so far that counts for the watermark. None if there is none, or it
            is unknown.
        ahead_rows: rows read in this epoch that do not count for the watermark: too far ahead of their trigger.
        ahead: the first objects that have such rows.
        furthest_us: the furthest event time of such rows delivered so far.
        ahead_since: checkpoint that delivered the first such row. None if there is none, or if it was delivered before
            these rows were distinguished.
        skipped: number of objects that the plan skipped, by reason, as in `SourceInput`; and tombstones: number of
            messages without a value, which have no row. bad_names, empty: as in `SourceInput`.
        bad: unreadable records that went to the dead letters.
        overdue: when the epoch was planned, no object had landed for longer than expected.
        active_ms, idle: as in `SourceInput`.
        horizon_ms: consumed versions modified before this time may have been forgotten. None if none was.
        position: how far a landed source's log has been read. None: nothing of it, or the source is files.
        partitions: newest event time delivered so far of each partition of the external system, where its rows say so.
        stored_as: former name of a landed source, under which its log is stored. None: its own name.
        at_start: what `start: latest` has skipped. None: nothing, or it was not recorded.
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
    bad: BadInput = field(default_factory=BadInput)
    overdue: bool = False
    active_ms: int | None = None
    idle: bool = False
    horizon_ms: int | None = None
    empty: tuple[str, ...] = ()
    position: LogPosition | None = None
    partitions: dict[str, int] = field(default_factory=dict)
    stored_as: str | None = None
    at_start: SkippedAtStart | None = None

    def at_rest(self) -> SourceSnapshot:
        """Return the snapshot after an epoch that reads nothing from the source."""
        read: dict[str, Any] = {"rows": 0, "objects": 0, "missing": (), "skipped": {}, "bad_names": (), "empty": ()}
        bad = BadInput(total=self.bad.total)
        return replace(self, **read, ahead_rows=0, ahead=(), bad=bad, overdue=False, idle=False)


@dataclass(frozen=True, slots=True)
class StateTableSnapshot:
    """One table of an operator's state at the end of the epoch.

    Attributes:
        key, routing_key: as the operator declared them.
        schema: Arrow schema with the stored name of each column (`state/runs/evolution.py`).
        handles: one per subtask, in order.
    """

    key: tuple[str, ...]
    routing_key: tuple[str, ...]
    schema: ArrowSchema
    handles: tuple[StateHandle, ...]


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """One stateful operator at the end of the epoch. Tuples have one entry per subtask, in order.

    Attributes:
        tables: state tables, by declared name.
        firing: firing watermarks.
        channels: rows in flight. None for a subtask that left none.
        processed_bytes: size of the buffers that a subtask processed.
        dropped_rows: late rows that no sink publishes. None if an older version wrote the checkpoint.
    """

    tables: Mapping[str, StateTableSnapshot]
    firing: tuple[int | None, ...]
    channels: tuple[ChannelStateHandle | None, ...]
    processed_bytes: tuple[Count, ...]
    rows_in: Count
    rows_out: Count
    late_rows: Count
    dropped_rows: OmitNone[Count]

    def check(self) -> str | None:
        """Return the inconsistency between the fields, or None if they are consistent."""
        if not self.tables:
            return "it has no table of state"
        ranges = [[handle.key_groups for handle in table.handles] for table in self.tables.values()]
        if any(others != ranges[0] for others in ranges):
            return f"the subtasks of its tables {', '.join(map(repr, self.tables))} are not the same"
        for name in ("firing", "channels", "processed_bytes"):
            count = len(getattr(self, name))
            if count != len(ranges[0]):
                return f"{name} has {count} entries for {len(ranges[0])} subtasks"
        return None

    @property
    def handles(self) -> tuple[StateHandle, ...]:
        """The state of every subtask, table by table."""
        return tuple(handle for table in self.tables.values() for handle in table.handles)

    @property
    def firing_us(self) -> int | None:
        """The minimum firing watermark of its subtasks: all of them have fired up to it."""
        return operator_watermark(self.firing)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of the buffers that its subtasks left in flight."""
        return sum(channel.bytes for channel in self.channels if channel is not None)


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """One table of an operator's state, with the data needed to read it.

    Attributes:
        uid: uid of the operator.
        firing: firing watermark of each subtask. State that expired before it is deleted.
    """

    uid: str
    state: StateTableSnapshot
    firing: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class SinkSnapshot:
    """Rows that one epoch publishes to a sink.

    Attributes:
        rows: number of rows that it adds, deletes included.
        predecessor: checkpoint that the table must show before the commit. 0 is the empty table (I14).
        rejected_rows: rows that its row rules refused. None if it has no such rules.
        quarantined_rows: those of them that went to `<sink>.rejected`.
    """

    rows: Count
    predecessor: int
    rejected_rows: OmitNone[Count] = None
    quarantined_rows: OmitNone[Count] = None


@dataclass(frozen=True, slots=True)
class AcknowledgedSubtask:
    """The attempt of a subtask that supplied the checkpoint's results (I7)."""

    stored_as_row: ClassVar[bool] = True

    level: int
    subtask: int
    attempt_digest: str
    consumed: Mapping[str, str]


def _stored_secret(hasher: KeyHash) -> str:
    return hasher.secret


def _hasher(secret: object) -> KeyHash:
    if not isinstance(secret, str) or not KEY_HASH_SECRET_PATTERN.fullmatch(secret):
        raise ValueError("the key hash secret is not 32 hexadecimal digits")  # never show the secret
    return KeyHash(secret)


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """All metadata of one checkpoint.

    Attributes:
        code: SHA-256 of the code that ran, by name: ``milepost`` and ``<uid>: <module>``. `code_hash` covers all of it.
        hasher: the key hash of its state and of its rows in flight.
        sinks: rows that the epoch publishes, by sink.
        tables: contents of every sink's table on this lineage. Sinks that the spec has dropped are included, so that a
            sink that returns continues from there.
        unaligned: a subtask stopped before the end of its input.
        held_back: why the epoch read less than its sources' limits allow. None when it did not.
        throughput: estimate of the input that the subtasks can process.
        started_ms: start of the trigger, by the wall clock of its machine. None if it was not measured.
        timings: driver time in milliseconds, by step, up to the commit point. `began_ms` is the wall clock of the
            driver process at its start.
        tasks: measurements of each Spark attempt.
        requests: S3 requests of the driver, by step, up to the metadata itself. {} for a store in a directory.
        shares: work of each subtask for each node and sink, in topological order, sinks last. () if no subtask made
            the checkpoint.
        dimensions: rows that the epoch used for lookups, by static source.
    """

    stored_format: ClassVar[str] = "milepost.metadata/6"

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
    hasher: Annotated[KeyHash, StoredName("key_hash_secret"), StoredAs(object, _stored_secret, _hasher)]
    plan: ObjectHandle
    sources: Mapping[str, SourceSnapshot]
    operators: Mapping[str, OperatorSnapshot]
    sinks: Mapping[str, SinkSnapshot]
    tables: Mapping[str, TableContents]
    acknowledged: tuple[AcknowledgedSubtask, ...]
    verdict: GateVerdict
    unaligned: bool = False
    held_back: str | None = None
    throughput: ThroughputEstimate = field(default_factory=ThroughputEstimate)
    started_ms: Count | None = None
    timings: Mapping[str, Count] = field(default_factory=dict)
    tasks: tuple[TaskTimes, ...] = ()
    requests: Mapping[str, StoreRequests] = field(default_factory=dict)
    shares: tuple[SubtaskShare, ...] = ()
    dimensions: Mapping[str, DimensionSnapshot] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return canonical JSON. Handles store their digest once, and records of one kind are packed into columns."""
        document = to_json(self)
        sources = {name: _packed_source(item) for name, item in document["sources"].items()}
        tables = {name: _packed_table(item) for name, item in document["tables"].items()}
        document |= {"plan": shorten_handles(document["plan"]), "sources": sources, "tables": tables}
        document |= {name: pack(document[name]) for name in _PACKED}
        if not document["dimensions"]:  # most jobs have none
            del document["dimensions"]
        return dump(document)

    @property
    def log_positions(self) -> dict[str, LogPosition]:
        """How far the logs of landed sources were read, by the names under which they are stored."""
        return {
            item.stored_as or name: item.position for name, item in self.sources.items() if item.position is not None
        }

    def log_position(self, log: str) -> LogPosition | None:
        """Return how far a log was read; None: nothing of it was. log: the name under which it is stored."""
        return self.log_positions.get(log)

    def handles(self) -> list[ObjectHandle]:
        """Return every object of the job's own store that the checkpoint needs, except `_metadata` itself."""
        handles = [self.plan]
        for source in self.sources.values():
            handles += source.consumed
        for operator in self.operators.values():
            handles += [ObjectHandle(run.key, run.size, run.sha256) for item in operator.handles for run in item.runs]
            handles += [ObjectHandle(one.key, one.size, one.sha256) for one in operator.channels if one is not None]
        for table in self.tables.values():
            handles += table.records
        handles += [dimension.copy for dimension in self.dimensions.values()]
        return list(dict.fromkeys(handles))  # operators of one task share a file of rows in flight

    @property
    def state_tables(self) -> dict[str, OperatorTable]:
        """Every table of keyed state, by its displayed name: ``uid``, or ``uid.table``."""
        return {
            f"{uid}.{name}" if name else uid: OperatorTable(uid, table, operator.firing)
            for uid, operator in self.operators.items()
            for name, table in operator.tables.items()
        }

    def references(self) -> Iterator[str]:
        """Return the keys of `handles`."""
        return (handle.key for handle in self.handles())

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of all buffers in flight. The next epoch processes them before new input."""
        return sum(operator.in_flight_bytes for operator in self.operators.values())

    @property
    def final(self) -> bool:
        """Whether the epoch ended the job's input, so that every timer and window has fired."""
        return any(source.finished for source in self.sources.values())


def decode_metadata(body: bytes, key: str) -> CheckpointMetadata:
    """Decode a `_metadata` object. Raises StateCorrupt: unreadable, another format, or a reference outside the job."""
    document = load_document(CheckpointMetadata.stored_format, body, key, hint=_VERIFY)
    try:
        sources = {name: _unpacked_source(item) for name, item in document["sources"].items()}
        tables = {name: _unpacked_table(item) for name, item in document["tables"].items()}
        operators = {uid: {"dropped_rows": None, **item} for uid, item in document["operators"].items()}
        no_rules = {"rejected_rows": None, "quarantined_rows": None}
        sinks = {name: {**no_rules, **item} for name, item in document["sinks"].items()}
        whole = {"plan": expand_handles(document["plan"]), "sources": sources, "tables": tables, "operators": operators}
        whole |= {"sinks": sinks, "verdict": current_verdict(document["verdict"])}
        whole |= {
            "tasks": [_completed(task) for task in unpack(document["tasks"])],
            "shares": unpack(document["shares"]),
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateCorrupt(f"{key}: not a readable checkpoint: {error!r}", hint=_VERIFY) from error
    metadata = from_json(CheckpointMetadata, {"dimensions": {}, **document, **whole}, key, hint=_VERIFY)
    for reference in metadata.references():
        require_own_key(reference)
    return metadata


_PACKED = ("tasks", "shares")

_VERIFY = "Run `milepost verify JOB` for all that is broken, and restore those objects from a copy of the store."


def _completed(task: Mapping[str, Any]) -> dict[str, Any]:
    # Older checkpoints do not record when an operator's part of a task ran, nor its slices.
    later = {"from_ms": None, "to_ms": None, "slices": None}
    return {**task, "operators": {uid: {**later, **times} for uid, times in task["operators"].items()}}


def _packed_source(item: Mapping[str, Any]) -> dict[str, Any]:
    shorter: dict[str, Any] = shorten_handles(item)
    if not shorter["partitions"]:
        del shorter["partitions"]
    if shorter["position"] is None:  # a source of files
        del shorter["position"]
    for name in ("stored_as", "at_start"):
        if shorter[name] is None:
            del shorter[name]
    return shorter | {"consumed": pack(shorter["consumed"])}


def _packed_table(item: Mapping[str, Any]) -> dict[str, Any]:
    shorter: dict[str, Any] = shorten_handles(item)
    return shorter | {"records": pack(shorter["records"])}


def _unpacked_table(item: Mapping[str, Any]) -> Any:
    return expand_handles({**item, "records": unpack(item["records"])})


def _unpacked_source(item: Mapping[str, Any]) -> Any:
    # Older checkpoints have no horizon (sources forgot nothing), and early ones do not name empty objects.
    absent: dict[str, Any] = {"horizon_ms": None, "empty": [], "position": None, "partitions": {}}
    absent |= {"stored_as": None, "at_start": None}
    return expand_handles({**absent, **item, "consumed": unpack(item["consumed"])})

"""Epoch plan, which the data plane executes, and its stored input record.

The input record is written before the trigger and named by its content. On the live lineage it is never subsumed,
because replays read it. The plan adds what the trigger and the rebind granted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from milepost.codec import dump, from_json, load_document, to_json
from milepost.epoch.dimensions import DimensionInput, DimensionSnapshot
from milepost.epoch.metadata import StateTableSnapshot
from milepost.epoch.spark_answers import SparkAnswers
from milepost.errors import InvalidRequest
from milepost.jobspec.graph import JobGraph
from milepost.jobspec.job import JobSpec, SourceSpec
from milepost.jobspec.load import LoadedJob
from milepost.language import SparkRemote
from milepost.operators import StatefulOperator
from milepost.operators.base import OUTPUT_TABLE
from milepost.operators.process import ProcessFunction
from milepost.protocol.landed import LandedRange
from milepost.protocol.records import (
    CheckpointFailureReason,
    CheckpointId,
    Epoch,
    FencingToken,
    StoreConfig,
    SubtaskKey,
    TimelineId,
)
from milepost.protocol.subtask import Notifications
from milepost.sinks.buckets import BucketPlan
from milepost.sinks.staging import MaintenancePlan
from milepost.sources import ObjectPart, SourceObject
from milepost.sources.planning import ForgottenRows, ReferencedFiles, SourcePlan, assign_splits
from milepost.state.buffers import ChannelStateHandle
from milepost.state.layers import KeyHash
from milepost.state.runs import evolve_schema, new_name_hint

_WHAT = "input record"

NAMED_BAD_NAMES = 20
"""Upper bound of a source's objects with unusable names that a record lists. All of them are counted."""


@dataclass(frozen=True, slots=True)
class SourceInput:
    """Planned input of one source in the epoch.

    Attributes:
        objects: objects to read, in plan order.
        baseline: objects to record as consumed without reading (``start: latest``).
        skipped: counts by reason: hidden, empty, before_start, ignored_changes, bad_names, not_remembered, quarantined.
        pending_objects, pending_bytes: new objects left for later epochs, because of the limits or to settle.
        oldest_new_ms: last-modified time of the oldest new object, planned or pending. None if there is none.
        bad_names: the first objects that were skipped for their names, each with the reason.
        overdue: no object had landed for longer than expected.
        active_ms: time when a trigger last listed new objects, by the job store's clock. For a source that never had
            any, the time of the first trigger that listed it. None if it was not recorded.
        idle: `active_ms` is longer ago than `idle_timeout`, so at the end of the epoch no operator waits for the
            source.
        idle_before: `idle` at the end of the previous epoch. The rows of this epoch are stamped with it.
        forgets: consumed versions to remove from the set of the base checkpoint. None if there are none.
        empty: the first objects of size 0.
        landed: for a landed source, the records of its log that `objects` are from. None: the epoch reads none, or the
            source is files.
    """

    name: str
    objects: tuple[SourceObject, ...]
    baseline: tuple[SourceObject, ...]
    skipped: Mapping[str, int]
    pending_objects: int
    pending_bytes: int
    oldest_new_ms: int | None
    bad_names: tuple[str, ...] = ()
    overdue: bool = False
    active_ms: int | None = None
    idle: bool = False
    idle_before: bool = False
    forgets: ForgottenRows | None = None
    empty: tuple[str, ...] = ()
    landed: LandedRange | None = None

    @property
    def behind(self) -> tuple[str, ...] | None:
        """Partitions of a landed source that hold back its watermark after the epoch. None: it read no record."""
        return None if self.landed is None else self.landed.behind

    @property
    def gaps(self) -> int:
        """Number of gaps in the log of a landed source that the epoch passes: there, input was lost."""
        return 0 if self.landed is None else self.landed.gaps

    @property
    def skipped_records(self) -> int:
        """Number of void records in the log of a landed source that the epoch skips: they proved false."""
        return 0 if self.landed is None else self.landed.skipped

    @property
    def has_input(self) -> bool:
        """Whether the epoch moves the source on, even if only over records without rows."""
        return self.landed is not None or bool(self.consumed)

    @property
    def consumed(self) -> tuple[SourceObject, ...]:
        """Object versions that count as consumed after the epoch completes. Those of a log count as its range."""
        return () if self.landed is not None else (*self.baseline, *self.objects)


def source_input(name: str, plan: SourcePlan, planned_ms: int) -> SourceInput:
    """Return a source's part of the input record. planned_ms: time of the trigger, by the job store's clock."""
    skipped = {
        "hidden": plan.skipped_hidden,
        "empty": len(plan.empty),
        "before_start": plan.skipped_before_start,
        "ignored_changes": plan.ignored_changes,
        "bad_names": len(plan.bad_names),
        "not_remembered": len(plan.unknown),
        "quarantined": len(plan.quarantined),
    }
    named = tuple(f"{bad.name}: {bad.reason}" for bad in plan.bad_names[:NAMED_BAD_NAMES])
    is_landed = plan.log is not None  # landed rows are as new as their landing, whenever they are processed
    objects = plan.objects if is_landed else tuple(replace(obj, planned_ms=planned_ms) for obj in plan.objects)
    return SourceInput(
        name=name,
        objects=objects,
        baseline=plan.baseline,
        skipped=skipped,
        pending_objects=plan.pending_objects,
        pending_bytes=plan.pending_bytes,
        oldest_new_ms=plan.oldest_new_ms,
        bad_names=named,
        overdue=plan.overdue,
        forgets=plan.forgets,
        empty=plan.empty[:NAMED_BAD_NAMES],
        landed=None if plan.log is None else plan.log.range,
    )


@dataclass(frozen=True, slots=True)
class InputRecord:
    """Planned input of an epoch.

    Attributes:
        sources: input of each source that is not static, in name order.
        final: the epoch is the job's last one.
        held_back: why less new input was planned than the sources' limits allow. None when it was not.
        dimensions: lookup input of each static source.
    """

    stored_format: ClassVar[str] = "milepost.input/2"

    sources: tuple[SourceInput, ...]
    final: bool = False
    held_back: str | None = None
    dimensions: Mapping[str, DimensionInput] = field(default_factory=dict)

    @property
    def summary(self) -> dict[str, dict[str, int]]:
        """Per source: objects and bytes to read, and objects left for later epochs."""
        return {
            item.name: {
                "objects": len(item.objects),
                "bytes": sum(obj.size for obj in item.objects),
                "left_for_later": item.pending_objects,
            }
            for item in self.sources
        }


_ABSENT_OF_RANGE: Mapping[str, Any] = {"behind": [], "gaps": 0, "voids": 0, "skipped": 0}
"""Fields of a landed range that are stored only if they differ from these values: older records do not have them."""


def encode_input_record(record: InputRecord) -> bytes:
    """Return the canonical JSON of the input record, with its sources stored by name."""
    document = to_json(record)
    for source in document["sources"]:
        if source["landed"] is None:  # a source of files
            del source["landed"]
            continue
        for name, absent in _ABSENT_OF_RANGE.items():
            if source["landed"][name] == absent:
                del source["landed"][name]
    document["sources"] = {source.pop("name"): source for source in document["sources"]}
    if not document["dimensions"]:
        del document["dimensions"]
    return dump(document)


def decode_input_record(body: bytes) -> InputRecord:
    """Decode the output of `encode_input_record`. Raises StateCorrupt: it is not an input record."""
    document = load_document(InputRecord.stored_format, body, _WHAT)
    sources = from_json(dict[str, dict[str, Any]], document.get("sources"), f"{_WHAT}: sources")
    # Older records lack `forgets` (sources forgot nothing), and early ones do not name empty objects.
    absent: dict[str, Any] = {"forgets": None, "empty": [], "landed": None}
    named = [{**absent, **source, "name": name} for name, source in sorted(sources.items())]
    for source in named:
        if isinstance(source["landed"], dict):
            source["landed"] = {**_ABSENT_OF_RANGE, **source["landed"]}
    return from_json(InputRecord, {"dimensions": {}, **document, "sources": named}, _WHAT)


def split_inputs(
    sources: Mapping[str, SourceSpec], inputs: Sequence[SourceInput], parallelism: int
) -> tuple[tuple[SourceInput, tuple[ObjectPart, ...]], ...]:
    """Return the epoch's source subtasks: for each its source and its objects or parts, contiguous in plan order.

    Sources are in name order, so the channel order of any receiver is plan order at any parallelism.
    An epoch that reads nothing (it only records a baseline) still has one source subtask, which sends the barrier.
    """
    splits = tuple(
        (item, split) for item in inputs for split in assign_splits(sources[item.name], item.objects, parallelism)
    )
    return splits or ((inputs[0], ()),)


def expected_subtasks(source_subtasks: int, levels: int, parallelism: int) -> tuple[SubtaskKey, ...]:
    """Return the subtasks that must acknowledge: every source subtask, and every subtask of each stateful level.

    Two source subtasks, one stateful level, parallelism 2, as (level, subtask): (0, 0), (0, 1), (1, 0), (1, 1).
    """
    sources = [SubtaskKey(0, index) for index in range(source_subtasks)]
    return (*sources, *(SubtaskKey(level, index) for level in range(1, levels + 1) for index in range(parallelism)))


@dataclass(frozen=True, slots=True)
class EpochAlignment:
    """Time limits for alignment and processing, after which subtasks leave rows in flight (DESIGN 4.3).

    Attributes:
        aligned_timeout_ms: limit from a subtask's start. None: it processes all of its input, however long that takes.
        epoch_budget_ms: limit from `started_ms` to the commit point, divided over the remaining levels. None: no limit.
        started_ms: the driver's wall clock when `run_epoch` began, ms since the epoch, UTC.
        final: the epoch ends the job. No rows stay in flight, and the firing watermark becomes END_OF_TIME_US.
    """

    aligned_timeout_ms: int | None
    epoch_budget_ms: int | None
    started_ms: int
    final: bool

    @property
    def may_leave_rows(self) -> bool:
        """Whether rows may stay in flight at the end of this epoch."""
        return not self.final and (self.aligned_timeout_ms is not None or self.epoch_budget_ms is not None)


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """Plan of one epoch. It is exchanged between the driver and workers of one Spark job, and never stored.

    Attributes:
        spec: job spec with `${env:…}` resolved.
        graph: graph of the spec and the declarations of its process functions.
        base: checkpoint that the epoch continues. 0 is the empty state.
        hasher: the key hash of its state.
        inputs: planned input per source, in name order.
        held_back: as in `InputRecord`.
        watermarks_us: watermark per source at the start of the epoch.
        partitions: per source, newest event time of each of its partitions at the start of the epoch.
        states: tables in the base checkpoint, per stateful operator that has state there.
        firing, channels: firing watermarks and rows in flight in the base checkpoint, per stateful operator. One entry
            per subtask of the base checkpoint, whose parallelism may differ.
        input_signatures: signature of each stateful operator's input, recorded with its channel state.
        alignment: when subtasks stop and leave rows in flight.
        notifications: events of other checkpoints, delivered to subtasks before their first row.
        job_store: store rooted at the job.
        sources, sinks: stores rooted at the path of each source and each sink.
        buckets: for each sink whose table is written by buckets, the files that its subtasks build on.
        filled: sinks that receive all rows of an operator's state, not only rows that the epoch changes.
        maintenance: for each sink with many files in its table, the maintenance work of its subtasks.
        server: Spark Connect server that runs the epoch. None: a session of its own.
        functions: process function per process operator.
        code_hash: hash of this package and those functions.
        timeout_ms: time limit of the Spark job, from its start.
        dimensions: lookup rows per static source.
        begin: stateless operators that receive all rows of the updates that they read, as `filled` for sinks.
        recorded_answers: for each operator whose state retracts rows, Spark's recorded answers to the SQL upstream of
            it, by the uid of the SQL.
        referenced: data files of tables that the epoch reads where they are, by source.
    """

    job: LoadedJob
    spec: JobSpec
    graph: JobGraph
    checkpoint_id: CheckpointId
    token: FencingToken
    timeline: TimelineId
    epoch: Epoch
    base: CheckpointId
    hasher: KeyHash
    inputs: tuple[SourceInput, ...]
    held_back: str | None
    watermarks_us: Mapping[str, int | None]
    partitions: Mapping[str, Mapping[str, int]]
    states: Mapping[str, Mapping[str, StateTableSnapshot]]
    firing: Mapping[str, tuple[int | None, ...]]
    channels: Mapping[str, tuple[ChannelStateHandle | None, ...]]
    input_signatures: Mapping[str, str]
    alignment: EpochAlignment
    notifications: Notifications
    job_store: StoreConfig
    sources: Mapping[str, StoreConfig]
    sinks: Mapping[str, StoreConfig]
    buckets: Mapping[str, BucketPlan]
    filled: frozenset[str]
    maintenance: Mapping[str, MaintenancePlan]
    server: SparkRemote | None
    functions: Mapping[str, ProcessFunction]
    code_hash: str
    cache_directory: str | os.PathLike[str]
    timeout_ms: int
    dimensions: Mapping[str, DimensionSnapshot] = field(default_factory=dict)
    begin: frozenset[str] = frozenset()
    recorded_answers: Mapping[str, Mapping[str, SparkAnswers]] = field(default_factory=dict)
    referenced: Mapping[str, ReferencedFiles] = field(default_factory=dict)

    def tables(self, operator: StatefulOperator) -> dict[str, StateTableSnapshot]:
        """Return an operator's tables to restore: handles of the base checkpoint, columns of this epoch.

        Raises InvalidRequest: the recorded tables cannot evolve to the declared ones.
        """
        recorded = self.states.get(operator.uid)
        stamp = f"{self.checkpoint_id}.{self.alignment.started_ms}"
        if recorded is None:
            return {
                name: StateTableSnapshot(table.key, table.routing_key, table.schema, ())
                for name, table in operator.tables.items()
            }
        if not are_continued(recorded, operator.tables):
            raise InvalidRequest(
                f"operator {operator.uid}: {other_tables(recorded, operator.tables)}. Nothing was published.",
                hint=new_name_hint(operator.uid),
                uid=operator.uid,
                reason=CheckpointFailureReason.SPEC_REFUSED.value,
            )
        tables = {}
        for name, table in operator.tables.items():
            schema = evolve_schema(operator.uid, recorded[name].schema, table.schema, table.key, stamp, table.tie_break)
            tables[name] = StateTableSnapshot(table.key, table.routing_key, schema, recorded[name].handles)
        return tables


def are_continued(recorded: Iterable[str], declared: Iterable[str]) -> bool:
    """Return whether an operator continues its recorded tables. It may only drop the table of its emitted rows."""
    before, now = {*recorded}, {*declared}
    return now <= before and before - now <= {OUTPUT_TABLE}


def other_tables(recorded: Iterable[str], declared: Iterable[str]) -> str:
    """Return a message that an operator's recorded tables differ from its declared ones."""
    before, now = (", ".join(repr(name) for name in sorted(names)) for names in (recorded, declared))
    return f"its recorded state has the tables {before}, now it keeps {now}"

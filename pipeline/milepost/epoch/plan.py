"""The epoch plan tells the data plane what to do; the input record of it is stored.

The input record is written before the trigger, named by its content, and never subsumed on the live lineage: it is what
a replay reads. The plan adds what the trigger and the rebind granted.
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
from milepost.jobspec.graph import OUTPUT_TABLE, JobGraph
from milepost.jobspec.job import JobSpec, SourceSpec
from milepost.jobspec.load import LoadedJob
from milepost.jobspec.values import SparkRemote
from milepost.operators import StatefulOperator
from milepost.operators.functions import ProcessFunction
from milepost.protocol.records import CheckpointId, Epoch, FencingToken, StoreConfig, SubtaskKey, TimelineId
from milepost.protocol.subtask import Notifications
from milepost.sinks.staging import BucketPlan, MaintenancePlan
from milepost.sources import ObjectPart, SourceObject
from milepost.sources.planning import ForgottenRows, SourcePlan, assign_splits
from milepost.state.buffers import ChannelStateHandle
from milepost.state.layers import KeyHash
from milepost.state.runs import evolve_schema

_WHAT = "input record"

NAMED_BAD_NAMES = 20
"""So many of a source's objects with unusable names are named in a record; all are counted."""


@dataclass(frozen=True, slots=True)
class SourceInput:
    """What one source contributes to the epoch.

    Attributes:
        objects: to read, in plan order.
        baseline: to record as consumed without reading (``start: latest``).
        skipped: counts by why: hidden, empty, before_start, ignored_changes, bad_names, not_remembered.
        pending_objects, pending_bytes: new, but left for later epochs: by the limits, or to settle.
        oldest_new_ms: last-modified time of the oldest new object, planned or left; None when there is none.
        bad_names: the first objects that were left out for their names, and what is wrong with each.
        empty: the first objects of size 0, which hold nothing to read.
        overdue: nothing had landed for longer than is expected.
        active_ms: when a trigger last found something new, by the job store's clock; of a source that never had
            anything, the first trigger that looked; None: nobody noted it.
        idle: that is longer ago than `idle_timeout`: at the end of the epoch no operator waits for it.
        idle_before: so it was at the end of the epoch before, and so are this one's rows stamped.
        forgets: what leaves the set of consumed versions of the checkpoint that the epoch continues; None: nothing.
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

    @property
    def consumed(self) -> tuple[SourceObject, ...]:
        """Object versions that count as consumed once the epoch is complete."""
        return (*self.baseline, *self.objects)


def source_input(name: str, plan: SourcePlan, planned_ms: int) -> SourceInput:
    """Return the source's part of the input record of a trigger at this time, by the job store's clock."""
    skipped = {
        "hidden": plan.skipped_hidden,
        "empty": len(plan.empty),
        "before_start": plan.skipped_before_start,
        "ignored_changes": plan.ignored_changes,
        "bad_names": len(plan.bad_names),
        "not_remembered": len(plan.unknown),
    }
    named = tuple(f"{bad.name}: {bad.reason}" for bad in plan.bad_names[:NAMED_BAD_NAMES])
    objects = tuple(replace(obj, planned_ms=planned_ms) for obj in plan.objects)
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
    )


@dataclass(frozen=True, slots=True)
class InputRecord:
    """All that an epoch is to read.

    Attributes:
        sources: those that are no static ones, in name order. dimensions: of each static one what is looked up in.
        final: the epoch is the job's last one.
        held_back: why less new input was planned than the sources' limits allow; None when it was not.
    """

    stored_format: ClassVar[str] = "milepost.input/2"

    sources: tuple[SourceInput, ...]
    final: bool = False
    held_back: str | None = None
    dimensions: Mapping[str, DimensionInput] = field(default_factory=dict)

    @property
    def summary(self) -> dict[str, dict[str, int]]:
        """Per source, objects and bytes to read, and objects left for later."""
        return {
            item.name: {
                "objects": len(item.objects),
                "bytes": sum(obj.size for obj in item.objects),
                "left_for_later": item.pending_objects,
            }
            for item in self.sources
        }


def encode_input_record(record: InputRecord) -> bytes:
    """Return the canonical JSON of the input record; its sources are stored by name."""
    document = to_json(record)
    document["sources"] = {source.pop("name"): source for source in document["sources"]}
    if not document["dimensions"]:
        del document["dimensions"]
    return dump(document)


def decode_input_record(body: bytes) -> InputRecord:
    """Return the record that `encode_input_record` had written. Raises StateCorrupt: it is none."""
    document = load_document(InputRecord.stored_format, body, _WHAT)
    sources = from_json(dict[str, dict[str, Any]], document.get("sources"), f"{_WHAT}: sources")
    # A record from before sources forgot anything does not say what leaves; nor does an early one name empty objects.
    named = [{"forgets": None, "empty": [], **source, "name": name} for name, source in sorted(sources.items())]
    return from_json(InputRecord, {"dimensions": {}, **document, "sources": named}, _WHAT)


def split_inputs(
    sources: Mapping[str, SourceSpec], inputs: Sequence[SourceInput], parallelism: int
) -> tuple[tuple[SourceInput, tuple[ObjectPart, ...]], ...]:
    """Return the epoch's source subtasks: for each its source and its objects or parts, contiguous in plan order.

    Sources follow in name order, so the channel order of any receiver is plan order whatever the parallelism.
    An epoch that reads nothing (a baseline to record) still has one source subtask: somebody must send the barrier.
    """
    splits = tuple(
        (item, split) for item in inputs for split in assign_splits(sources[item.name], item.objects, parallelism)
    )
    return splits or ((inputs[0], ()),)


def expected_subtasks(source_subtasks: int, levels: int, parallelism: int) -> tuple[SubtaskKey, ...]:
    """Who must acknowledge: every source subtask, and every subtask of each stateful level."""
    sources = [SubtaskKey(0, index) for index in range(source_subtasks)]
    return (*sources, *(SubtaskKey(level, index) for level in range(1, levels + 1) for index in range(parallelism)))


@dataclass(frozen=True, slots=True)
class EpochAlignment:
    """How long the subtasks of an epoch may align and process before they leave rows in flight (DESIGN 4.3).

    Attributes:
        aligned_timeout_ms: from a subtask's start; None = it processes all of its input, however long that takes.
        epoch_budget_ms: from `started_ms` to the commit point, divided over the levels still to run; None = no limit.
        started_ms: the driver's wall clock when `run_epoch` began, ms since the epoch, UTC.
        final: the epoch ends the job: nothing stays in flight, and the firing watermark becomes END_OF_TIME_US.
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
    """One epoch, as the data plane runs it. Lives between driver and workers of one Spark job; never stored.

    Attributes:
        spec: with `${env:…}` resolved. graph: of the spec and what its process functions declare.
        functions: per process operator. code_hash: of this package and those functions.
        base: checkpoint it continues; 0 is the empty state. hasher: the key hash of its state.
        inputs: per source, in name order. held_back: as in `InputRecord`.
        watermarks_us: per source, at the start of the epoch.
        states: per stateful operator with state in the base checkpoint, its tables there.
        firing, channels: per stateful operator, what each of its subtasks left in the base checkpoint, whatever its
            parallelism: its firing watermark, its rows in flight.
        input_signatures: per stateful operator, of what makes its input: recorded with its channel state.
        alignment: when subtasks stop and leave rows in flight.
        notifications: what its subtasks are told of other checkpoints, before their first row.
        timeout_ms: how long the Spark job may take, from its start.
        job_store: rooted at the job. sinks: rooted at each sink's path. sources: rooted at each source's.
        buckets: per sink whose table is written by buckets, on what its subtasks build.
        filled: sinks that take all rows of an operator's state, not only those that the epoch changes.
        recorded_answers: per operator whose state takes rows back, what Spark had answered to the SQL before it, by the
            uid of that.
        begin: operators without state that take all rows of the updates that they read, likewise.
        maintenance: per sink whose table has many files, what its subtasks make of them.
        server: the Spark Connect server it runs on; None: a session of its own.
        dimensions: per static source, what lookups read.
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

    def tables(self, operator: StatefulOperator) -> dict[str, StateTableSnapshot]:
        """Return an operator's tables as this epoch restores them: handles of the base, columns of this epoch.

        Raises InvalidRequest: what is recorded cannot become them.
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
                hint="undo the change; or give the operator a new uid and add --allow-non-restored-state",
                uid=operator.uid,
            )
        tables = {}
        for name, table in operator.tables.items():
            schema = evolve_schema(operator.uid, recorded[name].schema, table.schema, table.key, stamp, table.tie_break)
            tables[name] = StateTableSnapshot(table.key, table.routing_key, schema, recorded[name].handles)
        return tables


def are_continued(recorded: Iterable[str], declared: Iterable[str]) -> bool:
    """Return whether an operator keeps the tables that are recorded; rows that it put out may be left behind."""
    before, now = {*recorded}, {*declared}
    return now <= before and before - now <= {OUTPUT_TABLE}


def other_tables(recorded: Iterable[str], declared: Iterable[str]) -> str:
    """Return, in words, that an operator's recorded state has other tables than it keeps now."""
    before, now = (", ".join(repr(name) for name in sorted(names)) for names in (recorded, declared))
    return f"its recorded state has the tables {before}, now it keeps {now}"

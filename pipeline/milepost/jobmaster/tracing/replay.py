"""Replay recorded epochs in this process with some of their rows, on a temporary store.

Each epoch gets the watermarks of all its input, so the same rows are late and the same windows complete as before. The
replay writes nothing of the job: it has no lease, no manifest and no sinks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from milepost.epoch import (
    CheckpointMetadata,
    DimensionSnapshot,
    EpochAlignment,
    EpochPlan,
    EpochTracer,
    OperatorSnapshot,
    RowFilter,
    SourceInput,
    TracedSplit,
    expected_subtasks,
)
from milepost.errors import NotFound, SourceChanged
from milepost.jobmaster.backfill.recorded_dimensions import recorded_dimension
from milepost.jobmaster.backfill.replay import RecordedRange
from milepost.jobmaster.compatibility.rows_in_flight import restored_firing
from milepost.jobmaster.job.code import JobCode, LoadedCode
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.checkpoint_metadata import operator_snapshots, source_progress
from milepost.jobspec.graph import input_signatures
from milepost.protocol.exchange import verify
from milepost.protocol.records import NO_CHECKPOINT, CheckpointId, Epoch, FencingToken, StoreConfig, file_url
from milepost.protocol.subtask import Notifications
from milepost.state.layers import KeyHash
from milepost.storage import open_store, read_handle

EPOCH = "__epoch"
"""Column that is added to rows of a source: the checkpoint of the epoch that read them."""

Emitted = dict[str, list[pa.Table]]
"""Output name -> rows that a replay emitted, in order."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Event time of the sources at the start of an epoch.

    Attributes:
        watermarks_us, partitions: as in `EpochPlan`.
    """

    watermarks_us: Mapping[str, int | None]
    partitions: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, base: CheckpointMetadata | None) -> Progress:
        """Return the event time of the sources at a checkpoint; None is the empty state."""
        sources = {} if base is None else base.sources
        return cls(
            {name: item.watermark_us for name, item in sources.items()},
            {name: item.partitions for name, item in sources.items()},
        )


@dataclass(frozen=True, slots=True)
class ReadEpoch:
    """A recorded epoch whose sources were read.

    Attributes:
        plan: of the epoch, without the state that it continues.
    """

    plan: EpochPlan
    splits: tuple[TracedSplit, ...]

    def rows(self, source: str) -> Iterator[pa.Table]:
        """Yield the retained rows of a source."""
        return (split.rows for split in self.splits if split.source == source and split.rows is not None)


class Replay:
    """Reads and replays recorded epochs.

    Args:
        base: metadata of the checkpoint that the replay begins at; None: the empty state.
        folder: local folder for the state of the replay.
        before_each: called with the checkpoint of each epoch before it is read or run. An error that it raises ends the
            replay.
    """

    def __init__(
        self,
        context: JobContext,
        code: JobCode,
        loaded: LoadedCode,
        tracer: EpochTracer,
        base: CheckpointMetadata | None,
        folder: Path,
        before_each: Callable[[CheckpointId], None],
    ) -> None:
        self._context, self._code, self._loaded, self._tracer = context, code, loaded, tracer
        self._base, self._folder, self._before_each = base, folder, before_each
        spark = context.spec.spark.model_copy(update={"parallelism": 1})
        self._spec = context.spec.model_copy(update={"spark": spark})
        self._hasher = KeyHash(context.head().state.key_hash_secret) if base is None else base.hasher
        self._signatures = input_signatures(context.job.spec, loaded.graph)
        self._runs = 0

    def read(self, ranges: Sequence[RecordedRange], retain: RowFilter) -> list[ReadEpoch]:
        """Read the input of recorded epochs, and retain the rows that `retain` returns.

        Raises:
            SubtaskDeclined, SourceChanged: an object cannot be read, or has changed. Errors of `before_each`.
        """
        progress, epochs = Progress.of(self._base), []
        with self._store() as store:
            for range_ in ranges:
                self._before_each(range_.checkpoint_id)
                plan = replace(self._plan(range_, progress, store), dimensions=self._dimensions(range_, ranges))

                def of_epoch(source: str, rows: pa.Table, checkpoint: int = range_.checkpoint_id) -> pa.Table:
                    retained = retain(source, rows)
                    epochs_of_rows = pa.array([int(checkpoint)] * retained.num_rows, pa.int64())
                    return retained.append_column(EPOCH, epochs_of_rows)

                splits = self._tracer.read(plan, of_epoch)
                self._check_missing(range_, splits)
                epochs.append(ReadEpoch(plan, splits))
                progress = self._advanced(plan, progress, splits)
        return epochs

    def run(self, epochs: Sequence[ReadEpoch], retain: RowFilter | None = None) -> Emitted:
        """Run epochs from the beginning of the replay, and return what each node emitted.

        An epoch without rows is skipped: the next one begins at a later watermark, and fires what was due.

        Args:
            retain: returns the rows of a source to run with; None: all that were read.
        """
        emitted: Emitted = {}
        base, states = self._restored()
        restored = None if self._base is None else self._context.store_config
        with self._store() as store:
            self._copy_dimensions(epochs, store)
            for epoch in epochs:
                splits = [_filtered(split, retain) for split in epoch.splits]
                if epoch is not epochs[-1] and not any(split.num_rows for split in splits):
                    continue
                self._before_each(epoch.plan.checkpoint_id)
                self._runs += 1
                plan = replace(
                    epoch.plan,
                    base=base,
                    token=FencingToken(self._runs),
                    job_store=store,
                    cache_directory=str(self._folder / "cache"),
                    states={uid: item.tables for uid, item in states.items()},
                    firing={uid: item.firing for uid, item in states.items()},
                    channels={uid: item.channels for uid, item in states.items()},
                )
                traced = self._tracer.run(plan, splits, restored)
                expected = expected_subtasks(len(splits), plan.graph.levels, 1)
                verified = verify(plan.checkpoint_id, plan.token, expected, traced.answers.answers)
                states = operator_snapshots(plan, traced.answers.operators, verified)
                base = plan.checkpoint_id
                for name, tables in traced.rows.items():
                    emitted.setdefault(name, []).extend(tables)
        return emitted

    def _restored(self) -> tuple[CheckpointId, dict[str, OperatorSnapshot]]:
        """Return the checkpoint that the replay begins at, and the state of its operators."""
        base = self._base
        if base is None:
            return NO_CHECKPOINT, {}
        stateful = (node.uid for node in self._loaded.graph.stateful if node.uid in base.operators)
        return CheckpointId(base.checkpoint_id), {
            uid: replace(base.operators[uid], firing=restored_firing(base, uid)) for uid in stateful
        }

    @contextmanager
    def _store(self) -> Iterator[StoreConfig]:
        """Yield an empty local store, and delete it at the end."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            yield StoreConfig(file_url(folder))

    def _plan(self, range_: RecordedRange, progress: Progress, store: StoreConfig) -> EpochPlan:
        context = self._context
        return EpochPlan(
            job=context.job,
            spec=self._spec,
            graph=self._loaded.graph,
            checkpoint_id=range_.checkpoint_id,
            token=FencingToken(1),
            timeline=context.head().state.live,
            epoch=Epoch(range_.epoch),
            base=NO_CHECKPOINT,
            hasher=self._hasher,
            inputs=tuple(_source_input(range_, name) for name in sorted(self._spec.streams)),
            held_back=None,
            watermarks_us=progress.watermarks_us,
            partitions=progress.partitions,
            states={},
            firing={},
            channels={},
            input_signatures=self._signatures,
            alignment=EpochAlignment(None, None, 0, range_.final),
            notifications=Notifications(),
            job_store=store,
            sources={name: context.source_store(name) for name in self._spec.sources},
            sinks={sink.name: store for sink in self._spec.sinks},
            buckets={},
            filled=frozenset(),
            maintenance={},
            server=None,
            functions=self._loaded.functions,
            code_hash=self._code.hash,
            cache_directory=str(self._folder),
            timeout_ms=context.timeout_ms,
        )

    def _dimensions(self, range_: RecordedRange, lineage: Sequence[RecordedRange]) -> dict[str, DimensionSnapshot]:
        """Return the rows of static sources at an epoch, by source. Raises NotFound: they are no longer retained."""
        context, found = self._context, {}
        for name in sorted(context.spec.dimensions):
            snapshot = recorded_dimension(context, context.head().state, [range_], lineage, name)
            if snapshot is None:
                raise NotFound(
                    f"job {context.spec.name}: no retained checkpoint since checkpoint {range_.checkpoint_id} has the "
                    f"rows of the static source {name}, so lookups cannot be replayed. Nothing was changed.",
                    source=name,
                )
            found[name] = snapshot
        return found

    def _copy_dimensions(self, epochs: Sequence[ReadEpoch], store: StoreConfig) -> None:
        """Copy the rows of static sources to the store of a replay."""
        copies = {item.copy for epoch in epochs for item in epoch.plan.dimensions.values()}
        for copy in copies:
            open_store(store).put(copy.key, read_handle(self._context.store, copy))

    def _advanced(self, plan: EpochPlan, progress: Progress, splits: Sequence[TracedSplit]) -> Progress:
        """Return the event time of the sources at the end of an epoch."""
        watermarks, partitions = dict(progress.watermarks_us), dict(progress.partitions)
        for item in plan.inputs:
            acks = [split.ack for split in splits if split.source == item.name]
            watermarks[item.name], partitions[item.name] = source_progress(
                self._spec.sources[item.name],
                item,
                acks,
                progress.watermarks_us.get(item.name),
                progress.partitions.get(item.name, {}),
            )
        return Progress(watermarks, partitions)

    def _check_missing(self, range_: RecordedRange, splits: Sequence[TracedSplit]) -> None:
        missing = [(split.source, key) for split in splits for key in split.ack["missing"]]
        if missing:
            source, key = missing[0]
            raise SourceChanged(
                f"job {self._spec.name}: object {key} of source {source}, which checkpoint {range_.checkpoint_id} "
                "read, was deleted: the rows cannot be traced. Nothing was changed.",
                hint="put the recorded version back",
                source=source,
                key=key,
            )


def _source_input(range_: RecordedRange, name: str) -> SourceInput:
    """Return the input of one source in a recorded epoch."""
    waited = range_.waited.get(name)
    if waited is None:
        return SourceInput(name, (), (), {}, 0, 0, None)
    return replace(waited, objects=range_.objects.get(name, ()), baseline=(), forgets=None)


def _filtered(split: TracedSplit, retain: RowFilter | None) -> TracedSplit:
    if retain is None or split.rows is None:
        return split
    return replace(split, rows=retain(split.source, split.rows))

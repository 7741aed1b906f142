"""Copy a savepoint's objects below a new checkpoint, and rewrite its metadata to refer to the copies."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from milepost.epoch import CheckpointMetadata, DimensionSnapshot, OperatorSnapshot, SinkSnapshot, SourceSnapshot
from milepost.jobmaster.job.code import LoadedCode
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.savepoint_document import SavedTable, renamed
from milepost.jobmaster.rollback.imported_checkpoint import acknowledged_by_writer, imported_metadata
from milepost.jobmaster.savepoints.continued_logs import ContinuedLogs
from milepost.jobmaster.savepoints.reader import SavedCheckpoint, handle_at
from milepost.jobspec.graph import state_signatures
from milepost.protocol.records import ObjectHandle, ObjectStore, OperatorUid, PendingCheckpoint, TimelineId
from milepost.sinks import TableTarget
from milepost.state.buffers import ChannelStateHandle
from milepost.state.runs import RunHandle, StateHandle
from milepost.storage import (
    Copy,
    channel_prefix,
    consumed_prefix,
    contents_prefix,
    copy_objects,
    dimensions_prefix,
    state_prefix,
)
from milepost.tables.records import ContentsChange, StagedFile, TableContents


def own_metadata(context: JobContext, metadata: CheckpointMetadata, loaded: LoadedCode) -> CheckpointMetadata:
    """Return a savepoint's metadata with this job's name, table locations, and sink paths in the signatures."""
    now = state_signatures(context.job.spec, loaded.graph)["sinks"]
    before = metadata.signatures.get("sinks", {})
    sinks = {name: {**before[name], "path": now[name]["path"]} for name in now if name in before}
    return replace(
        metadata,
        job=context.spec.name,
        signatures={**metadata.signatures, "sinks": sinks},
        tables={
            name: replace(
                metadata.tables[name], address=context.sink_address(name), location=context.sink_location(name)
            )
            for name in sinks
            if name in metadata.tables
        },
    )


class SavepointCopier:
    """Copies one savepoint for one job.

    Args:
        logs: of its landed sources.
        takes: sinks that take over the other job's tables instead of copying their files.

    Attributes:
        tables: tables of the savepoint with sinks in the spec. The others are not restored.
    """

    def __init__(
        self,
        context: JobContext,
        saved: SavedCheckpoint,
        loaded: LoadedCode,
        logs: ContinuedLogs,
        takes: Collection[str] = (),
    ) -> None:
        self._context = context
        self._saved = saved
        self._logs, self._takes = logs, takes
        self._metadata = own_metadata(context, saved.metadata, loaded)
        sink_names = {spec.name for spec in context.spec.sinks}
        self.tables: Mapping[str, SavedTable] = {
            name: table for name, table in saved.document.tables.items() if name in sink_names
        }
        self._copies: dict[tuple[str, str], Copy] = {}

    def write(self, pending: PendingCheckpoint, timeline: TimelineId) -> CheckpointMetadata:
        """Copy everything below the pending checkpoint's token, at the sinks too. Returns the metadata of the copy.

        The checkpoint has the positions of the sources, and counts no rows, because no epoch read any. Event time that
        ended with the last epoch of a drained job starts again, as with `start`.

        Raises: as `copy_objects`.
        """
        started = time.monotonic()
        metadata = self._metadata
        self._copies = {}
        sources = {name: self._source(pending, name, item) for name, item in metadata.sources.items()}
        operators = {uid: self._operator(pending, uid, item) for uid, item in metadata.operators.items()}
        tables = {
            name: self._table(pending, name, table) for name, table in self.tables.items() if name not in self._takes
        }
        dimensions = {name: self._dimension(pending, name, item) for name, item in metadata.dimensions.items()}
        for handle in self._logs.objects():
            self._own(handle, handle.key)
        copy_objects(self._copies.values())
        begun = self._logs.begin()
        for name, item in metadata.sources.items():
            position = begun.get(item.stored_as or name)
            sources[name] = sources[name] if position is None else replace(sources[name], position=position)
        for name in self._takes:  # last, because this is the first change to objects of another job
            tables[name] = self._taken(pending, timeline, name)
        return replace(
            imported_metadata(metadata, pending, timeline),
            sources=sources,
            operators=operators,
            dimensions=dimensions,
            sinks={name: SinkSnapshot(table.rows, 0) for name, table in tables.items() if name in metadata.sinks},
            tables=tables,
            acknowledged=acknowledged_by_writer(hashlib.sha256(self._saved.document.encode()).hexdigest()),
            timings={"copy_ms": round((time.monotonic() - started) * 1000)},
        )

    def _source(self, pending: PendingCheckpoint, name: str, item: SourceSnapshot) -> SourceSnapshot:
        directory = consumed_prefix(pending.checkpoint_id, pending.token)
        consumed = tuple(self._own(run, f"{directory}{name}-{run.sha256}.parquet") for run in item.consumed)
        return replace(item, consumed=consumed, rows=0, objects=0, missing=(), finished=False)

    def _dimension(self, pending: PendingCheckpoint, name: str, item: DimensionSnapshot) -> DimensionSnapshot:
        directory = dimensions_prefix(pending.checkpoint_id, pending.token)
        return replace(item, copy=self._own(item.copy, f"{directory}{name}-{item.copy.sha256}.arrow"))

    def _operator(self, pending: PendingCheckpoint, uid: str, item: OperatorSnapshot) -> OperatorSnapshot:
        directory = state_prefix(pending.checkpoint_id, pending.token, OperatorUid(uid))
        channels = channel_prefix(pending.checkpoint_id, pending.token)

        def copied(handle: StateHandle) -> StateHandle:
            runs = (
                replace(run, key=self._own(_plain(run), f"{directory}{run.sha256}.parquet").key) for run in handle.runs
            )
            return replace(handle, runs=tuple(runs))

        return replace(
            item,
            tables={
                name: replace(table, handles=tuple(map(copied, table.handles))) for name, table in item.tables.items()
            },
            channels=tuple(
                None if run is None else replace(run, key=self._own(_plain(run), f"{channels}{run.sha256}.arrow").key)
                for run in item.channels
            ),
            firing=(None,) * len(item.firing) if self._metadata.final else item.firing,
            processed_bytes=(0,) * len(item.processed_bytes),
            rows_in=0,
            rows_out=0,
            late_rows=0,
            dropped_rows=0,
        )

    def _table(self, pending: PendingCheckpoint, name: str, table: SavedTable) -> TableContents:
        sink = self._context.sink(name)
        sink.reserve(self._context.identity)
        files = []
        for number, file in enumerate(table.files):
            key = sink.import_key(file, number, checkpoint_id=pending.checkpoint_id, token=pending.token)
            self._want(ObjectHandle(file.key, file.size, file.sha256), sink.store, key)
            files.append(renamed(file, key))
        return self._contents(pending, name, files, None)

    def _taken(self, pending: PendingCheckpoint, timeline: TimelineId, name: str) -> TableContents:
        """Take over a table at its location, with its files."""
        saved, shown = self.tables[name], self.tables[name].shown
        assert shown is not None, "it was checked"
        files = [renamed(file, key) for file, key in zip(saved.files, shown.keys, strict=True)]
        contents = self._contents(pending, name, files, shown.table_id)
        target = TableTarget(int(pending.token), timeline, contents)
        context = self._context
        context.sink(name).take_over(context.identity, self._saved.document.job, shown, target)
        return contents

    def _contents(
        self, pending: PendingCheckpoint, name: str, files: Sequence[StagedFile], table_id: str | None
    ) -> TableContents:
        directory = contents_prefix(pending.checkpoint_id, pending.token)
        change, table = ContentsChange(tuple(files), whole=True), self.tables[name]
        return TableContents(
            checkpoint_id=int(pending.checkpoint_id),
            address=self._context.sink_address(name),
            location=self._context.sink_location(name),
            table_id=table_id,
            schema=table.schema,
            files=len(files),
            rows=table.rows,
            records=self._context.table_records.extend((), change, directory, name),
        )

    def _own(self, handle: ObjectHandle, key: str) -> ObjectHandle:
        self._want(handle, self._context.store, key)
        return handle_at(handle, key)

    def _want(self, handle: ObjectHandle, target: ObjectStore, key: str) -> None:
        self._copies[target.config.url, key] = Copy(self._saved.store, handle, target, key)


def _plain(item: RunHandle | ChannelStateHandle) -> ObjectHandle:
    return ObjectHandle(item.key, item.size, item.sha256)

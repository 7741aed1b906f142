"""Read and check the data files of tables to which a log refers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from milepost.errors import CommitConflict, NotFound, SourceChanged
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.landed import LogPosition, StoredRecord, is_reference, live_records
from milepost.protocol.records import CheckpointFailureReason, ObjectStore, split_uri
from milepost.sources import SourceObject, build_reader, whole_object
from milepost.sources.planning import ReferencedFiles, lost_file_error, planned_objects, referenced_files
from milepost.storage import open_store, with_references
from milepost.storage.concurrency import parallel_map

_MISSING, _CHANGED = CheckpointFailureReason.SOURCE_OBJECT_MISSING, CheckpointFailureReason.SOURCE_OBJECT_CHANGED


def files_of(context: JobContext, source: str, records: Iterable[StoredRecord]) -> ReferencedFiles:
    """Return the data files that records of a source's log refer to."""
    return referenced_files(records, context.job.store_config, context.spec.landed[source].format)


def read_table_files(context: JobContext, source: str, stored: StoredRecord) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the data files of a record, as the declared columns. Raises SourceChanged: a file is lost."""
    spec = context.spec.landed[source].model_copy(update={"event_time": None})
    files = files_of(context, source, [stored])
    reader, store = build_reader(source, spec, files.columns), _store(context, files)
    for obj in planned_objects(stored):
        try:
            yield from reader.read_part(store, whole_object(obj))
        except (NotFound, CommitConflict) as error:
            reason = _MISSING if isinstance(error, NotFound) else _CHANGED
            raise _lost_file_error(context, source, obj.key, reason) from error


def check_table_files(context: JobContext, source: str, objects: Sequence[SourceObject]) -> None:
    """Check that the data files among planned objects are there as they were landed. Reads none.

    Raises SourceChanged: one is lost.
    """
    for uri, reason in _lost(context, [obj for obj in objects if is_reference(obj.key)]):
        raise _lost_file_error(context, source, uri, reason)


def lost_table_files(context: JobContext, source: str, position: LogPosition | None) -> list[str]:
    """Return the URIs of data files that records after a position refer to, and that are not there as they were."""
    log = context.source_log(source)
    newest = log.newest()
    if newest is None:
        return []
    records = live_records(log.since(position, newest), newest.record.voids)
    objects = [obj for stored in records if stored.record.references for obj in planned_objects(stored)]
    return [uri for uri, _ in _lost(context, objects)]


def lost_files_from(context: JobContext, source: str, sequence: int) -> list[str]:
    """Return the URIs of lost data files that a retained record and those after it refer to."""
    log = context.source_log(source)
    is_first = log.floor is not None and sequence <= log.floor.next
    return lost_table_files(context, source, log.floor if is_first else log.record(sequence - 1).position)


def _lost_file_error(context: JobContext, source: str, uri: str, reason: CheckpointFailureReason) -> SourceChanged:
    log = context.source_log(source)
    newest = log.newest()
    assert newest is not None, uri
    records = (stored.record for stored in log.since(None, newest))
    referring = (record.sequence for record in records if any(file.uri == uri for file in record.references))
    number = next(referring, newest.record.sequence)
    return lost_file_error(context.spec.name, source, number, uri, context.spec.sources[source].format, reason)


def _lost(context: JobContext, files: Sequence[SourceObject]) -> list[tuple[str, CheckpointFailureReason]]:
    """Return the files that are missing or have another version, each with what happened."""
    roots = {split_uri(file.key)[0] for file in files}
    store = _store(context, ReferencedFiles({}, {root: context.job.store_config(root) for root in roots}))

    def fault(file: SourceObject) -> CheckpointFailureReason | None:
        try:
            stat = store.stat(file.key)
        except NotFound:
            return _MISSING
        return None if (stat.etag, stat.size) == (file.etag, file.size) else _CHANGED

    faults = zip(files, parallel_map(store, fault, files), strict=True)
    return [(file.key, reason) for file, reason in faults if reason is not None]


def _store(context: JobContext, files: ReferencedFiles) -> ObjectStore:
    return with_references(context.store, {root: open_store(config) for root, config in files.stores.items()})

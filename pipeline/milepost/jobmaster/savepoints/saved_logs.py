"""The part of a savepoint that is about landed sources: which records it copies, and how they are read back (L9).

A savepoint has each log under the name under which the job stores it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest, NotFound, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.savepoint_document import SavedLog, SavepointDocument
from milepost.protocol.landed import JOB, LogPosition, StoredRecord, decode_record, encode_record, require_follows
from milepost.protocol.records import ObjectHandle, ObjectStore, landed_objects_prefix, landed_record_key
from milepost.storage import handle_of, read_handle
from milepost.storage.concurrency import parallel_map


def logs_to_save(
    context: JobContext, metadata: CheckpointMetadata, *, with_input: bool
) -> tuple[dict[str, SavedLog], list[ObjectHandle]]:
    """Return what a savepoint says about each log, and with input the records after the positions and their objects.

    Raises:
        StateCorrupt: a log does not have what the checkpoint has read.
        InvalidRequest: a record with input refers to files of a table.
    """
    logs: dict[str, SavedLog] = {}
    handles: list[ObjectHandle] = []
    for source, position in sorted(metadata.log_positions.items()):
        log = context.stored_log(source)
        log.require_holds(position)
        newest = log.newest()
        assert newest is not None, "it holds the position"
        identity = {name: value for name, value in newest.record.identity.items() if name != JOB}
        logs[source] = SavedLog(identity, with_input)
        for stored in log.since(position, newest) if with_input else ():
            _require_copies(source, stored)
            handles.append(handle_of(landed_record_key(source, stored.record.sequence), encode_record(stored.record)))
            handles += object_handles(source, stored)
    return logs, handles


def _require_copies(source: str, stored: StoredRecord) -> None:
    """Check that a savepoint can copy a record. Raises InvalidRequest: it refers to files of a table."""
    if stored.record.references:
        raise InvalidRequest(
            f"source {source}: record {stored.record.sequence} of its log refers to files of the table (land: "
            "{by: reference}), which a savepoint with input cannot copy. Nothing was written.",
            hint="take the savepoint without input: a restored job lands from the table again. Or run the job until it "
            "has processed what was landed",
            source=source,
        )


def object_handles(source: str, stored: StoredRecord) -> Iterator[ObjectHandle]:
    """Yield the landed objects of a record, with keys below a job or a savepoint."""
    prefix = landed_objects_prefix(source)
    return (ObjectHandle(prefix + item.key, item.size, item.sha256) for item in stored.record.objects)


def read_saved_records(
    store: ObjectStore, document: SavepointDocument, metadata: CheckpointMetadata
) -> Mapping[str, tuple[StoredRecord, ...]]:
    """Return the records of each log that a savepoint has, in order.

    Raises: StateCorrupt: the document has logs that the checkpoint has not read, or a record is damaged or does not
        follow the one before.
    """
    positions = metadata.log_positions
    unread = sorted(document.logs.keys() - positions.keys())
    if unread:
        raise StateCorrupt(f"its checkpoint has read nothing of a log of source {unread[0]}. Nothing was copied.")
    listed = {handle.key: handle for handle in document.objects}
    return {
        source: _records(store, source, positions[source], listed) if log.with_input else ()
        for source, log in document.logs.items()
    }


def _records(
    store: ObjectStore, source: str, position: LogPosition, listed: Mapping[str, ObjectHandle]
) -> tuple[StoredRecord, ...]:
    handles: list[ObjectHandle] = []
    while (handle := listed.get(landed_record_key(source, position.next + len(handles)))) is not None:
        handles.append(handle)
    records = parallel_map(store, partial(_record, store), handles)
    for stored, handle in zip(records, handles, strict=True):
        require_follows(stored, position, handle.key)
        position = stored.position
    return tuple(records)


def _record(store: ObjectStore, handle: ObjectHandle) -> StoredRecord:
    try:
        return decode_record(read_handle(store, handle), handle.key)
    except NotFound as error:
        raise StateCorrupt(f"{handle.key} is missing. Nothing was copied.", key=handle.key) from error

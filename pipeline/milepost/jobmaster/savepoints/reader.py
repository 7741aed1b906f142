"""Read and validate an untrusted savepoint.

Order: read `savepoint.json`, up to a size limit, and decode it strictly. Read `_metadata` by its handle and decode it
strictly. Check that the document lists exactly what the metadata needs. Only then are other objects read, and each is
compared with its handle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata, OperatorSnapshot, decode_metadata
from milepost.errors import NotFound, StateCorrupt
from milepost.jobmaster.job.savepoint_document import SavepointDocument, decode_document
from milepost.jobmaster.savepoints.saved_logs import object_handles, read_saved_records
from milepost.protocol.landed import StoredRecord
from milepost.protocol.records import (
    METADATA_NAME,
    SAVEPOINT_DOCUMENT,
    ObjectHandle,
    ObjectStore,
    Savepoint,
    landed_record_key,
)
from milepost.state.layers import MAX_KEY_GROUPS
from milepost.storage import read_handle, stat_handle

MAX_DOCUMENT_BYTES = 256 * 1024**2
"""Size limit of `savepoint.json` and of `_metadata`, which are read completely."""
_MAX_SEARCHED = 1_000
"""Maximum number of objects to list in search of a savepoint in a subfolder."""

_PART_OF_A_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A savepoint with a checked document and checked metadata. Its other objects have not been read yet.

    Attributes:
        store: rooted at the savepoint. where: its URL.
        records: log of a landed source -> its records after the checkpoint's position.
    """

    store: ObjectStore
    where: str
    document: SavepointDocument
    metadata: CheckpointMetadata
    records: Mapping[str, tuple[StoredRecord, ...]]


def read_listed_document(savepoint: Savepoint, root: ObjectStore) -> SavepointDocument:
    """Return the document of a listed savepoint. Raises StateCorrupt: it is damaged, or not the listed one."""
    recorded = savepoint.document
    body = read_handle(root, ObjectHandle(SAVEPOINT_DOCUMENT, recorded.size, recorded.sha256))
    return decode_document(body, root.config.url)


def read_savepoint(store: ObjectStore) -> SavedCheckpoint:
    """Read the savepoint at the store's root.

    Raises:
        NotFound: there is none. StateCorrupt: it is damaged, or names objects outside of it; nothing was copied.
    """
    where = store.config.url
    document = decode_document(_document_body(store, where), where)
    handle = document.metadata
    if handle.size > MAX_DOCUMENT_BYTES:
        raise StateCorrupt(_too_large(f"{METADATA_NAME} of {where}", handle.size))
    stat_handle(store, handle)
    body = read_handle(store, handle)
    metadata = decode_metadata(body, f"{where}/{METADATA_NAME}")
    check_metadata(metadata, body, where)
    records = read_saved_records(store, document, metadata)
    check_contents(document, metadata, records, where)
    return SavedCheckpoint(store, where, document, metadata, records)


def check_contents(
    document: SavepointDocument,
    metadata: CheckpointMetadata,
    records: Mapping[str, tuple[StoredRecord, ...]],
    where: str,
) -> None:
    """Raise StateCorrupt unless the document lists exactly the objects that its checkpoint, tables and logs need."""
    what = f"{SAVEPOINT_DOCUMENT} of {where}"
    document_ids = (document.job, document.checkpoint_id, document.timeline, document.max_parallelism)
    metadata_ids = (metadata.job, metadata.checkpoint_id, metadata.timeline, metadata.max_parallelism)
    if document_ids != metadata_ids:
        raise StateCorrupt(
            f"{what}: has (job, checkpoint, timeline, max_parallelism) {document_ids}, but its {METADATA_NAME} "
            f"has {metadata_ids}. Nothing was copied."
        )
    needed = {handle.key: handle for handle in (document.metadata, *metadata.handles())}
    for table in document.tables.values():
        needed |= {file.key: ObjectHandle(file.key, file.size, file.sha256) for file in table.files}
    listed = {handle.key: handle for handle in document.objects}
    for source, stored in ((source, stored) for source, chain in records.items() for stored in chain):
        key = landed_record_key(source, stored.record.sequence)
        needed |= {key: listed[key], **{handle.key: handle for handle in object_handles(source, stored)}}
    for key, handle in needed.items():
        if listed.get(key) != handle:
            raise StateCorrupt(f"{what}: does not list {key}, or with another size or digest. Nothing was copied.")
    extra = sorted(listed.keys() - needed.keys())
    if extra:
        raise StateCorrupt(f"{what}: lists {extra[0]!r}, which nothing refers to. Nothing was copied.")


def _document_body(store: ObjectStore, where: str) -> bytes:
    try:
        size = store.stat(SAVEPOINT_DOCUMENT).size
    except NotFound:
        raise NotFound(
            f"there is no savepoint at {where}: it has no {SAVEPOINT_DOCUMENT}. Nothing was changed.",
            hint=_folder_hint(store, where),
        ) from None
    if size > MAX_DOCUMENT_BYTES:
        raise StateCorrupt(_too_large(f"{SAVEPOINT_DOCUMENT} of {where}", size))
    return store.get(SAVEPOINT_DOCUMENT)


def _too_large(what: str, size: int) -> str:
    return f"{what}: has {size} bytes, expected at most {MAX_DOCUMENT_BYTES}. Nothing was copied."


def _folder_hint(store: ObjectStore, where: str) -> str:
    below = [stat.key for stat in store.list("", limit=_MAX_SEARCHED) if stat.key.endswith(f"/{SAVEPOINT_DOCUMENT}")]
    if not below:
        return "name the folder that holds savepoint.json; an incomplete savepoint has none"
    folder = below[0].removesuffix(f"/{SAVEPOINT_DOCUMENT}")
    return f"name the folder that holds savepoint.json, such as {where}/{folder}"


def check_metadata(metadata: CheckpointMetadata, body: bytes, where: str) -> None:
    """Raise StateCorrupt if metadata that another job wrote is inconsistent."""
    problem = _problem(metadata)
    if problem is None and metadata.encode() != body:
        problem = "it has fields that Milepost does not write"
    if problem is not None:
        raise StateCorrupt(f"{METADATA_NAME} of {where}: {problem}. Nothing was copied.")


def _problem(metadata: CheckpointMetadata) -> str | None:
    for name in ("checkpoint_id", "epoch", "token", "max_parallelism"):
        if getattr(metadata, name) <= 0:
            return f"{name} is {getattr(metadata, name)!r}, expected an integer above 0"
    if metadata.max_parallelism > MAX_KEY_GROUPS:
        return f"max_parallelism is {metadata.max_parallelism}, expected at most {MAX_KEY_GROUPS}"
    if not _are_signatures(metadata.signatures):
        return "its signatures are not a mapping of sections to names"
    if metadata.verdict.vetoes:
        return "its quality gate refused it: it was never completed"
    logs = (item.stored_as for item in metadata.sources.values() if item.stored_as is not None)
    for name in (*metadata.operators, *metadata.sources, *metadata.dimensions, *logs):
        if not _PART_OF_A_KEY.fullmatch(name):
            return f"{name!r} cannot be the name of an operator or source"
    for uid, snapshot in metadata.operators.items():
        problem = _operator_problem(uid, snapshot, metadata.max_parallelism)
        if problem is not None:
            return f"operator {uid!r}: {problem}"
    return None


def _operator_problem(uid: str, snapshot: OperatorSnapshot, max_parallelism: int) -> str | None:
    for table in snapshot.tables.values():
        if not table.key or not set(table.routing_key) <= set(table.key) <= set(table.schema.names):
            return "its key is not part of its state"
        covered = 0
        for handle in sorted(table.handles, key=lambda item: item.key_groups.start):
            if handle.uid != uid or handle.max_parallelism != max_parallelism or handle.key_groups.start != covered:
                return "its state handles do not cover each key group exactly once"
            covered = handle.key_groups.stop
        if covered != max_parallelism:
            return "its state handles do not cover each key group exactly once"
    channels = [part for part in snapshot.channels if part is not None]
    if any(part.uid != uid or part.key_groups.stop > max_parallelism for part in channels):
        return "it has rows in flight of another operator, or of key groups that do not exist"
    return None


def _are_signatures(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(section, Mapping) and all(isinstance(item, Mapping) for item in section.values())
        for section in value.values()
    )


def handle_at(handle: ObjectHandle, key: str) -> ObjectHandle:
    """Return the handle of a copy of the object under another key."""
    return ObjectHandle(key, handle.size, handle.sha256)

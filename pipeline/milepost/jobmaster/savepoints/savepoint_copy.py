"""Copy everything that a completed checkpoint needs into a self-contained savepoint.

Order of writes: all objects of the copy, in any order, then `savepoint.json`. Before that there is no savepoint, only
unreferenced objects.
"""

from __future__ import annotations

from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata
from milepost.errors import CommitConflict, NotFound
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.savepoint_document import SavedTable, SavepointDocument, renamed, table_file_key
from milepost.jobmaster.job.table_contents import contents_at, sink_for
from milepost.jobmaster.savepoints.reader import handle_at
from milepost.jobmaster.savepoints.saved_logs import logs_to_save
from milepost.protocol.records import METADATA_NAME, SAVEPOINT_DOCUMENT, CompletedCheckpoint, ObjectHandle, ObjectStore
from milepost.storage import Copy, OnCopied, copy_objects, create_same, handle_of


@dataclass(frozen=True, slots=True)
class Contents:
    """The planned contents of a savepoint.

    Attributes:
        sources: per object of the document, its current store and handle.
        left_out: sinks that are no longer in the spec, so that the location of their tables is unknown.
    """

    document: SavepointDocument
    sources: dict[str, tuple[ObjectStore, ObjectHandle]]
    left_out: tuple[str, ...]

    @property
    def keys(self) -> list[str]:
        """Every key of the copy."""
        return [SAVEPOINT_DOCUMENT, *(handle.key for handle in self.document.objects)]


def contents_of(context: JobContext, checkpoint: CompletedCheckpoint, *, with_input: bool = False) -> Contents:
    """List everything that a completed checkpoint needs, including each sink's table as of it. Reads no data.

    Args:
        with_input: include the input landed after the checkpoint.
    Raises: StateCorrupt: its metadata is damaged. InvalidRequest: a sink's table cannot show the checkpoint.
    """
    metadata = context.metadata(checkpoint)
    sources = {handle.key: (context.store, handle) for handle in metadata.handles()}
    sources[METADATA_NAME] = (context.store, checkpoint.metadata)
    logs, landed = logs_to_save(context, metadata, with_input=with_input)
    sources |= {handle.key: (context.store, handle) for handle in landed}
    tables = {}
    for spec in context.spec.sinks:
        table = _table(context, metadata, spec.name, sources)
        if table is not None:
            tables[spec.name] = table
    document = SavepointDocument(
        job=metadata.job,
        checkpoint_id=metadata.checkpoint_id,
        timeline=metadata.timeline,
        created_ms=context.store.clock_ms(),
        code_hash=metadata.code_hash,
        spec_hash=metadata.spec_hash,
        spec_text=metadata.spec_text,
        max_parallelism=metadata.max_parallelism,
        tables=tables,
        objects=tuple(handle_at(handle, key) for key, (_, handle) in sorted(sources.items())),
        logs=logs,
    )
    sink_names = {spec.name for spec in context.spec.sinks}
    return Contents(document, sources, tuple(sorted(metadata.tables.keys() - sink_names)))


def _table(
    context: JobContext,
    metadata: CheckpointMetadata,
    name: str,
    sources: dict[str, tuple[ObjectStore, ObjectHandle]],
) -> SavedTable | None:
    """Return the sink's table as of the checkpoint; None if it had none. Adds its files to `sources`."""
    contents = contents_at(context, metadata, name)
    if contents is None:
        return None
    sink = sink_for(context, name, contents)
    files = []
    for number, file in enumerate(sink.files(contents)):
        key = table_file_key(name, number, file)
        sources[key] = (sink.store, ObjectHandle(file.key, file.size, file.sha256))
        files.append(renamed(file, key))
    return SavedTable(sink.mode.value, sink.key, contents.schema, tuple(files), sink.table_view(contents))


def require_free(root: ObjectStore) -> None:
    """Raise CommitConflict if the location already has a savepoint."""
    try:
        root.stat(SAVEPOINT_DOCUMENT)
    except NotFound:
        return
    raise CommitConflict(
        f"there is a savepoint at {root.config.url} already. It was left as it is, and nothing was written.",
        hint="name another place",
    )


def write_copy(contents: Contents, root: ObjectStore, copied: OnCopied) -> ObjectHandle:
    """Copy everything, then write `savepoint.json`. Returns its handle, with its key relative to the root.

    Raises: StateCorrupt: an object of the checkpoint is damaged. CommitConflict: another object is already there.
        CommitOutcomeUnknown, StoreUnavailable, EnvironmentUnusable. In all cases there is no new savepoint.
    """
    document = contents.document
    copy_objects([Copy(*contents.sources[handle.key], root, handle.key) for handle in document.objects], copied)
    body = document.encode()
    create_same(root, SAVEPOINT_DOCUMENT, body)
    return handle_of(SAVEPOINT_DOCUMENT, body)

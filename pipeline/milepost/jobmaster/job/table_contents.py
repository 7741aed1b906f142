"""Find the contents of a sink's table: at a checkpoint, and as readers see it now."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records import CheckpointId, CompletedCheckpoint, ManifestState, format_checkpoints
from milepost.sinks import Sink, TablePosition, TableTarget
from milepost.tables.records import TableAddress, TableContents, TableRegistry


def contents_at(context: JobContext, target: CheckpointMetadata | None, name: str) -> TableContents | None:
    """Return the contents of a sink's table at a checkpoint; None: nothing.

    Args:
        target: metadata of the checkpoint; None for 0, the empty state.
    Raises:
        InvalidRequest: the sink's path resolves to another location than at that checkpoint.
    """
    contents = target.tables.get(name) if target is not None else None
    if target is None or contents is None:
        return None
    if not is_job_table(context, name, contents):
        raise InvalidRequest(
            f"sink {name}: at checkpoint {target.checkpoint_id} its table was elsewhere; "
            f"{context.spec.sink(name).location} now resolves to another location. The table was not changed.",
            hint="restore the path, environment or endpoint, or give the sink a new name to start a new table",
            sink=name,
        )
    return contents


def is_job_table(context: JobContext, name: str, contents: TableContents) -> bool:
    """Return whether contents are of the sink's table in the spec, or of one that a migration registered with it.

    If a person changed the path by hand, the spec may be that of a copied job, which must not touch the original's
    tables.
    """
    spec_location = context.sink_location(name)
    if contents.location == spec_location:
        return True
    registered = {table.location for table in TableRegistry(context.store, name).tables()}
    return {spec_location, contents.location} <= registered and contents.location == context.sink_location(
        name, contents.address
    )


def is_readable_table(context: JobContext, name: str, contents: TableContents) -> bool:
    """Return whether the table that a checkpoint recorded can be read, even if the spec names another one now.

    It cannot if a variable in the recorded address has changed.
    """
    if is_job_table(context, name, contents):
        return True
    try:
        return contents.location == context.sink_location(name, contents.address)
    except InvalidRequest:  # a variable in the address is not set
        return False


def contents_to_read(context: JobContext, metadata: CheckpointMetadata, name: str) -> TableContents | None:
    """Return a table's contents at a checkpoint, readable at the location of that time; None: nothing.

    Raises: InvalidRequest: a variable in the address has changed.
    """
    contents = metadata.tables.get(name)
    if contents is None or is_readable_table(context, name, contents):
        return contents
    return contents_at(context, metadata, name)


def is_named_by_spec(context: JobContext, name: str, contents: TableContents) -> bool:
    """Return whether the spec names the table of these contents; the spec may no longer have the sink."""
    return name in {sink.name for sink in context.spec.sinks} and is_job_table(context, name, contents)


def unchecked_tables(
    context: JobContext, tables: Mapping[CheckpointId, Mapping[str, TableContents]]
) -> tuple[str, ...]:
    """Return one line per table that was not checked because the spec no longer names it.

    Args:
        tables: contents by sink, at each checkpoint.
    """
    checkpoints_by_line: dict[str, list[CheckpointId]] = {}
    for checkpoint_id, by_sink in tables.items():
        for name, contents in by_sink.items():
            if not is_named_by_spec(context, name, contents):
                checkpoints_by_line.setdefault(_unchecked_line(context, name, contents.address), []).append(
                    checkpoint_id
                )
    return tuple(f"{format_checkpoints(ids)}: {line}" for line, ids in checkpoints_by_line.items())


def _unchecked_line(context: JobContext, name: str, address: TableAddress) -> str:
    if name not in {sink.name for sink in context.spec.sinks}:
        why = "the spec does not have the sink"
    elif address == context.sink_address(name):
        why = "that leads to another place now"
    else:
        why = f"the spec leads to another place: {context.sink_address(name)}"
    return f"the table of sink {name} was not looked for at {address}: {why}. A spec that leads there checks it"


def sink_for(context: JobContext, name: str, contents: TableContents | None) -> Sink:
    """Open a sink for the table of these contents; None: for the table that the spec names."""
    return context.sink(name, None if contents is None else contents.address)


def table_problems(context: JobContext, name: str, contents: TableContents, *, deep: bool = False) -> list[str] | None:
    """Return the faults of the files of a sink's table; None: not checked, the spec does not name it.

    Args:
        deep: read the files; False: only check that they exist.
    """
    if not is_named_by_spec(context, name, contents):
        return None
    return sink_for(context, name, contents).verify(contents, deep=deep)


def head_address(base: CheckpointMetadata | None, name: str) -> TableAddress | None:
    """Return the address of a sink's table at the head; None: it has no table yet, so the spec decides."""
    contents = base.tables.get(name) if base is not None else None
    return None if contents is None else contents.address


def spec_edits(context: JobContext, base: CheckpointMetadata | None) -> tuple[str, ...]:
    """Return the lines to write in the spec, one per sink with another table than at the checkpoint."""
    edits = []
    for sink in context.spec.sinks:
        address = head_address(base, sink.name)
        if address is not None and address != context.sink_address(sink.name):
            edits.append(f"in sink {sink.name}: {'; '.join(address.spec_lines())}")
    return tuple(edits)


def current_contents(context: JobContext, name: str) -> TableContents | None:
    """Return the contents that readers of a sink's table see now; None: nothing was published.

    Raises: as `current_table`.
    """
    return current_table(context, name)[1].contents


def current_table(context: JobContext, name: str) -> tuple[Sink, TablePosition]:
    """Return the sink at the table that its readers see now, and the table's position.

    Raises: InvalidRequest: an external writer committed to the table, so its contents are not recorded.
    """
    sink = context.sink(name)
    with ThreadPoolExecutor(1) as pool:
        pending_address = pool.submit(_registered_address, context, name)
        position, address = sink.position(), pending_address.result()
    if address is None and not position.number:
        address = _readable_head_address(context, name)
    if address is not None and address != context.sink_address(name):
        sink = context.sink(name, address)
        position = sink.position()
    owner = None if position.is_known else sink.owner()
    if owner is not None and (owner.job, owner.sink) != (context.spec.name, name):
        raise InvalidRequest(
            f"sink {name} of job {context.spec.name}: the table at {sink.store.config.url} is of sink {owner.sink} of "
            f"job {owner.job}.",
            hint="give the sink a path of its own",
            sink=name,
        )
    if not position.is_known:
        raise InvalidRequest(
            f"sink {name}: its table is at {position}: what it shows is in none of the job's records.",
            hint=f"milepost read {context.spec.name} {name} --at ID reads it as of a checkpoint; "
            f"milepost realign {context.spec.name} {name} lets the job's state count",
            sink=name,
        )
    return sink, position


def _registered_address(context: JobContext, name: str) -> TableAddress | None:
    """Return the current address of a migrated table; None: the spec's address."""
    if not TableRegistry(context.store, name).tables():  # nearly every sink was never migrated
        return None
    try:
        return _readable_head_address(context, name)
    except StateCorrupt:
        return None


def _readable_head_address(context: JobContext, name: str) -> TableAddress | None:
    """Return the head's address of a table, if it can be read there; None: no such address."""
    head = context.log.head()
    if head is None:
        return None
    base = context.base_metadata(head.state, head.state.timeline().head)
    contents = base.tables.get(name) if base is not None else None
    return contents.address if contents is not None and is_readable_table(context, name, contents) else None


def retained_ids(state: ManifestState) -> frozenset[int]:
    """Return the checkpoints that a rollback could make a table show again."""
    return frozenset(int(checkpoint.checkpoint_id) for checkpoint in state.checkpoints)


def table_target(
    state: ManifestState, checkpoint: CompletedCheckpoint, contents: TableContents, follows: int
) -> TableTarget:
    """Return the target to which the completion of a checkpoint moves a table.

    Args:
        follows: the checkpoint that the table must show before, 0 for the empty table.
    """
    return TableTarget(checkpoint.version, checkpoint.timeline, contents, follows, retained=retained_ids(state))

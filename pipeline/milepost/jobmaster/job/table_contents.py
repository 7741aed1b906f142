"""Table contents say what a sink's table consists of: at a checkpoint, and as its readers see it now."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import InvalidRequest, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import CheckpointId, format_checkpoints
from milepost.protocol.records.manifest_state import ManifestState
from milepost.sinks.contract import Sink, TableTarget
from milepost.sinks.records.contents import TableContents
from milepost.sinks.records.table_address import TableAddress
from milepost.sinks.records.table_registry import TableRegistry


def contents_at(context: JobContext, target: CheckpointMetadata | None, name: str) -> TableContents | None:
    """Return what a sink's table consists of at a checkpoint; None: nothing.

    Args:
        target: of the checkpoint; None for 0, the empty state.
    Raises:
        InvalidRequest: its path leads elsewhere than at that checkpoint.
    """
    contents = target.tables.get(name) if target is not None else None
    if target is None or contents is None:
        return None
    if not is_job_table(context, name, contents):
        raise InvalidRequest(
            f"sink {name}: at checkpoint {target.checkpoint_id} its table was elsewhere; "
            f"{context.spec.sink(name).location} now leads to another place. Nothing of the table was changed.",
            hint="set path, environment or endpoint back, or give the sink a new name to begin a new table",
            sink=name,
        )
    return contents


def is_job_table(context: JobContext, name: str, contents: TableContents) -> bool:
    """Return whether contents are of the table that the spec names, or of another one that a migration knows beside it.

    A path that a hand has changed may be that of a copy of the job, which must not touch the tables of the original.
    """
    here = context.sink_location(name)
    if contents.location == here:
        return True
    known = {one.location for one in TableRegistry(context.store, name).tables()}
    return {here, contents.location} <= known and contents.location == context.sink_location(name, contents.address)


def is_readable_table(context: JobContext, name: str, contents: TableContents) -> bool:
    """Return whether contents can be read where a checkpoint has them, although the spec may name another table now.

    Not where a variable of the recorded address has changed since.
    """
    if is_job_table(context, name, contents):
        return True
    try:
        return contents.location == context.sink_location(name, contents.address)
    except InvalidRequest:  # a variable of it is not set
        return False


def contents_to_read(context: JobContext, metadata: CheckpointMetadata, name: str) -> TableContents | None:
    """Return what a sink's table consists of at a checkpoint, to be read where it was then; None: nothing.

    Raises: InvalidRequest: a variable of its address has changed since.
    """
    contents = metadata.tables.get(name)
    if contents is None or is_readable_table(context, name, contents):
        return contents
    return contents_at(context, metadata, name)


def is_named_by_spec(context: JobContext, name: str, contents: TableContents) -> bool:
    """Return whether the spec leads to the table that contents are of; it may not have the sink any more."""
    return name in {sink.name for sink in context.spec.sinks} and is_job_table(context, name, contents)


def unchecked_tables(
    context: JobContext, tables: Mapping[CheckpointId, Mapping[str, TableContents]]
) -> tuple[str, ...]:
    """Return one line per table that was not checked because the spec no longer names it.

    Args:
        tables: what the sinks' tables consist of at each checkpoint.
    """
    named_by: dict[str, list[CheckpointId]] = {}
    for checkpoint_id, of_sinks in tables.items():
        for name, contents in of_sinks.items():
            if not is_named_by_spec(context, name, contents):
                named_by.setdefault(_unasked(context, name, contents.address), []).append(checkpoint_id)
    return tuple(f"{format_checkpoints(ids)}: {line}" for line, ids in named_by.items())


def _unasked(context: JobContext, name: str, address: TableAddress) -> str:
    if name not in {sink.name for sink in context.spec.sinks}:
        why = "the spec does not have the sink"
    elif address == context.sink_address(name):
        why = "that leads to another place now"
    else:
        why = f"the spec leads to another place: {context.sink_address(name)}"
    return f"the table of sink {name} was not looked for at {address}: {why}. A spec that leads there checks it"


def sink_for(context: JobContext, name: str, contents: TableContents | None) -> Sink:
    """Return a sink opened for the table that contents are of; of none, for the one that the spec names."""
    return context.sink(name, None if contents is None else contents.address)


def table_problems(context: JobContext, name: str, contents: TableContents, *, deep: bool = False) -> list[str] | None:
    """Return what is wrong with the files of a sink's table; None: the spec does not lead to it.

    Args:
        deep: they are read, not only looked for.
    """
    if not is_named_by_spec(context, name, contents):
        return None
    return sink_for(context, name, contents).verify(contents, deep=deep)


def head_address(base: CheckpointMetadata | None, name: str) -> TableAddress | None:
    """Return where a sink's table is at the job's head; None: nothing of it is there, so that the spec says it."""
    contents = base.tables.get(name) if base is not None else None
    return None if contents is None else contents.address


def spec_edits(context: JobContext, base: CheckpointMetadata | None) -> tuple[str, ...]:
    """Return what to write in the spec, a line per sink, where it names another table than a checkpoint is of."""
    edits = []
    for sink in context.spec.sinks:
        address = head_address(base, sink.name)
        if address is not None and address != context.sink_address(sink.name):
            edits.append(f"in sink {sink.name}: {'; '.join(address.spec_lines())}")
    return tuple(edits)


def current_contents(context: JobContext, name: str) -> TableContents | None:
    """Return what readers of a sink's table see now; None: nothing was published.

    Raises: InvalidRequest: another writer moved the table; nobody knows what it shows.
    """
    sink = context.sink(name)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_address_now, context, name)
        position, address = sink.position(), asked.result()
    if address is None and not position.number:
        address = _address_of_head(context, name)
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
    return position.contents


def _address_now(context: JobContext, name: str) -> TableAddress | None:
    """Return where the table is that is the job's now; None: where the spec says, as far as is known."""
    if not TableRegistry(context.store, name).tables():  # no migration, as of nearly every sink
        return None
    try:
        return _address_of_head(context, name)
    except StateCorrupt:
        return None


def _address_of_head(context: JobContext, name: str) -> TableAddress | None:
    """Return where the head has the table, if it can be read there; None: nowhere."""
    head = context.log.head()
    if head is None:
        return None
    base = context.base_metadata(head.state, head.state.timeline().head)
    contents = base.tables.get(name) if base is not None else None
    return contents.address if contents is not None and is_readable_table(context, name, contents) else None


def retained_ids(state: ManifestState) -> frozenset[int]:
    """Return the checkpoints that a table may be asked to show again."""
    return frozenset(int(one.checkpoint_id) for one in state.checkpoints)


def table_target(
    state: ManifestState, checkpoint: CompletedCheckpoint, contents: TableContents, follows: int
) -> TableTarget:
    """Return where the completion of a checkpoint puts a table that shows the one that it follows."""
    return TableTarget(checkpoint.version, checkpoint.timeline, contents, follows, retained=retained_ids(state))

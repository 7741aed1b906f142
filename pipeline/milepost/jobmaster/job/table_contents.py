"""What a sink's table consists of: at a checkpoint, and as its readers see it now."""

from __future__ import annotations

from milepost.dataflow.sinks.contents import TableContents
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.errors import InvalidRequest


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
    if contents.location != context.sink_location(name):
        raise InvalidRequest(
            f"sink {name}: at checkpoint {target.checkpoint_id} its table was elsewhere; the path "
            f"{context.spec.sink(name).path} now leads to another place. Nothing of the table was changed.",
            hint="set path, environment or endpoint back, or give the sink a new name to begin a new table",
            sink=name,
        )
    return contents


def shown_contents(context: JobContext, name: str) -> TableContents | None:
    """Return what readers of a sink's table see now; None: nothing was published.

    Raises: InvalidRequest: another writer moved the table; nobody knows what it shows.
    """
    sink = context.sink(name)
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

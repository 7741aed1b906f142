"""A sink's table is where the checkpoint to continue left it, or the epoch is refused, and told how it gets there."""

from __future__ import annotations

import shlex

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.job.spec import JobSpec
from milepost.protocol.records.locations import SCHEME
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.sinks.records.table_address import TableAddress, address_of, may_go

OTHER_TABLE = "needs the lines of the table that it has"
OTHER_TABLE_OR_MIGRATION = f"{OTHER_TABLE}, then `milepost migrate-table` moves it"


def check_locations(context: JobContext, base: CheckpointMetadata | None) -> None:
    """Refuse a sink whose table is looked for elsewhere than this lineage left it: its commits could never follow.

    The spec's text may be the same: `${env:…}` in a path, or a spec folder that moved. Raises InvalidRequest.
    """
    for sink in context.spec.sinks:
        left = base.tables.get(sink.name) if base is not None else None
        said = context.sink_address(sink.name)
        if left is None or (left.address.format, left.location) == (said.format, context.sink_location(sink.name)):
            continue
        if said == left.address:
            raise InvalidRequest(
                f"sink {sink.name}: its table was left elsewhere at checkpoint {left.checkpoint_id}; "
                f"{sink.location} now leads to another place. Nothing was run or published.",
                hint="set path, environment or endpoint back, or give the sink a new name to begin a new table",
                sink=sink.name,
                reason=CheckpointFailureReason.SPEC_REFUSED.value,
            )
        raise InvalidRequest(
            f"sink {sink.name}: the spec says {said}; its table was left elsewhere at checkpoint "
            f"{left.checkpoint_id}: {left.address}. Nothing was run or published.",
            hint=f"write in the spec, in sink {sink.name}: {'; '.join(left.address.spec_lines())}"
            + (resolved_path_note(context, left.address.path) if left.address.format == said.format else "")
            + _migration_step(context.spec, sink.name, left.address),
            sink=sink.name,
            reason=CheckpointFailureReason.SPEC_REFUSED.value,
        )


def resolved_path_note(context: JobContext, path: str | None) -> str:
    """Say which place a recorded path is for this spec: where the spec itself was moved, that is another one.

    A relative path alone depends on where the spec lies; one with `${env:…}` may hold a secret.
    """
    if path is None or "${" in path or path.startswith("/") or SCHEME.fullmatch(path):
        return ""
    return f" (for a spec in this folder {path} is {context.job.url(path)}; one that was moved goes back to its folder)"


def migration_command(spec: JobSpec, sink: str) -> str:
    """Return the command that moves a table of files to where the spec says."""
    said = address_of(spec.sink(sink))
    assert said.path is not None
    options = {"--to": said.format, "--path": said.path, "--table": said.table}
    if said.catalog is not None:
        options |= {
            "--catalog-type": said.catalog.type, "--catalog-uri": said.catalog.uri, "--catalog-name": said.catalog.name,
        }  # fmt: skip
    words = [word for option, text in options.items() if text is not None for word in (option, text)]
    for name, text in said.catalog.options.items() if said.catalog is not None else ():
        words += ["--catalog-option", f"{name}={text}"]
    return f"milepost migrate-table {spec.name} {sink} {shlex.join(words)}"


def _migration_step(spec: JobSpec, sink: str, left: TableAddress) -> str:
    """Return the second step of a table that can go to where the spec says, once the spec says again where it is."""
    if not may_go(left.format, spec.sink(sink).format):
        return ""
    return f"; and then, to move the table: {migration_command(spec, sink)}"

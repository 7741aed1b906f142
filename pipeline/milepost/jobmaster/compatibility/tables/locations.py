"""Check that the spec names each table where the checkpoint left it."""

from __future__ import annotations

import shlex

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.job import JobSpec
from milepost.language import SINK_FORMATS
from milepost.protocol.records import SCHEME, CheckpointFailureReason
from milepost.tables.records import TableAddress, address_of

OTHER_TABLE = "needs the lines of its current table"
OTHER_TABLE_OR_MIGRATION = f"{OTHER_TABLE}; after that, `milepost migrate-table` moves it"


def check_locations(context: JobContext, base: CheckpointMetadata | None) -> None:
    """Refuse a sink if its spec names another table than the checkpoint: its commits would not continue that table.

    The text of the spec can be unchanged: a variable `${env:…}` in the path changed, or the spec's folder moved.
    Raises: InvalidRequest.
    """
    for sink in context.spec.sinks:
        recorded = base.tables.get(sink.name) if base is not None else None
        spec_address = context.sink_address(sink.name)
        if recorded is None or (recorded.address.format, recorded.location) == (
            spec_address.format,
            context.sink_location(sink.name),
        ):
            continue
        if spec_address == recorded.address:
            raise InvalidRequest(
                f"sink {sink.name}: its table was elsewhere at checkpoint {recorded.checkpoint_id}; "
                f"{sink.location} now resolves to another location. Nothing was run or published.",
                hint="restore the path, environment or endpoint, or give the sink a new name to start a new table",
                sink=sink.name,
                reason=CheckpointFailureReason.SPEC_REFUSED.value,
            )
        raise InvalidRequest(
            f"sink {sink.name}: the spec says {spec_address}; its table was elsewhere at checkpoint "
            f"{recorded.checkpoint_id}: {recorded.address}. Nothing was run or published.",
            hint=f"write in the spec, in sink {sink.name}: {'; '.join(recorded.address.spec_lines())}"
            + (
                resolved_path_note(context, recorded.address.path)
                if recorded.address.format == spec_address.format
                else ""
            )
            + _migration_step(context.spec, sink.name, recorded.address),
            sink=sink.name,
            reason=CheckpointFailureReason.SPEC_REFUSED.value,
        )


def resolved_path_note(context: JobContext, path: str | None) -> str:
    """Return, as a clause, what a recorded path resolves to from this spec's folder, in case the spec was moved.

    Only a relative path depends on the folder. A path with `${env:…}` is not shown, because it may contain a secret.
    """
    if path is None or "${" in path or path.startswith("/") or SCHEME.fullmatch(path):
        return ""
    return f" (from this folder {path} is {context.job.url(path)}; if the spec was moved, move it back)"


def migration_command(spec: JobSpec, sink: str) -> str:
    """Return the command that moves a table of files to the location in the spec."""
    target = address_of(spec.sink(sink))
    assert target.path is not None
    options = {"--to": target.format, "--path": target.path, "--table": target.table}
    if target.catalog is not None:
        options |= {
            "--catalog-type": target.catalog.type, "--catalog-uri": target.catalog.uri or None,
            "--catalog-name": target.catalog.name,
        }  # fmt: skip
    words = [word for option, text in options.items() if text is not None for word in (option, text)]
    for name, text in target.catalog.options.items() if target.catalog is not None else ():
        words += ["--catalog-option", f"{name}={text}"]
    return f"milepost migrate-table {spec.name} {sink} {shlex.join(words)}"


def _migration_step(spec: JobSpec, sink: str, recorded: TableAddress) -> str:
    """Return, as a clause, the command that then moves the table; "" if it cannot be moved."""
    if not recorded.sink_format.can_migrate_to(SINK_FORMATS[spec.sink(sink).format]):
        return ""
    return f"; then, to move the table: {migration_command(spec, sink)}"

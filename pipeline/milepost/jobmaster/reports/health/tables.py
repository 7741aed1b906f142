"""The tables of a job as the manifest and the head's metadata have them: one line for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.tables.table_report import checkpoint_shown, reason_to_wait
from milepost.protocol.records import ManifestState


@dataclass(frozen=True, slots=True)
class TableHealth:
    """A table of a job.

    Attributes:
        shows: the checkpoint that readers see; None: nothing yet. waits: why it is not the head, or None.
        rows: of the table at the head; those of an upsert table in change files include replaced ones. None: unknown.
        rules, rules_met: of the quality gate, in the newest epoch with rows for the table; None: there was no verdict.
    """

    shows: int | None
    waits: str | None
    rows: int | None
    rules: int | None
    rules_met: int | None


def tables_of(
    context: JobContext, state: ManifestState | None, base: CheckpointMetadata | None
) -> Mapping[str, TableHealth]:
    """Return the tables of the spec's sinks by name.

    Args:
        base: metadata of the head.
    """
    return {sink.name: _table(state, base, sink.name) for sink in context.spec.sinks}


def _table(state: ManifestState | None, base: CheckpointMetadata | None, name: str) -> TableHealth:
    if state is None or base is None:
        return TableHealth(None, None, None, None, None)
    shown, contents = checkpoint_shown(state, name), base.tables.get(name)
    results = next((verdict.expectations for verdict in base.verdict.verdicts if verdict.sink == name), ())
    return TableHealth(
        shows=None if shown is None or contents is None else int(shown.checkpoint_id),
        waits=reason_to_wait(state, name),
        rows=None if contents is None else contents.rows,
        rules=len(results) or None,
        rules_met=sum(result.success for result in results) if results else None,
    )

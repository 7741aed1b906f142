"""State, rows, late rows and rules of each table, from manifest and head metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.health.verdict import Finding, Grade
from milepost.jobmaster.reports.tables.late_rows import late_row_nodes
from milepost.jobmaster.reports.tables.table_report import TableReport, checkpoint_shown, reason_to_wait
from milepost.jobspec.job import SinkSpec
from milepost.protocol.records import ManifestState


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table. word: for a badge. text: the reason, or how fresh the table is; "" if unknown."""

    grade: Grade
    word: str
    text: str


@dataclass(frozen=True, slots=True)
class TableHealth:
    """A table of a job.

    Attributes:
        shows: the checkpoint that readers see; None: nothing yet. waits: why it is not the head, or None.
        rows: of the table at the head. None: unknown.
        rows_exact: False if `rows` also counts replaced and deleted rows, because the table consists of changes.
        late_rows: of the newest epoch, late at an operator upstream of the table, so that the table lacks them.
            None: no epoch has completed.
        rules, rules_met: of the quality gate, in the newest epoch with rows for the table; None: there was no verdict.
    """

    state: TableState
    shows: int | None
    waits: str | None
    rows: int | None
    rows_exact: bool
    late_rows: int | None
    rules: int | None
    rules_met: int | None


def tables_of(
    context: JobContext, state: ManifestState | None, base: CheckpointMetadata | None, fresh: Finding | None
) -> Mapping[str, TableHealth]:
    """Return the tables of the spec's sinks by name.

    Args:
        base: metadata of the head. fresh: how old the tables of the job are; None: it has never run.
    """
    return {sink.name: _table(context, state, base, sink, fresh) for sink in context.spec.sinks}


def state_of_report(report: TableReport, fresh: Finding | None = None) -> TableState:
    """Return the state of a table from its own report.

    Args:
        fresh: how old the tables of the job are; None: unknown, because the sources were not read.
    """
    results = [rule.results[0] for rule in report.rules if rule.results]
    return _state(report.shows, report.waits, len(results), sum(result.met for result in results), fresh)


def _table(
    context: JobContext,
    state: ManifestState | None,
    base: CheckpointMetadata | None,
    sink: SinkSpec,
    fresh: Finding | None,
) -> TableHealth:
    name, exact = sink.name, sink.mode != "upsert" or sink.by_buckets
    if state is None or base is None:
        return TableHealth(_state(None, None, 0, 0, fresh), None, None, None, exact, None, None, None)
    shown, contents = checkpoint_shown(state, name), base.tables.get(name)
    shows = None if shown is None or contents is None else int(shown.checkpoint_id)
    results = next((verdict.expectations for verdict in base.verdict.verdicts if verdict.sink == name), ())
    waits, met = reason_to_wait(state, name), sum(result.success for result in results)
    late_at = late_row_nodes(context, name)
    return TableHealth(
        state=_state(shows, waits, len(results), met, fresh),
        shows=shows,
        waits=waits,
        rows=None if contents is None else contents.rows,
        rows_exact=exact,
        late_rows=sum(operator.late_rows for uid, operator in base.operators.items() if uid in late_at),
        rules=len(results) or None,
        rules_met=met if results else None,
    )


def _state(shows: int | None, waits: str | None, rules: int, rules_met: int, fresh: Finding | None) -> TableState:
    """Return the first state that applies: waits, empty, rules unmet, stale or fresh, published."""
    if waits is not None:
        return TableState(Grade.WARNING, "waits", waits)
    if shows is None:
        return TableState(Grade.UNKNOWN, "empty", "")
    text = "" if fresh is None else fresh.text
    if rules_met < rules:
        return TableState(Grade.WARNING, "rules unmet", text)
    if fresh is None or fresh.grade is Grade.UNKNOWN:
        return TableState(Grade.GOOD, "published", text)
    return TableState(fresh.grade, "fresh" if fresh.grade is Grade.GOOD else "stale", text)

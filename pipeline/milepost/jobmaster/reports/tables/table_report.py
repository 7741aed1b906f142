"""Report one table: size, columns, freshness, quality rules, figures per epoch, and how to read it.

Everything is read from the job's own store: the manifest, metadata of a few checkpoints, records of the table's files
and stored figures. `sample.py` reads the table itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from milepost.codec import OmitNone
from milepost.epoch import CheckpointMetadata, iso_ms, recorded_watermark_us, watermark_text
from milepost.errors import CheckpointError, NotFound, StateCorrupt, StoreUnavailable
from milepost.jobmaster.figures.epoch_rows import EpochRow
from milepost.jobmaster.figures.stored_rows import NodeFigures, StoredRows, completed_lineage
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.tables.late_rows import late_row_nodes
from milepost.jobmaster.reports.tables.reader_code import reader_code
from milepost.jobmaster.reports.tables.sample import TableSample, table_sample
from milepost.jobmaster.reports.tables.table_files import recorded_files
from milepost.jobspec.job import Expectation, SinkSpec
from milepost.protocol.records import CompletedCheckpoint, ManifestState
from milepost.protocol.retention import timeline_ancestry
from milepost.quality import ExpectationResult, columns_of
from milepost.storage import OBJECT_CACHE
from milepost.storage.concurrency import parallel_map
from milepost.tables.records import TableContents, address_of, decode_schema, staged_by

SHOWN_EPOCHS = 60
"""Epochs with figures."""

MAX_VERDICTS = 10
"""Newest retained checkpoints whose verdicts are read. Only checkpoints have the results of each rule."""

NEWEST_FILES = 10

_VERDICT_BYTES = 1 << 10
"""Approximate size of the cached verdict on one table."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class RuleResult:
    """A rule's result for one epoch's rows. observed: counts, as in `ExpectationResult`. exception: if it raised."""

    checkpoint_id: int
    completed: str
    met: bool
    observed: Mapping[str, int | float]
    exception: str | None


@dataclass(frozen=True, slots=True)
class TableRule:
    """A rule of the quality gate.

    Attributes:
        severity: None: it judges single rows without `mostly`, so it is always met.
        bounds: its arguments in the spec, without its columns; None: the reader may not see the spec.
        results: of the newest retained checkpoints, newest first, at most `MAX_VERDICTS`.
    """

    type: str
    columns: tuple[str, ...]
    severity: str | None
    bounds: Mapping[str, Any] | None
    results: tuple[RuleResult, ...]


@dataclass(frozen=True, slots=True)
class TableEpoch:
    """What one completed epoch published to the table; None: unknown.

    Attributes:
        rows: of its commit, deletes included. table_rows: of the whole table after it.
        late_rows: as in `TableHealth`.
        age_ms: age of the job's event time when the epoch completed: how old the newest complete rows were.
    """

    checkpoint_id: int
    epoch: int | None
    completed: str | None
    rows: int | None
    table_rows: int | None
    late_rows: int | None
    rules: int | None
    rules_met: int | None
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class NewestFile:
    """A file of the table. checkpoint_id: the checkpoint that wrote it; None: another writer did."""

    key: str
    rows: int
    bytes: int
    checkpoint_id: int | None


@dataclass(frozen=True, slots=True)
class TableReport:
    """A table of a job. Its size, columns and files are those that readers see, by the manifest.

    Attributes:
        table: its address, in the notation of the spec. key: of an upsert table.
        shows: the checkpoint that readers see; None: nothing yet. timeline: of that checkpoint.
        waits: why readers do not see the job's head, or None.
        head: the job's newest completed checkpoint.
        event_time: the event time up to which the rows are complete; None: unknown. age_ms: its age.
        rows_exact: False if `rows` also counts replaced and deleted rows, because the table consists of changes.
        bytes: None: there are too many files to add up.
        rules: of the quality gate, in the order of the spec.
        epochs: oldest first, at most `SHOWN_EPOCHS`. unreadable: why figures of some cannot be read, one line each.
        newest_files: newest last.
        code: engine -> code that reads the table.
        sample: rows, if requested; problem: why they cannot be read.
    """

    job: str
    sink: str
    input: str
    table: str
    format: str
    mode: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    head: int | None
    shows: int | None
    timeline: str | None
    waits: str | None
    event_time: str | None
    age_ms: int | None
    rows: int
    rows_exact: bool
    files: int
    bytes: int | None
    columns: tuple[TableColumn, ...]
    rules: tuple[TableRule, ...]
    epochs: tuple[TableEpoch, ...]
    unreadable: tuple[str, ...]
    newest_files: tuple[NewestFile, ...]
    code: Mapping[str, str]
    sample: OmitNone[TableSample] = None
    problem: OmitNone[str] = None


def with_sample(context: JobContext, report: TableReport) -> TableReport:
    """Return the report with a sample of the table, or with the reason why there is none."""
    try:
        return replace(report, sample=table_sample(context, report.sink))
    except CheckpointError as error:
        return replace(report, problem=error.message)


def table_report(context: JobContext, name: str) -> TableReport:
    """Return the report of a sink's table.

    Raises: NotFound: the spec has no such sink. If the head has its table, the message says where that is.
    """
    head = context.log.head()
    state = None if head is None else head.state
    sink = _sink(context, state, name)
    shown = None if state is None else checkpoint_shown(state, name)
    metadata = None if shown is None else context.metadata(shown)
    contents = None if metadata is None else metadata.tables.get(name)
    contents = contents if contents is not None and contents.checkpoint_id else None
    files = recorded_files(context, contents)
    upsert = sink.mode == "upsert"
    exact = not upsert or (files.files is not None and all(file.groups is not None for file in files.files))
    watermark_us = None if shown is None else recorded_watermark_us(shown.summary.get("watermark"))
    epochs, unreadable = ([], []) if state is None else _epochs(context, state, name)
    newest = None if state is None else state.head()
    return TableReport(
        job=context.spec.name,
        sink=name,
        input=sink.input,
        table=str(address_of(sink) if contents is None else contents.address),
        format=sink.format,
        mode=sink.mode,
        key=context.graph.sink_inputs[name].key if upsert else (),
        partition_by=tuple(sink.partition_by or ()),
        head=None if newest is None else int(newest.checkpoint_id),
        shows=None if contents is None or shown is None else int(shown.checkpoint_id),
        timeline=None if contents is None or shown is None else shown.timeline,
        waits=None if state is None else reason_to_wait(state, name),
        event_time=watermark_text(watermark_us),
        age_ms=None if watermark_us is None else max(0, context.store.clock_ms() - watermark_us // 1000),
        rows=0 if contents is None else contents.rows,
        rows_exact=exact,
        files=0 if contents is None else contents.files,
        bytes=files.bytes,
        columns=() if contents is None else _columns(contents),
        rules=tuple(_rules(context, state, name)),
        epochs=tuple(epochs),
        unreadable=tuple(unreadable),
        newest_files=tuple(
            NewestFile(file.key, file.rows, file.size, None if (by := staged_by(file.key)) is None else int(by[0]))
            for file in files.newest[-NEWEST_FILES:]
        ),
        code=reader_code(context.job, sink),
    )


def _sink(context: JobContext, state: ManifestState | None, name: str) -> SinkSpec:
    """Return a sink of the spec, unresolved. Raises NotFound."""
    sinks = {sink.name: sink for sink in context.job.spec.sinks}
    if name in sinks:
        return sinks[name]
    has = f"job {context.spec.name} has no sink {name}; it has {', '.join(sorted(sinks)) or 'none'}"
    newest = None if state is None else state.head()
    former = None if newest is None else context.metadata(newest).tables.get(name)
    if former is None:
        raise NotFound(has, sink=name)
    raise NotFound(
        f"{has}. An edit of the spec removed it: no epoch writes its table ({former.address}) any longer, and nothing "
        "deletes it.",
        hint=f"a sink {name} in the spec, with this table, continues it",
        sink=name,
    )


def checkpoint_shown(state: ManifestState, name: str) -> CompletedCheckpoint | None:
    """Return the newest checkpoint of the live lineage that the table shows, by the manifest; None: none yet.

    While a sink has yet to follow a switch of the timeline, that is the checkpoint that it is about to show.
    """
    lineage_of_head = timeline_ancestry(state, state.timeline())
    return next((item for item in reversed(lineage_of_head) if name not in item.unconfirmed), None)


def reason_to_wait(state: ManifestState, name: str) -> str | None:
    """Return why a table does not show the head of the job, by the manifest; None: it does."""
    if state.reconciliation is not None and name in state.reconciliation.sinks:
        return f"it has yet to follow timeline {state.live}: readers may see another checkpoint"
    waiting = [str(item.checkpoint_id) for item in state.unconfirmed() if name in item.unconfirmed]
    return f"completed checkpoints are not published to it yet: {', '.join(waiting)}" if waiting else None


def _columns(contents: TableContents) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(field.name, str(field.type), field.nullable) for field in decode_schema(contents.schema))


def _epochs(context: JobContext, state: ManifestState, name: str) -> tuple[list[TableEpoch], list[str]]:
    """Return the figures of the newest epochs, oldest first, and what cannot be read."""
    newest = state.head()
    if newest is None:
        return [], []
    stored = StoredRows(context.store)
    try:
        rows = list(islice(completed_lineage(stored.epochs(), newest.checkpoint_id, state.live), SHOWN_EPOCHS))
        figures = stored.nodes(rows)
    except (NotFound, StoreUnavailable) as error:  # epochs merge these rows at this moment
        return [], [error.message]
    late_at = late_row_nodes(context, name)
    shown = ((row, figures.get((row.checkpoint_id, row.timeline), NodeFigures())) for row in reversed(rows))
    return [_epoch(row, nodes, name, late_at) for row, nodes in shown], stored.unreadable


def _epoch(row: EpochRow, nodes: NodeFigures, name: str, late_at: Collection[str]) -> TableEpoch:
    own, age_ms = nodes.sinks.get(name, {}), None
    late = [figures.get("late_rows") for uid, figures in nodes.operators.items() if uid in late_at]
    if row.lag_ms is not None and row.end_time is not None and row.trigger_time is not None:
        age_ms = max(0, row.lag_ms + row.end_time - row.trigger_time)
    return TableEpoch(
        checkpoint_id=row.checkpoint_id,
        epoch=row.epoch,
        completed=None if row.end_time is None else iso_ms(row.end_time),
        rows=own.get("rows"),
        table_rows=own.get("table_rows"),
        late_rows=sum(rows or 0 for rows in late) if own else None,
        rules=own.get("rules"),
        rules_met=own.get("rules_met"),
        age_ms=age_ms,
    )


def _rules(context: JobContext, state: ManifestState | None, name: str) -> Iterator[TableRule]:
    suites = [suite for suite in context.job.spec.quality if suite.sink == name]
    expectations = [expectation for suite in suites for expectation in suite.expectations]
    verdicts = verdicts_of(context, state, name) if expectations else []
    for number, expectation in enumerate(expectations):
        columns = columns_of(expectation)
        same = sum(_is_same(earlier, expectation) for earlier in expectations[:number])
        yield TableRule(
            type=expectation.type,
            columns=tuple(columns),
            severity=expectation.severity if expectation.may_be_unmet else None,
            bounds=rule_bounds(expectation),
            results=tuple(results_of(verdicts, expectation.type, ", ".join(columns) or None, same)),
        )


def rule_bounds(expectation: Expectation) -> dict[str, Any]:
    """Return the arguments of an expectation that are not its columns, as JSON values."""
    columns = ("column", "column_A", "column_B", "column_list")
    bounds = {key: value for key, value in expectation.arguments.items() if key not in columns}
    return dict(json.loads(json.dumps(bounds, default=str)))


def _is_same(one: Expectation, other: Expectation) -> bool:
    return one.type == other.type and columns_of(one) == columns_of(other)


CheckpointVerdict = tuple[int, str, tuple[ExpectationResult, ...]]
"""Checkpoint, when it completed, and the results of its rules."""


def results_of(
    verdicts: Iterable[CheckpointVerdict], type_: str, column: str | None, same: int
) -> Iterator[RuleResult]:
    """Yield the results of a rule. same: number of rules before it with the same type and columns."""
    for checkpoint_id, completed, results in verdicts:
        matching = [result for result in results if (result.type, result.column) == (type_, column)]
        if len(matching) > same:
            result = matching[same]
            yield RuleResult(checkpoint_id, completed, result.success, result.observed, result.exception)


def verdicts_of(
    context: JobContext, state: ManifestState | None, name: str, most: int | None = None
) -> list[CheckpointVerdict]:
    """Return the verdicts of the newest retained checkpoints on a table, newest first. Damaged ones are left out."""
    if state is None:
        return []
    newest = timeline_ancestry(state, state.timeline())[-(most or MAX_VERDICTS) :]

    def read(checkpoint: CompletedCheckpoint) -> tuple[ExpectationResult, ...]:
        handle = checkpoint.metadata
        version = (f"verdict of {name}", handle.key, handle.sha256)
        try:
            return OBJECT_CACHE.read(
                context.store, version, _VERDICT_BYTES, lambda: _verdict(context.metadata(checkpoint), name)
            )
        except StateCorrupt:
            return ()

    found: Sequence[tuple[ExpectationResult, ...]] = parallel_map(context.store, read, newest)
    pairs = zip(reversed(newest), reversed(found), strict=True)
    return [(int(item.checkpoint_id), iso_ms(item.completed_time_ms), results) for item, results in pairs]


def _verdict(metadata: CheckpointMetadata, name: str) -> tuple[ExpectationResult, ...]:
    return next((verdict.expectations for verdict in metadata.verdict.verdicts if verdict.sink == name), ())

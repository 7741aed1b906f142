"""The document of one checkpoint: outcome, input, output, state, times, quality and origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from milepost.codec import to_json
from milepost.epoch import counted, lasting
from milepost.jobmaster import (
    AFTER_PUBLICATION,
    HIDDEN_VALUES,
    CheckpointDetails,
    CheckpointReport,
    SourceDetails,
    StaticSourceDetails,
)
from milepost.protocol.landed import position_text
from milepost.protocol.records import CheckpointStatus
from milepost.views.prices import epoch_cost_text, month_cost_text, price_text
from milepost.views.static_sources import STATIC_COLUMNS, static_source_cells
from milepost.views.subtasks import subtask_tables
from milepost.views.text import (
    bounds_text,
    counts,
    failure_text,
    observed_text,
    phase_name,
    printable,
    show_bytes,
    show_count,
    show_rows,
    show_time,
    sizes,
    state,
)
from milepost.views.tree import (
    UNKNOWN,
    Fact,
    Figure,
    Fold,
    Link,
    LinkTarget,
    Meaning,
    Row,
    Section,
    Table,
    Text,
    Value,
    View,
)

_PINNED = 3
_NAMED_OBJECTS = 3
_NAMED = 12
_HASH = 12
_ABORTED = CheckpointStatus.ABORTED.value
_NOT_COUNTED = (
    f"“{UNKNOWN}”: not applicable, or not counted, because Spark fuses SQL over SQL into one expression. Operators "
    "without state run in the subtasks of their input."
)
_NO_DETAILS = "Only a retained checkpoint has measurements of its operators and phases."
_UNREADABLE = "Its measurements cannot be read. What follows is from the log"


def checkpoint_view(
    report: CheckpointReport, unreadable: str | None = None, *, with_values: bool = True, with_spec: bool = True
) -> View:
    """Return the document of a checkpoint.

    Args:
        unreadable: why its measurements cannot be read; None if they can.
        with_values: whether it has data values, such as refused rows. with_spec: whether it has the spec.
    """
    states = [state(report.status)]
    if report.live is False and report.status != _ABORTED:
        states.append(Text("not live: the head does not continue it", Meaning.WARN))
    sections = [*_notices(report, unreadable), Section(facts=tuple(_facts(report)))]
    if report.veto is not None:
        veto = report.veto if isinstance(report.veto, Mapping) else to_json(report.veto)
        sections.append(_veto(veto, with_values, with_spec))
    if isinstance(report, CheckpointDetails):
        sections += _details(report)
    elif unreadable is None:
        sections.append(Section(_NO_DETAILS, meaning=Meaning.CALM))
    if report.leader is not None:
        sections.append(Section("Origin", facts=tuple(_origin(report))))
    if isinstance(report, CheckpointDetails) and with_spec:
        sections.append(Section("Spec", source=report.spec, fold=Fold.SPEC))
    return View(f"{report.kind} {report.checkpoint_id}", tuple(states), tuple(sections))


def _notices(report: CheckpointReport, unreadable: str | None) -> Iterator[Section]:
    if unreadable is not None:
        corrupt = Link(LinkTarget.RUNBOOK, ("state-corrupt",))
        yield Section(_UNREADABLE, lines=(unreadable,), meaning=Meaning.BAD, link=corrupt)
    if report.failure_reason:
        lines = [failure_text(report.failure_reason, report.failure_detail)]
        lines += [f"What to do first: {report.remedy}"] if report.remedy else []
        title = f"Nothing of it is published: {report.meaning or report.failure_reason}"
        link = Link(LinkTarget.RUNBOOK, ("epoch-failed",))
        yield Section(title, lines=tuple(lines), meaning=Meaning.BAD, link=link)
    if report.compacted:
        yield Section("The log of this checkpoint is compacted: its details are no longer known", meaning=Meaning.CALM)


def _facts(report: CheckpointReport) -> Iterator[Fact]:
    yield Fact("epoch", printable(report.epoch), f"timeline {report.timeline}" if report.timeline else "")
    end = " to its abort" if report.status == _ABORTED else ""
    took = "" if report.duration_ms is None else f"took {lasting(report.duration_ms)}{end}"
    yield Fact("triggered", show_time(report.trigger_time), took)
    if isinstance(report.rows_in, int):
        rows = show_rows(report)
        read = (report.objects, "object"), (report.bad_records, "bad record")
        yield Fact(
            "rows",
            rows,
            ", ".join(counted(number, noun) for number, noun in read if isinstance(number, int) and number),
        )
    if report.full_bytes is not None:
        yield Fact("state", show_bytes(report.full_bytes), f"{show_bytes(report.checkpointed_bytes)} written")
        if report.in_flight_bytes:
            yield Fact("in flight", show_bytes(report.in_flight_bytes), "unaligned" if report.unaligned else "")
    if report.watermark is not None:
        yield Fact("watermark", show_time(report.watermark))
    if report.acks.expected is not None:
        yield Fact("acknowledged", f"{printable(report.acks.received)} of {printable(report.acks.expected)}")
    if report.quality is not None:
        yield Fact("quality gate", state(str(report.quality)))
    if report.airflow is not None and report.airflow.dag_id is not None and report.airflow.run_id is not None:
        link = Link(LinkTarget.AIRFLOW_RUN, (report.airflow.dag_id, report.airflow.run_id))
        yield Fact("Airflow run", Text(report.airflow.run_id, link=link), f"DAG {report.airflow.dag_id}")
    if report.savepoints:
        yield Fact("savepoints", ", ".join(report.savepoints))


def _veto(veto: Mapping[str, Any], with_values: bool, with_bounds: bool) -> Section:
    """Return what the quality gate refused, with observed values and failing rows; without values, with counts only."""
    tables = []
    for refusal in veto["refusals"]:
        values = dict(refusal["observed"])
        if refusal["observed_value"] is not None and with_values:
            values["observed_value"] = printable(refusal["observed_value"])
        bounds = bounds_text(refusal.get("bounds")) if with_bounds else ""
        subject = f"sink {refusal['sink']}: {refusal['type']}({refusal['column'] or ''})"
        subject += f" with {bounds}" if bounds else ""
        rows = refusal["rows"] if with_values else ()
        columns = tuple(rows[0]) if rows else ()
        cells = [Row(tuple(show_count(row[name]) for name in columns)) for row in rows]
        tables.append(
            Table(
                columns,
                tuple(cells),
                f"{subject}: {observed_text(values, refusal['exception'] if with_values else None)}",
            )
        )
    lines = [veto["problem"]] if "problem" in veto else []
    lines += [_read_by_veto(source, read) for source, read in (veto.get("read") or {}).items()]
    lines += ["Rows were left out: they would have been more than 64 kB."] if veto.get("shortened") else []
    lines += [] if with_values else [HIDDEN_VALUES]
    return Section("Refused by the quality gate", lines=tuple(lines), tables=tuple(tables))


def _read_by_veto(source: str, read: Mapping[str, Any]) -> str:
    """Return what a refused epoch read from a source, in a sentence."""
    names = f", such as {', '.join(map(printable, read['first'][:_NAMED_OBJECTS]))}" if read["first"] else ""
    log = f", {printable(read['records'])} of its log" if read["records"] else ""
    return f"It read {counted(read['rows'], 'row')} of {counted(read['objects'], 'object')} of {source}{names}{log}."


def _details(report: CheckpointDetails) -> Iterator[Section]:
    """Yield the sections of a retained checkpoint. Those about what it does not have are left out."""
    if report.sources:
        yield Section("Sources", "what came in", tables=(_sources(report),))
    if report.static_sources:
        rows = [_static_source(name, source) for name, source in report.static_sources.items()]
        yield Section("Static sources", "what rows were looked up in", tables=(Table(STATIC_COLUMNS, tuple(rows)),))
    if report.sinks:
        yield Section("Sinks", "what went out", tables=(_sinks(report),))
    if report.operators:
        fused = any(operator.rows_in is None for operator in report.operators.values())
        lines = (_NOT_COUNTED,) if fused else ()
        yield Section("Operators", "rows and state", lines=lines, tables=(_operators(report),))
    yield Section("Time", "from its trigger until all its tables were published", tables=(_time(report),))
    if report.requests:
        yield Section("Requests", "to the store, by phase", tables=(_requests(report),))
    if report.upsert:
        costs = [line for price in report.upsert for line in (price_text(price), price.advice) if line]
        yield Section("Upsert", "what it costs", lines=tuple(costs))
    if report.cost is not None:
        facts = [Fact("this epoch", epoch_cost_text(report.cost))]
        facts += [Fact("a month", month_cost_text(report.month))] if report.month is not None else []
        yield Section("Cost", "an estimate by the prices of the spec", facts=tuple(facts))
    yield _quality(report)


def _sources(report: CheckpointDetails) -> Table:
    rows = []
    for name, source in report.sources.items():
        read = UNKNOWN if source.read is None else show_bytes(source.read.bytes)
        figures = (*counts(source.rows, source.objects), read, show_time(source.newest_event_time))
        folds = (*subtask_tables(name, source.subtasks, source.spread), *_objects_read(name, source))
        rows.append(Row((name, *figures), _source_note(source), folds))
    columns = ("source", "rows", "objects", "size", "newest event time")
    return Table(columns, tuple(rows))


def _source_note(source: SourceDetails) -> str:
    """Return what was skipped, unreadable, late or left; "" if there is nothing to note."""
    named = {"empty": source.empty, "bad_names": source.bad_names}
    bad, read = source.bad, source.read
    parts = [f"{counted(source.ahead.rows, 'row')} too far ahead to move the watermark"] if source.ahead.rows else []
    if bad.records:
        objects = f", {counted(bad.objects, 'whole object')} among them" if bad.objects else ""
        parts.append(f"{counted(bad.records, 'bad record')}{objects}, such as {bad.first[0].describe()}")
    parts += [f"planned but no longer in the source: {', '.join(source.missing)}"] if source.missing else []
    for why, skipped in source.skipped.items():
        names = f" ({', '.join(named[why])})" if named.get(why) else ""
        parts += [f"{skipped:,} {why.replace('_', ' ')}{names}"] if skipped else []
    if read is not None:
        if (of := read.records) is not None:
            which = f"record {of.first}" if of.first == of.last else f"records {of.first} to {of.last}"
            parts.append(f"{which} of its log, up to position {position_text(of.position)}")
            parts += [f"{counted(of.gaps, 'gap')} of lost data among them"] if of.gaps else []
            parts += [f"{counted(of.skipped, 'void record')} of false rows skipped"] if of.skipped else []
        parts += [f"{counted(large, 'large object')} read by one task: {why}" for why, large in read.whole.items()]
        left = f"{counted(read.left, 'object')} of {show_bytes(read.left_bytes)} left for a later epoch"
        parts += [left] if read.left else []
    parts += ["nothing had landed for longer than expect_every"] if source.overdue else []
    parts += ["idle: it does not hold the watermark back"] if source.idle else []
    parts += [f"remembered whole from {source.horizon} on"] if source.horizon else []
    parts += ["finished"] if source.finished else []
    return ", ".join(parts)


def _objects_read(name: str, source: SourceDetails) -> Iterator[Table]:
    if source.read is not None and source.read.first:
        yield _objects(name, source.read.first, source.read.objects)
    if source.bad.records:
        columns = ("object", "line", "column", "reason")
        rows = [Row((at.object, show_count(at.line), at.column or "", at.reason)) for at in source.bad.first]
        title = f"{counted(source.bad.records, 'record')} of {name} in its dead letters"
        yield Table(columns, tuple(rows), title, fold=Fold.OBJECTS)


def _objects(name: str, objects: Sequence[Any], total: int) -> Table:
    rows = [Row((at.object, at.version, show_bytes(at.bytes), show_time(at.landed))) for at in objects]
    first = f", the first {len(objects):,}" if total > len(objects) else ""
    title = f"{counted(total, 'object')} of {name}{first}"
    return Table(("object", "version", "size", "landed"), tuple(rows), title, fold=Fold.OBJECTS)


def _static_source(name: str, source: StaticSourceDetails) -> Row:
    pinned = [f"{at.object} ({at.version})" for at in source.objects[:_PINNED]]
    more = len(source.objects) - len(pinned)
    pinned += [f"and {more:,} more"] if more > 0 else []
    objects = _objects(name, source.objects[:_NAMED], len(source.objects))
    return Row((name, *static_source_cells(source)), ", ".join(pinned), (objects,))


def _sinks(report: CheckpointDetails) -> Table:
    rows = []
    for name, published in report.sinks.items():
        sink, notified_ms = (report.published or {}).get(name), report.notified_ms.get(name)
        commit = UNKNOWN if notified_ms is None else Figure(lasting(notified_ms))
        if sink is None:
            unknown = (UNKNOWN, UNKNOWN, state(published), "-", UNKNOWN, UNKNOWN, "-", commit)
            rows.append(Row((_table_link(name), show_count(report.sink_rows.get(name)), *unknown)))
            continue
        written = (*counts(sink.rows, sink.files), show_bytes(sink.bytes))
        table = (*counts(sink.table_rows, sink.table_files), printable(sink.table))
        published_at = (state(published), show_time(sink.confirmed))
        rows.append(
            Row(
                (_table_link(name), *written, *published_at, *table, commit),
                folds=subtask_tables(name, sink.subtasks, sink.spread),
            )
        )
    columns = ("sink", "rows", "files", "size", "published", "confirmed")
    optional = ("table rows", "table files", "table", "commit")
    return Table((*columns, *optional), tuple(rows), optional=optional)


def _table_link(sink: str) -> Text:
    return Text(sink, link=Link(LinkTarget.JOB, ("tables", sink)))


def _operators(report: CheckpointDetails) -> Table:
    rows = []
    for uid, operator in report.operators.items():
        figures = counts(operator.rows_in, operator.rows_out, operator.late_rows, operator.state_rows)
        state_sizes = sizes(operator.full_bytes, operator.uploaded_bytes)
        times = (show_time(operator.firing_watermark), show_count(operator.runs))
        note = f"unaligned, {show_bytes(operator.in_flight_bytes)} in flight" if operator.unaligned else ""
        folds = subtask_tables(uid, operator.subtasks, operator.spread)
        rows.append(Row((uid, operator.kind, *figures, *state_sizes, *times), note, folds))
    columns = ("operator", "kind", "rows in", "rows out", "late", "state rows", "state")
    optional = ("written", "watermark", "runs")
    return Table((*columns, *optional), tuple(rows), optional=("kind", *optional))


def _time(report: CheckpointDetails) -> Table:
    """Return the measured phases with their shares. An epoch of a replay has no total, so its phases have no share."""
    total_ms = report.phases["total_ms"]
    rows = []
    for name, spent in report.phases.items():
        if spent is not None:
            share: tuple[Value, ...] = ()
            if total_ms:
                part = spent / total_ms
                inside = name != f"{AFTER_PUBLICATION}_ms"
                share = (Figure(f"{100 * part:.1f}"), Text("", share=part)) if inside else (UNKNOWN, "")
            rows.append(Row((phase_name(name), show_count(spent), *share)))
    return Table(("phase", "ms", *(("%", "") if total_ms else ())), tuple(rows))


def _requests(report: CheckpointDetails) -> Table:
    made = {phase: requests for phase, requests in report.requests.items() if requests.total}
    first, *others = made.values()
    made["total"] = sum(others, first)
    rows = [
        Row((phase, *counts(one.puts, one.gets, one.deletes), *sizes(one.sent_bytes, one.received_bytes)))
        for phase, one in made.items()
    ]
    return Table(("phase", "put, list", "get, head", "delete", "sent", "received"), tuple(rows))


def _quality(report: CheckpointDetails) -> Section:
    """Return each expectation's result, the sinks that have none, and how many rows of each sink were rejected."""
    rows, verdict = [], report.verdict
    lines = [
        f"{name}: {sink.rejected_rows:,} of {counted(sink.rows + sink.rejected_rows, 'row')} rejected: "
        f"{sink.quarantined_rows:,} quarantined, {sink.dropped_rows:,} dropped"
        for name, sink in (report.published or {}).items()
        if sink.rejected_rows
    ]
    for judged in verdict.verdicts:
        for result in judged.expectations:
            met = result.refused or "met"
            word = met if result.success else "raised" if result.exception else "not met"
            text = observed_text(result.observed, result.exception)
            rows.append(Row((judged.sink, result.subject, state(word), result.severity or "", text)))
        if not judged.expectations:
            lines.append(f"{judged.sink}: {judged.status.value}: {counted(judged.rows, 'row')}")
    if not verdict.verdicts:
        lines.append(f"{verdict.status.value}: there were no rows to check, or the spec has no expectations")
    columns = ("sink", "expectation", "result", "severity", "observed")
    tables = (Table(columns, tuple(rows), optional=columns[3:]),) if rows else ()
    return Section("Quality", lines=tuple(lines), tables=tables)


def _origin(report: CheckpointReport) -> Iterator[Fact]:
    """Yield session, base checkpoint, code and spec."""
    leader = report.leader
    if leader is None:
        return
    yield Fact("led by", leader.session_id, f"token {leader.token}")
    if leader.holder.host is not None:
        yield Fact("on", leader.holder.host, f"process {printable(leader.holder.pid)}")
    differs = None
    if isinstance(report, CheckpointDetails):
        base = Link(LinkTarget.JOB, ("checkpoints", report.base))
        yield Fact("built on", Text(f"checkpoint {report.base}", link=base) if report.base else "the empty state")
        if report.held_back:
            yield Fact("held back", "new input", f"by {report.held_back}")
        for one in report.recreated:
            yield Fact("run again", f"a subtask of {', '.join(one.nodes)}", counted(one.attempts, "attempt"))
        if report.final:
            yield Fact("final", "the last epoch of the job")
        differs = report.code_differs
    change = "" if differs is None else f"now other: {', '.join(differs)}" if differs else "as it is now"
    yield Fact("code", (report.code_hash or "-")[:_HASH], change)
    yield Fact("spec", (report.spec_hash or "-")[:_HASH])

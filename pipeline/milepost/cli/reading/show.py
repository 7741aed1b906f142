"""The command `show`, which shows one checkpoint, in sections or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.reading.subtasks import show_subtasks
from milepost.cli.reading.times import show_phases, show_requests
from milepost.cli.reading.vetoes import show_veto
from milepost.cli.terminal.completion import checkpoint_ids
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import (
    Output,
    late_by_operator,
    printable,
    show_bytes,
    show_count,
    show_rows,
    show_time,
)
from milepost.cli.terminal.prices import epoch_cost_text, month_cost_text, show_prices
from milepost.codec import to_json
from milepost.epoch import counted

if TYPE_CHECKING:
    from milepost.jobmaster import CheckpointDetails, CheckpointReport, StaticSourceDetails

_NAMES = 12
_PINNED = 3
_HASH = 12


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(show)


def show(
    ctx: typer.Context,
    job: Job,
    checkpoint_id: Annotated[
        int | None,
        typer.Argument(metavar="[ID]", min=1, autocompletion=checkpoint_ids, help="A checkpoint. Default: the head."),
    ] = None,
    spec: Annotated[bool, typer.Option("--spec", help="Also show the checkpoint's spec.")] = False,
    tasks: Annotated[bool, typer.Option("--tasks", help="Also show rows, state and times of each subtask.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show one checkpoint: input, output, state, times, quality and its run. `--json` shows everything."""
    from milepost.jobmaster import CheckpointDetails

    output: Output = ctx.obj
    report = open_job(job, ahead=True).reports.show(checkpoint_id)
    if output.json:
        return output.document(report)
    _show_head(report, output)
    if isinstance(report, CheckpointDetails):
        _show_inputs(report, output)
        _show_outputs(report, output)
        _show_operators(report, output)
        _show_measurements(report, output)
        _show_verdict(report, output)
    if report.veto is not None:
        _section("Veto", output)
        show_veto(to_json(report.veto) if not isinstance(report.veto, Mapping) else dict(report.veto), output)
    _show_origin(report, output)
    if isinstance(report, CheckpointDetails):
        if tasks:
            _section("Subtasks: rows, state, milliseconds", output)
            show_subtasks(report, output)
        if spec:
            _section("Spec", output)
            for line in report.spec.splitlines():
                output.text(printable(line))
    return None


def _section(title: str, output: Output) -> None:
    output.text()
    output.text(title)


def _fact(name: str, text: str, output: Output) -> None:
    output.paragraph(text, " " * (_NAMES + 4), f"  {name.ljust(_NAMES)}  ")


def _show_head(report: CheckpointReport, output: Output) -> None:
    """Print id, epoch, times, outcome and contents."""
    word = output.paint(report.status)
    left = "" if report.live is not False or report.status == "aborted" else ", not live: the head does not continue it"
    output.text(f"{report.kind} {report.checkpoint_id}: {word}{left}")
    where = f", timeline {report.timeline}" if report.timeline is not None else ""
    _fact("epoch", f"{printable(report.epoch)}{where}", output)
    end = "abort" if report.status == "aborted" else "commit"
    took = f", took {report.duration_ms / 1000:.1f} s to its {end}" if report.duration_ms is not None else ""
    _fact("triggered", f"{show_time(report.trigger_time)}{took}", output)
    if report.failure_reason:
        detail = " ".join(str(report.failure_detail or "").split())
        _fact("failed", f"{report.failure_reason}: {detail}" if detail else report.failure_reason, output)
    if report.remedy:
        _fact("do first", report.remedy, output)
    if report.rows_in is not None:
        _fact("rows", show_rows(report.rows_in, report.rows_out, report.late_rows) + late_by_operator(report), output)
    if report.acks.expected is not None:
        _fact("acks", f"{printable(report.acks.received)} of {printable(report.acks.expected)}", output)
    if report.watermark is not None:
        _fact("watermark", show_time(report.watermark), output)
    if report.full_bytes is not None:
        written = f"{show_bytes(report.checkpointed_bytes)} written, {show_bytes(report.full_bytes)} in all"
        flight = f", {show_bytes(report.in_flight_bytes)} in flight" if report.in_flight_bytes else ""
        _fact("state", f"{written}{flight}{' (unaligned)' if report.unaligned else ''}", output)
    if report.savepoints:
        _fact("savepoints", ", ".join(report.savepoints), output)
    if report.compacted:
        _fact("note", "the log has compacted its end: what it held is not known any more", output)


def _show_inputs(report: CheckpointDetails, output: Output) -> None:
    if report.sources:
        _section("Sources: what came in", output)
        rows = [
            [
                name,
                source.rows,
                source.objects,
                "-" if source.read is None else show_bytes(source.read.bytes),
                show_time(source.newest_event_time),
            ]
            for name, source in report.sources.items()
        ]
        notes = [_source_note(source) for source in report.sources.values()]
        columns = ["source", "rows", "objects", "size", "newest event time"]
        output.table(columns, rows, notes=notes, figures=("size",))
    if report.static_sources:
        _section("Static sources: what rows were looked up in", output)
        rows = [
            [name, one.rows, len(one.objects), show_time(one.newest_object), show_bytes(one.copy_bytes), one.copied_by]
            for name, one in report.static_sources.items()
        ]
        notes = [_pinned(one) for one in report.static_sources.values()]
        columns = ["source", "rows", "objects", "newest object", "copy", "with checkpoint"]
        output.table(columns, rows, notes=notes, figures=("copy",))


def _show_outputs(report: CheckpointDetails, output: Output) -> None:
    if report.sinks:
        _section("Sinks: what went out", output)
        output.table(
            ["sink", "rows", "files", "size", "published", "confirmed"],
            [_sink_row(report, name, published) for name, published in report.sinks.items()],
            figures=("size",),
        )
    if report.upsert:
        _section("Upsert: what it costs", output)
        show_prices(report.upsert, output)


def _show_operators(report: CheckpointDetails, output: Output) -> None:
    if report.operators:
        _section("Operators: rows and state", output)
        rows = [
            [
                uid,
                one.kind,
                one.rows_in,
                one.rows_out,
                one.late_rows,
                one.state_rows,
                show_bytes(one.full_bytes),
                show_bytes(one.uploaded_bytes),
                "-" if one.firing_watermark is None else show_time(one.firing_watermark),
                one.runs,
            ]
            for uid, one in report.operators.items()
        ]
        columns = ["operator", "kind", "rows in", "rows out", "late", "state rows", "state", "written"]
        output.table(
            [*columns, "watermark", "runs"],
            rows,
            optional=("kind", "written", "watermark", "runs"),
            figures=("state", "written"),
        )


def _show_measurements(report: CheckpointDetails, output: Output) -> None:
    """Print times, S3 requests and their cost."""
    measured = report.phases["total_ms"] is not None
    _section("Time, from its plan before the trigger to its last step after the commit" if measured else "Time", output)
    show_phases(report.phases, output)
    if report.requests:
        _section("Requests: to S3, by who made them", output)
        show_requests(report.requests, output)
    if report.cost is not None:
        _section("Cost: an estimate by the prices of the spec", output)
        _fact("this epoch", epoch_cost_text(report.cost), output)
        if report.month is not None:
            _fact("a month", month_cost_text(report.month), output)


def _show_verdict(report: CheckpointDetails, output: Output) -> None:
    """Print the quality verdict."""
    _section("Quality", output)
    output.text(f"  {'verdict'.ljust(_NAMES)}  {output.paint(report.verdict.status.value)}")
    for verdict in report.verdict.verdicts:
        for result in verdict.expectations:
            judged = f"{result.subject}: met" if result.success else f"{result.describe()} ({result.severity})"
            _fact(verdict.sink, judged, output)


def _sink_row(report: CheckpointDetails, name: str, published: str) -> list[object]:
    one = (report.published or {}).get(name)
    if one is None:
        return [name, report.sink_rows.get(name), None, "-", published, "-"]
    return [name, one.rows, one.files, show_bytes(one.bytes), published, show_time(one.confirmed)]


def _source_note(source: Any) -> str:
    """Return the input of a source that was skipped or is unreadable; "" if there is none."""
    parts = [f"{show_count(source.ahead.rows)} rows too far ahead to move the watermark"] if source.ahead.rows else []
    if source.bad.records:
        objects = f", {counted(source.bad.objects, 'whole object')} among them" if source.bad.objects else ""
        parts += [f"{counted(source.bad.records, 'bad record')}{objects}, such as {source.bad.first[0].describe()}"]
    parts += [f"gone: {', '.join(source.missing)}"] if source.missing else []
    parts += [
        f"{count} {name.replace('_', ' ')}{_named(source, name)}" for name, count in source.skipped.items() if count
    ]
    parts += [
        f"{counted(count, 'large object')} read by one task: {why}"
        for why, count in (source.read.whole if source.read is not None else {}).items()
    ]
    parts += ["nothing had landed for longer than expect_every"] if source.overdue else []
    parts += ["idle: it holds no watermark back"] if source.idle else []
    parts += [f"remembered whole from {source.horizon} on"] if source.horizon else []
    parts += ["finished"] if source.finished else []
    return ", ".join(parts)


def _named(source: Any, why: str) -> str:
    """Return the first skipped objects per reason, for reasons that record object names."""
    first = {"empty": source.empty, "bad_names": source.bad_names}.get(why, ())
    return f" ({', '.join(first)})" if first else ""


def _pinned(source: StaticSourceDetails) -> str:
    """Return the first object versions that were pinned."""
    parts = [f"{one.object} ({one.version})" for one in source.objects[:_PINNED]]
    more = len(source.objects) - len(parts)
    return ", ".join(parts + [f"and {more:,} more"] * (more > 0))


def _show_origin(report: CheckpointReport, output: Output) -> None:
    """Print session, code, spec and base checkpoint."""
    from milepost.jobmaster import CheckpointDetails

    if report.leader is None:
        return
    _section("Origin", output)
    holder = report.leader.holder
    _fact("led by", f"{report.leader.session_id}, token {report.leader.token}", output)
    if holder.host is not None:
        _fact("on", f"{holder.host}, process {printable(holder.pid)}", output)
    if report.airflow is not None:
        _fact("Airflow", f"{report.airflow.dag_id}, run {report.airflow.run_id}", output)
    code = (report.code_hash or "-")[:_HASH]
    if isinstance(report, CheckpointDetails):
        _fact("built on", f"checkpoint {report.base}" if report.base else "the empty state", output)
        differs = report.code_differs
        code += "" if differs is None else ", as it is now" if not differs else f", now other: {', '.join(differs)}"
        if report.held_back:
            _fact("held back", f"new input, by {report.held_back}", output)
        for one in report.recreated:
            _fact("run again", f"a subtask of {', '.join(one.nodes)}: {counted(one.attempts, 'attempt')}", output)
        if report.final:
            _fact("final", "the last epoch of the job", output)
    _fact("code", code, output)
    _fact("spec", (report.spec_hash or "-")[:_HASH], output)

"""Commands that only read: list, show, history, status, read, state, verify."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.reading.times import show_phases, show_tasks
from milepost.cli.reading.vetoes import show_veto
from milepost.cli.terminal.options import At, Job, Json, Verbose
from milepost.cli.terminal.output import Output, printable, show_count, show_time
from milepost.protocol.codec.records import to_json
from milepost.protocol.records.errors import InvalidRequest
from milepost.spec.values.durations import parse_duration

if TYPE_CHECKING:
    from milepost.jobmaster.jobmaster import CheckpointReport, JobMaster, SourceHealth


class CheckpointState(StrEnum):
    """States of a checkpoint."""

    pending = "pending"
    completed = "completed"
    aborted = "aborted"
    subsumed = "subsumed"


class Format(StrEnum):
    """How a table is written."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


_HEALTH = {0: "healthy", 1: "failed", 4: "fenced", 6: "beyond the lag"}
_EVENT_COLUMNS = ("version", "time", "event", "checkpoint_id", "epoch", "session_id", "reason", "detail")

_NEWEST = 50

Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most N, the newest.")]
Every = Annotated[bool, typer.Option("--all", help="All there ever were: reads the whole log.")]
TableFormat = Annotated[
    Format | None, typer.Option("--format", help="Default: table; for a file, by its suffix, else parquet.")
]
ToFile = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write to a file that does not exist.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    app.command("list")(list_)
    for command in (show, history, status, read, state, verify):
        app.command()(command)


def _master(job: str) -> JobMaster:
    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.spec.load.load import load_job

    return JobMaster(load_job(job))


def list_(
    ctx: typer.Context,
    job: Job,
    status: Annotated[CheckpointState | None, typer.Option("--status", help="Only these.")] = None,
    limit: Limit = _NEWEST,
    every: Every = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List the job's checkpoints, newest first."""
    output: Output = ctx.obj
    found = _master(job).list_checkpoints(status.value if status else None, _asked(limit, every))
    checkpoints = found if every else found[:limit]
    truncated = _say_more(output, len(checkpoints), len(found))
    if output.json:
        return output.document({"checkpoints": checkpoints, "truncated": truncated})
    columns = [
        "id",
        "epoch",
        "timeline",
        "status",
        "triggered",
        "duration",
        "rows in",
        "rows out",
        "late",
        "bytes",
        "watermark",
    ]
    rows = [
        [
            checkpoint.checkpoint_id,
            checkpoint.epoch,
            checkpoint.timeline,
            _status(checkpoint),
            show_time(checkpoint.trigger_time),
            f"{checkpoint.duration_ms / 1000:.1f} s" if checkpoint.duration_ms is not None else None,
            show_count(checkpoint.rows_in),
            show_count(checkpoint.rows_out),
            show_count(checkpoint.late_rows),
            show_count(checkpoint.checkpointed_bytes),
            show_time(checkpoint.watermark),
        ]
        for checkpoint in checkpoints
    ]
    return output.table(columns, rows)


def _asked(limit: int, every: bool) -> int | None:
    """Return how many to read: one more than is shown, to know whether there are more."""
    return None if every else limit + 1


def _say_more(output: Output, shown: int, found: int) -> bool:
    """Say, when it is so, that there are more than are shown, or none. Returns whether there are more."""
    if not found:
        output.note("there are none")  # yet, or of the status that was asked for
    if found > shown:
        output.note(f"the newest {shown}: there are more (--limit N, --all)")
    return found > shown


def _status(checkpoint: CheckpointReport) -> str:
    """Return the status, and why it failed, or that the live timeline does not continue it."""
    left = "not live" if checkpoint.status != CheckpointState.aborted and checkpoint.live is False else None
    note = checkpoint.failure_reason or left or ("compacted" if checkpoint.compacted else None)
    return f"{checkpoint.status} ({note})" if note else checkpoint.status


def show(
    ctx: typer.Context,
    job: Job,
    checkpoint_id: Annotated[int, typer.Argument(metavar="ID", min=1, help="The checkpoint.")],
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show one checkpoint in full."""
    output: Output = ctx.obj
    report = _master(job).show(checkpoint_id)
    if output.json:
        return output.document(report)
    for key, value in to_json(report).items():
        nested = isinstance(value, (dict, list)) and value
        if nested and key == "phases":
            output.text("phases:")
            show_phases(value, output)
        elif nested and key == "tasks":
            output.text("tasks:")
            show_tasks(value, output)
        elif nested and key == "veto":
            output.text("veto:")
            show_veto(value, output)
        elif key == "spec" and value:
            output.text("spec:")
            for line in str(value).splitlines():
                output.text(f"  {printable(line)}")
        else:
            shown = json.dumps(value, ensure_ascii=False, indent=2, default=str) if nested else printable(value)
            output.text(f"{key}: {shown}")
    return None


def history(
    ctx: typer.Context,
    job: Job,
    limit: Limit = _NEWEST,
    every: Every = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the manifest log: every transition of the job, newest first."""
    output: Output = ctx.obj
    found = _master(job).history(_asked(limit, every))
    events = found if every else found[:limit]
    truncated = _say_more(output, len(events), len(found))
    if output.json:
        return output.document({"events": events, "truncated": truncated})
    return output.table(_EVENT_COLUMNS, [[event.get(column) for column in _EVENT_COLUMNS] for event in events])


def status(
    ctx: typer.Context,
    job: Job,
    max_lag: Annotated[str | None, typer.Option("--max-lag", metavar="D", help="Exit 6 beyond it, e.g. 2h.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the job's health in one line: exit 0 healthy, 1 last failed, 4 fenced, 6 beyond the lag."""
    output: Output = ctx.obj
    bound_ms = None
    if max_lag is not None:
        try:
            bound_ms = round(parse_duration(max_lag).total_seconds() * 1000)
        except ValueError as problem:
            raise InvalidRequest(f"--max-lag: {problem}.") from None
    health = output.as_typed(_master(job).status(bound_ms))
    code = health.exit_code
    if output.json:
        output.document(health, ok=code == 0)
    facts = [
        f"job {health.job_status}" + (f" (waits for {health.waits_for})" if health.waits_for else ""),
        f"head {printable(health.head)}{_on_timeline(health.timeline)}",
        f"last success {printable(health.last_success)}",
        "lag unknown" if health.lag_ms is None else f"lag {health.lag_ms / 60_000:.0f} min",
        _unread(health.unread_objects),
    ]
    facts += _freshness(health.sources or {})
    unproven = code == 1 and health.head is None and health.last_failure is None
    health_word = (
        "ended" if health.result is not None else "no success yet" if unproven else _HEALTH.get(code, "failed")
    )
    if health.frozen is not None:
        facts.append(f"frozen until {health.frozen.until} by session {health.frozen.session_id}")
    if health.job_status == "failed":
        detail = " ".join(str(health.last_failure_detail or "").split())
        health_word = f"FAILED ({health.last_failure}{f': {detail}' if detail else ''})"
    steps = [health.next_step, *(one.next_step for one in health.unfinished_backfills)]
    output.text(f"{health_word}: {', '.join(facts)}; next: {'; '.join(steps)}")
    raise typer.Exit(code)


def _unread(objects: int | None) -> str:
    if objects is None:
        return "unread objects unknown"
    return f"{show_count(objects)} unread object{'' if objects == 1 else 's'}"


def _freshness(sources: Mapping[str, SourceHealth]) -> list[str]:
    """Return how old each source's input is, what of it is not counted on, and a path that names nothing."""
    facts = []
    for name, source in sources.items():
        told = [f"newest object {show_time(source.newest_object)}"] if source.newest_object else []
        told += [f"newest event time {source.newest_event_time}"] if source.newest_event_time else []
        told += [f"{source.settling} object(s) may still be written"] if source.settling else []
        bad = source.bad_names
        told += [f"{bad.count} object(s) left out for their names, such as {bad.first[0]}"] if bad.count else []
        told += [source.no_match] if source.no_match else []
        facts.append(f"source {name}: {', '.join(told)}")
    return facts


def _on_timeline(timeline: str | None) -> str:
    """Return where the head is, for a job that was ever rolled back."""
    return "" if timeline in (None, "main") else f" of timeline {timeline}"


def read(
    ctx: typer.Context,
    job: Job,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="A sink of the job.")],
    at: At = None,
    format_: TableFormat = None,
    file: ToFile = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Read a published table at the head, or as of a retained checkpoint."""
    show_table(_master(job).read(sink, at), format_, file, ctx.obj)


def state(
    ctx: typer.Context,
    job: Job,
    uid: Annotated[str, typer.Argument(metavar="UID", help="A stateful operator of the job.")],
    at: At = None,
    format_: TableFormat = None,
    file: ToFile = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Read an operator's keyed state as a table."""
    show_table(_master(job).state(uid, at), format_, file, ctx.obj)


def _default_format(file: Path | None) -> str:
    if file is None:
        return "table"
    suffix = file.suffix.removeprefix(".")
    return suffix if suffix in ("csv", "json") else "parquet"


def show_table(table: Any, format_: Format | None, file: Path | None, output: Output) -> None:
    """Print a table, or write it to a file, as the options of a command ask for."""
    from milepost.cli.terminal.tables import as_rows, write_file, write_stdout

    chosen = format_.value if format_ else _default_format(file)
    if file is not None:
        write_file(table, chosen, file)
        if output.json:
            return output.document({"rows": table.num_rows, "file": str(file), "format": chosen})
        return output.note(f"{table.num_rows:,} rows written to {file}")
    if output.json:
        return output.document({"columns": table.column_names, "rows": as_rows(table)})
    return write_stdout(table, chosen)


def verify(
    ctx: typer.Context,
    job: Job,
    checkpoint_id: Annotated[
        int | None, typer.Argument(metavar="[ID]", min=1, help="Default: all that are retained.")
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read and decode everything, not only sizes.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check everything that the retained checkpoints refer to: exit 7 when something is missing or changed."""
    output: Output = ctx.obj
    result = _master(job).verify(checkpoint_id, deep)
    if output.json:
        return output.document(result)
    checkpoints = ", ".join(str(checkpoint) for checkpoint in result.checkpoints) or "none"
    objects = show_count(result.objects)
    return output.text(f"checkpoints {checkpoints}: {objects} objects, all present and unchanged")

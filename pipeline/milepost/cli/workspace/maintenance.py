"""The commands that maintain a job's storage: fsck, gc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output, show_count
from milepost.epoch import counted

if TYPE_CHECKING:
    from milepost.jobmaster import Audit, StoredObject

_SHOWN = 20
_HOUR_MS = 3_600_000


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    app.command()(fsck)
    app.command()(gc)


def fsck(ctx: typer.Context, job: Job, as_json: Json = False, verbose: Verbose = False) -> None:
    """Find missing and unreachable objects. Exit code 7: a needed object is missing or unreadable.

    Unreachable objects are not damage (exit code 0). They cost space until `gc` collects them.
    """
    from milepost.jobmaster import JobMaster
    from milepost.jobspec.load import load_job

    output: Output = ctx.obj
    report = output.as_typed(JobMaster(load_job(job)).reports.fsck())
    code = report.exit_code
    if output.json:
        output.document(report, ok=code == 0)
    else:
        _show_report(report, output)
    raise typer.Exit(code)


def gc(
    ctx: typer.Context,
    job: Job,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Delete unreachable objects. An object is listed first, and deleted after the grace period."""
    from milepost.jobmaster import JobMaster
    from milepost.jobspec.load import load_job

    output: Output = ctx.obj
    report = JobMaster(load_job(job)).collect_garbage(dry_run=dry_run)
    if output.json:
        return output.document(report)
    would = "would be " if dry_run else ""
    output.text(f"job {report.job} at manifest version {report.manifest_version}")
    _show_list("unreachable", [_line(item) for item in report.unreachable], output)
    _show_list(f"{would}listed as garbage", report.listed, output)
    _show_list("due, would be deleted" if dry_run else "due", report.due, output)
    _show_list(f"{would}discarded at the sinks", report.staged, output)
    for table in report.tables:
        name = f"sink {table.sink}: published files"
        _show_list(f"{name} {would}listed as garbage", table.listed, output)
        _show_list(f"{name} due, would be deleted" if dry_run else f"{name} due", table.due, output)
        if table.kept_because is not None:
            output.text(f"{name}: all kept: {table.kept_because}")
        _show_unreadable([f"sink {table.sink}: {line}" for line in table.unreadable_lists], output)
    _show_list("left by probes, would be deleted" if dry_run else "left by probes", report.probes, output)
    expired = "failing rows of vetoed epochs, kept no longer"
    _show_list(f"{expired}, would be deleted" if dry_run else expired, report.vetoes, output)
    if report.compactable_entries:
        output.text(f"entries of the log {would}compacted: {show_count(report.compactable_entries)}")
    hours = report.grace_ms / _HOUR_MS
    waiting = report.waiting + sum(table.waiting for table in report.tables)
    output.text(f"waiting: {_entries(waiting, 'older ')}; an entry is deleted {hours:.1f} h after it was listed")
    done = "nothing was changed" if dry_run else f"deleted: {counted(report.deleted_objects, 'object')}, "
    if not dry_run:
        done += f"{counted(report.pruned_files, 'published file')}"
    return output.text(done)


def _show_report(report: Audit, output: Output) -> None:
    output.text(f"job {report.job} at manifest version {report.manifest_version}")
    output.text(f"walked: {', '.join(report.roots)}")
    counts = ", ".join(f"{show_count(count)} {name.replace('_', ' ')}" for name, count in report.objects.items())
    output.text(f"objects: {counts}")
    _show_list("damaged", report.damaged, output)
    chains = [
        f"{item.where}: {item.key}: {item.problem}; needed by {' -> '.join(item.chain)}" for item in report.missing
    ]
    _show_list("missing", chains, output)
    _show_unreadable(report.unreadable_lists, output)
    for line in report.unasked:
        output.text(f"not checked: {line}")
    if any(item.where.startswith("savepoint ") for item in report.missing):
        output.text(
            f"to remove a moved or lost savepoint from the list, run: milepost savepoint dispose {report.job} "
            "--name NAME"
        )
    if not report.complete:
        output.text("unreachable: not determined, because not every root could be read")
    else:
        _show_list("unreachable", [_line(item) for item in report.unreachable], output)
    _show_list("foreign", [_line(item) for item in report.foreign], output)
    waiting = report.garbage
    output.text(
        f"garbage list: {_entries(waiting.entries)}, {counted(waiting.objects, 'object')}, "
        f"{counted(waiting.bytes, 'byte')}; `milepost gc`, or a later epoch, deletes them once they are due"
    )


def _show_unreadable(lines: Sequence[str], output: Output) -> None:
    if lines:
        _show_list("unreadable garbage lists: delete them, and `gc` lists their objects again", lines, output)


def _line(item: StoredObject) -> str:
    age = item.age_ms / _HOUR_MS
    return f"{item.where}: {item.key} ({counted(item.size, 'byte')}, {age:.1f} h old): {item.proof}"


def _entries(number: int, which: str = "") -> str:
    return f"{number:,} {which}{'entry' if number == 1 else 'entries'}"


def _show_list(name: str, lines: Sequence[str], output: Output) -> None:
    output.text(f"{name}: {len(lines)}")
    for line in lines[:_SHOWN]:
        output.text(f"  {line}")
    if len(lines) > _SHOWN:
        output.text(f"  … and {len(lines) - _SHOWN} more (--json has all)")

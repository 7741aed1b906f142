"""The command `status`, which shows a job's health, once or whenever it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from milepost.cli.terminal.metrics import Form, Format, check_form, print_metrics
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.epoch import counted
from milepost.errors import InvalidRequest, StoreUnavailable
from milepost.language.times import in_ms, parse_duration
from milepost.views import month_cost_text, printable, show_bytes, show_count, show_time

if TYPE_CHECKING:
    from milepost.jobmaster import SourceHealth, StaticSourceHealth, Status

_HEALTH = {0: "healthy", 1: "failed", 4: "fenced", 6: "beyond the lag"}
_MAIN = "main"
_LOOK_EVERY_S = 2.0
_PASSING = ("lag",)
"""Facts that change with time alone. `--watch` does not show the health again for these."""


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(status)


def status(
    ctx: typer.Context,
    job: Job,
    max_lag: Annotated[
        str | None, typer.Option("--max-lag", metavar="D", help="Exit with 6 if the lag is larger, e.g. 2h.")
    ] = None,
    form: Format = Form.TEXT,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again whenever it changes, until Ctrl-C.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the job's health and the next step. Exit 0: healthy, 1: failed, 4: fenced, 6: lag too large."""
    output: Output = ctx.obj
    bound_ms = _bound_ms(max_lag)
    if form is Form.PROMETHEUS:
        check_form(output, watch=watch)
        return print_metrics(open_job(job, ahead=True).samples(), output)
    master = open_job(job, ahead=True)
    if watch:
        follow(lambda: output.as_typed(master.reports.status(bound_ms)), lambda: time.sleep(_LOOK_EVERY_S), output)
    check_published = master.reports.begin_published_check()
    health = output.as_typed(master.reports.status(bound_ms))
    check_published()
    if output.json:
        output.document(health, ok=health.exit_code == 0)
    else:
        show_health(health, output)
    raise typer.Exit(health.exit_code)


def follow(look: Callable[[], Status], wait: Callable[[], None], output: Output) -> NoReturn:
    """Show the health whenever it changes. If the store is unavailable, report that and try again.

    A terminal is cleared before each report. Elsewhere each report is one line.
    """
    shown: object = None
    while True:
        try:
            health = look()
        except StoreUnavailable as error:
            seen: object = error.message
            if seen != shown:
                output.note(" ".join(error.message.split()))
        else:
            seen = [fact for fact in facts(health) if fact[0] not in _PASSING], next_steps(health)
            if seen != shown:
                _show_again(health, output)
        shown = seen
        wait()


def _show_again(health: Status, output: Output) -> None:
    if output.json:
        return output.document(health, ok=health.exit_code == 0)
    if sys.stdout.isatty():
        output.clear()
        return show_health(health, output)
    now = datetime.now(UTC).isoformat()
    details = ", ".join(f"{name} {text}" for name, text in facts(health))
    return output.text(f"{show_time(now)} {health_word(health)}: {details}; next: {'; '.join(next_steps(health))}")


def _bound_ms(max_lag: str | None) -> int | None:
    """Return the bound in milliseconds. Raises InvalidRequest: it is not a duration."""
    if max_lag is None:
        return None
    try:
        return in_ms(parse_duration(max_lag))
    except ValueError as problem:
        raise InvalidRequest(f"--max-lag: {problem}.") from None


def show_health(health: Status, output: Output) -> None:
    """Print the verdict, one line per fact, then one line per next step, to be copied."""
    word = health_word(health)
    output.text(output.paint(word, f"{word}: job {health.job}"))
    lines = facts(health)
    names = max(len(name) for name, _ in lines) + 2
    for name, text in lines:
        output.paragraph(text, " " * (names + 2), f"  {name.ljust(names)}")
    for step in next_steps(health):
        output.text(f"next: {step}")


def _lacks_input(health: Status) -> bool:
    """Return whether the job needs attention although nothing has failed."""
    from milepost.jobmaster import Condition

    return health.condition is Condition.NO_INPUT


def health_word(health: Status) -> str:
    """Return the job's condition in one or two words."""
    if health.job_status == "failed":
        return "FAILED"
    if health.result is not None:
        return "ended"
    if health.exit_code == 1 and health.head is None and health.last_failure is None:
        return "no success yet"
    if _lacks_input(health):
        return "no input"
    return _HEALTH.get(health.exit_code, "failed")


def facts(health: Status) -> list[tuple[str, str]]:
    """Return the facts of a job, as name and text."""
    waits = f", waits for {health.waits_for}" if health.waits_for else ""
    branch = "" if health.timeline in (None, _MAIN) else f" of timeline {health.timeline}"
    failed = [] if health.last_failure is None else [("last failure", _failure(health))]
    found = [
        *failed,
        ("job", f"{health.job_status}{waits}"),
        ("head", f"{printable(health.head)}{branch}"),
        ("last success", show_time(health.last_success)),
        ("lag", "unknown" if health.lag_ms is None else f"{health.lag_ms / 60_000:.0f} min"),
        ("unread", _unread(health)),
    ]
    found += [(f"source {name}", _freshness(source)) for name, source in (health.sources or {}).items()]
    found += [(f"static {name}", _looked_up(source)) for name, source in health.static_sources.items()]
    if health.month is not None:
        found.append(("estimate", f"a month costs {month_cost_text(health.month)}"))
    if health.frozen is not None:
        found.append(("frozen", f"until {show_time(health.frozen.until)} by session {health.frozen.session_id}"))
    if not health.healthy or _lacks_input(health):
        found.append(("runbook", health.runbook))
    return found


def next_steps(health: Status) -> list[str]:
    """Return the next steps of the job and of each unfinished backfill."""
    return [health.next_step, *(one.next_step for one in health.unfinished_backfills)]


def _failure(health: Status) -> str:
    detail = " ".join(str(health.last_failure_detail or "").split())
    return f"{health.last_failure}: {detail}" if detail else str(health.last_failure)


def _unread(health: Status) -> str:
    if health.unread_objects is None:
        return "unknown"
    size = f", {show_bytes(health.unread_bytes)}" if health.unread_bytes else ""
    return f"{counted(health.unread_objects, 'object')}{size}"


def _freshness(source: SourceHealth) -> str:
    """Return the age of a source's input, excluded and unreadable input, and whether its path matches no object."""
    parts = [f"newest object {show_time(source.newest_object)}"] if source.newest_object else []
    parts += [f"newest event time {show_time(source.newest_event_time)}"] if source.newest_event_time else []
    parts += [f"{counted(source.settling, 'object')} may still be written"] if source.settling else []
    bad = source.bad_names
    parts += [f"{counted(bad.count, 'object')} left out for their names, such as {bad.first[0]}"] if bad.count else []
    records = source.bad_records
    if records.total:
        parts += [f"{show_count(records.total)} records in its dead letters, {show_count(records.count)} of the head"]
    parts += ["idle: it holds no watermark back"] if source.idle else []
    parts += [f"remembered whole from {show_time(source.horizon)} on"] if source.horizon else []
    parts += [source.not_remembered or "", source.overdue or source.no_match or ""]
    return ", ".join(filter(None, parts)) or "nothing known"


def _looked_up(source: StaticSourceHealth) -> str:
    """Return the snapshot that the head's epoch used for lookups, its age, and what the next epoch will do."""
    parts = []
    if (held := source.held) is not None:
        parts += [f"{counted(held.rows, 'row')} of {counted(len(held.objects), 'object')}"]
        parts += [f"the newest landed {show_time(held.newest_object)}"]
        parts += [f"copy of {show_bytes(held.copy_bytes)} with checkpoint {printable(held.copied_by)}"]
    parts += ["its path names other versions now: the next epoch reads them"] if source.changed else []
    parts += ["the next epoch is refused"] if source.refused else []
    return ", ".join(parts) or "nothing was looked up yet"

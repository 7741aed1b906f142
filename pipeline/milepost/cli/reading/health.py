"""The command `status`, which shows a job's health, once or whenever it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from milepost.cli.terminal.metrics import Form, Format, check_form, print_metrics
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.cli.terminal.views import one_line, show_view
from milepost.codec import to_json
from milepost.errors import InvalidRequest, StoreUnavailable
from milepost.language.times import in_ms, parse_duration
from milepost.views import show_time

if TYPE_CHECKING:
    from milepost.jobmaster import Status

_LOOK_EVERY_S = 2.0
_AGES = ("lag_ms", "newest_object_age_ms", "event_time_age_ms", "age_ms")
"""Fields that change with time alone. `--watch` does not show the health again for these."""


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
            seen = _without_ages(to_json(health))
            if seen != shown:
                _show_again(health, output)
        shown = seen
        wait()


def _without_ages(value: Any) -> Any:
    """Return a document without the figures that change with time alone."""
    if not isinstance(value, Mapping):
        return value
    return {name: _without_ages(item) for name, item in value.items() if name not in _AGES}


def _show_again(health: Status, output: Output) -> None:
    if output.json:
        return output.document(health, ok=health.exit_code == 0)
    if sys.stdout.isatty():
        output.clear()
        return show_health(health, output)
    from milepost.views import status_view

    now = show_time(datetime.now(UTC).isoformat())
    return output.text(f"{now} {one_line(status_view(health))}; next: {'; '.join(next_steps(health))}")


def _bound_ms(max_lag: str | None) -> int | None:
    """Return the bound in milliseconds. Raises InvalidRequest: it is not a duration."""
    if max_lag is None:
        return None
    try:
        return in_ms(parse_duration(max_lag))
    except ValueError as problem:
        raise InvalidRequest(f"--max-lag: {problem}.") from None


def show_health(health: Status, output: Output) -> None:
    """Print the document, then one line per next step, to be copied."""
    from milepost.views import status_view

    show_view(status_view(health), output)
    output.text()
    for step in next_steps(health):
        output.text(f"next: {step}")


def next_steps(health: Status) -> list[str]:
    """Return the next steps of the job and of each unfinished backfill."""
    return [health.next_step, *(one.next_step for one in health.unfinished_backfills)]

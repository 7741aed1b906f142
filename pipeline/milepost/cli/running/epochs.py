"""The command `run`, which runs epochs without Airflow."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.running.landing import landing_error, show_failed_landings, show_landings
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.epoch import counted
from milepost.errors import Busy, CheckpointError, InvalidRequest, StateCorrupt
from milepost.protocol.failure import RestartAfter
from milepost.views import show_count, show_rows

if TYPE_CHECKING:
    from milepost.cli.terminal.progress import EpochProgress
    from milepost.jobmaster import (
        CheckpointReport,
        JobMaster,
        LandingReport,
        NothingToDo,
        Recovery,
        Session,
        SourceDetails,
    )
    from milepost.jobspec.load import LoadedJob

_THAW_S = 2.0

_SETTLES_SOON_MS = 5_000
"""A single epoch waits once for input that has just landed, if it settles within this time."""


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    app.command()(run)


def run(
    ctx: typer.Context,
    job: Job,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, metavar="N", help="Number of epochs. Default: 1.")
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Run until there is no new input.")
    ] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="Abort another session's epoch and continue.")] = False,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state",
            help="Discard state that no operator of the spec restores. `lint` lists it.",
        ),
    ] = False,
    from_now_on: Annotated[
        bool,
        typer.Option(
            "--from-now-on",
            help="Let edited or new SQL statements lack rows that were read before. `status` shows it.",
        ),
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Run until there is no new input, then fire all windows and finish the job.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run epochs now, without Airflow. After a failure, earlier epochs stay published.

    Landed sources are landed once, before the first epoch. What is landed after that does not prolong
    `--until-caught-up` and `--drain`. If landing fails, the epochs run, and the exit code is that of `land`.
    """
    if epochs is not None and (until_caught_up or drain):
        other = "--drain" if drain else "--until-caught-up"
        raise InvalidRequest(f"--epochs and {other} cannot be combined. Nothing was run.")

    from milepost.cli.terminal.progress import EpochProgress
    from milepost.jobmaster import (
        CheckpointDetails,
        JobMaster,
        LandingReport,
        NothingToDo,
        Recovery,
        Session,
        report_lines,
    )
    from milepost.jobspec.load import load_job
    from milepost.spark.driver import spark_runner

    output: Output = ctx.obj
    loaded = load_job(job)
    master = JobMaster(loaded)
    telemetry = master.telemetry()
    master.prefetch_head()
    check_published = master.reports.begin_published_check()
    runner = spark_runner()
    remaining = None if until_caught_up or drain else epochs or 1
    several = remaining is None or remaining > 1
    recovery = Recovery(loaded.spec.checkpointing.restart)

    def note_report(report: list[dict[str, str]]) -> None:
        for line in report_lines(report):
            output.note(output.as_typed(line))

    # One session per epoch, because a session whose checkpoint has completed runs no second one.
    session, waited = Session.cli(), False
    landing = _land(master, session, output, take_over=take_over) if loaded.spec.landed else LandingReport()
    up_to = master.landings.newest_records() if remaining is None and loaded.spec.landed else None
    while remaining is None or remaining > 0:
        with EpochProgress() as progress:
            try:
                result = master.epochs.run(
                    session,
                    runner,
                    take_over=take_over,
                    allow_non_restored_state=allow_non_restored_state,
                    from_now_on=from_now_on,
                    drain=drain,
                    up_to=up_to,
                    tell=note_report,
                    progress=progress,
                    restarts=recovery.failed,
                )
            except Busy as busy:
                if not several:
                    raise
                _wait_out(busy, progress)
                continue
            except CheckpointError as error:
                if not recovery.failed(error):
                    raise
                _wait_for_restart(error, recovery, output, progress)
                continue
        session = Session.cli()
        if isinstance(result, NothingToDo):
            settles_in_ms = result.settles_in_ms
            if settles_in_ms is not None and (remaining is None or (settles_in_ms <= _SETTLES_SOON_MS and not waited)):
                waited = True
                _wait_to_settle(settles_in_ms, result.settling, output)
                continue
            if output.json:
                _print_document(result, landing, output)
            output.text(f"nothing to do: {result.message}")
            break
        if telemetry is not None:
            telemetry.completed(loaded.spec.name, result)
        if output.json:
            _print_document(result, landing, output)
        else:
            _show_epoch(result, output)
        if not several and _at_a_terminal():
            _offer_server(loaded, result, output)
        if isinstance(result, CheckpointDetails) and result.final:
            break
        remaining = None if remaining is None else remaining - 1
    try:
        check_published()
    except StateCorrupt as error:
        output.note(output.as_typed(error.full_message()))
    raise typer.Exit(landing.exit_code)


def _land(master: JobMaster, session: Session, output: Output, *, take_over: bool) -> LandingReport:
    """Land the sources that are landed. The epoch runs even if that fails."""
    from milepost.cli.terminal.progress import EpochProgress

    with EpochProgress() as progress:
        report = master.landings.land_before_epoch(
            session, take_over=take_over, progress=lambda source: progress(f"land {source}")
        )
    if output.json:  # the documents of `run` are its epochs
        show_failed_landings(report, output)
    elif not report.not_due:  # else the epoch itself reports why it does not run
        show_landings(report, output)
    return report


def _print_document(result: CheckpointReport | NothingToDo, landing: LandingReport, output: Output) -> None:
    """Print the document of an epoch. Like the exit code, its `ok` is that of the landing too."""
    output.document(result, ok=not landing.failed, error=landing_error(landing, output))


def _wait_out(busy: Busy, progress: EpochProgress) -> None:
    """Wait until `min_pause` or a freeze is over, before the next of several epochs. Raises `busy` for other reasons.

    A freeze often ends long before its deadline, so this waits at most `_THAW_S` before the next attempt.
    """
    wait_ms = busy.details.get("wait_ms")
    if not isinstance(wait_ms, int):
        raise busy
    if "until_ms" in busy.details:
        progress("waiting for a backfill to finish")
        time.sleep(min(wait_ms / 1000, _THAW_S))
        return
    progress(f"waiting {-(-wait_ms // 1000)} s for the minimum pause")
    time.sleep(wait_ms / 1000)


def _wait_to_settle(settles_in_ms: int, settling: str, output: Output) -> None:
    """Wait until objects that have just landed count as completely written."""
    output.note(f"{settling}; waiting {settles_in_ms / 1000:.1f} s before reading")
    time.sleep((settles_in_ms + 1) / 1000)


def _wait_for_restart(error: CheckpointError, recovery: Recovery, output: Output, progress: EpochProgress) -> None:
    """Report the failure and wait. The epoch then runs again, from the last completed checkpoint."""
    decision = recovery.decision
    assert isinstance(decision, RestartAfter)
    output.note(f"the epoch failed: {error.message}")
    restart = f"{decision.description} in {decision.delay_ms / 1000:g} s"
    output.note(restart)
    progress(f"waiting for {restart}")
    time.sleep(decision.delay_ms / 1000)


def _show_epoch(result: CheckpointReport, output: Output) -> None:
    from milepost.jobmaster import CheckpointDetails

    counts = show_rows(result)
    seconds = f" in {result.duration_ms / 1000:.1f} s" if result.duration_ms is not None else ""
    what = f"checkpoint {result.checkpoint_id} {result.status}: epoch {result.epoch}"
    if result.in_flight_bytes:
        counts += f", {show_count(result.in_flight_bytes)} bytes left in flight"
    ended = ""
    if isinstance(result, CheckpointDetails):
        if result.held_back:
            output.note(f"new input was held back by {result.held_back}")
        for name, source in result.sources.items():
            _show_faults(name, source, output)
        ended = "; it was the last one: the job is finished" if result.final else ""
    return output.text(f"{what}, {counts}{seconds}{ended}")


def _at_a_terminal() -> bool:
    return sys.stderr.isatty()


def _offer_server(loaded: LoadedJob, result: CheckpointReport, output: Output) -> None:
    """Suggest a Spark server after an epoch that spent most of its time starting Spark."""
    from milepost.jobmaster import CheckpointDetails

    if not isinstance(result, CheckpointDetails) or output.json or loaded.spark_server() is not None:
        return
    start_ms, total_ms = result.phases.get("session_ms"), result.phases.get("total_ms")
    if start_ms and total_ms and 2 * start_ms > total_ms:
        output.note(
            f"starting Spark took {start_ms / 1000:.1f} s of it. A Spark server avoids that. In another terminal, run "
            "`milepost spark-server`"
        )


def _show_faults(name: str, source: SourceDetails, output: Output) -> None:
    """Report input of a source that was skipped, is unreadable, or does not move the watermark."""
    if source.bad_names:
        left_out = counted(source.skipped["bad_names"], "object")
        output.note(f"source {name}: {left_out} skipped because of their names, such as {source.bad_names[0]}")
    if source.empty:
        empty = counted(source.skipped["empty"], "empty object")
        output.note(f"source {name}: {empty}, such as {source.empty[0]}, without any rows")
    if source.bad.records:
        bad = counted(source.bad.records, "record")
        output.note(f"source {name}: {bad} in {name}.bad cannot be read, such as {source.bad.first[0].describe()}")
    ahead = source.ahead
    if ahead.rows:
        first = ahead.objects[0]
        output.note(
            f"source {name}: {show_count(ahead.rows)} row(s) are further ahead than max_event_time_ahead, such as "
            f"{first.newest_event_time} in {first.object}: processed, without moving the watermark"
        )

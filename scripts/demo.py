"""`make demo`: real flights, landed day by day, through the `flights__epoch` DAG of a real Airflow on this machine.

All data is below `.milepost/` of the clone. A second run lands the next days and continues. So does a run after an
interrupted one. Ctrl-C stops the processes of the demo.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts import airflow_home, duckdb_cli
from scripts.airflow_rest import AirflowRest
from scripts.demo_report import Report
from scripts.processes import StackError, python
from scripts.stack import ROOT, Stack, demo_stack

JOB = "flights"
DAG_ID = f"{JOB}__epoch"
SPEC = ROOT / "config" / f"{JOB}.yaml"
LANDER = ROOT / "config" / "demo" / "land_flights.py"
LAST_DAY = 365
CARRIERS = "FROM delta_scan('s3://lake/carriers') ORDER BY flights DESC"
"""The query that DuckDB runs."""

EPOCH_S = 300.0
DAG_S = 120.0
DAYS_PER_EPOCH = 4
"""Number of days that land before each epoch, which reads all of them. So days arrive in order, and only rows that land
days after their own day are late."""


class DemoError(Exception):
    """The demo cannot continue. The message has the reason and the next step."""


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description="Milepost's demo")
    parser.add_argument("--days", type=int, default=28, help="how many days to land and consume")
    days: int = parser.parse_args(arguments).days
    if not 1 <= days <= LAST_DAY:
        print(f"--days: expected 1 to {LAST_DAY}, got {days}", file=sys.stderr)
        return 2
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _interrupt)
    stack = demo_stack()
    report = Report()
    stack.say = report.say
    try:
        with _alone(stack.folder):
            _demo(stack, report, days)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        report.say("interrupted: stopping the processes of the demo; `make demo` continues from here")
        stack.stop()
        return 130
    except (DemoError, StackError) as error:
        report.problem(str(error))
        return 1
    return 0


def _interrupt(signal_number: int, frame: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Allow one demo per clone at a time. The lock ends with the process."""
    with (folder / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DemoError(f"another `make demo` is running in {ROOT}; wait for it, or stop it with Ctrl-C") from None
        yield


def _demo(stack: Stack, report: Report, days: int) -> None:
    began = time.monotonic()
    stack.start_s3()
    stack.start_spark()
    # From here on, this process reaches the store as the Airflow tasks do.
    os.environ.clear()
    os.environ.update(stack.process_environ())
    from milepost.api import JobMaster, load_job

    master = JobMaster(load_job(SPEC))
    landing = _Landing(stack, report, days)
    landing.begin()
    stack.start_airflow()
    stack.wait_for_spark()
    rest = stack.rest()
    _wait_for_dag(rest, stack)
    rest.set_paused(DAG_ID, False)
    done = _run_epochs(rest, master, report)
    while landing.land_next():
        done += _run_epochs(rest, master, report, number=len(done) + 1)
    if not done:
        report.say("nothing new to consume")
    report.checkpoints(master.reports.list_checkpoints(limit=max(7, len(done))))
    report.carriers(CARRIERS, _carriers_by_duckdb(stack))
    report.anomalies([master.reports.show(checkpoint_id) for checkpoint_id in done])
    report.finish(stack, airflow_home.LOGIN, airflow_home.password(stack.home), time.monotonic() - began)


class _Landing:
    """The days that one demo lands, some before each epoch. The next demo continues an interrupted one."""

    def __init__(self, stack: Stack, report: Report, days: int) -> None:
        self._stack, self._report = stack, report
        self._file = stack.folder / "demo.json"
        known = json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else {}
        self._landed = int(known.get("landed_days", 0))
        until = int(known.get("until_day", self._landed))
        self._until = until if until > self._landed else min(self._landed + days, LAST_DAY)

    def begin(self) -> None:
        """Print which days will land, and land the first ones."""
        if self._landed == LAST_DAY:
            return self._report.say(f"all {LAST_DAY} days have landed")
        self._report.say(
            f"days {self._landed + 1} to {self._until} of 2013 will land, one CSV object a day, {DAYS_PER_EPOCH} days "
            "before each epoch"
        )
        self.land_next()

    def land_next(self) -> bool:
        """Land the days of the next epoch. Returns False if this demo has landed all of its days."""
        if self._landed == self._until:
            return False
        last = min(self._landed + DAYS_PER_EPOCH, self._until)
        command = [python(), str(LANDER), "--root", "s3://landing", "--endpoint", self._stack.s3_url]
        landing = subprocess.run(
            [*command, "--days", f"{self._landed + 1}-{last}"],
            check=False, env=self._stack.process_environ(), cwd=self._stack.folder, capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if landing.returncode != 0:
            raise DemoError(f"landing the flights failed:\n{(landing.stderr or landing.stdout).strip()[-2000:]}")
        self._report.say(f"days {self._landed + 1} to {last}: {landing.stdout.strip().splitlines()[-1]}")
        self._landed = last
        self._file.write_text(json.dumps({"landed_days": last, "until_day": self._until}) + "\n", encoding="utf-8")
        return True


def _carriers_by_duckdb(stack: Stack) -> list[dict[str, Any]]:
    """Return the rows of the table `carriers` as the DuckDB CLI reads them from the bucket."""
    environ = stack.process_environ()
    try:
        setup = duckdb_cli.loading(("httpfs", "delta")) + duckdb_cli.s3_secret(stack.s3_url, environ)
        return duckdb_cli.query(CARRIERS, setup=setup, environ=environ)
    except duckdb_cli.DuckDBError as error:
        raise DemoError(f"DuckDB could not read the table `carriers`: {error}") from None


def _wait_for_dag(rest: AirflowRest, stack: Stack) -> None:
    deadline = time.monotonic() + DAG_S
    while DAG_ID not in rest.dags():
        if time.monotonic() > deadline:
            problems = "; ".join(str(problem.get("stack_trace", ""))[-500:] for problem in rest.import_errors())
            raise DemoError(f"Airflow does not list {DAG_ID}; see {stack.folder}/logs. {problems}")
        time.sleep(0.5)


def _run_epochs(rest: AirflowRest, master: Any, report: Report, number: int = 1) -> list[int]:
    """Run epochs through the DAG until all input is read. Returns their ids. number: of the first one in this demo."""
    done: list[int] = []
    while unread := (status := master.reports.status()).unread_objects:
        if status.job_status == "failed":
            raise DemoError(f"the job is FAILED: {status.last_failure_detail}. Next: {status.next_step}")
        head = status.head
        with report.epoch(number + len(done), unread) as progress:
            run_id = rest.trigger(DAG_ID)
            state = rest.wait(DAG_ID, run_id, timeout_s=EPOCH_S, seen=progress.tasks)
        if state != "success":
            raise DemoError(_why_failed(rest, run_id))
        newest = master.reports.status().head
        if newest == head:
            raise DemoError(f"run {run_id} succeeded without a checkpoint although {unread} objects are unread")
        report.completed(master.reports.show(newest))
        done.append(newest)
    return done


def _why_failed(rest: AirflowRest, run_id: str) -> str:
    failed = [task for task in rest.tasks(DAG_ID, run_id) if task["state"] == "failed"]
    if not failed:
        return f"{DAG_ID}, run {run_id}, failed without a failed task; see the UI at {rest.url}"
    task = failed[0]
    text = rest.log(DAG_ID, run_id, task["task_id"], max(1, task["try_number"]), task["map_index"])
    tail = "\n".join(text.splitlines()[-15:])
    return (
        f"{DAG_ID}, run {run_id}: task {task['task_id']} failed. Nothing was lost: `make demo` continues. "
        f"Its log ends with:\n{tail}"
    )


if __name__ == "__main__":
    sys.exit(main())

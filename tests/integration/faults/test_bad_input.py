"""What bad input gets: a clear error, nothing published, nothing lost; after the fix, tables as if it had never been.

Each case: a healthy job with a completed epoch and new input -> the fault -> `milepost run` -> the error -> the fix ->
`milepost run` -> every sink equals the oracle.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, assert_clear_error, milepost, milepost_process
from milepost_testkit.jobs.flights.flights import day_body, day_key
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.recovering_job import RecoveringJob

VARYING = {
    r"\b\d+-\d{16,}\b": "{version}",
    r"modified [\d:T.Z-]+": "modified {time}",
    r"\[([A-Z_.]+)\].*(?=\. Nothing)": r"[\1] {why}",
    r"(?<=Known: format, ).*": "{keys}",  # cut where the line, which begins with a path, is full
} | wording.FIRST_DECLINE
"""Versions of objects, and what Spark says below the names of its errors."""

RESUME = "milepost resume {job}"
SQL = "SELECT carrier, flight, origin, dest, dep_delay, distance, time_hour FROM flights WHERE dep_delay IS NOT NULL"


@dataclass(frozen=True)
class Fault:
    """One fault, and how it is fixed.

    Attributes:
        name: of the case. strike, fix: change the job's spec or its landing folder.
        exit_code, says: of the error. reason: of the aborted checkpoint; None when nothing may be planned.
        run: how the command is called when the fault is there.
    """

    name: str
    strike: Callable[[FlightsJob], None]
    fix: Callable[[FlightsJob], None]
    exit_code: int
    says: tuple[str, ...]
    reason: str | None = None
    run: Callable[..., Outcome] = milepost


def spec_fault(name: str, edit: dict[str, str], exit_code: int, *says: str, **keys: Any) -> Fault:
    """A fault of the spec; the fix undoes the edit."""

    def strike(job: FlightsJob) -> None:
        shutil.copy2(job.spec_path, job.folder / "spec.good")
        job.edit(job.spec_path.read_text(), edit)

    def fix(job: FlightsJob) -> None:
        shutil.copy2(job.folder / "spec.good", job.spec_path)

    return Fault(name, strike, fix, exit_code, says, **keys)


def day_fault(name: str, edit: Callable[[bytes], bytes], *says: str) -> Fault:
    """A fault in day 3's object, which no epoch has consumed; the fix lands the right bytes."""

    def strike(job: FlightsJob) -> None:
        body = edit(day_body(3))
        assert body != day_body(3)
        job.landing.put(day_key(3), body)

    def fix(job: FlightsJob) -> None:
        job.landing.put(day_key(3), day_body(3))

    return Fault(name, strike, fix, 1, ("2013/01/03.csv", *says, RESUME), "BAD_RECORD")


def rewrite_consumed(job: FlightsJob) -> None:
    path = (job.folder / "landing") / day_key(2)
    shutil.copy2(path, job.folder / "consumed.good")
    path.write_bytes(day_body(2) + b"\n")


def put_consumed_back(job: FlightsJob) -> None:
    shutil.copy2(job.folder / "consumed.good", (job.folder / "landing") / day_key(2))


def cell(line: int, column: int, value: bytes) -> Callable[[bytes], bytes]:
    """Replace one value of a CSV object; `line` is 1-based, the header is line 1."""

    def edit(body: bytes) -> bytes:
        lines = body.split(b"\n")
        cells = lines[line - 1].split(b",")
        cells[column] = value
        lines[line - 1] = b",".join(cells)
        return b"\n".join(lines)

    return edit


def line(number: int, text: bytes) -> Callable[[bytes], bytes]:
    """Replace one line of a CSV object."""

    def edit(body: bytes) -> bytes:
        lines = body.split(b"\n")
        lines[number - 1] = text
        return b"\n".join(lines)

    return edit


CARRIERS_KEY = "uid: carriers\n    kind: aggregate\n    inputs: [unique]\n    key: [carrier]"
EXTRA_OPERATOR = "  - {uid: extra, kind: aggregate, inputs: [clean], key: [dest], aggregates: {x: sum(origin)}}"

FAULTS = [
    spec_fault("unknown-key", {"watermark_delay": "watermark_dely"}, 2, "flights.yaml:", "watermark_delay", "lint"),
    spec_fault("missing-key", {"    path: ../landing/flights/**/*.csv\n": ""}, 2, "flights.yaml:", "path", "lint"),
    spec_fault("missing-key-column", {CARRIERS_KEY: CARRIERS_KEY.replace("[carrier]", "[carier]")}, 2, "carier"),
    spec_fault("sql-syntax", {SQL: SQL.replace("FROM", "FORM")}, 2, "flights.yaml:", "sql"),
    spec_fault("sql-unknown-column", {SQL: SQL.replace("distance", "distanc")}, 2, "distanc", "distance"),
    spec_fault(
        "sql-type",
        {SQL: SQL.replace("distance", "size(dest) AS distance")},
        1,
        "clean",
        "size(dest)",
        "DATATYPE_MISMATCH",
        RESUME,
        reason="SQL_ERROR",
    ),
    spec_fault(
        "sql-on-a-value",
        {SQL: SQL.replace("distance", "CAST(tailnum AS INT) AS distance")},
        1,
        "clean",
        "CAST(`tailnum` AS INT)",
        "[CAST_INVALID_INPUT]",
        RESUME,
        reason="SQL_ERROR",
        run=milepost_process,  # its JVM must not print a stack trace of its own
    ),
    spec_fault(
        "aggregate-of-text",
        {"operators:": f"operators:\n{EXTRA_OPERATOR}"},
        2,
        "aggregates.x",
        "origin",
    ),
    spec_fault("changed-operator", {"max(dep_delay)": "min(dep_delay)"}, 2, "carriers"),
    spec_fault(
        "column-type",
        {"tailnum: string": "tailnum: int32"},
        1,
        "2013/01/03.csv",
        "tailnum",
        reason="BAD_RECORD",
    ),
    day_fault("bad-value", cell(7, 5, b"soon"), "dep_delay", "'soon'"),
    day_fault("short-line", line(9, b"2013,1,3")),
    day_fault("no-event-time", cell(5, 18, b"NA"), "time_hour"),
    day_fault("no-such-column", cell(1, 9, b"airline"), "carrier"),
    day_fault("not-utf-8", cell(4, 9, b"\xff\xfe")),
    Fault(
        "changed-after-it-was-consumed",
        rewrite_consumed,
        put_consumed_back,
        1,
        ("2013/01/02.csv", "checkpoint 1", "on_change"),
    ),
]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FlightsJob:
    """A job with one completed epoch, to be copied."""
    return RecoveringJob.healthy(tmp_path_factory.mktemp("healthy") / "job").job


@pytest.fixture
def recovering(healthy: FlightsJob, tmp_path: Path) -> RecoveringJob:
    """A copy of the healthy job, with new input landed: days 3 and 4."""
    return RecoveringJob.copy_of(healthy, tmp_path / "a job")


UNPLANNED = [fault for fault in FAULTS if fault.reason is None]


def test_bad_input_found_before_planning_is_reported_and_loses_nothing(recovering: RecoveringJob) -> None:
    """One fault after another befalls a job, which then runs as if there had been none."""
    for fault in UNPLANNED:
        print(fault.name)
        _befalls(recovering, fault)
    recovering.recover(failed=False)


IN_EVERY_RUN = ("sql-type", "bad-value", "not-utf-8")
"""A fault of the spec, of a value and of an object that tasks find. The other faults that they find are deep."""


def marked(fault: Fault) -> object:
    return pytest.param(fault, id=fault.name, marks=() if fault.name in IN_EVERY_RUN else (pytest.mark.deep,))


@pytest.mark.parametrize("fault", [marked(one) for one in FAULTS if one not in UNPLANNED])
def test_bad_input_is_reported_and_loses_nothing(fault: Fault, recovering: RecoveringJob) -> None:
    """Issue, "What bad input gets"."""
    _befalls(recovering, fault)
    recovering.recover(failed=True)


def _befalls(recovering: RecoveringJob, fault: Fault) -> None:
    """A fault lasts for one run, which reports it and changes nothing, and is then fixed."""
    job = recovering.job
    fault.strike(job)
    typed = shlex.quote(str(job.spec_path))
    says = [words.replace("{job}", typed) for words in fault.says]
    outcome = fault.run("run", job.spec_path)
    assert_clear_error(outcome, fault.exit_code, *says)
    wording.matches("run", outcome.error, name=fault.name, replace=VARYING)
    fault.fix(job)
    recovering.assert_nothing_happened(aborted=fault.reason)


@pytest.mark.deep
def test_a_tolerated_failure_needs_no_resume(recovering: RecoveringJob) -> None:
    """`tolerable_failures: 1`: the first failed epoch is red, the next run may simply go on."""
    job = recovering.job
    job.edit(job.spec_path.read_text(), {"checkpointing: {": "checkpointing: {tolerable_failures: 1, "})
    fault = next(fault for fault in FAULTS if fault.name == "bad-value")
    fault.strike(job)
    outcome = milepost("run", job.spec_path)
    assert_clear_error(outcome, 1, "2013/01/03.csv", "'soon'", golden="run", replace=VARYING)
    assert "FAILED" not in outcome.stderr
    fault.fix(job)
    recovering.assert_nothing_happened(aborted="BAD_RECORD")
    recovering.recover(failed=False)


def test_a_stack_trace_is_shown_only_on_request(recovering: RecoveringJob) -> None:
    job = recovering.job
    rewrite_consumed(job)
    assert "Traceback" not in milepost("run", job.spec_path).stderr
    assert "Traceback" in milepost("run", job.spec_path, "-v").stderr

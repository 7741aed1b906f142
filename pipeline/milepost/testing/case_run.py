"""A case is run step by step, by the job master and the tasks of the product, in a folder of its own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from milepost.epoch import counted
from milepost.errors import CheckpointError, InvalidRequest, NotFound, QualityGateFailed
from milepost.jobmaster import CheckpointDetails, JobMaster, NothingToDo, Session, Triggered
from milepost.jobspec.load import LoadedJob, check_placement, from_text, load_job, read_spec
from milepost.language.times import python_rows
from milepost.openlineage import nowhere
from milepost.testing.case_file import Expected, File, LoadedCases, Step
from milepost.testing.local_job import land, sink_of, under_test
from milepost.testing.rows import as_yaml, difference, typed_table

if TYPE_CHECKING:
    from milepost.epoch import EpochRunner


_MEMORY = "/dev/shm"


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of one step.

    Attributes:
        number: from 1; 0: before the first one. found: what could be expected of it, as a case file writes it.
        faults: how it is not as expected, lines for people.
    """

    number: int
    found: dict[str, Any]
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return f"step {self.number}" if self.number else "the case"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of a case: of the steps up to the first one that failed; with `record` of all.

    Attributes:
        path: of its file. ms: how long it took.
    """

    path: str
    case: str
    steps: tuple[StepResult, ...]
    ms: int

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(f"{step}: {line}" for step in self.steps for line in step.faults)

    @property
    def passed(self) -> bool:
        return not self.faults


def run_case(cases: LoadedCases, name: str, runner: EpochRunner, *, record: bool = False) -> CaseResult:
    """Run one case. A fault of the case itself is one of its results.

    Args:
        record: all steps are run, and what came is kept for everything that can be expected.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="milepost-test-", dir=_in_memory()) as folder:
        try:
            case = _Case(cases, cases.file.cases[name], runner, Path(folder), record)
            steps = tuple(case.run())
        except CheckpointError as error:
            steps = (StepResult(0, {}, (error.message,)),)
    return CaseResult(str(cases.path), name, steps, round((time.monotonic() - began) * 1000))


def _in_memory() -> str | None:
    """Return a folder in memory, where a machine has one: a test need not outlast a crash of it."""
    return _MEMORY if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK | os.X_OK) else None


class _Case:
    """One run of one case."""

    def __init__(
        self, cases: LoadedCases, steps: Sequence[Step], runner: EpochRunner, folder: Path, record: bool
    ) -> None:
        self._cases, self._steps, self._runner, self._folder, self._record = cases, steps, runner, folder, record
        job = load_job(cases.spec)
        check_placement(job)
        self._text, self._path = read_spec(job.path), job.path
        self._sql = None if job.sql is None else job.sql.source
        self._sinks = [sink.name for sink in job.spec.sinks]
        self._seen = list(dict.fromkeys(name for step in steps if step.expect for name in step.expect.tables))
        self._job = self._under_test(job)

    def run(self) -> Iterator[StepResult]:
        for number, step in enumerate(self._steps, 1):
            verdict, refused = self._do(number, step)
            expected = step.expect or Expected()
            faults = [] if self._record else list(self._faults(expected, verdict, refused))
            if refused is not None and not self._record and expected.refused is None:
                faults = [f"it was refused: {refused}"]
            yield StepResult(number, self._found(expected, verdict, refused) if self._record else {}, tuple(faults))
            if faults:
                return

    def _under_test(self, job: LoadedJob) -> LoadedJob:
        return under_test(job, self._folder, self._cases.file.parallelism, self._seen)

    def _do(self, number: int, step: Step) -> tuple[str | None, str | None]:
        """Take one step; return the verdict of its epoch's gate, and the error with which it ended."""
        try:
            if step.epoch is not None:
                return self._epoch(number, step), None
            master = JobMaster(self._job, nowhere, lambda: None)
            if step.rollback is not None:
                master.rollbacks.run(Session.cli(), master.rollbacks.plan(step.rollback).approved, take_over=True)
            elif step.backfill is not None:
                span = step.backfill
                plan = master.backfills.plan(span.from_, span.to, span.from_checkpoint)
                master.backfills.run(Session.cli(), self._runner, plan.approved)
            elif step.resume:
                master.lifecycle.resume()
            else:
                self._change(step.spec or {})
        except QualityGateFailed as error:
            return "vetoed", error.message if step.expect is None or step.expect.verdict != "vetoed" else None
        except CheckpointError as error:
            return None, error.message
        return None, None

    def _epoch(self, number: int, step: Step) -> str | None:
        beside = self._cases.path.parent
        objects = {
            name: File(file=str(beside / rows.file)) if isinstance(rows, File) else rows
            for name, rows in (step.epoch or {}).items()
        }
        land(self._job, self._folder, number, objects)
        master, session = JobMaster(self._job, nowhere, lambda: None), Session.cli()
        if step.kill is None:
            result = master.epochs.run(session, self._runner, take_over=True)
            if isinstance(result, NothingToDo):
                raise InvalidRequest(f"no epoch was run: {result.message}")
            return result.verdict.status.value if isinstance(result, CheckpointDetails) else None
        triggered = master.triggers.trigger(session, take_over=True)
        if not isinstance(triggered, Triggered):
            raise InvalidRequest(f"no epoch was run: {triggered.message}")
        report = master.epochs.run_epoch(session, triggered.checkpoint_id, self._runner)
        if step.kill == "complete":
            master.epochs.complete(session, triggered.checkpoint_id, report)
        return report.verdict.status.value

    def _change(self, texts: dict[str, str]) -> None:
        for old, new in texts.items():
            if old in self._text:
                self._text = self._text.replace(old, new)
            elif self._sql is not None and old in self._sql.text:
                self._sql = replace(self._sql, text=self._sql.text.replace(old, new))
            else:
                raise NotFound(f"the spec has no text {old!r}")
        self._job = self._under_test(from_text(self._text, self._path, self._sql))

    def _faults(self, expected: Expected, verdict: str | None, refused: str | None) -> Iterator[str]:
        if expected.refused is not None and expected.refused not in (refused or ""):
            yield f"expected to be refused with {expected.refused!r}, got {refused or 'no error'}"
        if expected.verdict is not None and expected.verdict != verdict:
            yield f"verdict: expected {expected.verdict}, got {verdict or 'none'}"
        for what, rows, found in self._tables(expected):
            yield from _compared(what, rows, found)

    def _tables(self, expected: Expected) -> Iterator[tuple[str, Sequence[dict[str, Any]], pa.Table]]:
        for name, rows in expected.tables.items():
            yield f"table {name}", rows, self._table(name)
        for uid, rows in expected.state.items():
            yield f"state {uid}", rows, JobMaster(self._job, nowhere, lambda: None).reports.state_values(uid)

    def _table(self, name: str) -> pa.Table:
        try:
            return JobMaster(self._job, nowhere, lambda: None).reports.read(sink_of(self._job, name))
        except NotFound:  # nothing was published yet
            return pa.table({})

    def _found(self, expected: Expected, verdict: str | None, refused: str | None) -> dict[str, Any]:
        names = dict.fromkeys([*self._sinks, *expected.tables])
        found: dict[str, Any] = {"tables": {name: _listed(self._table(name)) for name in names}}
        if expected.state:
            master = JobMaster(self._job, nowhere, lambda: None)
            found["state"] = {uid: _listed(master.reports.state_values(uid)) for uid in expected.state}
        return {**found, **({"verdict": verdict} if verdict else {}), **({"refused": refused} if refused else {})}


def _compared(what: str, rows: Sequence[dict[str, Any]], found: pa.Table) -> Iterator[str]:
    if not rows or not found.num_columns:
        wanted, there = len(rows), found.num_rows
        if wanted or there:
            yield f"{what}: expected {counted(wanted, 'row')}, got {there or 'none'}"
            yield from (f"+ {as_yaml(row)}" for row in python_rows(found.slice(0, 5)))
        return
    names = [name for name in found.column_names if any(name in row for row in rows)]
    unknown = sorted({name for row in rows for name in row} - set(found.column_names))
    if unknown:
        yield f"{what}: there is no column {unknown[0]}; the columns are {', '.join(found.column_names)}"
        return
    expected = typed_table(rows, pa.schema([found.schema.field(name) for name in names]), what)
    lines = difference(expected, found)
    if lines:
        yield f"{what}: {counted(expected.num_rows, 'row')} expected, {found.num_rows} found"
        yield from lines


def _listed(table: pa.Table) -> list[dict[str, Any]]:
    rows = [as_yaml(row) for row in python_rows(table)]
    return sorted(rows, key=repr)

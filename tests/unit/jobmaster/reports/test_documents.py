"""Every document of one job, as the commands print it with `--json`, compared with the golden file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from milepost.cli.terminal.tables import as_rows
from milepost.codec.records import to_json
from milepost.epoch.answers import EpochReport
from milepost.epoch.plan import EpochPlan
from milepost.errors import CheckpointError, StoreUnavailable
from milepost.jobmaster import NothingToDo, Session, Triggered
from milepost.jobmaster.reports.tables.diff import Difference
from milepost_testkit import wording
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.deep

EDIT = {
    "    schema: {k: int64, v: string}\n": "    schema: {k: int64, v: string, at: 'timestamp[us]'}\n"
    "    event_time: at\n    max_event_time_ahead: 7d\n    on_bad_name: skip\n",
    "retained: {last: 1}": "retained: {last: 3}",
    "aggregates: {rows: count(*)}}\n": "aggregates: {rows: count(*), newest: max(at)}}\n"
    "  - {uid: daily, kind: window, inputs: [rows], key: [k], window: {tumbling: 1d}, aggregates: {rows: count(*)}}\n",
    "mode: upsert}\n": "mode: upsert}\n"
    "  - {name: days, input: daily, format: parquet, path: ../lake/days, mode: append}\n",
}
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "<time>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{12,}\b"), "<hash>"),
    (re.compile(r"\b[\d,]+ d( \d+ h)?\b"), "<age>"),
)
_FIXED = re.compile(r"(20(23|24)|2999)-\d\d-\d\dT")
"""Event times of the data are the same in every run."""

_MEASURED = ("_ms", "bytes", "size")
_OF_THIS_MACHINE = ("host", "pid", "machine")


class _Documents:
    """The documents of a job's life, by step."""

    def __init__(self, folder: Path) -> None:
        self.steps: dict[str, Any] = {}
        self._folder = str(folder)

    def note(self, step: str, produce: Callable[[], Any]) -> None:
        try:
            document = produce()
        except CheckpointError as error:
            document = {
                "error": type(error).__name__, "message": error.message, "hint": error.hint, "details": error.details,
            }  # fmt: skip
        assert step not in self.steps
        self.steps[step] = self._masked(document)

    def _masked(self, value: Any, name: str = "") -> Any:
        if is_dataclass(value):
            value = to_json(value)
        if isinstance(value, dict):
            measured = name.endswith(_MEASURED)
            return {str(key): self._masked(one, name if measured else str(key)) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._masked(one, name) for one in value]
        if isinstance(value, bool) or value is None:
            return value
        if name.endswith(_OF_THIS_MACHINE):
            return "<machine>"
        if isinstance(value, (int, float)) and name.endswith(_MEASURED):
            return "<measured>"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = text.replace(self._folder, "<folder>")
        for pattern, mask in _VARYING:
            text = pattern.sub(lambda found, mask=mask: found[0] if _FIXED.match(found[0]) else mask, text)
        return text


def _rows(*rows: tuple[int, str]) -> str:
    return "k,v,at\n" + "".join(f"{k},x,{at}\n" for k, at in rows)


def _difference(found: Difference) -> dict[str, Any]:
    return {"kind": found.kind, "name": found.name, "note": found.note, "rows": as_rows(found.changes.table)}


def _told(folder: Path) -> dict[str, Any]:
    """Live through a job's life and ask for every document on the way."""
    job = SparklessJob.create(folder, EDIT)
    documents, runner, session = _Documents(folder), SparklessRunner(), Session.cli()

    def epoch() -> Any:
        return job.master.epochs.run(session, runner)

    def read(step: str, *more: str) -> None:
        for name in ("status", *more):
            documents.note(f"{step}: {name}", getattr(job.master.reports, name))

    documents.note("nothing landed: run", epoch)
    read("nothing landed")
    job.land("a.csv", _rows((1, "2024-01-01 08:00:00"), (2, "2024-01-01 09:00:00")))
    documents.note("first epoch: run", epoch)
    job.land("b.csv", _rows((1, "2024-01-03 08:00:00"), (1, "2023-01-03 08:00:00"), (3, "2999-01-01 00:00:00")))
    job.land("c.csv", _rows((4, "2024-01-04 08:00:00")))
    documents.note("second epoch: run", epoch)
    read("one object unread")
    documents.note("second epoch: show", lambda: job.master.reports.show(2))
    documents.note("what it read: diff", lambda: [_difference(one) for one in job.master.reports.diff(1, 2)])

    def lost(plan: EpochPlan) -> None:
        raise StoreUnavailable("the store is away", hint="bring it back")

    documents.note("a failed epoch: run", lambda: job.master.epochs.run(session, SparklessRunner(before=lost)))
    read("after a failed epoch", "list_checkpoints", "history")
    documents.note("a failed epoch: show", lambda: job.master.reports.show(3))
    documents.note("a failed job: run", epoch)
    documents.note("a failed job: resume", job.master.lifecycle.resume)
    documents.note("third epoch: run", epoch)
    documents.note("verify", job.master.reports.verify)
    documents.note("fsck", job.master.reports.fsck)
    documents.note("savepoint: create", lambda: job.master.savepoints.create("kept"))
    documents.note("savepoint: list", job.master.list_savepoints)
    documents.note("rollback: plan", lambda: job.master.rollbacks.plan(2))
    documents.note("rollback", lambda: roll_back(job.master, 2, session))
    read("rolled back")
    documents.note("rolled back: show the left one", lambda: job.master.reports.show(4))
    documents.note("fourth epoch: run", epoch)
    documents.note(
        "nothing pending: abort", lambda: job.master.epochs.abort(session, None, "ABORTED_BY_USER", "asked for")
    )
    job.land("d.csv", _rows((5, "2024-01-05 08:00:00")))
    documents.note("fifth epoch: trigger", lambda: _triggered(job.master.triggers.trigger(session)))
    documents.note("fifth epoch: run_epoch", lambda: _reported(job.master.epochs.run_epoch(session, 6, runner)))
    read("running")
    documents.note("fifth epoch: validate", lambda: asdict(job.master.epochs.validate(session, 6)))
    documents.note("fifth epoch: complete", lambda: asdict(job.master.epochs.complete(session, 6)))
    read("unpublished")
    for sink in ("table", "days"):
        documents.note(f"fifth epoch: notify {sink}", partial(job.master.epochs.notify_complete, session, 6, sink))
    documents.note("fifth epoch: subsume", lambda: job.master.epochs.subsume(session))
    documents.note("backfill: plan", lambda: job.master.backfills.plan(from_checkpoint=2))
    documents.note("backfill", lambda: back_fill(job.master, runner, from_checkpoint=2, session=session))
    read("backfilled")
    documents.note("savepoint: dispose", lambda: job.master.savepoints.dispose("kept"))
    documents.note("gc", lambda: job.master.collect_garbage(dry_run=True))
    documents.note("cancel", job.master.savepoints.cancel)
    read("canceled", "list_checkpoints", "history")
    documents.note("start", job.master.restores.start)
    documents.note("started: job_state", job.master.reports.job_state)
    documents.note("compatibility", job.master.reports.compatibility)
    documents.note("show of what never was", lambda: job.master.reports.show(99))
    return documents.steps


def _triggered(triggered: Triggered | NothingToDo) -> dict[str, Any]:
    assert isinstance(triggered, Triggered)
    return {name: documents for name, documents in asdict(replace(triggered, opened=None)).items() if name != "opened"}


def _reported(report: EpochReport) -> dict[str, Any]:
    return {
        "token": report.metadata.token,
        "verdict": asdict(report.verdict),
        "rows_in": report.rows_in,
        "rows_out": report.rows_out,
        "write_ms": report.write_ms,
    }


def test_every_document_of_a_job_equals_its_golden_text(tmp_path: Path) -> None:
    for name, document in _told(tmp_path).items():
        text = json.dumps(document, indent=1, default=str, ensure_ascii=False)
        wording.matches("documents", text, name=name)

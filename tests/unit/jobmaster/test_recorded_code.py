"""The code and the spec that run are those that the trigger recorded, or nothing runs (I13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster.job.code import read_recorded_code
from milepost.jobmaster.jobmaster import JobMaster, Session, Triggered
from milepost.protocol.records.errors import SubtaskDeclined
from tests.harness.jobs.sparkless_job import SparklessJob
from tests.harness.jobs.sparkless_runner import SparklessRunner

AGGREGATE = "{uid: latest, kind: aggregate, inputs: [rows], key: [k], aggregates: {rows: count(*)}}"
PROCESS = "{uid: latest, kind: process, inputs: [rows], key: [k], function: counting:Counting}"
MODULE = """\
class Counting:
    state = {"rows": "int64"}
    output = {"k": "int64", "rows": "int64"}

    def on_rows(self, key, rows, state, ctx):
        for _ in rows:
            yield {"rows": 1}
"""


def declined(master: JobMaster, session: Session, checkpoint_id: int) -> SubtaskDeclined:
    """Try to run the epoch; the data plane must not even be asked."""
    runner = SparklessRunner()
    with pytest.raises(SubtaskDeclined) as raised:
        master.run_epoch(session, checkpoint_id, runner)
    assert runner.plans == []
    assert raised.value.details["reason"] == "CODE_MISMATCH"
    return raised.value


def test_a_spec_that_changes_between_trigger_and_run_declines_the_epoch(tmp_path: Path) -> None:
    """I13: the plan was made of another spec; the same checkpoint runs once the spec is what it was."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    triggered = job.master.trigger(session)
    assert isinstance(triggered, Triggered)
    spec = tmp_path / "config" / "small.yaml"
    before = spec.read_text()
    spec.write_text(before.replace("max_files: 1", "max_files: 2"))
    error = declined(job.master, session, triggered.checkpoint_id)
    assert "the spec changed after the epoch was triggered" in error.message
    spec.write_text(before)
    runner = SparklessRunner()
    job.master.run_epoch(session, triggered.checkpoint_id, runner)
    assert len(runner.plans) == 1


def test_code_that_changes_between_trigger_and_run_declines_the_epoch(tmp_path: Path) -> None:
    """I13: trigger and run may be two processes; only the code that the trigger recorded may run."""
    job = SparklessJob.create(tmp_path, {AGGREGATE: PROCESS, "mode: upsert": "mode: append"})
    job.land("a.csv")
    module = tmp_path / "config" / "counting.py"
    module.write_text(MODULE)
    session = Session.cli()
    triggered = job.master.trigger(session)
    assert isinstance(triggered, Triggered)
    module.write_text(MODULE.replace('{"rows": 1}', '{"rows": 2}'))
    error = declined(job.master, session, triggered.checkpoint_id)
    assert "the code changed after the epoch was triggered" in error.message
    module.unlink()
    assert "the code changed after the epoch was triggered" in declined(job.master, session, 1).message
    module.write_text(MODULE)
    assert read_recorded_code(job.context, job.pending).hash == job.pending.code_hash

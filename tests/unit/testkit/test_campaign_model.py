"""The campaign's model knows of which checkpoint a restored one is a copy, also where several epochs read nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost_testkit.chaos.model import Model
from milepost_testkit.chaos.tries import leaving_origins
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.tasks.clocks import ticking

pytestmark = pytest.mark.deep

CUT = {"timeout: 10m}": "timeout: 10m, aligned_timeout: 1ms}\nspark: {buffer_size: 1KB}"}


def test_a_copy_is_of_the_checkpoint_that_was_saved_though_others_read_the_same(tmp_path: Path) -> None:
    """Epochs that only work off rows in flight have one input record, of nothing."""
    job = CountedJob.create(tmp_path / "job", CUT)
    job.small.land("0001.csv", "k,v\n" + "".join(f"{n},{n}\n" for n in range(3000)))
    for number in (1, 2, 3, 4):
        job.master.epochs.run(Session.cli(), SparklessRunner(clock=ticking()))
        if number == 3:
            job.master.savepoints.create("third")
    job.master.savepoints.cancel()
    model = Model(tmp_path)
    with leaving_origins(model.folder):
        job.master.restores.start("third")
    lineages = model.lineages(job.small.loaded())
    assert lineages[5] == lineages[3] != lineages[4]

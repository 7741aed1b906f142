"""The event of an epoch that passed a gap in a source's log counts it."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.servers.lineage_receiver import LineageReceiver
from milepost_testkit.servers.lineage_schemas import assert_valid

pytestmark = pytest.mark.deep


def test_an_epoch_that_passes_a_gap_says_so_and_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = LandedJob.create(tmp_path / "job")
    with patch.dict(os.environ, HOME=str(tmp_path)), LineageReceiver().serving() as receiver:
        os.environ["OPENLINEAGE_URL"] = receiver.url
        job.land_and_run(1, 2)
        job.produce(3, 1)
        job.expire(1)
        job.approve_gap()
        job.land_and_run(2)
        job.land_and_run(2)
        events = receiver.wait_for(6)
    for event in events:
        assert_valid(event)
    facets = [event["run"]["facets"]["milepost_checkpoint"] for event in events if event["eventType"] == "COMPLETE"]
    assert [facet.get("gaps") for facet in facets] == [None, {"feed": 1}, None]

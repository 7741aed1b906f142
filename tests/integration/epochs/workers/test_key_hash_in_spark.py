"""The secret of the key hash reaches the workers, and nothing that tells of a Spark job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from milepost.jobmaster.job.context import JobContext
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.processes.processes import REPOSITORY


def test_what_spark_and_the_machine_tell_of_an_epoch_does_not_hold_the_secret(tmp_path: Path) -> None:
    """A real epoch, logged in full: output, Spark's event log with the plans, and every process's command line."""
    events = tmp_path / "events"
    events.mkdir()
    log = f'spark.eventLog.enabled: "true", spark.eventLog.compress: "false", spark.eventLog.dir: "{events.as_uri()}"'
    conf = f"parallelism: 2, conf: {{{log}}}}}"
    job = FlightsJob.create(tmp_path / "job", {"parallelism: 2}": conf})
    job.land([1, 2])
    told: set[str] = set()
    command = [sys.executable, "-m", "milepost", "run", str(job.spec_path), "-v", "--json"]
    with (tmp_path / "out").open("w+") as out:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=out, stderr=subprocess.STDOUT)
        while process.poll() is None:
            for child in psutil.process_iter(["cmdline"]):
                told.add(" ".join(child.info["cmdline"] or ()))
            psutil.wait_procs([psutil.Process(process.pid)], timeout=0.2)
        assert process.returncode == 0, (tmp_path / "out").read_text()
    secret = JobContext(job.load()).head().state.key_hash_secret
    assert secret is not None and any("pyspark" in one for one in told)
    logged = [path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()]
    assert any("MapInArrow" in one for one in logged)
    told |= {*logged, (tmp_path / "out").read_text()}
    assert not any(secret in one for one in told)
    job.assert_tables_equal_the_oracle()

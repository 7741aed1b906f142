"""Inside Airflow, telemetry goes where Airflow's own goes: through its stats, and into the trace of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.servers.otlp_receiver import otlp_receiver

_TASK = """
import sys
from pathlib import Path
from airflow.sdk._shared.observability.traces import configure_otel
from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from opentelemetry import trace
from milepost.airflow.task_output.telemetry import telemetry_of_airflow
from milepost.jobmaster import JobMaster, Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
configure_otel(conf)
stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
with trace.get_tracer("airflow").start_as_current_span("worker.subsume"):
    telemetry = telemetry_of_airflow()
    if telemetry is None:
        sys.exit(3)
    job = SparklessJob(Path(sys.argv[1]))
    telemetry.completed("small", job.master.epochs.run(Session.cli(), SparklessRunner()))
    job.master.triggers.trigger(Session.cli())
    JobMaster(job.loaded(), telemetry=telemetry_of_airflow).lifecycle.abort_running()
"""
"""What the tasks' processes do around an epoch's end, good and bad, as Airflow's task runner sets them up."""


def run_task(folder: Path, endpoint: str, on: bool) -> int:
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "OTEL_"))},
        "PYTHONPATH": f"{REPOSITORY}/pipeline:{REPOSITORY}",
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__METRICS__OTEL_ON": str(on),
        "AIRFLOW__TRACES__OTEL_ON": str(on),
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run([sys.executable, "-c", _TASK, str(folder)], env=environ, check=False, timeout=120).returncode


def test_a_task_s_telemetry_is_in_airflow_s_stats_and_in_the_trace_of_its_run(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "job")
    job.land("1.csv")
    job.land("2.csv")
    with otlp_receiver() as receiver:
        assert run_task(job.folder, receiver.endpoint, on=True) == 0
    wanted = {"airflow.milepost.job.num_records_in", "airflow.milepost.job.num_epochs_failed"}
    assert wanted <= receiver.metrics
    task = next(one for one in receiver.spans if one.name == "worker.subsume")
    whole, aborted = (one for one in receiver.spans if one.name == "epoch")
    for root in (whole, aborted):
        assert (root.trace_id, root.parent_span_id) == (task.trace_id, task.span_id)
    assert (whole.status.code, aborted.status.code) == (0, 2)


@pytest.mark.deep
def test_without_airflow_metrics_there_is_no_telemetry(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "job")
    assert run_task(job.folder, "http://127.0.0.1:1", on=False) == 3

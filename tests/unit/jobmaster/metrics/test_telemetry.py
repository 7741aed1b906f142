"""Who listens is told of each epoch: its metrics add up, its spans lie where they were measured."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from milepost.jobmaster.jobmaster import Session
from milepost.jobmaster.metrics.open_telemetry import MeteredInstruments, telemetry_of_environment
from milepost.jobmaster.metrics.telemetry import Telemetry
from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails
from tests.harness.jobs.sparkless_job import SparklessJob
from tests.harness.jobs.sparkless_runner import SparklessRunner
from tests.harness.servers.otlp_receiver import otlp_receiver
from tests.harness.servers.processes import REPOSITORY

NS_PER_MS = 1_000_000
ROUNDING_MS = 3


class Heard:
    """A listener in this process, by OpenTelemetry's own SDK."""

    def __init__(self) -> None:
        self._reader, self._spans = InMemoryMetricReader(), InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        instruments = MeteredInstruments(MeterProvider([self._reader]).get_meter("test"))
        self.telemetry = Telemetry(instruments, provider.get_tracer("test"))

    def values(self) -> dict[tuple[str, ...], float]:
        """Each series by metric and values of labels."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            (metric.name, *(str(value) for value in (point.attributes or {}).values())): point.value
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._spans.get_finished_spans()}


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path / "job")
    job.land("1.csv")
    job.land("2.csv")
    return job


def epoch(job: SparklessJob) -> CheckpointDetails:
    report = job.master.run(Session.cli(), SparklessRunner())
    assert isinstance(report, CheckpointDetails)
    return report


def test_what_epochs_add_adds_up_and_what_is_so_now_is_replaced(job: SparklessJob) -> None:
    heard = Heard()
    for _ in range(2):
        report = epoch(job)
        heard.telemetry.completed("small", report)
    values = heard.values()
    assert values["milepost.job.num_records_in", "small"] == 2
    assert values["milepost.operator.num_records_in", "small", "latest"] == 2
    assert values["milepost.job.last_checkpoint_full_size", "small"] == report.full_bytes
    assert values["milepost.phase.duration", "small", "commit"] == report.phases["commit_ms"]
    assert not [series for series in values if series[0] == "milepost.job.quality"], "no word is pushed"


def test_a_failed_epoch_is_counted_by_its_reason() -> None:
    heard = Heard()
    for _ in range(2):
        heard.telemetry.failed("small", "BAD_RECORD")
    assert heard.values() == {("milepost.job.num_epochs_failed", "small", "BAD_RECORD"): 2}


def test_spans_lie_where_steps_and_subtasks_were_measured(job: SparklessJob) -> None:
    """One trace: the epoch, its steps one after another, its subtasks within the step of the job."""
    heard, report = Heard(), epoch(job)
    heard.telemetry.completed("small", report)
    spans = heard.spans()
    root = spans["epoch"]
    steps = ["plan", "begin", "session", "job", "gate", "prepare", "commit", "notify table", "subsume"]
    assert [one.step for one in report.steps] == steps
    assert spans.keys() == {"epoch", *steps, *(f"subtask {task.level}/{task.subtask}" for task in report.tasks)}
    assert root.attributes is not None and root.attributes["milepost.checkpoint_id"] == 1
    assert len({span.context.trace_id for span in spans.values() if span.context}) == 1
    for name, span in spans.items():
        parent = spans["job"] if name.startswith("subtask") else root
        assert name == "epoch" or (span.parent and parent.context and span.parent.span_id == parent.context.span_id)
        assert within(span, parent), name
    for earlier, later in pairwise(steps):
        assert ended_ms(spans[earlier]) <= started_ms(spans[later]) + ROUNDING_MS, later
    total_ms = report.phases["total_ms"]
    assert total_ms is not None and abs(ended_ms(root) - started_ms(root) - total_ms) <= ROUNDING_MS


def started_ms(span: ReadableSpan) -> int:
    assert span.start_time is not None
    return span.start_time // NS_PER_MS


def ended_ms(span: ReadableSpan) -> int:
    assert span.end_time is not None
    return span.end_time // NS_PER_MS


def within(span: ReadableSpan, parent: ReadableSpan) -> bool:
    begins = started_ms(span) >= started_ms(parent) - ROUNDING_MS
    return begins and ended_ms(span) <= ended_ms(parent) + ROUNDING_MS


def test_a_listener_that_fails_does_not_fail_the_epoch(job: SparklessJob, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def add(self, *told: object) -> None:
            raise OSError("the collector is away")

        set = add

    report = epoch(job)
    Telemetry(Broken(), None).completed("small", report)
    Telemetry(Broken(), None).failed("small", "BAD_RECORD")
    assert caplog.text.count("its telemetry was not told: the collector is away") == 2


@pytest.mark.parametrize(
    "environ", [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_SDK_DISABLED": "true"}]
)
def test_without_opentelemetry_s_variables_nobody_listens(environ: dict[str, str]) -> None:
    assert telemetry_of_environment(environ) is None


_RUN = """
import json, sys
from itertools import pairwise
from pathlib import Path
from milepost.jobmaster.jobmaster import Session, telemetry_of_environment
from tests.harness.jobs.sparkless_job import SparklessJob
from tests.harness.jobs.sparkless_runner import SparklessRunner
job, telemetry = SparklessJob(Path(sys.argv[1])), telemetry_of_environment()
telemetry.completed("small", job.master.run(Session.cli(), SparklessRunner()))
"""


def test_a_collector_hears_of_an_epoch_as_its_variables_say(job: SparklessJob) -> None:
    """In a process of its own, over the wire; the trace of whoever started it goes on."""
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with otlp_receiver() as receiver:
        environ = {
            "PYTHONPATH": f"{REPOSITORY}/pipeline:{REPOSITORY}",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "NO_PROXY": "127.0.0.1",
            "TRACEPARENT": f"00-{trace}-{parent}-01",
        }
        subprocess.run([sys.executable, "-c", _RUN, str(job.folder)], env=environ, check=True, timeout=60)
    root = next(one for one in receiver.spans if one.name == "epoch")
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (trace, parent)
    assert {one.trace_id.hex() for one in receiver.spans} == {trace} and len(receiver.spans) > 10
    assert {"milepost.job.num_records_in", "milepost.operator.num_rows_total"} <= receiver.metrics

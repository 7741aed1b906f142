"""Telemetry exports each epoch: metrics add up, and spans have the measured times."""

from __future__ import annotations

import os
import socket
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
from opentelemetry.trace import StatusCode

from milepost.errors import QualityGateFailed, SubtaskDeclined
from milepost.jobmaster import JobMaster, Session
from milepost.jobmaster.metrics.open_telemetry import MeteredInstruments, telemetry_from_environment
from milepost.jobmaster.metrics.telemetry import Telemetry
from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.otlp_receiver import otlp_receiver
from milepost_testkit.specs.spec_edits import edit_spec

NS_PER_MS = 1_000_000
GATE = """\
quality:
  - sink: table
    expectations: [{type: expect_column_values_to_be_between, column: rows, max_value: 1}]
checkpointing:"""
ROUNDING_MS = 3


class RecordedTelemetry:
    """Records telemetry in memory with OpenTelemetry's SDK."""

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

    def all_spans(self) -> tuple[ReadableSpan, ...]:
        return self._spans.get_finished_spans()

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.all_spans()}

    def traces(self) -> list[dict[str, ReadableSpan]]:
        """The spans of each trace by name; traces in the order of their epochs."""
        found: dict[int, dict[str, ReadableSpan]] = {}
        for span in self.all_spans():
            assert span.context is not None
            found.setdefault(span.context.trace_id, {})[span.name] = span
        return list(found.values())

    def master(self, job: SparklessJob, tolerable: int = 0) -> JobMaster:
        """The job, as a command opens it that this listener listens to."""
        path = job.folder / "config" / "small.yaml"
        edit_spec(path, {"timeout: 10m}": f"timeout: 10m, tolerable_failures: {tolerable}}}"})
        return JobMaster(job.loaded(), telemetry=lambda: self.telemetry)


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path / "job")
    job.land("1.csv")
    job.land("2.csv")
    return job


def epoch(job: SparklessJob) -> CheckpointDetails:
    report = job.master.epochs.run(Session.cli(), SparklessRunner())
    assert isinstance(report, CheckpointDetails)
    return report


@pytest.mark.deep
def test_increments_of_epochs_add_up_and_gauges_are_replaced(job: SparklessJob) -> None:
    heard = RecordedTelemetry()
    for _ in range(2):
        report = epoch(job)
        heard.telemetry.completed("small", report)
    values = heard.values()
    assert values["milepost.job.num_records_in", "small"] == 2
    assert values["milepost.operator.num_records_in", "small", "latest"] == 2
    assert values["milepost.job.last_checkpoint_full_size", "small"] == report.full_bytes
    assert values["milepost.phase.duration", "small", "commit"] == report.phases["commit_ms"]
    assert not [series for series in values if series[0] == "milepost.job.quality"], "no word is pushed"


def test_a_declined_epoch_is_counted_and_its_trace_has_the_reason(job: SparklessJob) -> None:
    """The trace has the steps and subtasks that ran, and the type of the error without the record."""
    heard = RecordedTelemetry()
    (job.folder / "landing" / "1.csv").write_text("k,v\nforty-two,a\n")
    master = heard.master(job, tolerable=9)
    for _ in range(2):
        with pytest.raises(SubtaskDeclined):
            master.epochs.run(Session.cli(), SparklessRunner())
    assert heard.values() == {("milepost.job.num_epochs_failed", "small", "BAD_RECORD"): 2}
    first, second = heard.traces()
    root = first["epoch"]
    assert root.status.status_code is StatusCode.ERROR and (root.status.description or "").startswith("BAD_RECORD: ")
    assert root.attributes is not None and root.attributes["error.type"] == "SubtaskDeclined"
    assert (root.attributes["milepost.reason"], root.attributes["milepost.tolerated"]) == ("BAD_RECORD", True)
    assert [first[name].status.status_code.name for name in ("plan", "begin", "session", "job")] == [
        "UNSET", "UNSET", "UNSET", "ERROR"]  # fmt: skip
    assert first.keys() >= {"epoch", "plan", "begin", "session", "job"} and "gate" not in first
    assert (root.attributes["milepost.checkpoint_id"], second["epoch"].attributes["milepost.checkpoint_id"]) == (1, 2)
    assert "forty-two" not in "".join(span.to_json() for span in (*first.values(), *second.values()))
    for span in first.values():
        assert within(span, root), span.name


def test_a_vetoed_epoch_has_a_trace_with_what_the_gate_says_and_no_value(tmp_path: Path) -> None:
    heard = RecordedTelemetry()
    job = SparklessJob.create(tmp_path / "job", {"checkpointing:": GATE})
    job.land("a.csv", "k,v\n471147114711,secret-a\n471147114711,secret-b\n")
    with pytest.raises(QualityGateFailed):
        heard.master(job).epochs.run(Session.cli(), SparklessRunner())
    (trace,) = heard.traces()
    root = trace["epoch"]
    assert root.attributes is not None and root.attributes["error.type"] == "QualityGateFailed"
    assert "expect_column_values_to_be_between(rows) refused 1 of 1 rows" in (root.status.description or "")
    assert trace["commit"].status.status_code is StatusCode.ERROR and {"gate", "prepare", "write"} <= trace.keys()
    subtasks = [span for name, span in trace.items() if name.startswith("subtask")]
    assert subtasks and all(span.parent and span.parent.span_id == span_id(trace["job"]) for span in subtasks)
    told = "".join(span.to_json() for span in trace.values())
    assert "471147114711" not in told and "secret" not in told


def test_an_epoch_stopped_by_another_command_is_traced_by_that_command(job: SparklessJob) -> None:
    """One trace per epoch, exported by the process that aborted it. Times of the other process are unknown."""
    heard = RecordedTelemetry()
    job.master.triggers.trigger(Session.cli())
    heard.master(job).lifecycle.abort_running()
    (trace,) = heard.traces()
    root = trace["epoch"]
    assert trace.keys() == {"epoch"} and root.status.status_code is StatusCode.ERROR
    assert root.attributes is not None and root.attributes["error.type"] == "ABORTED_BY_USER"
    assert root.end_time is not None and root.start_time is not None and root.end_time >= root.start_time
    assert heard.values() == {("milepost.job.num_epochs_failed", "small", "ABORTED_BY_USER"): 1}


def test_a_run_that_is_interrupted_has_a_trace_too(job: SparklessJob) -> None:
    heard = RecordedTelemetry()

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        heard.master(job).epochs.run(Session.cli(), SparklessRunner(before=interrupt))
    (trace,) = heard.traces()
    assert trace["epoch"].attributes is not None
    assert trace["epoch"].attributes["error.type"] == "KeyboardInterrupt"
    assert trace["epoch"].attributes["milepost.reason"] == "INTERRUPTED"


def test_each_operator_of_a_subtask_has_a_span_from_its_first_activity_to_its_last(job: SparklessJob) -> None:
    heard, report = RecordedTelemetry(), epoch(job)
    heard.telemetry.completed("small", report)
    spans = heard.all_spans()
    named = [span for span in spans if span.name == "operator latest"]
    tasks = {f"subtask {task.level}/{task.subtask}": task for task in report.tasks if "latest" in task.operators}
    assert len(named) == len(tasks) > 0
    by_id = {span_id(span): span for span in spans}
    for span in named:
        assert span.parent is not None and span.attributes is not None
        subtask = by_id[span.parent.span_id]
        times = tasks[subtask.name].operators["latest"]
        assert times.from_ms is not None and times.to_ms is not None
        assert within(span, subtask) and 0 <= times.from_ms <= times.to_ms <= tasks[subtask.name].total_ms
        assert ended_ms(span) - started_ms(span) == times.to_ms - times.from_ms
        assert span.attributes["milepost.process_ms"] == times.process_ms
        assert span.attributes["milepost.operator"] == "latest"
        spent_ms = times.restore_ms + times.process_ms + times.emit_ms + times.sync_ms
        assert spent_ms <= times.to_ms - times.from_ms + ROUNDING_MS


def test_spans_are_drawn_where_steps_and_subtasks_were_measured(job: SparklessJob) -> None:
    """One trace: the epoch, its consecutive steps, and its subtasks within the job step."""
    heard, report = RecordedTelemetry(), epoch(job)
    heard.telemetry.completed("small", report)
    spans = heard.spans()
    root = spans["epoch"]
    steps = ["plan", "begin", "session", "job", "gate", "prepare", "commit", "notify table", "subsume"]
    assert [one.step for one in report.steps] == steps
    subtasks = {f"subtask {task.level}/{task.subtask}" for task in report.tasks}
    assert spans.keys() == {"epoch", "operator latest", *steps, *subtasks}
    assert root.attributes is not None and root.attributes["milepost.checkpoint_id"] == 1
    assert len({span.context.trace_id for span in spans.values() if span.context}) == 1
    for name, span in spans.items():
        if name.startswith("operator"):  # of one of the subtasks
            assert within(span, spans["job"])
            continue
        parent = spans["job"] if name.startswith("subtask") else root
        assert name == "epoch" or (span.parent and parent.context and span.parent.span_id == parent.context.span_id)
        assert within(span, parent), name
    for earlier, later in pairwise(steps):
        assert ended_ms(spans[earlier]) <= started_ms(spans[later]) + ROUNDING_MS, later
    total_ms, subsume_ms = report.phases["total_ms"], report.phases["subsume_ms"]  # which follows the publication
    assert total_ms is not None and subsume_ms is not None
    assert abs(ended_ms(root) - started_ms(root) - total_ms - subsume_ms) <= ROUNDING_MS


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def started_ms(span: ReadableSpan) -> int:
    assert span.start_time is not None
    return span.start_time // NS_PER_MS


def ended_ms(span: ReadableSpan) -> int:
    assert span.end_time is not None
    return span.end_time // NS_PER_MS


def within(span: ReadableSpan, parent: ReadableSpan) -> bool:
    begins = started_ms(span) >= started_ms(parent) - ROUNDING_MS
    return begins and ended_ms(span) <= ended_ms(parent) + ROUNDING_MS


def test_a_failing_exporter_does_not_fail_the_epoch(job: SparklessJob, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def add(self, *told: object) -> None:
            raise OSError("the collector is away")

        set = add

    report = epoch(job)
    Telemetry(Broken(), None).completed("small", report)
    job.master.triggers.trigger(Session.cli())
    JobMaster(job.loaded(), telemetry=lambda: Telemetry(Broken(), None)).lifecycle.abort_running()
    lines = [line for line in caplog.messages if "the collector is away" in line]
    assert len(lines) == 2
    wording.matches("log", lines)


@pytest.mark.parametrize(
    "environ", [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_SDK_DISABLED": "true"}]
)
def test_without_opentelemetry_variables_nothing_is_exported(environ: dict[str, str]) -> None:
    assert telemetry_from_environment(environ) is None


_RUN = """
import json, sys
from itertools import pairwise
from pathlib import Path
from milepost.jobmaster import Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
job = SparklessJob(Path(sys.argv[1]))
master = job.master
master.telemetry().completed("small", master.epochs.run(Session.cli(), SparklessRunner()))
job.master.triggers.trigger(Session.cli())
job.master.lifecycle.abort_running()
"""


@pytest.mark.long
def test_a_collector_receives_an_epoch_as_configured_by_variables(job: SparklessJob) -> None:
    """In a separate process, over the network, continuing the trace of the caller."""
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
    root, aborted = (one for one in receiver.spans if one.name == "epoch")
    for one in (root, aborted):
        assert (one.trace_id.hex(), one.parent_span_id.hex()) == (trace, parent)
    assert (root.status.code, aborted.status.code) == (0, 2) and "ABORTED_BY_USER" in aborted.status.message
    assert {one.trace_id.hex() for one in receiver.spans} == {trace} and len(receiver.spans) > 10
    assert {"milepost.job.num_records_in", "milepost.operator.num_rows_total"} <= receiver.metrics


@pytest.mark.deep
def test_a_collector_that_never_answers_does_not_block_process_exit(job: SparklessJob) -> None:
    """The exporter's own variables would allow ten minutes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ = {
            "PYTHONPATH": f"{REPOSITORY}/pipeline:{REPOSITORY}",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
            "NO_PROXY": "127.0.0.1",
        }
        subprocess.run([sys.executable, "-c", _RUN, str(job.folder)], env=environ, check=True, timeout=60)
    assert [one.status for one in job.master.reports.list_checkpoints("completed")][:1] == ["completed"]


@pytest.mark.long
def test_variables_that_opentelemetry_refuses_are_reported_before_anything_runs() -> None:
    environ = {**os.environ, "OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_MAX_QUEUE_SIZE": "0"}
    code = "from milepost.jobmaster.metrics.open_telemetry import telemetry_from_environment as asked; asked()"
    run = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    error = run.stderr.splitlines()[-1]
    assert "EnvironmentUnusable: " in error and "max_queue_size" in error
    wording.matches("EnvironmentUnusable", error, replace={r"max_queue_size[^.]*\.": "{cause}"})

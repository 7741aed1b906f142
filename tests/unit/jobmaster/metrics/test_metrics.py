"""Metrics are read from a job's documents, named by one table, and exported to Prometheus."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

from milepost.codec.records import to_json
from milepost.epoch.iso_times import watermark_text
from milepost.jobmaster.metrics.metric_table import METRICS, Kind, Metric, Unit
from milepost.jobmaster.metrics.prometheus_text import prometheus_text, series_name
from milepost.jobmaster.metrics.samples import samples_of
from milepost.storage.requests import StoreRequests
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.processes.processes import REPOSITORY

DASHBOARD = json.loads((REPOSITORY / "docs" / "reference" / "grafana.json").read_text(encoding="utf-8"))
SERIES = {series_name(metric): metric for metric in METRICS}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Two epochs, with prices. Only to be copied."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("metrics") / "job", 2)
    job.edit("sinks:\n", "prices: {core_hour: 1.0}\nsinks:\n")
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def documents(job: CountedJob) -> dict[str, Any]:
    """What the commands print with `--json`, as if the job were in S3, had row rules, and its last epoch had failed."""
    status, shown = to_json(job.master.reports.status()), to_json(job.master.reports.show())
    asked = {"plan": to_json(StoreRequests(1, 2, 3, 4, 5))}
    return {
        "status": status | {"last_failure": "bad_record"},
        "checkpoint": shown | {"requests": asked, "rejected_rows": 3, "quarantined_rows": 2},
        "aborted": {"reason": "X"},
    }


def families(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return each series that a real parser finds, by metric and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in found, "a metric's samples stand together"
        assert family.documentation and family.type == "gauge"
        found[family.name] = {tuple(one.labels.items()): one.value for one in family.samples}
    return found


@pytest.mark.deep
def test_every_metric_is_a_field_of_a_document(job: CountedJob, tmp_path: Path) -> None:
    """Even a metric without a value has its field: without event time there is no watermark."""
    told = documents(job)
    seen = {sample.metric for sample in samples_of("counts", told)}
    landed = LandedJob.create(tmp_path / "landed")
    landed.land_and_run(1)
    (landed.folder / "feed.json").unlink()
    assert landed.land().failed
    of_landed = {"status": to_json(landed.master.reports.status())}
    of_landed["status"]["sources"]["feed"]["log"]["backlog"] = {"count": 3, "unit": "mark", "age_ms": 5_000}
    seen |= {sample.metric for sample in samples_of("landed", of_landed)}
    for metric in METRICS:
        places = [of_landed if ".log." in metric.field else told]
        for part in metric.field.split("."):
            places = [item for place in places for item in (place.values() if part == "*" else [place[part]])]
        assert metric in seen or (places and all(place is None for place in places)), metric.field


def test_names_are_one_per_metric_and_labels_never_grow_with_time() -> None:
    """Each label value is a stored series. Checkpoint and run ids would grow without bound."""
    assert len(SERIES) == len({metric.full_name for metric in METRICS}) == len(METRICS)
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) for name in SERIES)
    bounded = {"job", "operator", "source", "sink", "phase", "status", "reason", "verdict", "state", "currency"}
    bounded |= {"condition", "unit", "error", "grade"}
    assert {label for metric in METRICS for label in metric.labels} == bounded


def test_a_real_parser_reads_the_samples_of_a_job(job: CountedJob) -> None:
    told = documents(job)
    found = families(prometheus_text(samples_of("counts", told)))
    checkpoint, status = told["checkpoint"], told["status"]
    of_job = (("job", "counts"),)
    assert found["milepost_job_lastNumRecordsIn"] == {of_job: checkpoint["rows_in"]}
    assert found["milepost_job_lastCompletedCheckpointId"] == {of_job: status["head"]}
    assert found["milepost_job_lastFailure"] == {(*of_job, ("reason", "bad_record")): 1}
    assert found["milepost_phase_lastNumGetRequests"] == {(*of_job, ("phase", "plan")): 2}
    assert found["milepost_phase_duration"][(*of_job, ("phase", "commit"))] == checkpoint["phases"]["commit_ms"]
    assert (*of_job, ("phase", "total")) not in found["milepost_phase_duration"]
    assert found["milepost_operator_numRowsTotal"] == {
        (*of_job, ("operator", uid)): one["state_rows"] for uid, one in checkpoint["operators"].items()
    }
    assert found["milepost_job_monthCost"] == {(*of_job, ("currency", "USD")): status["month"]["total"]}


def test_moments_are_milliseconds_and_a_drained_job_has_no_watermark() -> None:
    def values(**checkpoint: Any) -> dict[str, float]:
        return {one.metric.name: one.value for one in samples_of("j", {"checkpoint": checkpoint})}

    at = "1970-01-01T00:00:01.500+00:00"
    assert values(watermark=at) == {"currentInputWatermark": 1500}
    assert values(watermark="end") == values(watermark=None) == {}
    assert values(sources={"s": {"watermark_us": 1_500_999}}) == {"currentOutputWatermark": 1500}
    far_us = 300_000_000_000_000_000  # its year has five digits: a row may say so (`max_event_time_ahead: null`)
    assert values(watermark=watermark_text(far_us)) == {"currentInputWatermark": far_us // 1000}


def test_a_label_value_is_escaped() -> None:
    text = prometheus_text(samples_of('a"b\\\nc', {"status": {"healthy": True}}))
    (series,) = families(text)["milepost_job_healthy"]
    assert series == (("job", 'a"b\\\nc'),)


def test_status_and_jobs_print_the_prometheus_format(job: CountedJob) -> None:
    """The exit code is always 0: the health is in the output, and scripts write the file with `&&`."""
    job.edit("core_hour: 1.0", "core_hour: 2.0")
    printed = milepost("status", job.spec_path, "--format", "prometheus")
    assert printed.exit_code == 0
    found = families(printed.stdout)
    assert found["milepost_job_healthy"] == {(("job", job.master.job.spec.name),): 1}
    assert "milepost_job_lastCheckpointDuration" in found
    listed = milepost("jobs", job.spec_path, "--format", "prometheus")
    head = found["milepost_job_lastCompletedCheckpointId"]
    assert families(listed.stdout)["milepost_job_lastCompletedCheckpointId"] == head
    for words in (("--json",), ("--watch",)):
        refused = milepost("status", job.spec_path, "--format", "prometheus", *words)
        assert refused.exit_code == 2


def test_a_job_that_never_ran_has_samples_of_its_status(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 0)
    found = families(milepost("status", job.spec_path, "--format", "prometheus").stdout)
    assert [*found["milepost_job_healthy"].values()] == [0]
    assert "milepost_job_lastCheckpointDuration" not in found


def queries() -> list[str]:
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    return found + [one["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]


def test_every_query_of_the_dashboard_names_a_metric_and_its_labels() -> None:
    named = [set(re.findall(r"milepost_\w+", query)) for query in queries()]
    assert len(named) > 20 and all(len(names) == 1 for names in named)
    assert set().union(*named) <= SERIES.keys()
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            metric = SERIES[target["expr"].partition("{")[0]]
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) == set(metric.labels)


def test_the_dashboard_is_what_grafana_s_own_types_read_and_write() -> None:
    """Grafana Labs' SDK, made from the schema of Grafana 10.1: a key that the schema does not have would be lost."""
    read = Dashboard.from_json(DASHBOARD)
    written = json.loads(json.dumps(read, default=lambda one: one.to_json() if hasattr(one, "to_json") else one.value))
    assert missing(DASHBOARD, written, "dashboard") == []
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


def missing(expected: Any, found: Any, place: str) -> list[str]:
    """Return where something of `expected` is not in `found`, which may have more: presets."""
    if isinstance(expected, dict) and isinstance(found, dict):
        lost = [f"{place}.{key}" for key in expected.keys() - found.keys() if expected[key] not in (None, {}, [])]
        kept = expected.keys() & found.keys()
        return lost + [one for key in kept for one in missing(expected[key], found[key], f"{place}.{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [one for at, (a, b) in pairs for one in missing(a, b, f"{place}[{at}]")]
    return [] if expected == found else [f"{place}: {expected!r} became {found!r}"]


def test_panels_of_a_row_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells


def test_the_table_names_the_source_of_each_metric_name() -> None:
    assert {metric.source for metric in METRICS} == {"Flink", "Spark", ""}
    assert all(metric.unit is Unit.TRUTH for metric in METRICS if metric.kind is Kind.STATE)
    assert all(isinstance(metric, Metric) and metric.description.endswith(".") for metric in METRICS)

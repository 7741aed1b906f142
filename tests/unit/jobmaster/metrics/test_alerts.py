"""The example alert rules use real metrics, fire for their condition, and link to its runbook page."""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.errors import QualityGateFailed
from milepost.jobmaster.metrics.metric_table import METRICS, Kind
from milepost.jobmaster.metrics.prometheus_text import series_name
from milepost.jobmaster.metrics.samples import Sample, samples_of
from milepost.jobmaster.reports.health.conditions import Condition
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.runbook.pages import page_files, read_page
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from tests.unit.runbook.test_provoked import GATE, TOLERANT, failed, run, with_an_epoch

RULES = yaml.safe_load((REPOSITORY / "docs" / "reference" / "alerts.yaml").read_text(encoding="utf-8"))
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
SERIES = {series_name(metric): metric for metric in METRICS if metric.kind is not Kind.EVENT}
OF_NODE_EXPORTER = "node_textfile_mtime_seconds"

_SELECTOR = r"(?P<name>\w+)(?:\{(?P<matchers>[^}]*)\})?"
_COMPARED = re.compile(rf"(?P<now>time\(\) - )?{_SELECTOR}(?: / (?P<per>\d+))? (?P<op>==|>=|>) (?P<bound>\d+)")
_MATCHER = re.compile(r'(?P<label>\w+)(?P<how>=~?)"(?P<text>[^"]*)"')
_OPERATORS = {"==": operator.eq, ">=": operator.ge, ">": operator.gt}
_AND = " and on (job) "


def compared(alert: str) -> list[re.Match[str]]:
    """The comparisons of an alert, all of which must hold of one job."""
    found = [_COMPARED.fullmatch(part) for part in ALERTS[alert]["expr"].split(_AND)]
    assert all(found), ALERTS[alert]["expr"]
    return [one for one in found if one is not None]


def matchers(part: re.Match[str]) -> list[re.Match[str]]:
    return list(_MATCHER.finditer(part["matchers"] or ""))


def holds(part: re.Match[str], samples: list[Sample]) -> bool:
    """Evaluate a comparison as Prometheus does: whether it leaves a series."""

    def selected(sample: Sample) -> bool:
        texts = [(one, sample.labels.get(one["label"], "")) for one in matchers(part)]
        fits = (re.fullmatch(one["text"], text) if one["how"] == "=~" else one["text"] == text for one, text in texts)
        return series_name(sample.metric) == part["name"] and all(fits)

    def value(sample: Sample) -> float:
        of_sample = sample.value / int(part["per"] or 1)
        return time.time() - of_sample if part["now"] else of_sample

    compare = _OPERATORS[part["op"]]
    return any(compare(value(one), int(part["bound"])) for one in samples if selected(one))


def firing(samples: list[Sample]) -> set[str]:
    return {name for name in ALERTS if all(holds(part, samples) for part in compared(name))}


def of(**status: Any) -> list[Sample]:
    return samples_of("orders", {"status": status})


def test_every_alert_names_a_metric_its_labels_and_what_they_may_hold() -> None:
    values = {
        "condition": {one.value for one in Condition},
        "reason": {one.value for one in CheckpointFailureReason},
    }
    for name in ALERTS:
        for part in compared(name):
            if part["name"] == OF_NODE_EXPORTER:
                continue
            metric = SERIES[part["name"]]
            for one in matchers(part):
                assert one["label"] in metric.labels, name
                assert set(one["text"].split("|")) <= values[one["label"]], name
            told = set(re.findall(r"\$labels\.(\w+)", " ".join(ALERTS[name]["annotations"].values())))
            assert told <= {*metric.labels, *SERIES[compared(name)[0]["name"]].labels}, name


def test_every_alert_leads_to_a_page_of_the_runbook_that_names_it() -> None:
    pages = page_files()
    for name, rule in ALERTS.items():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s")), name
        page = rule["annotations"]["runbook_url"].rpartition("/")[2]
        named = [page]
        if page.startswith("{{"):
            named = next(one["text"] for one in matchers(compared(name)[0]) if one["label"] == "condition").split("|")
        for one in named:
            assert one in pages and f"`{name}`" in read_page(one).text, (name, one)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"condition": "healthy", "failed_in_a_row": 0, "lag_ms": 60_000, "unread_objects": 3}, set()),
        ({"condition": "failed", "failed_in_a_row": 2}, {"MilepostJobFailed", "MilepostEpochsFail"}),
        ({"last_failure": "QUALITY_GATE_FAILED", "failed_in_a_row": 1}, {"MilepostVetoed"}),
        ({"last_failure": "IO_EXCEPTION"}, {"MilepostStoreAway"}),
        ({"lag_ms": 1_800_001}, {"MilepostLag"}),
        ({"sources": {"s": {"event_time_age_ms": 21_600_001}}}, {"MilepostOldEvents"}),
        ({"condition": "landing-failed"}, {"MilepostLandingFailed"}),
        ({"condition": "overdue"}, {"MilepostFeedSilent"}),
        ({"condition": "reconciling"}, {"MilepostUnpublished"}),
        ({"condition": "lease-over"}, {"MilepostLeaseOver"}),
        ({"condition": "input-refused"}, {"MilepostRefused"}),
    ],
)
def test_an_alert_fires_for_its_condition_and_for_no_other(status: Mapping[str, Any], expected: set[str]) -> None:
    assert firing(of(**status)) == expected


def test_freshness_alerts_need_a_job_with_sources_to_read() -> None:
    old = (datetime.now(UTC) - timedelta(seconds=3_700)).isoformat()
    new = (datetime.now(UTC) - timedelta(seconds=3_500)).isoformat()
    assert firing(of(last_success=old, unread_objects=1)) == {"MilepostNotFresh"}
    assert firing(of(last_success=old, unread_objects=0)) == firing(of(last_success=new, unread_objects=1)) == set()


@pytest.mark.deep
def test_a_real_job_fires_the_alerts_of_its_condition(tmp_path: Path) -> None:
    """Evaluated on the output of `status --format prometheus`."""
    well = with_an_epoch(tmp_path / "well")
    assert firing(well.master.samples()) == set()
    away = failed(tmp_path / "away")
    assert firing(away.master.samples()) == {"MilepostJobFailed", "MilepostStoreAway"}
    assert firing(failed(tmp_path / "tolerant", TOLERANT).master.samples()) == {"MilepostStoreAway"}
    vetoed = SparklessJob.create(tmp_path / "vetoed", {"checkpointing:": f"{GATE}checkpointing:", **TOLERANT})
    vetoed.land("1.csv", "k,v\n99,a\n")
    for _ in range(2):
        with pytest.raises(QualityGateFailed):
            run(vetoed)
    assert firing(vetoed.master.samples()) == {"MilepostVetoed", "MilepostEpochsFail"}

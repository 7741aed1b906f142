"""The page of metrics, from their table."""

from __future__ import annotations

from milepost.jobmaster.metrics.metric_table import METRICS, Kind
from milepost.jobmaster.metrics.prometheus_text import series_name
from scripts.reference.markdown import note, table

_TEXT = """\
What `milepost status JOB --format prometheus` prints, and [Grafana's dashboard](grafana.json) reads. Names are Flink's
or Spark's where one of them has the same figure. *per epoch*: what an epoch adds; a scrape reads that of the newest
completed one. *word*: 1, with the word as a label. No label names a checkpoint, a run or a machine.

OpenTelemetry and Airflow's own metrics have the same with dots and no capitals (`milepost.job.num_records_in`), pushed
when an epoch ends: what is *per epoch*, and an *event*, as a counter that adds up; neither words nor the status.

How to set it up, and what to be woken by: [See what a job does and costs](../how-to/observe.md); [alerts](alerts.yaml).
"""
_KINDS = {Kind.GAUGE: "gauge", Kind.EPOCH: "per epoch", Kind.STATE: "word", Kind.EVENT: "event"}


def metrics_page() -> str:
    """Return every metric: its name, labels, unit, what it measures, and where a document has it."""
    rows = [
        (
            f"`{series_name(one)}`",
            _KINDS[one.kind],
            ", ".join(one.labels),
            one.unit.value,
            one.description,
            f"`{one.field}`",
            one.source,
        )
        for one in METRICS
    ]
    columns = ("metric", "kind", "labels", "unit", "what it measures", "field", "name of")
    return f"# Metrics\n\n{note('`milepost.jobmaster.metrics.metric_table`')}\n{_TEXT}\n{table(columns, rows)}\n"

"""The page of metrics, from their table."""

from __future__ import annotations

from milepost.jobmaster.metrics.metric_table import METRICS, Kind
from milepost.jobmaster.metrics.prometheus_text import series_name
from scripts.reference.markdown import note, table

_TEXT = """\
`milepost status JOB --format prometheus` prints these metrics, and [Grafana's dashboard](grafana.json) reads them.
Names are those of Flink or Spark if one of them has the same metric. *per epoch*: the value of one epoch; a scrape
reads that of the newest completed epoch. *word*: 1, with the word as a label. No label names a checkpoint, a run or a
machine.

OpenTelemetry and Airflow's own metrics have the same names with dots and no capitals (`milepost.job.num_records_in`).
They are pushed when an epoch ends. *per epoch* and *event* are cumulative counters there. Words and the status are not
pushed.

Set-up and alerts: [See what a job does and costs](../how-to/observe.md), [alert rules](alerts.yaml).
"""
_KINDS = {Kind.GAUGE: "gauge", Kind.EPOCH: "per epoch", Kind.STATE: "word", Kind.EVENT: "event"}


def metrics_page() -> str:
    """Return every metric: its name, labels, unit, meaning, and field in documents."""
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

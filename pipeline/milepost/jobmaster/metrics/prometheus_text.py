"""Format samples in the Prometheus text format 0.0.4, which node_exporter reads from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from milepost.jobmaster.metrics.metric_table import METRICS, Kind, Metric
from milepost.jobmaster.metrics.samples import Sample

_ORDER = {metric: index for index, metric in enumerate(METRICS)}


def prometheus_text(samples: Iterable[Sample]) -> str:
    """Format samples of one or several jobs, grouped by metric as the format requires."""
    by_metric = groupby(sorted(samples, key=lambda sample: _ORDER[sample.metric]), key=lambda sample: sample.metric)
    return "".join(line for metric, family in by_metric for line in _family(metric, family))


def series_name(metric: Metric) -> str:
    """Return a metric's series name. A scrape sees only the newest epoch, so increments get `last` in the name.

    Example: `milepost_job_numRecordsIn` becomes `milepost_job_lastNumRecordsIn`.
    """
    if metric.kind is not Kind.EPOCH:  # documents of a job contain no events
        return metric.prometheus_name
    scope, _, name = metric.prometheus_name.rpartition("_")
    return f"{scope}_last{name[0].upper()}{name[1:]}"


def _family(metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
    name = series_name(metric)
    unit = f" Unit: {metric.unit.value}." if metric.unit.value else ""
    newest = " Of the newest completed epoch." if metric.kind is Kind.EPOCH else ""
    yield f"# HELP {name} {_escaped(metric.description + newest + unit, quoted=False)}\n"
    yield f"# TYPE {name} gauge\n"
    for sample in samples:
        labels = ",".join(f'{label}="{_escaped(text)}"' for label, text in sample.labels.items())
        yield f"{name}{{{labels}}} {_number(sample.value)}\n"


def _escaped(text: str, *, quoted: bool = True) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quoted else escaped


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)

"""The text that Prometheus scrapes: version 0.0.4 of its exposition format, which node_exporter reads from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from milepost.jobmaster.metrics.metric_table import METRICS, Kind, Metric
from milepost.jobmaster.metrics.samples import Sample

_ORDER = {metric: place for place, metric in enumerate(METRICS)}


def prometheus_text(samples: Iterable[Sample]) -> str:
    """Return samples of one job or several as text: those of a metric stand together, as the format demands."""
    by_metric = groupby(sorted(samples, key=lambda one: _ORDER[one.metric]), key=lambda one: one.metric)
    return "".join(line for metric, found in by_metric for line in _family(metric, found))


def series_name(metric: Metric) -> str:
    """Return what a metric is called here. What epochs add is that of the newest: a scrape sees no other."""
    if metric.kind is not Kind.EPOCH:  # no document of a job as it is now has an event
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

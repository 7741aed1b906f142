"""Samples are the values that a job's documents have of the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milepost.codec.records import to_json
from milepost.epoch.iso_times import watermark_us
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.metrics.metric_table import METRICS, Kind, Metric, Unit
from milepost.jobmaster.reports.history.history import History
from milepost.jobmaster.reports.reports import Reports

if TYPE_CHECKING:
    from milepost.jobmaster.reports.jobs import JobSummary

_EACH = "*"
_END = "end"
"""What the watermark of a drained job is called."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric. Attributes: labels: values, by name, in the order of the metric's."""

    metric: Metric
    labels: Mapping[str, str]
    value: float


def samples_of(job: str, documents: Mapping[str, Any]) -> list[Sample]:
    """Return the samples of a job, in the order of the table; what a document does not say has none.

    Args:
        documents: as JSON, by the names that `Metric.field` begins with; one that is left out has no samples.
    """
    return [
        Sample(metric, {"job": job, **labels}, value)
        for metric in METRICS
        for keys, found, beside in _found(documents, metric.field.split("."), ())
        for labels, value in _labelled(metric, keys, found, beside)
    ]


def job_samples(context: JobContext) -> list[Sample]:
    """Return what is measured of a job now: of its health, and of its head."""
    health = Reports(context).status()
    documents = {"status": to_json(health)}
    if health.head is not None:
        documents["checkpoint"] = to_json(History(context).show(health.head))
    return samples_of(context.spec.name, documents)


def listed_samples(summary: JobSummary) -> list[Sample]:
    """Return what a list of jobs says of one of them; [] where nothing is known of it."""
    return samples_of(summary.job, {"status": to_json(summary)}) if summary.problem is None else []


def _found(value: Any, path: list[str], keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield what a path leads to, with the keys that its stars stand for, and the object that it is a field of."""
    if not isinstance(value, Mapping):
        return
    part, *rest = path
    for key in value if part == _EACH else [part]:
        if key not in value:
            continue
        passed = (*keys, key) if part == _EACH else keys
        if rest:
            yield from _found(value[key], rest, passed)
        else:
            yield passed, value[key], value


def _labelled(
    metric: Metric, keys: tuple[str, ...], found: Any, beside: Mapping[str, Any]
) -> Iterator[tuple[dict[str, str], float]]:
    labels = dict(zip([metric.scope], (_key(metric, key) for key in keys), strict=False))
    if found is None or labels.get("phase") == "total":  # a sum of the others, which a query can make itself
        return
    if metric.kind in (Kind.STATE, Kind.EVENT):
        yield labels | {metric.label: str(found)}, 1
        return
    value = _value(metric, found)
    if value is not None:
        yield labels | ({metric.label: str(beside[metric.label])} if metric.label else {}), value


def _key(metric: Metric, key: str) -> str:
    return key.removesuffix("_ms") if metric.scope == "phase" else key


def _value(metric: Metric, found: Any) -> float | None:
    """Return a value in the unit of its metric; None: there is none any more."""
    if metric.unit is not Unit.MOMENT:
        return float(found) if isinstance(found, (bool, int, float)) else None
    if isinstance(found, str):
        return None if found == _END else watermark_us(found) // 1000
    return found // 1000 if metric.field.endswith("_us") else found

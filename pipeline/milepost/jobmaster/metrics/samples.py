"""Extract the values of metrics from a job's documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milepost.codec import to_json
from milepost.epoch import recorded_watermark_us
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.metrics.metric_table import METRICS, Kind, Metric, Unit
from milepost.jobmaster.reports.history.history import History
from milepost.jobmaster.reports.reports import Reports

if TYPE_CHECKING:
    from milepost.jobmaster.reports.jobs import JobSummary

_EACH = "*"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric. Attributes: labels: values, by name, in the order of the metric's."""

    metric: Metric
    labels: Mapping[str, str]
    value: float


def samples_of(job: str, documents: Mapping[str, Any]) -> list[Sample]:
    """Return the samples of a job, in the order of the table. A missing field or document gives no sample.

    Example: the field `checkpoint.sinks.*` of `{"checkpoint": {"sinks": {"totals": "committed"}}}` gives one sample
    with the labels `{"job": "visits", "sink": "totals", "state": "committed"}` and the value 1.

    Args:
        documents: as JSON, by the first part of `Metric.field`.
    """
    return [
        Sample(metric, {"job": job, **labels}, number)
        for metric in METRICS
        for keys, value, parent in _look_up(documents, metric.field.split("."), ())
        for labels, number in _label(metric, keys, value, parent)
    ]


def job_samples(context: JobContext) -> list[Sample]:
    """Return the current samples of a job: of its status and its head."""
    health = Reports(context).status()
    documents = {"status": to_json(health)}
    if health.head is not None:
        documents["checkpoint"] = to_json(History(context).show(health.head))
    return samples_of(context.spec.name, documents)


def listed_samples(summary: JobSummary) -> list[Sample]:
    """Return the samples of one line in a list of jobs; [] if the job could not be read."""
    return samples_of(summary.job, {"status": to_json(summary)}) if summary.problem is None else []


def _look_up(value: Any, path: list[str], keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield each match of a path: the keys that its stars match, the value, and the object that has the field."""
    if not isinstance(value, Mapping):
        return
    part, *rest = path
    for key in value if part == _EACH else [part]:
        if key not in value:
            continue
        matched_keys = (*keys, key) if part == _EACH else keys
        if rest:
            yield from _look_up(value[key], rest, matched_keys)
        else:
            yield matched_keys, value[key], value


def _label(
    metric: Metric, keys: tuple[str, ...], value: Any, parent: Mapping[str, Any]
) -> Iterator[tuple[dict[str, str], float]]:
    labels = dict(zip([metric.scope], (_key(metric, key) for key in keys), strict=False))
    if value is None or labels.get("phase") == "total":  # the sum of the others, which a query can compute
        return
    if metric.kind in (Kind.STATE, Kind.EVENT):
        yield labels | {metric.label: str(value)}, 1
        return
    number = _number(metric, value)
    if number is not None:
        yield labels | ({metric.label: str(parent[metric.label])} if metric.label else {}), number


def _key(metric: Metric, key: str) -> str:
    return key.removesuffix("_ms") if metric.scope == "phase" else key


def _number(metric: Metric, value: Any) -> float | None:
    """Convert a value to the unit of its metric; None: not a number, or the watermark of a drained job."""
    if metric.unit is not Unit.MOMENT:
        return float(value) if isinstance(value, (bool, int, float)) else None
    if isinstance(value, str):
        time_us = recorded_watermark_us(value)
        return None if time_us is None else time_us // 1000
    return value // 1000 if metric.field.endswith("_us") else value

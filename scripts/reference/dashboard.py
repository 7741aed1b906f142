"""The Grafana dashboard for a person on call, generated from the table of metrics."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from milepost.jobmaster.metrics.metric_table import METRICS, Kind, Metric, Unit
from milepost.jobmaster.metrics.prometheus_text import series_name

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA_VERSION = 36
"""Of Grafana 10.1. A newer Grafana migrates it."""

_WIDTH = 24
_UNITS = {Unit.MS: "ms", Unit.BYTES: "decbytes", Unit.MOMENT: "dateTimeFromNow", Unit.TRUTH: "short"}
_STACKED = "stacked"
_BY_NAME = {(metric.scope, metric.name): metric for metric in METRICS}


@dataclass(frozen=True)
class _Panel:
    """One panel: metrics of one scope.

    Attributes:
        kind: `stat`, `timeseries` or `stacked`. width: of 24.
    """

    title: str
    scope: str
    names: tuple[str, ...]
    kind: str = "timeseries"
    width: int = 8

    @property
    def metrics(self) -> list[Metric]:
        return [_BY_NAME[self.scope, name] for name in self.names]


_ROWS: dict[str, tuple[_Panel, ...]] = {
    "Now": (
        _Panel("Healthy", "job", ("healthy",), "stat", 4),
        _Panel("Last failure", "job", ("lastFailure",), "stat", 4),
        _Panel("Failed in a row", "job", ("numberOfFailedCheckpoints",), "stat", 4),
        _Panel("Last success", "job", ("lastCheckpointCompletedTimestamp",), "stat", 4),
        _Panel("Unread objects", "job", ("pendingObjects",), "stat", 4),
        _Panel("A month costs (an estimate)", "job", ("monthCost",), "stat", 4),
    ),
    "Epochs": (
        _Panel("Duration", "job", ("lastCheckpointDuration", "checkpointAlignmentTime")),
        _Panel("By phase", "phase", ("duration",), _STACKED),
        _Panel("Triggered and completed", "job", ("totalNumberOfCheckpoints", "numberOfCompletedCheckpoints")),
    ),
    "Freshness": (
        _Panel("Lag", "job", ("lag",)),
        _Panel("Age of the newest event time", "source", ("currentEmitEventTimeLag",)),
        _Panel("Age of the newest object", "source", ("sourceIdleTime",)),
    ),
    "Rows of the newest epoch": (
        _Panel("Read", "source", ("numRecordsIn",), _STACKED, 6),
        _Panel("Published", "sink", ("numRecordsSend",), _STACKED, 6),
        _Panel("Late", "operator", ("numLateRecords", "numLateRecordsDropped"), _STACKED, 6),
        _Panel("Unreadable", "source", ("numRecordsInErrors",), _STACKED, 6),
    ),
    "State": (
        _Panel("Size", "operator", ("lastCheckpointFullSize",), _STACKED),
        _Panel("Rows", "operator", ("numRowsTotal",), _STACKED),
        _Panel("Written by an epoch, and in flight", "job", ("lastCheckpointSize", "lastCheckpointPersistedData")),
    ),
    "Storage": (
        _Panel("Requests: put, list", "phase", ("numPutRequests",), _STACKED, 6),
        _Panel("Requests: get, head", "phase", ("numGetRequests",), _STACKED, 6),
        _Panel("Bytes", "phase", ("numBytesOut", "numBytesIn"), "timeseries", 6),
        _Panel("Cost of an epoch (an estimate)", "job", ("epochCost",), "timeseries", 6),
    ),
}


def dashboard() -> str:
    """Return the dashboard as JSON, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in _ROWS.items():
        panels.append(_row(title, top, len(panels) + 1))
        height, left = (4 if row[0].kind == "stat" else 8), 0
        for panel in row:
            position = {"h": height, "w": panel.width, "x": left, "y": top + 1}
            panels.append(_panel(panel, position, len(panels) + 1))
            left += panel.width
        assert left == _WIDTH, f"row {title!r} is {left} wide"
        top += 1 + height
    document = {
        "uid": "milepost-jobs",
        "title": "Milepost",
        "description": "Jobs of Milepost, from `milepost status --format prometheus`.",
        "tags": ["milepost"],
        "style": "dark",
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-24h", "to": "now"},
        "fiscalYearStartMonth": 0,
        "refresh": "1m",
        "schemaVersion": _SCHEMA_VERSION,
        "panels": panels,
        "templating": {"list": [_datasource_variable(), _job_variable()]},
        "annotations": {},
    }
    return json.dumps(document, indent=1) + "\n"


def _row(title: str, top: int, number: int) -> dict[str, Any]:
    position = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
    return {"type": "row", "collapsed": False, "title": title, "id": number, "gridPos": position, "panels": []}


def _panel(panel: _Panel, position: dict[str, int], number: int) -> dict[str, Any]:
    unit = _UNITS.get(panel.metrics[0].unit, "short")
    stacking = {"custom": {"stacking": {"mode": "normal"}, "fillOpacity": 20}} if panel.kind == _STACKED else {}
    described = " ".join(dict.fromkeys(metric.description.replace("`", "") for metric in panel.metrics))
    return {
        "type": "timeseries" if panel.kind == _STACKED else panel.kind,
        "id": number,
        "title": panel.title,
        "description": described,
        "transparent": False,
        "datasource": _DATASOURCE,
        "gridPos": position,
        "targets": [_target(metric, chr(ord("A") + at), panel.kind) for at, metric in enumerate(panel.metrics)],
        "transformations": [],
        "options": {"colorMode": "value", "textMode": "value_and_name"} if panel.kind == "stat" else {},
        "fieldConfig": {"defaults": {"unit": unit, **_thresholds(panel), **stacking}, "overrides": []},
    }


def _thresholds(panel: _Panel) -> dict[str, Any]:
    """Return the colours of a panel of health or failures."""
    if panel.names == ("healthy",):
        steps = [{"color": "red", "value": None}, {"color": "green", "value": 1}]
        mappings = [{"type": "value", "options": {"0": {"text": "no"}, "1": {"text": "yes"}}}]
        return {"thresholds": {"mode": "absolute", "steps": steps}, "mappings": mappings}
    if panel.names in (("numberOfFailedCheckpoints",), ("lastFailure",)):
        steps = [{"color": "green", "value": None}, {"color": "red", "value": 1}]
        return {"thresholds": {"mode": "absolute", "steps": steps}}
    return {}


def _target(metric: Metric, letter: str, kind: str) -> dict[str, Any]:
    others = [label for label in metric.labels if label != "job"]
    several = "" if kind == _STACKED else f" {metric.name}"
    legend = " ".join(f"{{{{{label}}}}}" for label in ("job", *others)) + ("" if metric.kind is Kind.STATE else several)
    target = {"refId": letter, "expr": f'{series_name(metric)}{{job=~"$job"}}', "legendFormat": legend}
    return {**target, "datasource": _DATASOURCE} | ({"instant": True} if kind == "stat" else {})


def _datasource_variable() -> dict[str, Any]:
    shown = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {**shown, "hide": 0, "skipUrlSync": False, "multi": False, "includeAll": False}


def _job_variable() -> dict[str, Any]:
    health = series_name(_BY_NAME["job", "healthy"])
    shown = {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": f"label_values({health}, job)",
    }
    return {**shown, "hide": 0, "skipUrlSync": False, "multi": True, "includeAll": True, "refresh": 2}

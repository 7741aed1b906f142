"""The summary page: percentiles over the newest epochs, like Flink's summary tab."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.airflow.page.jobs.series import read_series
from milepost.codec import to_json
from milepost.jobmaster import percentiles_of
from milepost.views import phase_name

NEWEST = 100
"""Number of epochs. With fewer, the 99th percentile would be the maximum."""

router = APIRouter()

_FIGURES = (
    ("duration_ms", "Trigger to publication", "duration"),
    ("lag_ms", "Lag of the watermark", "duration"),
    ("rows_in", "Rows in", "count"),
    ("rows_out", "Rows out", "count"),
    ("late_rows", "Late rows", "count"),
    ("checkpointed_bytes", "State written", "size"),
    ("state_bytes", "State in all", "size"),
    ("in_flight_bytes", "In flight", "size"),
)
"""Name, title and filter of each figure. Every other figure is a phase."""


@router.get("/summary")
@router.get("/summary.json")
def summary(job_page: OpenedJob) -> Response:
    """Show percentiles of duration, phases, rows and bytes."""
    shown = read_series(job_page, NEWEST)
    percentiles = to_json(percentiles_of(shown.epochs))
    titled = {"total_ms", *(name for name, _, _ in _FIGURES)}  # the total of the phases is the duration
    return job_page.render(
        "summary.html",
        "summary",
        document={"epochs": len(shown.epochs), "percentiles": percentiles, "unreadable": shown.unreadable_days},
        epochs=len(shown.epochs),
        shown=shown,
        figures=[(title, form, percentiles[name]) for name, title, form in _FIGURES if name in percentiles],
        phases=[(phase_name(name), values) for name, values in percentiles.items() if name not in titled],
    )

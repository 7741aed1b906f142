"""The page of what is usual of a job: percentiles over the newest epochs, as Flink's summary has them."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.airflow.page.jobs.series import series_of
from milepost.codec.records import to_json
from milepost.jobmaster.jobmaster import percentiles_of

NEWEST = 100
"""Of so many epochs: percentiles of fewer say little about what is rare."""

router = APIRouter()

_FIGURES = (
    ("duration_ms", "Trigger to commit", "duration"),
    ("total_ms", "Plan to last step", "duration"),
    ("lag_ms", "Lag of the watermark", "duration"),
    ("rows_in", "Rows in", "count"),
    ("rows_out", "Rows out", "count"),
    ("late_rows", "Late rows", "count"),
    ("checkpointed_bytes", "State written", "size"),
    ("state_bytes", "State in all", "size"),
    ("in_flight_bytes", "In flight", "size"),
)
"""Figure -> its title and form; what is none of them is a phase."""


@router.get("/summary")
def summary(at: OpenedJob) -> HTMLResponse:
    """Percentiles of duration, phases, rows and bytes."""
    shown = series_of(at, NEWEST)
    found = to_json(percentiles_of(shown.epochs))
    named = {name for name, _, _ in _FIGURES}
    return at.render(
        "summary.html",
        "summary",
        epochs=len(shown.epochs),
        shown=shown,
        figures=[(title, form, found[name]) for name, title, form in _FIGURES if name in found],
        phases=[(name.removesuffix("_ms"), one) for name, one in found.items() if name not in named],
    )

"""The charts page: time by phase, rows, state, lag, requests and cost per epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from milepost.airflow.page.drawings.bar_chart import WHOLE, Bar, Chart, drawn_charts
from milepost.airflow.page.frame.filters import count, duration, moment, size
from milepost.airflow.page.jobs.job_page import JobPage, OpenedJob
from milepost.airflow.page.jobs.series import read_series
from milepost.jobmaster import PHASE_GROUPS, EpochFigures, time_by_phase_group

SHOWN_EPOCHS = 30
CHOICES = (30, 60, 120, 240)

router = APIRouter()


@router.get("/charts")
@router.get("/charts.json")
def charts(job_page: OpenedJob, epochs: Annotated[int, Query(ge=1, le=1000)] = SHOWN_EPOCHS) -> Response:
    """Show the figures of the newest epochs of the live timeline."""
    shown = read_series(job_page, epochs)
    series = shown.epochs
    has_phaseless = any(epoch.phases is None for epoch in series)
    return job_page.render(
        "charts.html",
        "charts",
        document={"epochs": series, "unreadable": shown.unreadable_days},
        charts=drawn_charts(_charts(job_page, series)),
        series=series[::-1],
        shown=shown,
        groups=[*PHASE_GROUPS, *([WHOLE] if has_phaseless else [])] if series else [],
        epochs=epochs,
        choices=CHOICES,
    )


def _charts(job_page: JobPage, series: Sequence[EpochFigures]) -> Iterator[Chart]:
    figures: tuple[tuple[str, Callable[[EpochFigures], object], Callable[[float], str]], ...] = (
        ("Rows in", lambda epoch: epoch.rows_in, _number),
        ("Rows out", lambda epoch: epoch.rows_out, _number),
        ("Late rows", lambda epoch: epoch.late_rows, _number),
        ("State", lambda epoch: epoch.state_bytes, size),
        ("Watermark behind the trigger", lambda epoch: epoch.lag_ms, duration),
        (
            "Requests to S3",
            lambda epoch: (epoch.requests.total or None) if epoch.requests is not None else None,
            _number,
        ),
        ("Estimated cost", lambda epoch: epoch.cost.total if epoch.cost is not None else None, partial(_money, series)),
    )
    if not series:
        return
    phase_bars = [_bar(job_page, epoch, phases_in_groups(epoch), duration) for epoch in series]
    yield Chart("Time by phase", phase_bars, duration)
    for title, figure, format_value in figures:
        bars = [_bar(job_page, epoch, _single_part(figure(epoch)), format_value) for epoch in series]
        yield Chart(title, bars, format_value)


def phases_in_groups(epoch: EpochFigures) -> dict[str, float]:
    """Return the milliseconds of an epoch by group of phases, or in total if they were not measured."""
    if epoch.phases is None:
        return {} if epoch.duration_ms is None else {WHOLE: epoch.duration_ms}
    return dict(time_by_phase_group(epoch.phases))


def _single_part(value: object) -> dict[str, float]:
    return {WHOLE: value} if isinstance(value, (int, float)) else {}


def _bar(
    job_page: JobPage, epoch: EpochFigures, parts: Mapping[str, float], format_value: Callable[[float], str]
) -> Bar:
    name = moment(epoch.trigger_time)[5:16] or f"epoch {epoch.epoch}"
    tooltip = f"checkpoint {epoch.checkpoint_id}, {moment(epoch.trigger_time)}: "
    tooltip += format_value(sum(parts.values())) if parts else "not known"
    if len(parts) > 1:
        tooltip += " (" + ", ".join(f"{group} {format_value(ms)}" for group, ms in parts.items() if ms) + ")"
    return Bar(name, parts, tooltip, job_page.url("checkpoints", epoch.checkpoint_id))


def _money(series: Sequence[EpochFigures], value: float) -> str:
    currency = next((epoch.cost.currency for epoch in series if epoch.cost is not None), "")
    return f"{value:.3g} {currency}"


def _number(value: float) -> str:
    return count(round(value)) if value == round(value) else f"{value:,.1f}"

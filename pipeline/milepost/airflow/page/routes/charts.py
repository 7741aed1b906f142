"""The page of a job's figures over its epochs: where their time went, rows, late rows, state, lag, requests, money."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from milepost.airflow.page.drawings.bar_chart import Bar, Chart, bar_chart
from milepost.airflow.page.frame.figures import count, duration, moment, size
from milepost.airflow.page.jobs.job_page import JobPage, OpenedJob
from milepost.airflow.page.jobs.series import series_of
from milepost.jobmaster.jobmaster import PHASE_GROUPS, EpochFigures, time_by_phase_group

SHOWN_EPOCHS = 30
CHOICES = (30, 60, 120, 240)

WHOLE = "whole"
"""The part of an epoch of which only the whole time is known: it is not retained."""

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart as it is shown."""

    title: str
    newest: str
    picture: str


@router.get("/charts")
def charts(at: OpenedJob, epochs: Annotated[int, Query(ge=1, le=1000)] = SHOWN_EPOCHS) -> HTMLResponse:
    """The figures of the newest epochs of the live lineage."""
    shown = series_of(at, epochs)
    series = shown.epochs
    drawn = [
        Drawn(chart.title, chart.newest, bar_chart(chart, f"chart-{place}"))
        for place, chart in enumerate(_charts(at, series))
        if chart.is_known
    ]
    known = [one for one in series if one.phases is not None]
    return at.render(
        "charts.html",
        "charts",
        charts=drawn,
        series=series[::-1],
        shown=shown,
        groups=[*PHASE_GROUPS, *([WHOLE] if len(known) < len(series) else [])] if series else [],
        epochs=epochs,
        choices=CHOICES,
    )


def _charts(at: JobPage, series: Sequence[EpochFigures]) -> Iterator[Chart]:
    figures: tuple[tuple[str, Callable[[EpochFigures], object], Callable[[float], str]], ...] = (
        ("Rows in", lambda one: one.rows_in, _rows),
        ("Rows out", lambda one: one.rows_out, _rows),
        ("Late rows", lambda one: one.late_rows, _rows),
        ("State", lambda one: one.state_bytes, size),
        ("Watermark behind the trigger", lambda one: one.lag_ms, duration),
        ("Requests to S3", lambda one: (one.requests.total or None) if one.requests is not None else None, _rows),
        ("Estimated cost", lambda one: one.cost.total if one.cost is not None else None, partial(_money, series)),
    )
    if not series:
        return
    yield Chart("Time by phase", [_bar(at, one, phases_in_groups(one), duration) for one in series], duration)
    for title, figure, in_words in figures:
        yield Chart(title, [_bar(at, one, _plain(figure(one)), in_words) for one in series], in_words)


def phases_in_groups(figures: EpochFigures) -> dict[str, float]:
    """Return the milliseconds of an epoch by group of phases; of one that is not retained the whole of them."""
    if figures.phases is None:
        return {} if figures.duration_ms is None else {WHOLE: figures.duration_ms}
    return dict(time_by_phase_group(figures.phases))


def _plain(value: object) -> dict[str, float]:
    return {WHOLE: value} if isinstance(value, (int, float)) else {}


def _bar(at: JobPage, figures: EpochFigures, parts: Mapping[str, float], in_words: Callable[[float], str]) -> Bar:
    name = moment(figures.trigger_time)[5:16] or f"epoch {figures.epoch}"
    tooltip = f"checkpoint {figures.checkpoint_id}, {moment(figures.trigger_time)}: "
    tooltip += in_words(sum(parts.values())) if parts else "not known"
    if len(parts) > 1:
        tooltip += " (" + ", ".join(f"{group} {in_words(ms)}" for group, ms in parts.items() if ms) + ")"
    return Bar(name, parts, tooltip, at.url("checkpoints", figures.checkpoint_id))


def _money(series: Sequence[EpochFigures], value: float) -> str:
    currency = next((one.cost.currency for one in series if one.cost is not None), "")
    return f"{value:.3g} {currency}"


def _rows(value: float) -> str:
    return count(round(value)) if value == round(value) else f"{value:,.1f}"

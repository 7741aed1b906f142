"""The page of one table: its document, with charts of its figures per epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from airflow.models.asset import AssetModel
from airflow.sdk import Asset
from airflow.utils.session import create_session
from fastapi import APIRouter
from fastapi.responses import Response
from sqlalchemy import select

from milepost.acts import TRACED_AT, TRACED_SINK, TRACED_VALUES, WHY
from milepost.airflow.operators.dag_ids import is_own_dag, operate_dag_id
from milepost.airflow.page.drawings.bar_chart import WHOLE, Bar, Chart, drawn_charts
from milepost.airflow.page.frame.filters import count, duration, moment
from milepost.airflow.page.jobs.acts import PageAct
from milepost.airflow.page.jobs.job_page import JobPage, OpenedJob
from milepost.airflow.page.jobs.job_reader import JOB_READER
from milepost.airflow.provider.asset_uris import sink_assets
from milepost.errors import CheckpointError
from milepost.jobmaster import TableEpoch, TableReport, hide_sample
from milepost.views import sampled_rows, table_view

router = APIRouter()


@router.get("/tables/{sink}")
@router.get("/tables/{sink}.json")
def table(job_page: OpenedJob, sink: str) -> Response:
    """Show one table. If the table itself cannot be read, show the reason and the records of the job.

    A sample is only read for a user who may see values. Bounds of rules are left out for one who may not read the spec.
    """
    with_bounds = job_page.rights.may_read_code(job_page.dag_id)
    # Starts before the report is read, so that both run concurrently.
    await_sample = None
    if job_page.shows_values:
        await_sample = JOB_READER.start(job_page.job, lambda master: master.reports.table_sample(sink))
    await_report = JOB_READER.start(job_page.job, lambda master: master.reports.table(sink))
    status = JOB_READER.read([job_page.job])[0].status
    report = await_report()
    if await_sample is not None:
        try:
            report = replace(report, sample=await_sample())
        except CheckpointError as error:
            report = replace(report, problem=error.message)
    if not with_bounds:
        report = replace(report, rules=tuple(replace(rule, bounds=None) for rule in report.rules))
    report = report if job_page.shows_values else hide_sample(report)
    health = None if status is None else (status.tables or {}).get(sink)
    state = None if health is None else health.state
    view = table_view(report, state, with_values=job_page.shows_values, with_bounds=with_bounds)
    return job_page.render(
        "table.html",
        None,
        document=report,
        view=view,
        charts=drawn_charts(_charts(job_page, report.epochs)),
        traces=list(_traces(job_page, report)),
        asset_id=_asset_id(job_page, sink),
    )


def _traces(job_page: JobPage, report: TableReport) -> Iterator[tuple[str, PageAct]]:
    """Yield each row of the sample with the act that traces it, if the user may trigger it."""
    job, operate = job_page.name, operate_dag_id(job_page.name)
    if not is_own_dag(job, job_page.dag_id) or not job_page.rights.may_trigger(operate):
        return
    for row in sampled_rows(report):
        assert report.sample is not None, "its rows are those of the sample"
        fields = {TRACED_SINK: report.sink, TRACED_VALUES: row, TRACED_AT: report.sample.checkpoint_id}
        yield row, PageAct(job, job_page.dag_id, operate, "Trace", WHY.summary, WHY.name, fields)


def _charts(job_page: JobPage, epochs: Sequence[TableEpoch]) -> Iterator[Chart]:
    figures: tuple[tuple[str, Callable[[TableEpoch], int | None], Callable[[float], str]], ...] = (
        ("Age of event time when published", lambda epoch: epoch.age_ms, duration),
        ("Rows per epoch", lambda epoch: epoch.rows, lambda value: count(round(value))),
        ("Late rows, which it lacks", lambda epoch: epoch.late_rows, lambda value: count(round(value))),
        ("Rows of the table", lambda epoch: epoch.table_rows, lambda value: count(round(value))),
    )
    for title, figure, format_value in figures:
        bars = [_bar(job_page, epoch, figure(epoch), format_value) for epoch in epochs]
        yield Chart(title, bars, format_value)


def _bar(job_page: JobPage, epoch: TableEpoch, value: int | None, format_value: Callable[[float], str]) -> Bar:
    known = "not known" if value is None else format_value(value)
    return Bar(
        moment(epoch.completed)[5:16] or f"epoch {epoch.epoch}",
        {} if value is None else {WHOLE: value},
        f"checkpoint {epoch.checkpoint_id}, {moment(epoch.completed)}: {known}",
        job_page.url("checkpoints", epoch.checkpoint_id),
    )


def _asset_id(job_page: JobPage, sink: str) -> int | None:
    """Return the id of the table's asset; None: no run has published it yet, or the user may not read it."""
    uri = Asset(sink_assets(job_page.loaded)[sink]).uri
    with create_session() as session:
        asset_id = session.scalar(select(AssetModel.id).where(AssetModel.uri == uri).limit(1))
    return asset_id if asset_id is not None and job_page.rights.may_read_asset(asset_id) else None

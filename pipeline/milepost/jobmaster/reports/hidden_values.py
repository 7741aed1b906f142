"""Remove data values from documents, for users who may not see them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.jobmaster.reports.health.sources import SourceHealth
from milepost.jobmaster.reports.health.status import Status
from milepost.jobmaster.reports.hidden_messages import HIDDEN_MESSAGE, hide_message
from milepost.jobmaster.reports.history.incident import Incident, RefusingRule
from milepost.jobmaster.reports.history.page import HistoryPage
from milepost.jobmaster.reports.job_report import JobState
from milepost.jobmaster.reports.tables.table_report import RuleResult, TableReport

Failing = TypeVar("Failing", Status, JobState)
Report = TypeVar("Report", bound=CheckpointReport)


def hide_failure(document: Failing) -> Failing:
    """Return a job's health, or its state in the manifest, without data values."""
    detail = hide_message(document.last_failure, document.last_failure_detail)
    if isinstance(document, Status):
        sources = None if document.sources is None else {one: _source(it) for one, it in document.sources.items()}
        return replace(document, last_failure_detail=detail, sources=sources)
    return replace(document, last_failure_detail=detail)


def _source(source: SourceHealth) -> SourceHealth:
    if source.log is None or source.log.failed is None:
        return source
    failed = source.log.failed
    failed = replace(failed, message=hide_message(failed.error, failed.message) or "")
    return replace(source, log=replace(source.log, failed=failed))


def hide_detail(report: Report) -> Report:
    """Return a checkpoint without messages that may quote values: of its failure, and of rules that raised."""
    shown = replace(report, failure_detail=hide_message(report.failure_reason, report.failure_detail))
    if not isinstance(shown, CheckpointDetails):
        return shown
    verdicts = (
        replace(
            one,
            expectations=tuple(
                rule if rule.exception is None else replace(rule, exception=HIDDEN_MESSAGE) for rule in one.expectations
            ),
        )
        for one in shown.verdict.verdicts
    )
    return replace(shown, verdict=replace(shown.verdict, verdicts=tuple(verdicts)))


def hide_details(page: HistoryPage) -> HistoryPage:
    """Return a page of checkpoints without messages that may quote values."""
    return replace(page, checkpoints=tuple(map(hide_detail, page.checkpoints)))


def hide_rows(incident: Incident) -> Incident:
    """Return an incident without data values."""
    rules = tuple(map(_rule, incident.rules))
    return replace(incident, detail=hide_message(incident.reason, incident.detail), rules=rules)


def _rule(rule: RefusingRule) -> RefusingRule:
    raised = None if rule.exception is None else HIDDEN_MESSAGE
    previous = tuple(map(_result, rule.previous))
    return replace(rule, observed_value=None, exception=raised, rows=(), previous=previous)


def _result(result: RuleResult) -> RuleResult:
    return result if result.exception is None else replace(result, exception=HIDDEN_MESSAGE)


def hide_sample(report: TableReport) -> TableReport:
    """Return a table without rows, and without the messages of rules that raised."""
    rules = tuple(replace(rule, results=tuple(map(_result, rule.results))) for rule in report.rules)
    return replace(report, sample=None, problem=None, rules=rules)

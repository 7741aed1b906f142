"""The figures of a job's epochs as its pages show them: of no more is read at a time than a person can wait for."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.airflow.page.jobs.job_page import JobPage
from milepost.errors import NotFound
from milepost.jobmaster.jobmaster import EpochFigures

MOST_READ = 40
"""Epochs whose measurements one page reads; what the server has read before counts for none."""


@dataclass(frozen=True, slots=True)
class ShownSeries:
    """Figures of the newest epochs, oldest first, and what is not among them.

    Attributes:
        compacted: there were older epochs, of which the log keeps no figures.
    """

    epochs: tuple[EpochFigures, ...]
    compacted: bool

    @property
    def unreadable(self) -> list[EpochFigures]:
        """Those whose measurements are damaged, newest first."""
        return [one for one in reversed(self.epochs) if one.unreadable is not None]

    @property
    def left_out(self) -> int:
        """Of how many the measurements were not read, because the page has read as many as it may."""
        return sum(one.left_out for one in self.epochs)


def series_of(at: JobPage, limit: int) -> ShownSeries:
    """Return the figures of so many of the newest epochs; none of a job that has never run."""
    try:
        found = at.ask(lambda master: master.series(limit, MOST_READ))
    except NotFound:
        found = []
    compacted = 0 < len(found) < limit and (found[0].epoch or 0) > 1
    return ShownSeries(tuple(found), compacted)

"""Figures of a job's newest epochs, with a limit on how many one page reads."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.airflow.page.jobs.job_page import JobPage
from milepost.errors import NotFound
from milepost.jobmaster import EpochFigures, FiguresSeries

MAX_EPOCHS_READ = 40
"""Maximum number of epochs whose measurements one page load reads from the store. Cached ones do not count."""


@dataclass(frozen=True, slots=True)
class ShownSeries:
    """Figures of the newest epochs, oldest first, and which figures are missing.

    Attributes:
        compacted: whether there were older epochs, of which neither the log nor a stored row has figures.
        unreadable_days: why stored figures of past epochs cannot be read, one line per object.
    """

    epochs: tuple[EpochFigures, ...]
    compacted: bool
    unreadable_days: tuple[str, ...] = ()

    @property
    def unreadable(self) -> list[EpochFigures]:
        """Epochs with damaged measurements, newest first."""
        return [epoch for epoch in reversed(self.epochs) if epoch.unreadable is not None]

    @property
    def left_out(self) -> int:
        """Number of epochs without measurements because of `MAX_EPOCHS_READ`."""
        return sum(epoch.left_out for epoch in self.epochs)


def read_series(job_page: JobPage, limit: int) -> ShownSeries:
    """Return the figures of the newest `limit` epochs; none for a job that has never run."""
    try:
        series = job_page.query(lambda master: master.reports.series(limit, MAX_EPOCHS_READ))
    except NotFound:
        series = FiguresSeries()
    epochs = series.epochs
    compacted = 0 < len(epochs) < limit and (epochs[0].epoch or 0) > 1
    return ShownSeries(tuple(epochs), compacted, series.unreadable)

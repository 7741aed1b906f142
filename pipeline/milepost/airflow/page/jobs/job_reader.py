"""Read jobs concurrently with a timeout, so that a slow store delays no other job.

Each storage has its own small thread pools, so a store that hangs blocks no thread of another one. Concurrent requests
share one read of a job's health: a store that hangs holds one thread per job, not one per request. Other queries have
separate pools. A query that times out while it is still queued is cancelled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TypeVar

from milepost.airflow.page.frame.access import Rights
from milepost.airflow.page.jobs.dag_jobs import DagJob
from milepost.airflow.page.jobs.suggested_action import (
    LONG_EPOCH,
    SuggestedAction,
    action_after_error,
    suggested_action,
)
from milepost.errors import CheckpointError, StateCorrupt, StoreUnavailable
from milepost.jobmaster import (
    Condition,
    JobMaster,
    JobState,
    RecentEpoch,
    Since,
    Status,
    hide_failure,
    usual_duration_ms,
)
from milepost.protocol.records import JobStatus, StoreConfig
from milepost.runbook import page_of
from milepost.views import JobBadge, Meaning, job_badge, since_text

T = TypeVar("T")

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
"""How long a page waits for its jobs, in seconds."""

STORE_AWAY, HEAD_UNREADABLE = "The store does not answer", "The head cannot be read: no epoch can continue it"
"""First sentence of pages about a job without a status. The message of the error follows."""

_MAX_CONCURRENT_READS = 8
"""Maximum number of jobs of one storage whose health is read concurrently."""

_MAX_CONCURRENT_QUERIES = 8
"""Maximum number of other queries of one storage that run concurrently."""


@dataclass(slots=True)
class JobReading:
    """The health of a job, as far as it has been read.

    Attributes:
        state: from the manifest alone. status: with the sources, which takes longer to read.
        recent: the newest epochs, oldest first; () if they are not known.
        error: why the rest is missing. problem: the same as text, or that the read timed out; "" if nothing is missing.
        before: the error of the read before this one. timed_out: whether the page did not wait for the read to end.
        failing_since_s: when the first of the reads began that have all failed since, as a Unix time; None: none has.
    """

    job: DagJob
    state: JobState | None = None
    status: Status | None = None
    recent: tuple[RecentEpoch, ...] = ()
    error: CheckpointError | None = None
    problem: str = ""
    before: CheckpointError | None = None
    timed_out: bool = False
    failing_since_s: float | None = None
    running: Future[None] = field(default_factory=Future)

    def shown_to(self, rights: Rights) -> JobReading:
        """Return the reading without messages that the user may not see. Requests of all users share one reading."""
        if self.job.shows_values_to(rights):
            return self
        state = None if self.state is None else hide_failure(self.state)
        return replace(self, state=state, status=None if self.status is None else hide_failure(self.status))

    @property
    def badge(self) -> JobBadge:
        if self.status is not None:
            return job_badge(self.status)
        if self.state is not None and self.state.job_status == JobStatus.FAILED.value:
            return JobBadge(Meaning.BAD, "failed", f"{self.state.last_failure}. {self.problem}")
        if isinstance(self.error, StoreUnavailable) and self.state is None:
            return JobBadge(Meaning.BAD, "unreachable", f"{STORE_AWAY}: {self.problem}", self.failing_since)
        if isinstance(self.error, StateCorrupt) and self.state is not None:
            why = self.error.details.get("fault") or self.problem
            return JobBadge(Meaning.BAD, "unreadable", f"{HEAD_UNREADABLE}. Reason: {why}", self.failing_since)
        if self.timed_out:
            return JobBadge(Meaning.WARN, "no answer", self.problem)
        return JobBadge(Meaning.BAD, "unreadable", self.problem)

    @property
    def failing_since(self) -> str:
        """Since when this server cannot read the job, as text; "" if it can."""
        if self.failing_since_s is None:
            return ""
        age_ms = round(1000 * (time.time() - self.failing_since_s))
        time_text = datetime.fromtimestamp(self.failing_since_s, UTC).isoformat()
        return f"{since_text(Since(time=time_text, age_ms=age_ms))}, as far as this server knows"

    @property
    def runs_long(self) -> bool:
        """Whether an epoch has been running for longer than nine of ten recent ones took."""
        usual_ms, status = usual_duration_ms(self.recent), self.status
        if status is None or status.condition is not Condition.RUNNING or status.since is None or usual_ms is None:
            return False
        return (status.since.age_ms or 0) > usual_ms

    @property
    def has_stopped(self) -> bool:
        """Whether no epoch has completed since the last one failed."""
        if self.status is not None:
            return self.status.condition in (Condition.FAILED, Condition.EPOCH_FAILED)
        return self.state is not None and self.state.job_status == JobStatus.FAILED.value

    @property
    def action(self) -> SuggestedAction:
        if self.runs_long:
            return SuggestedAction(LONG_EPOCH)
        return suggested_action(self.status) if self.status is not None else action_after_error(self.error)

    @property
    def runbook(self) -> str:
        """The name of the runbook page for the condition or the error; "" if neither is known."""
        if self.status is not None:
            return self.status.condition.value
        return "" if self.error is None else page_of(self.error)


class JobReader:
    """Reads jobs on thread pools, one pair of pools per storage."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._newest_readings: dict[tuple[str, str, StoreConfig | None], JobReading] = {}
        self._health_pools: dict[StoreConfig | None, ThreadPoolExecutor] = {}
        self._query_pools: dict[StoreConfig | None, ThreadPoolExecutor] = {}

    def read(self, jobs: Sequence[DagJob]) -> list[JobReading]:
        """Return the reading of each job within `TIMEOUT_S`, in the order of `jobs`. Never raises."""
        with self._lock:
            readings = [self._start_reading(job) for job in jobs]
        wait([reading.running for reading in readings], timeout=TIMEOUT_S)
        return [self._snapshot_of(reading) for reading in readings]

    def failing_since(self, job: DagJob) -> str:
        """Since when the health of a job cannot be read, as text; "" if the newest read did not fail."""
        newest = self._newest_readings.get(_key(job))
        return "" if newest is None else newest.failing_since

    def start(self, job: DagJob, query: Callable[[JobMaster], T]) -> Callable[[], T]:
        """Start a query of a job. Return a function that waits for its result, at most until `TIMEOUT_S` from now.

        That function raises what `query` raises, and StoreUnavailable after the timeout.
        """
        storage = _storage_of(job)
        with self._lock:
            if storage not in self._query_pools:
                prefix = "milepost-page-query"
                self._query_pools[storage] = ThreadPoolExecutor(_MAX_CONCURRENT_QUERIES, thread_name_prefix=prefix)
        future = self._query_pools[storage].submit(lambda: query(JobMaster(job.loaded)))
        deadline_s = time.monotonic() + TIMEOUT_S

        def await_result() -> T:
            try:
                return future.result(max(0.0, deadline_s - time.monotonic()))
            except TimeoutError:
                if future.done():  # the query itself raised TimeoutError
                    raise
                future.cancel()
                raise StoreUnavailable(f"Its store did not answer within {TIMEOUT_S:g} s.") from None

        return await_result

    def _start_reading(self, job: DagJob) -> JobReading:
        key = _key(job)
        storage, newest = key[-1], self._newest_readings.get(key)
        if newest is not None and not newest.running.done():
            return newest
        reading = JobReading(job)
        if newest is not None:
            reading.before, reading.failing_since_s = newest.error, newest.failing_since_s
        if storage not in self._health_pools:
            self._health_pools[storage] = ThreadPoolExecutor(_MAX_CONCURRENT_READS, thread_name_prefix="milepost-page")
        reading.running = self._health_pools[storage].submit(_read, reading)
        self._newest_readings[key] = reading
        return reading

    def _snapshot_of(self, reading: JobReading) -> JobReading:
        """Return a copy of a reading with its problem: its thread may still change the original."""
        snapshot = replace(reading)
        if not reading.running.done():
            snapshot.timed_out = True  # it may end before the badge is drawn
            if snapshot.state is None and isinstance(reading.before, StoreUnavailable):
                snapshot.error = reading.before
            late = "store" if snapshot.state is None else "sources"
            snapshot.problem = f"Its {late} did not answer within {TIMEOUT_S:g} s, or this server is busy."
        elif reading.error is not None:
            snapshot.problem = reading.error.message
        elif (error := reading.running.exception()) is not None:
            log.error("job %s could not be read", reading.job.loaded.spec.name, exc_info=error)
            snapshot.problem = f"Unexpected {type(error).__name__}: see the log of the API server."
        return snapshot


def _key(job: DagJob) -> tuple[str, str, StoreConfig | None]:
    return job.dag_id, job.loaded.spec.name, _storage_of(job)


def _storage_of(job: DagJob) -> StoreConfig | None:
    """Return the storage of a job; None if its configuration is invalid, which reading the job reports."""
    try:
        return job.loaded.store_config(job.loaded.storage_url)
    except CheckpointError:
        return None


def _read(reading: JobReading) -> None:
    started_s = time.time()
    try:
        master = JobMaster(reading.job.loaded)
        reading.state = master.reports.job_state()
        reading.recent = master.reports.recent_epochs()
        reading.status = master.reports.status(month=False, recent=True)
        reading.failing_since_s = None
    except CheckpointError as error:
        reading.error, reading.failing_since_s = error, reading.failing_since_s or started_s


JOB_READER = JobReader()
"""The reader of this API server process, shared by all requests."""

"""Jobs read beside each other, each for as long as a page can wait: what is slow or broken holds up nothing else.

Every storage has threads of its own, a few of them, so that one that hangs takes none of another's. The health of a job
is read once at a time: whoever asks while it still is waits for that, and a store that hangs holds one thread per job,
not one per reader. What else a page asks has threads beside those, and what was waited for in vain is not begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TypeVar

from milepost.airflow.page.jobs.dag_jobs import DagJob
from milepost.airflow.page.jobs.next_step import NextStep, next_step, step_of_error
from milepost.airflow.page.jobs.standing import Standing, Tone, standing_of
from milepost.errors import CheckpointError, StoreUnavailable
from milepost.jobmaster.jobmaster import JobMaster, JobState, Status
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.records.object_store import StoreConfig
from milepost.runbook.addresses import page_of

T = TypeVar("T")

log = logging.getLogger(__name__)

LIMIT_S = 5.0
"""How long a page waits for its jobs."""

_AT_ONCE = 4
"""Jobs of one storage that are read at a time."""

_ASKED_AT_ONCE = 8
"""Pages of jobs of one storage that are answered at a time."""


@dataclass(slots=True)
class Reading:
    """What is known of a job by now.

    Attributes:
        state: of its manifest alone. status: with its sources, which take longer.
        error: why not more is known. problem: the same in words, or that there is no answer; "" when all is known.
    """

    job: DagJob
    state: JobState | None = None
    status: Status | None = None
    error: CheckpointError | None = None
    problem: str = ""
    running: Future[None] = field(default_factory=Future)

    @property
    def standing(self) -> Standing:
        if self.status is not None:
            return standing_of(self.status)
        if self.state is not None and self.state.job_status == JobStatus.FAILED.value:
            return Standing(Tone.BAD, "failed", f"{self.state.last_failure}. {self.problem}")
        return Standing(Tone.BAD, "unreadable", self.problem)

    @property
    def step(self) -> NextStep:
        return next_step(self.status) if self.status is not None else step_of_error(self.error)

    @property
    def runbook(self) -> str:
        """The name of the page that says more; "" where nothing is known that one could be of."""
        if self.status is not None:
            return self.status.condition.value
        return "" if self.error is None else page_of(self.error)


class Readings:
    """The reads that are under way in this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: dict[tuple[str, str], Reading] = {}
        self._threads: dict[StoreConfig | None, ThreadPoolExecutor] = {}
        self._askers: dict[StoreConfig | None, ThreadPoolExecutor] = {}

    def read(self, jobs: Sequence[DagJob]) -> list[Reading]:
        """Return what could be read of each job within `LIMIT_S`, in the same order; none raises."""
        with self._lock:
            readings = [self._begin(job) for job in jobs]
        wait([reading.running for reading in readings], timeout=LIMIT_S)
        return [self._answer_of(reading) for reading in readings]

    def ask(self, job: DagJob, ask: Callable[[JobMaster], T]) -> Callable[[], T]:
        """Begin to ask something of a job; return what waits for the answer, for `LIMIT_S` from now on at most.

        That raises: what `ask` does. StoreUnavailable: there is no answer in time.
        """
        storage = _storage_of(job)
        with self._lock:
            if storage not in self._askers:
                self._askers[storage] = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="milepost-page-asks")
        asked = self._askers[storage].submit(lambda: ask(JobMaster(job.loaded)))
        until_s = time.monotonic() + LIMIT_S

        def answer() -> T:
            try:
                return asked.result(max(0.0, until_s - time.monotonic()))
            except TimeoutError:
                if asked.done():
                    raise
                asked.cancel()
                raise StoreUnavailable(f"No answer of its store within {LIMIT_S:g} s.") from None

        return answer

    def _begin(self, job: DagJob) -> Reading:
        key = (job.dag_id, job.loaded.spec.name)
        known = self._under_way.get(key)
        if known is not None and not known.running.done():
            return known
        reading = Reading(job)
        storage = _storage_of(job)
        if storage not in self._threads:
            self._threads[storage] = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="milepost-page")
        reading.running = self._threads[storage].submit(_read, reading)
        self._under_way[key] = reading
        return reading

    def _answer_of(self, reading: Reading) -> Reading:
        """Return a reading as it is now: its thread may go on filling in the one that it has."""
        answer = replace(reading)
        if not reading.running.done():
            late = "its store" if answer.state is None else "its sources"
            answer.problem = f"No answer of {late} within {LIMIT_S:g} s."
        elif reading.error is not None:
            answer.problem = reading.error.message
        elif (error := reading.running.exception()) is not None:
            log.error("job %s could not be read", reading.job.loaded.spec.name, exc_info=error)
            answer.problem = f"An unexpected error, {type(error).__name__}: the API server's log has it."
        return answer


def _storage_of(job: DagJob) -> StoreConfig | None:
    """Return where a job's storage is; None where that cannot be told, which reading it will say."""
    try:
        return job.loaded.store_config(job.loaded.storage_url)
    except CheckpointError:
        return None


def _read(reading: Reading) -> None:
    try:
        master = JobMaster(reading.job.loaded)
        reading.state = master.job_state()
        reading.status = master.status(month=False)
    except CheckpointError as error:
        reading.error = error


READINGS = Readings()
"""Those of Airflow's server: one for all requests."""

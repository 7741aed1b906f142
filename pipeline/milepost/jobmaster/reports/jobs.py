"""List the jobs of a storage or of a folder of specs, with head and status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from milepost.epoch import iso_ms
from milepost.errors import CheckpointError, InvalidRequest
from milepost.jobspec.load import LoadedJob, load_job, spec_files
from milepost.protocol.manifest.timelines import job_phase
from milepost.protocol.records import ManifestState, ObjectStore, StoreConfig, absolute_url, child_url, location_problem
from milepost.storage import open_store
from milepost.storage.log import ManifestLog

_MAX_THREADS = 8
_AFTER_SLASH = "0"
"""The character after ``/`` in key order, so a LIST from `name0` skips all keys `name/…`."""


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One line in a list of jobs.

    Attributes:
        spec: its file, if the list is of a folder. storage: the location above the job's store.
        head, epoch: of the newest completed checkpoint of the live timeline; None before the first.
        pending: the running checkpoint. last_failure: why the last epoch failed; None if it did not.
        problem: why the job could not be read; None: it was.
    """

    job: str
    job_status: str | None = None
    head: int | None = None
    epoch: int | None = None
    timeline: str | None = None
    pending: int | None = None
    last_success: str | None = None
    last_failure: str | None = None
    storage: str | None = None
    spec: str | None = None
    problem: str | None = None


def jobs_of_folder(folder: Path) -> list[JobSummary]:
    """Return the jobs of the specs in a folder, by name. A spec with an error has a `problem`.

    Raises: InvalidRequest: no such folder.
    """
    if not folder.is_dir():
        raise InvalidRequest(
            f"there is no folder {folder.name}/ here, in {folder.parent}.",
            hint="name a folder of specs, as in milepost jobs ./specs, a storage, as in milepost jobs "
            "s3://bucket/prefix, or the spec of one of its jobs",
        )
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        return _sort_by_name(pool.map(_summarize_spec, spec_files(folder)))


def jobs_in_storage_of(job: LoadedJob) -> list[JobSummary]:
    """Return all jobs that have run in the storage of this job, using its connection."""
    return _jobs_under(job.store_config(job.storage_url))


def jobs_under(storage: str, folder: Path) -> list[JobSummary]:
    """Return all jobs that have run in a storage; if the path is a folder of specs, the jobs of those.

    Args:
        storage: a URL, or a path relative to `folder`. S3 uses the configuration of the AWS tools.
    Raises: InvalidRequest: not a location. StoreUnavailable, EnvironmentUnusable.
    """
    path = folder / storage
    if spec_files(path):
        return jobs_of_folder(path)
    problem = location_problem(storage)
    if problem:
        raise InvalidRequest(f"the storage {storage!r} is unusable: {problem}.")
    return _jobs_under(StoreConfig(url=absolute_url(storage, folder)))


def _jobs_under(config: StoreConfig) -> list[JobSummary]:
    names = list(_names(open_store(config)))
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        return _sort_by_name(pool.map(_summarize_store, names, [_child(config, name) for name in names]))


def _names(store: ObjectStore) -> Iterator[str]:
    """Yield the folders of a storage, with one LIST of a single key per folder.

    LIST after ""          -> a/manifest/1    yields a
    LIST after "a0"        -> readme.txt      no folder
    LIST after readme.txt  -> visits/x        yields visits
    LIST after "visits0"   -> nothing
    """
    after = ""
    invalid_names: list[str] = []  # ignored: other programs may store objects here
    while (
        first := next(iter(store.list("", start_after=after, limit=1, invalid_names=invalid_names)), None)
    ) is not None:
        name, slash, _ = first.key.partition("/")
        if slash:
            yield name
        after = name + _AFTER_SLASH if slash else first.key


def _child(config: StoreConfig, name: str) -> StoreConfig:
    return replace(config, url=child_url(config.url, name))


def _summarize_spec(path: Path) -> JobSummary:
    try:
        job = load_job(path)
    except CheckpointError as error:
        return JobSummary(path.stem, spec=str(path), problem=_one_line(error))
    try:
        summary = _summarize_store(job.spec.name, job.job_store)
    except CheckpointError as error:  # a variable is not set
        return JobSummary(job.spec.name, spec=str(path), problem=_one_line(error))
    return (
        JobSummary(job.spec.name, job_phase(None).value, spec=str(path))
        if summary is None
        else replace(summary, spec=str(path))
    )


def _summarize_store(name: str, config: StoreConfig) -> JobSummary | None:
    """Return the job at a store root; None: no job has run there."""
    storage = config.url.rpartition("/")[0]
    try:
        head = ManifestLog(open_store(config), lambda: "").head()
    except CheckpointError as error:
        return JobSummary(name, storage=storage, problem=_one_line(error))
    return None if head is None else _summary(head.state, storage)


def _summary(state: ManifestState, storage: str) -> JobSummary:
    newest, pending = state.head(), state.timeline().pending
    return JobSummary(
        job=state.job,
        job_status=job_phase(state).value,
        head=None if newest is None else int(newest.checkpoint_id),
        epoch=None if newest is None else int(newest.epoch),
        timeline=state.live,
        pending=None if pending is None else int(pending.checkpoint_id),
        last_success=None if newest is None else iso_ms(newest.completed_time_ms),
        last_failure=state.failures.last_reason,
        storage=storage,
    )


def _sort_by_name(summaries: Iterable[JobSummary | None]) -> list[JobSummary]:
    return sorted((summary for summary in summaries if summary is not None), key=lambda summary: summary.job)


def _one_line(error: CheckpointError) -> str:
    return " ".join(error.message.split())

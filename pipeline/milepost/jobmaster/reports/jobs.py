"""The jobs of a storage, or of a folder of specs: of each its head, its status, its last success."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from milepost.epoch.iso_times import iso_ms
from milepost.errors import CheckpointError, InvalidRequest
from milepost.jobspec.load.load import LoadedJob, load_job, spec_files
from milepost.protocol.manifest.timelines.incarnation import job_phase
from milepost.protocol.records.locations import absolute_url, child_url, location_problem
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.log.manifest_log import ManifestLog
from milepost.storage.open import open_store

_AT_ONCE = 8
_BEHIND_SLASH = "0"
"""The character that follows ``/`` in the order of keys: what begins with `name0` comes after all of `name/…`."""


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job in a line.

    Attributes:
        spec: its file, when it was found by that. storage: what it lies under.
        head, epoch: of the newest completed checkpoint of the live timeline; None before the first.
        pending: the epoch that runs. last_failure: why the last epoch failed; None when it did not.
        problem: why nothing is known of it; None when all is.
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
    """Return the job of each spec in a folder, by name; what is wrong with one is said in its line.

    Raises: InvalidRequest: there is no such folder.
    """
    if not folder.is_dir():
        raise InvalidRequest(
            f"there is no folder {folder.name}/ here, in {folder.parent}.",
            hint="name a folder of specs, as in milepost jobs ./specs, a storage, as in milepost jobs "
            "s3://bucket/prefix, or the spec of one of its jobs",
        )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return _in_order(pool.map(_of_spec, spec_files(folder)))


def jobs_in_storage_of(job: LoadedJob) -> list[JobSummary]:
    """Return all jobs that have run under the storage of this one, reached by its connection."""
    return _jobs_under(job.store_config(job.storage_url))


def jobs_under(storage: str, folder: Path) -> list[JobSummary]:
    """Return all jobs that have run under a storage; where the path is a folder of specs, the jobs of those.

    Args:
        storage: a URL, or a path from `folder`. S3 is reached as the AWS tools are configured.
    Raises: InvalidRequest: it is no location. StoreUnavailable, EnvironmentUnusable.
    """
    place = folder / storage
    if spec_files(place):
        return jobs_of_folder(place)
    problem = location_problem(storage)
    if problem:
        raise InvalidRequest(f"the storage {storage!r} is unusable: {problem}.")
    return _jobs_under(StoreConfig(url=absolute_url(storage, folder)))


def _jobs_under(config: StoreConfig) -> list[JobSummary]:
    names = list(_names(open_store(config)))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return _in_order(pool.map(_of_store, names, [_child(config, name) for name in names]))


def _names(store: ObjectStore) -> Iterator[str]:
    """Yield the folders of a storage, with one LIST each: of a folder only its first key is asked for."""
    after = ""
    invalid_names: list[str] = []  # of others: a storage may have neighbours
    while (
        first := next(iter(store.list("", start_after=after, limit=1, invalid_names=invalid_names)), None)
    ) is not None:
        name, slash, _ = first.key.partition("/")
        if slash:
            yield name
        after = name + _BEHIND_SLASH if slash else first.key


def _child(config: StoreConfig, name: str) -> StoreConfig:
    return replace(config, url=child_url(config.url, name))


def _of_spec(path: Path) -> JobSummary:
    try:
        job = load_job(path)
    except CheckpointError as error:
        return JobSummary(path.stem, spec=str(path), problem=_one_line(error))
    try:
        found = _of_store(job.spec.name, job.job_store)
    except CheckpointError as error:  # of a variable that is not set
        return JobSummary(job.spec.name, spec=str(path), problem=_one_line(error))
    return (
        JobSummary(job.spec.name, job_phase(None).value, spec=str(path))
        if found is None
        else replace(found, spec=str(path))
    )


def _of_store(name: str, config: StoreConfig) -> JobSummary | None:
    """Return the job that lies at a store root; None: none has run there."""
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


def _in_order(found: Iterable[JobSummary | None]) -> list[JobSummary]:
    return sorted((one for one in found if one is not None), key=lambda one: one.job)


def _one_line(error: CheckpointError) -> str:
    return " ".join(error.message.split())

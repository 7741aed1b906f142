"""Completions offer a shell what may be typed: jobs of config/, names of a job's parts, ids of its checkpoints.

Completion must not block the shell or print errors, so it offers only values that are available immediately. Ids come
only from a storage on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from milepost.jobspec.load import LoadedJob

Complete = Callable[[typer.Context, str], list[str]]


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of specs under config/ with this prefix."""
    from milepost.jobspec.load import CONFIG_FOLDER, spec_files

    return _beginning(incomplete, (path.stem for path in spec_files(Path.cwd() / CONFIG_FOLDER)))


def sink_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the sinks of the job that was typed."""
    job = _typed_job(ctx)
    return _beginning(incomplete, (sink.name for sink in job.spec.sinks) if job is not None else ())


def source_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the sources of the job that was typed."""
    job = _typed_job(ctx)
    return _beginning(incomplete, job.spec.sources if job is not None else ())


def file_source_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the sources of files of the job that was typed, without static ones."""
    job = _typed_job(ctx)
    return _beginning(incomplete, job.spec.file_streams if job is not None else ())


def operator_uids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the stateful operators of the job that was typed."""
    from milepost.operators.base import RowWiseSpec

    job = _typed_job(ctx)
    operators = job.spec.operators if job is not None else ()
    return _beginning(incomplete, (one.uid for one in operators if not isinstance(one, RowWiseSpec)))


def checkpoint_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the retained checkpoints of the job that was typed, newest first."""
    return _beginning(incomplete, _listed(ctx, lambda master: [one.checkpoint_id for one in _completed(master)]))


def savepoint_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the savepoints of the job that was typed."""
    return _beginning(incomplete, _listed(ctx, lambda master: [one.name for one in master.list_savepoints()]))


def _completed(master: Any) -> list[Any]:
    return list(master.reports.list_checkpoints("completed"))


def _beginning(incomplete: str, offered: Iterable[object]) -> list[str]:
    return [text for text in map(str, offered) if text.startswith(incomplete)]


def _typed_job(ctx: typer.Context) -> LoadedJob | None:
    """Return the job on the command line; None if there is none, or it cannot be read."""
    from milepost.errors import CheckpointError
    from milepost.jobspec.load import load_job

    # After an option that still lacks its value, Typer leaves the earlier words unparsed.
    typed = ctx.params.get("job") or next((word for word in ctx.args if not word.startswith("-")), None)
    try:
        return load_job(typed) if typed else None
    except CheckpointError:
        return None


def _listed(ctx: typer.Context, listing: Callable[[Any], list[Any]]) -> list[Any]:
    """Return names from a listing of the job's storage, if that is a local folder; else nothing."""
    from milepost.errors import CheckpointError
    from milepost.jobmaster import JobMaster

    job = _typed_job(ctx)
    try:
        return listing(JobMaster(job)) if job is not None and job.job_store.is_local else []
    except CheckpointError:
        return []

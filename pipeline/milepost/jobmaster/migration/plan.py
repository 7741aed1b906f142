"""Plan a table migration, and refuse it if it is not possible. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata, counted
from milepost.errors import Busy, InvalidRequest, JobNotRunnable
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.fork_event import fork_event
from milepost.jobmaster.job.table_contents import contents_at, is_job_table
from milepost.jobmaster.migration.target import check_place, check_target
from milepost.protocol.manifest.transaction import check_reconciled, check_runnable
from milepost.protocol.records import IMPORT_SESSION_PREFIX, CompletedCheckpoint, ManifestState, Timeline
from milepost.protocol.retention import open_forks
from milepost.tables.records import CatalogAddress, TableAddress, TableContents, decode_schema

__all__ = [
    "MIGRATING",
    "CatalogAddress",
    "MigrationPlan",
    "TableAddress",
    "check_ready",
    "is_migration",
    "plan_migration",
]

MIGRATING = f"{IMPORT_SESSION_PREFIX}migrate-table/"
"""Prefix of the ids of sessions that migrate a table."""

_FIXED_HOLD_MS = 60_000
_BYTES_PER_MS = 1_000
"""Maximum time that epochs wait for a migration: a minute, plus the time that a slow machine needs per file."""


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What a migration would do.

    Attributes:
        head: the checkpoint that supplies the rows. previous, target: current and new address of the table.
        rows, files: of the current table. hold_ms: maximum time that epochs wait for the migration.
        done: the table is already at the target. spec_lines: what to write in the sink's part of the spec.
        text: the plan for people.
    """

    job: str
    sink: str
    head: int
    previous: TableAddress
    target: TableAddress
    rows: int
    files: int
    hold_ms: int
    done: bool
    spec_lines: tuple[str, ...]
    text: tuple[str, ...]


def plan_migration(context: JobContext, name: str, target: TableAddress) -> MigrationPlan:
    """Return what a migration of a sink's table would do now.

    Raises:
        NotFound: no such sink, or the job has never run. JobNotRunnable: not RUNNING, or sinks have yet to follow.
        Busy: an epoch is running. InvalidRequest: the table cannot be migrated to the target, or not in this state.
        EnvironmentUnusable: the format's library is not installed, or the target cannot be reached.
    """
    state = context.head().state
    context.sink(name)  # raises NotFound for a sink that is not in the spec
    base = context.base_metadata(state, state.timeline().head)
    if base is not None:
        _check_spec(context, base, name)
    contents = contents_at(context, base, name)
    if base is None or contents is None:
        at = f"checkpoint {state.timeline().head}"
        raise InvalidRequest(
            f"sink {name}: at {at}, the head of job {state.job}, it has no table yet. Nothing was changed.",
            hint=f"there is nothing to migrate: write the new format and path in the spec, and run {state.job}",
            sink=name,
        )
    check_target(context, name, target)
    there = target.format, context.sink_location(name, target)
    done = there == (contents.address.format, contents.location)
    if not done:
        check_ready(context, state)
        _check_meaning(context, base, name)
        _check_from(context, name, contents.address, target)
        check_place(context, name, contents, target)
    context.sink(name, target).check_columns(decode_schema(contents.schema))
    old = context.sink(name, contents.address)
    fault = None if done else old.fault(contents)
    if fault is not None:
        raise InvalidRequest(
            f"sink {name}: {fault}; what would be written is what checkpoint {base.checkpoint_id}, the head of job "
            f"{state.job}, says. Nothing was changed.",
            hint=f"if the job's state is to count: milepost realign {state.job} {name}",
            sink=name,
        )
    size = sum(file.size for file in old.files(contents))
    rows = old.compare(contents).rows_then  # also checks that its files exist
    return MigrationPlan(
        job=state.job,
        sink=name,
        head=base.checkpoint_id,
        previous=contents.address,
        target=target,
        rows=rows,
        files=contents.files,
        hold_ms=min(context.timeout_ms, _FIXED_HOLD_MS + size // _BYTES_PER_MS),
        done=done,
        spec_lines=target.spec_lines(),
        text=tuple(_text(state.job, name, contents, target, None if done else rows)),
    )


def check_ready(context: JobContext, state: ManifestState) -> None:
    """Raise Busy or JobNotRunnable if an epoch or a switch is in progress."""
    check_runnable(state)
    check_reconciled(state, "migrate-table")
    pending = state.timeline().pending
    if pending is not None:
        raise Busy(
            f"job {state.job}: migrate-table refused: checkpoint {pending.checkpoint_id} is pending. Nothing was "
            "changed.",
            hint="wait for it; or pause the DAG, and type it again",
            checkpoint_id=pending.checkpoint_id,
        )
    others = [fork.timeline_id for fork in open_forks(state) if not is_migration(context, fork)]
    if others:
        raise Busy(
            f"job {state.job}: migrate-table refused: forks are open: {', '.join(others)}. Nothing was changed.",
            hint=f"finish the backfill, or give it up: milepost backfill {state.job} --dispose",
            forks=others,
        )
    waiting = _owing(state.unconfirmed())
    if waiting:
        raise JobNotRunnable(
            f"job {state.job}: migrate-table refused: completed checkpoints are not yet published to sinks "
            f"{', '.join(waiting)}. Nothing was changed.",
            hint=f"bring the sinks back, then: milepost run {state.job}",
            sinks=waiting,
        )


def is_migration(context: JobContext, fork: Timeline) -> bool:
    """Return whether a migration opened this fork."""
    return fork_event(context, fork).session_id.startswith(MIGRATING)


def _owing(checkpoints: tuple[CompletedCheckpoint, ...]) -> list[str]:
    return sorted({sink for checkpoint in checkpoints for sink in checkpoint.unconfirmed})


def _check_spec(context: JobContext, base: CheckpointMetadata, name: str) -> None:
    """Raise InvalidRequest if the spec does not name the sink's table: the spec may belong to a copy of the job."""
    contents = base.tables.get(name)
    if contents is None or contents.address == context.sink_address(name) or is_job_table(context, name, contents):
        return
    raise InvalidRequest(
        f"sink {name}: the spec says {context.sink_address(name)} already; at checkpoint {base.checkpoint_id} its "
        f"table is of {contents.address}. Nothing was changed.",
        hint=f"write in sink {name} of the spec, where its table is: {'; '.join(contents.address.spec_lines())}; "
        "and then type this command again",
        sink=name,
    )


def _check_meaning(context: JobContext, base: CheckpointMetadata, name: str) -> None:
    """Raise InvalidRequest if the rows have another meaning by the spec than at the head."""
    rows = context.graph.sink_inputs[name]
    recorded = base.signatures.get("sinks", {}).get(name)
    if recorded is not None and (recorded["mode"], list(recorded["key"])) != (rows.mode, list(rows.key)):
        raise InvalidRequest(
            f"sink {name}: its table has mode {recorded['mode']} and key {recorded['key']}, the spec says mode "
            f"{rows.mode} and key {list(rows.key)}. A migration keeps both. Nothing was changed.",
            hint="undo the change of mode or key first",
            sink=name,
        )


def _check_from(context: JobContext, name: str, previous: TableAddress, target: TableAddress) -> None:
    problem = None
    if not previous.sink_format.can_migrate_to(target.sink_format):
        problem = f"a table of format: {previous.format} does not go to format: {target.format} in this version"
    elif context.job.spec.sink(name).adopt:
        problem = "it says `adopt: true`: rows that others wrote in its table are not the job's, and would stay behind"
    if problem is not None:
        raise InvalidRequest(
            f"sink {name}: {problem}. Nothing was changed.",
            hint="give the sink a new name and path to begin a new table, and fill it by a backfill",
            sink=name,
        )


def _text(job: str, name: str, contents: TableContents, target: TableAddress, rows: int | None) -> Iterator[str]:
    lines = "; ".join(target.spec_lines())
    if rows is None:
        yield f"sink {name} of job {job}: its table is there: {target}; nothing to migrate"
        yield f"the spec's sink {name} has to say: {lines}"
        return
    yield f"sink {name} of job {job}: from {contents.address}"
    yield f"  to {target}"
    what = f"{counted(rows, 'row')} in {counted(contents.files, 'file')}"
    yield f"  {what} are written there once; mode, key and columns stay; epochs wait until then"
    yield "the old table stays while a retained checkpoint is of it, and a rollback to one makes it the sink's again"
    yield f"then write in sink {name} of the spec: {lines}"

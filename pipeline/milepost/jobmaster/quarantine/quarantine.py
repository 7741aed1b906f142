"""Quarantine an object of a file source, so that no epoch and no replay reads it, and release it again.

A quarantine changes no table. Rows of an object that was read before remain in state and tables until a rollback to
before it, or a backfill without it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

import pyarrow.compute as pc

from milepost.epoch import CheckpointMetadata, iso_ms
from milepost.errors import InvalidRequest, NotFound, PlanOutdated
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.use_case import use_case
from milepost.protocol.manifest.transaction import AlreadyDone, QuarantineRequest, ReleaseRequest
from milepost.protocol.records import CheckpointId, Decision, JobStatus, ManifestState, QuarantinedObject
from milepost.protocol.retention import timeline_ancestry
from milepost.sources import SourceObject
from milepost.sources.planning import list_objects
from milepost.storage import open_store


@dataclass(frozen=True, slots=True)
class ApprovedQuarantine:
    """The version of an object that a plan is about."""

    source: str
    key: str
    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class QuarantinePlan:
    """What a quarantine, or a release, would change.

    Attributes:
        done: whether there is nothing to do. read_by: the checkpoint of the live timeline that has read this version;
            None: none has. text: the plan, one line each.
    """

    job: str
    approved: ApprovedQuarantine
    done: bool
    read_by: int | None
    text: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuarantineResult:
    """The result of a quarantine or a release.

    Attributes:
        outcome: ``quarantined``, ``released``, ``already_quarantined`` or ``not_quarantined``.
        read_by: as in `QuarantinePlan`. next_step: the command that continues from here.
    """

    outcome: str
    job: str
    source: str
    key: str
    read_by: int | None
    next_step: str


class Quarantine:
    """The use cases of one job for objects that must not be read."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def plan(self, source: str, key: str) -> QuarantinePlan:
        """Return what a quarantine of the object's current version would change. Lists the source; changes nothing.

        Raises: InvalidRequest: its rows are not objects that can be left out. NotFound: no such source or object, or
            the job has never run.
        """
        obj = self._listed(source, key)
        approved = ApprovedQuarantine(source, obj.key, obj.etag, obj.size)
        state = self._context.head().state
        read_by = self._read_by(state, approved)
        if read_by is not None and self._was_skipped(state, obj, source, read_by):
            raise InvalidRequest(
                f"object {key} of source {source} was there before the first epoch: `start: latest` skips it, and no "
                "epoch reads it. Nothing was changed.",
                source=source,
            )
        done = _quarantined(state, approved) is not None
        return QuarantinePlan(state.job, approved, done, read_by, tuple(self._text(state, obj, approved, read_by)))

    @use_case
    def quarantine(self, session: Session, approved: ApprovedQuarantine, decision: Decision) -> QuarantineResult:
        """Quarantine the version of the plan.

        Raises: PlanOutdated: the object has another version now. InvalidRequest: too many are quarantined. Others: as
            the plan.
        """
        obj = self._listed(approved.source, approved.key)
        if (obj.etag, obj.size) != (approved.etag, approved.size):
            raise PlanOutdated(
                f"object {approved.key} of source {approved.source} was replaced since the plan: {approved.etag} then, "
                f"{obj.etag} now. Nothing was changed.",
                hint="review a new plan",
            )
        request = QuarantineRequest(
            session.session_id, approved.source, approved.key, approved.etag, approved.size, decision
        )
        result = self._context.transact(request)
        outcome = result.outcome.outcome.value if isinstance(result.outcome, AlreadyDone) else "quarantined"
        read_by = self._read_by(result.state, approved)
        job, source, key = self._context.spec.name, approved.source, approved.key
        step = _next_step(result.state) if read_by is None else self._removing_commands(result.state, approved)[0]
        return QuarantineResult(outcome, job, source, key, read_by, step)

    def plan_release(self, source: str, key: str) -> QuarantinePlan:
        """Return what a release would change. Changes nothing. Raises NotFound: the job has never run."""
        state = self._context.head().state
        one = state.quarantined_object(source, key)
        if one is None:
            others = ", ".join(f"{one.key} of source {one.source}" for one in state.quarantined) or "none"
            text: tuple[str, ...] = (f"object {key} of source {source} is not quarantined; quarantined: {others}",)
            return QuarantinePlan(state.job, ApprovedQuarantine(source, key, "", 0), True, None, text)
        approved = ApprovedQuarantine(source, key, one.etag, one.size)
        read_by = self._read_by(state, approved)
        effect = self._effect_of_release(state, approved, read_by)
        text = (f"object {key} of source {source} has been quarantined since {iso_ms(one.since_ms)}", effect)
        return QuarantinePlan(state.job, approved, False, read_by, text)

    @use_case
    def release(self, session: Session, approved: ApprovedQuarantine, decision: Decision) -> QuarantineResult:
        """Release the object of the plan. One that is not quarantined stays as it is.

        Raises: PlanOutdated: another version of the object is quarantined now.
        """
        request = ReleaseRequest(session.session_id, approved.source, approved.key, decision)
        result = self._context.transact(request, check=partial(_require_same_version, approved))
        outcome = result.outcome.outcome.value if isinstance(result.outcome, AlreadyDone) else "released"
        read_by, job = self._read_by(result.state, approved), self._context.spec.name
        return QuarantineResult(outcome, job, approved.source, approved.key, read_by, _next_step(result.state))

    def _effect_of_release(self, state: ManifestState, approved: ApprovedQuarantine, read_by: int | None) -> str:
        if read_by is not None:
            return f"checkpoint {read_by} has read it, and a later backfill reads it again"
        base = self._context.base_metadata(state, state.timeline().head)
        earlier = [] if base is None else _versions_read(self._context, base, approved)
        source = self._context.spec.files.get(approved.source)
        if not earlier or source is None:
            return "the next epoch reads it, unless it was replaced or deleted"
        read = f"checkpoint {earlier[-1]['checkpoint_id']} has read another version"
        return f"{read}: the next epoch follows `on_change: {source.on_change}` of the source"

    def _listed(self, source: str, key: str) -> SourceObject:
        """Return the current version of an object that the source's path matches."""
        spec = self._context.spec
        if source in spec.landed:
            raise InvalidRequest(
                f"source {source} is landed in a log: its rows are not objects that can be left out. Nothing was "
                "changed.",
                hint=f"milepost land {spec.name} --source {source} --void-from auto, if its rows are false",
            )
        if source in spec.dimensions:
            raise InvalidRequest(
                f"source {source} is static: each epoch reads all of its objects. Nothing was changed.",
                hint="correct the object, or delete it",
            )
        if source not in spec.files:
            names = ", ".join(sorted(spec.file_streams)) or "none"
            raise NotFound(
                f"job {spec.name} has no source {source}; sources of files: {names}. Nothing was changed.",
                source=source,
            )
        config, pattern = self._context.source(source)
        objects = {obj.key: obj for obj in list_objects(open_store(config), pattern).objects}
        if key in objects:
            return objects[key]
        close = get_close_matches(key, objects, 3, 0.5)
        raise NotFound(
            f"source {source} has no object {key}: none of its {len(objects):,} objects has this name. Nothing was "
            "changed.",
            hint=f"did you mean {' or '.join(close)}?" if close else "names are relative to the folder of the source",
            source=source,
        )

    def _read_by(self, state: ManifestState, approved: ApprovedQuarantine) -> int | None:
        """Return the checkpoint that consumed this version, if the head of the live timeline has it."""
        base = self._context.base_metadata(state, state.timeline().head)
        return None if base is None else _consumer(self._context, base, approved)

    def _has_read(self, state: ManifestState, at: CheckpointId, approved: ApprovedQuarantine) -> bool:
        base = self._context.base_metadata(state, at)
        return base is not None and _consumer(self._context, base, approved) is not None

    def _was_skipped(self, state: ManifestState, obj: SourceObject, source: str, read_by: int) -> bool:
        """Return whether `start: latest` skipped an object. The first epoch of a source records these as read."""
        base = self._context.base_metadata(state, state.timeline().head)
        snapshot = None if base is None else base.sources.get(source)
        if snapshot is None or snapshot.at_start is None or obj.last_modified_ms > snapshot.at_start.newest_ms:
            return False
        return bool(pc.min(self._context.consumed(source, snapshot.consumed).table["checkpoint_id"]).as_py() == read_by)

    def _text(
        self, state: ManifestState, obj: SourceObject, approved: ApprovedQuarantine, read_by: int | None
    ) -> Iterator[str]:
        held = _quarantined(state, approved)
        if held is not None:
            yield f"object {obj.key} of source {approved.source} has been quarantined since {iso_ms(held.since_ms)}"
            return
        yield f"object {obj.key}: {obj.size:,} bytes, modified {iso_ms(obj.last_modified_ms)}"
        if read_by is None:
            yield "no epoch has read it; while it is quarantined, no epoch reads it"
        else:
            yield f"checkpoint {read_by} has read it: state and tables keep its rows until one of these commands is run"
            yield from (f"  {command}" for command in self._removing_commands(state, approved))
        pending = state.timeline().pending
        if pending is not None:
            yield f"checkpoint {pending.checkpoint_id} is running: it reads the object if it was planned with it"
        yield "a corrected object under the same name is read"

    def _removing_commands(self, state: ManifestState, approved: ApprovedQuarantine) -> tuple[str, ...]:
        """Return the commands that remove the rows of an object from tables, the fastest first."""
        ancestry = timeline_ancestry(state, state.timeline())
        # Later checkpoints have read everything that an earlier one has. A bisection reads few of the consumed sets.
        first = bisect_left(ancestry, True, key=lambda one: self._has_read(state, one.checkpoint_id, approved))
        job, before = state.job, ancestry[first - 1].checkpoint_id if first else 0
        return (f"milepost rollback {job} --to {before}", f"milepost backfill {job} --from-checkpoint {before}")


def _next_step(state: ManifestState) -> str:
    return f"milepost {'resume' if state.status is JobStatus.FAILED else 'run'} {state.job}"


def _quarantined(state: ManifestState, approved: ApprovedQuarantine) -> QuarantinedObject | None:
    held = state.quarantined_object(approved.source, approved.key)
    return held if held is not None and held.version == (approved.key, approved.etag, approved.size) else None


def _require_same_version(approved: ApprovedQuarantine, state: ManifestState) -> None:
    """Raise PlanOutdated if another version than that of the plan is quarantined."""
    held = state.quarantined_object(approved.source, approved.key)
    if held is not None and held != _quarantined(state, approved):
        raise PlanOutdated(
            f"object {held.key} of source {held.source}: another version ({held.etag}) was quarantined since the plan. "
            "Nothing was changed.",
            hint="review a new plan",
        )


def _consumer(context: JobContext, base: CheckpointMetadata, approved: ApprovedQuarantine) -> int | None:
    same = (row for row in _versions_read(context, base, approved) if row["etag"] == approved.etag)
    found = [row["checkpoint_id"] for row in same if row["size"] == approved.size]
    return int(found[-1]) if found else None


def _versions_read(context: JobContext, base: CheckpointMetadata, approved: ApprovedQuarantine) -> list[dict[str, Any]]:
    """Return the rows of the consumed set with the key of the object, in the order in which they were read."""
    snapshot = base.sources.get(approved.source)
    if snapshot is None or not snapshot.consumed:
        return []
    table = context.consumed(approved.source, snapshot.consumed).table
    return table.filter(pc.equal(table["key"], approved.key)).to_pylist()

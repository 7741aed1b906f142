"""Start a job from a savepoint of this or any other job, at any location.

A savepoint is untrusted (DESIGN 9). Order:
1. `savepoint.json` and `_metadata` are read and checked against each other, then against the spec.
2. The objects are copied below the prefix of a new checkpoint, each compared with its checksum, and the table files
   into each sink's own layout. Logs of landed sources that the job does not have begin (`continued_logs.py`).
3. The checkpoint becomes the head and each sink follows (`imported_checkpoint.py`).
4. The next incarnation opens.
5. With CLAIM, the savepoint is disposed of.
A refusal or failure before step 3 leaves the job unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from milepost.epoch import CheckpointMetadata, with_names_of, with_readers_of
from milepost.errors import CheckpointError, InvalidRequest, StateCorrupt, with_hint
from milepost.jobmaster.compatibility.rows_in_flight import check_continuable
from milepost.jobmaster.compatibility.spec_check import check_compatible
from milepost.jobmaster.job.checks.store_checks import require_stores
from milepost.jobmaster.job.code import JobCode, LoadedCode, read_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.extend_record import extend_record
from milepost.jobmaster.job.log_names import current_log_names
from milepost.jobmaster.job.savepoint_document import SavedTable
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.switch_acts import SwitchAct, switch_decision
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.incarnations import Incarnations
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.outcomes import StartedJob
from milepost.jobmaster.leadership.reconciliation import SinkReconciler
from milepost.jobmaster.rollback.imported_checkpoint import Provenance, import_checkpoint, new_import_session
from milepost.jobmaster.rollback.plan import ApprovedRollback
from milepost.jobmaster.rollback.rollback import Rollbacks
from milepost.jobmaster.savepoints.continued_logs import continued_logs
from milepost.jobmaster.savepoints.listed import savepoint_named, savepoint_store
from milepost.jobmaster.savepoints.reader import SavedCheckpoint, read_listed_document, read_savepoint
from milepost.jobmaster.savepoints.restored_copy import SavepointCopier, own_metadata
from milepost.jobmaster.savepoints.savepoints import Savepoints, delete_copy
from milepost.protocol.records import (
    ENDED_STATUSES,
    CheckpointId,
    Decision,
    ManifestState,
    PendingCheckpoint,
    Savepoint,
    TimelineId,
    child_url,
)
from milepost.protocol.retention import root_in_job
from milepost.storage import Copy, copy_objects

_DAMAGED = "put the savepoint's folder back from a copy of it, or start from another savepoint"


@dataclass(frozen=True, slots=True)
class RestoredSavepoint:
    """A savepoint that was restored.

    Attributes:
        sinks: rows of each table. not_restored: tables of sinks that are not in the spec.
    """

    location: str
    job: str
    checkpoint_id: int
    created_ms: int
    objects: int
    bytes: int
    sinks: Mapping[str, int]
    not_restored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClaimedSavepoint:
    """A savepoint that the job has claimed.

    Attributes:
        left: what could not be deleted, or None. listed_by: another job that may still list it, or None.
    """

    location: str
    deleted_objects: int = 0
    left: str | None = None
    listed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """A savepoint that is now the job's head. claimed: None unless a claim was requested."""

    savepoint: RestoredSavepoint
    claimed: ClaimedSavepoint | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedFromSavepoint(StartedJob):
    """A job that starts its next incarnation from a savepoint; see `Restored`."""

    savepoint: RestoredSavepoint
    claimed: ClaimedSavepoint | None


class Restores:
    """The use cases that start a job from a savepoint."""

    def __init__(
        self,
        context: JobContext,
        leadership: Leadership,
        reconciler: SinkReconciler,
        incarnations: Incarnations,
        rollbacks: Rollbacks,
        savepoints: Savepoints,
    ) -> None:
        self._context, self._leadership, self._reconciler = context, leadership, reconciler
        self._incarnations, self._rollbacks, self._savepoints = incarnations, rollbacks, savepoints

    @use_case
    def start(
        self,
        from_: str | int | None = None,
        *,
        claim: bool = False,
        session: Session | None = None,
        decision: Decision | None = None,
    ) -> StartedJob:
        """Open the next incarnation of a job that has ended. From a savepoint, a job that has never run can start too.

        Args:
            from_: None continues the head. A checkpoint id rolls back to it first. Otherwise the name of a savepoint of
                this job, or the location of any savepoint: a URL, or a path (with a ``/``) relative to the spec.
            claim: take ownership of the savepoint. It is deleted once the job and all its tables are restored.
            session: None for a new one of the command line. decision: who decided and why, for the history.
        Returns: a `StartedFromSavepoint` if it started from a savepoint.
        Raises: as `rollback`, `restore`. InvalidRequest: the job has not ended.
        """
        session = session or Session.cli()
        decision = decision or session.decision()
        if from_ is None or str(from_).isdecimal():
            if claim:
                raise InvalidRequest("`--claim` needs a savepoint with `--from`. Nothing was changed.")
            return self._start_at(None if from_ is None else int(from_), session, decision)
        restored, own, saved = self._restored(new_import_session(), str(from_), claim, decision)
        return extend_record(
            StartedFromSavepoint,
            replace(self._incarnations.start(session, decision), outcome="started"),
            rolled_back_from=None,
            savepoint=restored,
            claimed=self._claim(own, saved) if claim else None,
        )

    def _start_at(self, checkpoint_id: int | None, session: Session, decision: Decision) -> StartedJob:
        """Open the next incarnation at a retained checkpoint; None continues the head."""
        state = self._incarnations.finish_clean_up(session)
        if checkpoint_id is None:
            self._reconciler.finish(session)
            return extend_record(StartedJob, self._incarnations.start(session, decision), rolled_back_from=None)
        if state.status not in ENDED_STATUSES:
            raise InvalidRequest(
                f"job {state.job} is {state.status.name}, and only a job that has ended is started. Nothing was "
                "changed.",
                hint=f"milepost rollback {state.job} --to {checkpoint_id} takes a running job back",
            )
        approved = ApprovedRollback(checkpoint_id, int(state.timeline().head), {})
        moved = switch_decision(SwitchAct.START, f"checkpoint {checkpoint_id}", decision)
        back = self._rollbacks.run(session, approved, decision=moved)
        return extend_record(StartedJob, self._incarnations.start(session, decision), rolled_back_from=back.from_head)

    @use_case
    def restore(self, session: Session, location: str, *, claim: bool = False) -> Restored:
        """Make a copy of a savepoint the job's head, and make every sink follow. The job's status does not change.

        Args:
            location: as `from_` of `start`.
        Raises:
            NotFound: no such savepoint. StateCorrupt: it is damaged, or names objects outside of it.
            InvalidRequest: the job runs, or its spec does not fit the savepoint. Nothing was changed.
            StoreUnavailable, …: while copying, nothing was changed. After that, a sink has yet to follow; the message
                says so.
        """
        restored, own, saved = self._restored(session, location, claim, session.decision())
        return Restored(restored, self._claim(own, saved) if claim else None)

    def _restored(
        self, session: Session, location: str, claim: bool, decided_by: Decision
    ) -> tuple[RestoredSavepoint, Savepoint | None, SavedCheckpoint]:
        """Restore. Returns the result, the job's record of the savepoint, None if not listed, and its contents."""
        context = self._context
        state = startable(context, self._incarnations, session, location)
        require_stores(context)
        with with_hint(StateCorrupt, _DAMAGED):
            own, saved = self._saved(state, location)
        names = current_log_names(context.job.spec, context.recent_state, context.metadata, saved.metadata)
        saved = replace(saved, metadata=with_readers_of(saved.metadata, names, context.job.spec))
        logs = continued_logs(context, saved, has_run=state is not None, claim=claim)
        code = read_code(context)
        loaded = code.load(context)
        self._check_fit(saved, code, loaded)
        takes = tables_to_take(context, state, saved) if claim else ()
        check_tables(context, state, saved.document.tables, takes)
        plan = saved.metadata.plan
        with with_hint(StateCorrupt, _DAMAGED):
            copy_objects([Copy(saved.store, plan, context.store, plan.key)])
        above = CheckpointId(saved.document.checkpoint_id)
        made = Provenance(plan, saved.metadata.code_hash, saved.metadata.spec_hash, above)
        copier = SavepointCopier(context, saved, loaded, logs, takes)
        head = 0 if state is None else state.timeline().head
        of = f"checkpoint {saved.document.checkpoint_id} of job {saved.document.job}"
        decision = switch_decision(SwitchAct.RESTORE, f"the savepoint of {of}", decided_by)

        def write(pending: PendingCheckpoint, timeline: TimelineId) -> CheckpointMetadata:
            with with_hint(StateCorrupt, _DAMAGED):
                return copier.write(pending, timeline)

        with import_checkpoint(context, self._leadership, session, made, write) as completed:
            approved = ApprovedRollback(int(completed.checkpoint_id), int(head), {})
            self._rollbacks.run(session, approved, decision=decision)
        document = saved.document
        restored = RestoredSavepoint(
            location=saved.where,
            job=document.job,
            checkpoint_id=document.checkpoint_id,
            created_ms=document.created_ms,
            objects=len(document.objects),
            bytes=document.size,
            sinks={name: table.rows for name, table in copier.tables.items()},
            not_restored=tuple(sorted(document.tables.keys() - copier.tables.keys())),
        )
        return restored, own, saved

    def _saved(self, state: ManifestState | None, location: str) -> tuple[Savepoint | None, SavedCheckpoint]:
        """Return the savepoint at a location, read and checked, and the job's record of it, if it is listed."""
        if "/" in location:
            store = self._context.store_at(location)
            listed = () if state is None else state.savepoints
            own = next((item for item in listed if self._url_of(item) == store.config.url), None)
            return own, read_savepoint(store)
        if state is None:
            raise InvalidRequest(
                f"job {self._context.spec.name} has never run and has no savepoint {location}. Nothing was changed.",
                hint="name the savepoint of another job by its location, as milepost savepoint list shows it",
            )
        own = savepoint_named(state, location)
        store = savepoint_store(self._context, own)
        saved = read_savepoint(store)
        read_listed_document(own, store)  # the savepoint there is the one listed under that name
        return own, saved

    def _url_of(self, savepoint: Savepoint) -> str | None:
        """Return the URL of a listed savepoint; None if its record has no valid location."""
        if savepoint.location is not None:
            return self._context.job.url(savepoint.location)
        root = root_in_job(savepoint)
        return None if root is None else child_url(self._context.store_config.url, root.rstrip("/"))

    def _check_fit(self, saved: SavedCheckpoint, code: JobCode, loaded: LoadedCode) -> None:
        """Raise InvalidRequest if the job's next run could not continue the savepoint."""
        context, metadata = self._context, saved.metadata
        wanted = context.spec.checkpointing.max_parallelism
        if metadata.max_parallelism != wanted:
            raise InvalidRequest(
                f"job {context.spec.name}: the savepoint at {saved.where} has {metadata.max_parallelism} key groups, "
                f"the spec asks for {wanted}. State is stored by key group, so their number is fixed for its life. "
                "Nothing was changed.",
                hint=f"set checkpointing.max_parallelism to {metadata.max_parallelism}",
            )
        own = with_names_of(context.job.spec, own_metadata(context, metadata, loaded), context.log_names())
        # State that the spec does not have is copied too. The first run checks whether it may be dropped.
        check_compatible(context, own, code, loaded, allow_non_restored_state=True, can_rebuild=False)
        check_continuable(context, own, loaded)

    def _claim(self, own: Savepoint | None, saved: SavedCheckpoint) -> ClaimedSavepoint:
        """Dispose of the claimed savepoint. A failure here leaves the job restored, and is reported in the result."""
        document = saved.document
        try:
            if own is not None:
                disposed = self._savepoints.dispose(own.name)
                return ClaimedSavepoint(saved.where, disposed.deleted_objects, disposed.left)
            deleted = delete_copy(document, saved.store)
        except CheckpointError as error:
            return ClaimedSavepoint(saved.where, left=f"not everything was deleted: {error.message}")
        other = document.job if document.job != self._context.spec.name else None
        return ClaimedSavepoint(saved.where, deleted, listed_by=other)


def startable(context: JobContext, incarnations: Incarnations, session: Session, source: str) -> ManifestState | None:
    """Return the head of a job that may start from another state; None if it has never run.

    Args:
        source: what it would start from, as text.
    Raises: InvalidRequest: the job runs.
    """
    head = context.log.head()
    if head is None:
        return None
    state = incarnations.clean_up(session, head.state)[0]
    live = state.timeline()
    if state.status in ENDED_STATUSES or (live.head == 0 and live.pending is None):
        return state
    raise InvalidRequest(
        f"job {state.job} is {state.status.name} at checkpoint {live.head}: it cannot start from {source}. "
        "Nothing was changed.",
        hint=f"milepost cancel {state.job} ends it first; milepost rollback {state.job} --to ID goes back to a "
        "checkpoint of its own",
    )


def tables_to_take(context: JobContext, state: ManifestState | None, saved: SavedCheckpoint) -> tuple[str, ...]:
    """Return the sinks with the very table of the savepoint's job, which this job may take over.

    Raises: InvalidRequest: a table differs from the savepoint. Nothing was changed.
    """
    identity = context.identity if state is not None else ""
    takes = []
    for spec in context.spec.sinks:
        table, sink = saved.document.tables.get(spec.name), context.sink(spec.name)
        owner = None if table is None else sink.owner()
        if table is None or owner is None or owner.sink != spec.name:
            continue
        if owner.identity == identity:
            is_own = owner.job == saved.document.job and state is not None and state.head() is not None
            if not is_own and table.shown is not None and sink.is_taken_over(identity, table.shown):
                takes.append(spec.name)  # by an earlier attempt that died
            continue
        if owner.job != saved.document.job:
            continue
        if table.shown is None:
            raise InvalidRequest(
                f"sink {spec.name}: its table at {sink.store.config.url} cannot be taken over: it had never shown what "
                "the savepoint has. Nothing was changed.",
                hint=f"let job {owner.job} finish its epoch, take a savepoint again, and start from that one",
                sink=spec.name,
            )
        sink.check_takeover(identity, owner.job, table.shown)
        takes.append(spec.name)
    return tuple(takes)


def check_tables(
    context: JobContext, state: ManifestState | None, tables: Mapping[str, SavedTable], takes: Collection[str] = ()
) -> None:
    """Refuse a sink whose table could not follow: another job's table, or one of an earlier job of the same name.

    Args:
        takes: sinks that take over their tables.
    """
    for spec in context.spec.sinks:
        sink = context.sink(spec.name)
        table = tables.get(spec.name)
        if table is not None and (table.mode, table.key) != (sink.mode.value, sink.key):
            raise InvalidRequest(
                f"sink {spec.name}: its table in the savepoint has mode {table.mode} and key {list(table.key)}, the"
                f" spec says mode {sink.mode.value} and key {list(sink.key)}. Nothing was changed.",
                hint="undo the change of mode or key, or give the sink a new name to begin a new table",
                sink=spec.name,
            )
        owner = sink.owner() if state is None and spec.name not in takes else None
        if owner is not None:
            whose = (
                "an earlier life of it" if owner.job == context.spec.name else f"sink {owner.sink} of job {owner.job}"
            )
            raise InvalidRequest(
                f"sink {spec.name}: the job has never run, and the table at {sink.store.config.url} is of {whose}. "
                "Nothing was changed.",
                hint="give the sink a new path, or move the old table away; `--claim` takes over the tables of the "
                "savepoint's job, if they show what it has",
                sink=spec.name,
            )

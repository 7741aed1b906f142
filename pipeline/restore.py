"""Start a job from a savepoint: of its own, or of any job, wherever it was moved.

Nothing of a savepoint is trusted (DESIGN section 9). Order: `savepoint.json` and `_metadata` are read and checked
against each other -> they are checked against the spec, as `run` checks a head -> the objects are copied, each compared
with its checksum, below the prefix of a new checkpoint, and table files into each sink's own layout -> the checkpoint
becomes the head and each sink follows (`installation.py`) -> the next incarnation opens -> with CLAIM, and only now,
the savepoint is disposed of. Refused or failed before the switch, the job is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.in_flight import check_continuable
from pipeline.installation import Made, installed, installing_session
from pipeline.job_code import JobCode, LoadedCode, read_code
from pipeline.job_control import JobControl
from pipeline.preflight import check_compatible
from pipeline.protocol.errors import CheckpointError, InvalidRequest
from pipeline.protocol.ids import CheckpointId
from pipeline.protocol.records import ENDED, ManifestState, Savepoint
from pipeline.renames import with_names_of
from pipeline.restored_copy import SavepointCopier, own_metadata
from pipeline.savepoint_document import SavedTable
from pipeline.savepoint_files import SavedCheckpoint, read_savepoint
from pipeline.savepoints import Savepoints, delete_copy
from pipeline.sessions import Session
from pipeline.storage.copying import Copy, copy_objects
from pipeline.store_checks import require_stores


class Restore(Savepoints):
    """Starting from a savepoint, part of the `JobMaster`."""

    def start(self, from_: str | int | None = None, *, claim: bool = False) -> dict[str, Any]:
        """Open the next incarnation of a job that has ended; from a savepoint also of one that has never run.

        Args:
            from_: None: continue the head. A checkpoint id: go back to it first. The name of a savepoint of this job,
                or the location of any savepoint: a URL, or a path (with a ``/``) relative to the spec.
            claim: the savepoint is the job's from then on: once the job and all tables are there, it is deleted.
        Returns: {outcome, status, job_status, incarnation, timeline, head, rolled_back_from}; from a savepoint also
            {savepoint, claimed}.
        Raises: as `rollback`, `restore`. InvalidRequest: the job has not ended.
        """
        if from_ is None or str(from_).isdecimal():
            if claim:
                raise InvalidRequest("`--claim` needs a savepoint with `--from`. Nothing was changed.")
            return super().start(from_)
        session = installing_session()
        restored = self.restore(session, str(from_), claim=claim)
        opened = JobControl.start(self)
        return opened | {"outcome": "started", "rolled_back_from": None} | restored

    def restore(self, session: Session, location: str, *, claim: bool = False) -> dict[str, Any]:
        """Make a copy of a savepoint the job's head, and let every sink follow; the job's status stays.

        Args:
            location: as `from_` of `start`.
        Returns: {savepoint: {location, job, checkpoint_id, created_ms, objects, bytes, sinks, not_restored}, claimed}.
        Raises:
            NotFound: there is no such savepoint. StateCorrupt: it is damaged, or leads elsewhere.
            InvalidRequest: the job runs, or its spec does not fit the savepoint. Nothing was changed.
            StoreUnavailable, …: while copying: nothing was changed; after it: a sink has yet to follow, and says so.
        """
        context = self._context
        state = self._startable(session, location)
        require_stores(context)
        own, saved = self._saved(state, location)
        code = read_code(context)
        loaded = code.load(context)
        self._check_fit(saved, code, loaded)
        self._check_tables(state, saved.document.tables)
        plan = saved.metadata.plan
        copy_objects([Copy(saved.store, plan, context.store, plan.key)])
        above = CheckpointId(saved.document.checkpoint_id)
        made = Made(plan, saved.metadata.code_hash, saved.metadata.spec_hash, above)
        copier = SavepointCopier(context, saved, loaded)
        head = 0 if state is None else state.timeline().head
        detail = f"restored from the savepoint of checkpoint {saved.document.checkpoint_id} of job {saved.document.job}"
        with installed(context, self._leadership, session, made, copier.write) as completed:
            self.rollback(session, int(completed.checkpoint_id), expected_head=int(head), detail=detail)
        claimed = self._claim(own, saved) if claim else None
        document = saved.document
        return {
            "savepoint": {
                "location": saved.where,
                "job": document.job,
                "checkpoint_id": document.checkpoint_id,
                "created_ms": document.created_ms,
                "objects": len(document.objects),
                "bytes": document.size,
                "sinks": {name: table.rows for name, table in copier.tables.items()},
                "not_restored": sorted(document.tables.keys() - copier.tables.keys()),
            },
            "claimed": claimed,
        }

    def _startable(self, session: Session, location: str) -> ManifestState | None:
        """The head of a job that may start from elsewhere; None: it has never run. Raises InvalidRequest."""
        head = self._context.log.head()
        if head is None:
            return None
        state = self._clean_up(session, head.state)[0]
        live = state.timeline()
        if state.status in ENDED or (live.head == 0 and live.pending is None):
            return state
        raise InvalidRequest(
            f"job {state.job} is {state.status.name} at checkpoint {live.head}: it cannot start from {location}. "
            "Nothing was changed.",
            hint=f"milepost cancel {state.job} ends it first; milepost rollback {state.job} --to ID goes back to a "
            "checkpoint of its own",
        )

    def _saved(self, state: ManifestState | None, location: str) -> tuple[Savepoint | None, SavedCheckpoint]:
        """The savepoint that is meant, read and checked, with the job's record of it if it has one."""
        if "/" in location:
            return None, read_savepoint(self._context.other_store(location))
        if state is None:
            raise InvalidRequest(
                f"job {self._context.spec.name} has never run and has no savepoint {location}. Nothing was changed.",
                hint="name the savepoint of another job by its location, with a `/`: milepost savepoint list tells it",
            )
        own = self.savepoint(state, location)
        return own, read_savepoint(self.savepoint_store(own))

    def _check_fit(self, saved: SavedCheckpoint, code: JobCode, loaded: LoadedCode) -> None:
        """Refuse a savepoint that the job's next run could not continue. Raises InvalidRequest."""
        context, metadata = self._context, saved.metadata
        wanted = context.spec.checkpointing.max_parallelism
        if metadata.max_parallelism != wanted:
            raise InvalidRequest(
                f"job {context.spec.name}: the savepoint at {saved.where} has {metadata.max_parallelism} key groups, "
                f"the spec asks for {wanted}. State is stored by key group, so their number is fixed for its life. "
                "Nothing was changed.",
                hint=f"set checkpointing.max_parallelism to {metadata.max_parallelism}",
            )
        own = with_names_of(context.job.spec, own_metadata(context, metadata, loaded))
        # What the spec does not have is copied too: whether it may stay behind is asked by the first run.
        check_compatible(context, own, code, loaded, allow_non_restored_state=True)
        check_continuable(context, own, loaded)

    def _check_tables(self, state: ManifestState | None, tables: Mapping[str, SavedTable]) -> None:
        """Refuse a sink whose table could not follow: another job's, or one from an earlier life of a new job."""
        for spec in self._context.spec.sinks:
            sink = self._context.sink(spec.name)
            table = tables.get(spec.name)
            if table is not None and (table.mode, table.key) != (sink.mode.value, sink.key):
                raise InvalidRequest(
                    f"sink {spec.name}: its table in the savepoint has mode {table.mode} and key {list(table.key)}, the"
                    f" spec says mode {sink.mode.value} and key {list(sink.key)}. Nothing was changed.",
                    hint="undo the change of mode or key, or give the sink a new name to begin a new table",
                    sink=spec.name,
                )
            head = sink.head()
            if head is not None and state is None:
                raise InvalidRequest(
                    f"sink {spec.name}: the job has never run, and the table at {sink.store.config.url} is of an"
                    " earlier life of it. Nothing was changed.",
                    hint="give the sink a new path, or move the old table away",
                    sink=spec.name,
                )

    def _claim(self, own: Savepoint | None, saved: SavedCheckpoint) -> dict[str, Any]:
        """Take the savepoint: nothing needs it any more. What fails here leaves the job restored."""
        if own is not None:
            return self.dispose_savepoint(own.name)
        try:
            return {"location": saved.where, "deleted_objects": delete_copy(saved.document, saved.store), "left": None}
        except CheckpointError as error:
            return {
                "location": saved.where,
                "deleted_objects": 0,
                "left": f"not everything was deleted: {error.message}",
            }

"""The Parquet sink: immutable files that become a table when a head of the sink chain names them (I14).

Layout below the sink's root: `data/chk-<20 digits>/t<token>/<subtask>-<sha256>.parquet`, the chain (`sink_chain.py`),
and whose the table is (`reservation.py`). A reader follows the newest head, so it sees an epoch whole or not at all.

Order of writes: staged files -> [commit point in the manifest] -> head. What nothing needs goes by `table_garbage.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial

import pyarrow as pa

from milepost.dataflow.sinks.chain_reader import TablePoint
from milepost.dataflow.sinks.chain_walk import list_table, walk_chain
from milepost.dataflow.sinks.committables import (
    Committable,
    Compaction,
    RowsPiece,
    SinkChange,
    SinkMark,
    StagedFile,
    TableContents,
    TableObject,
    TableWalk,
    decode_schema,
    encode_schema,
)
from milepost.dataflow.sinks.contract import SinkMode
from milepost.dataflow.sinks.parquet_files import ParquetFiles, token_prefix
from milepost.dataflow.sinks.reservation import TableOwner, reserve, reserved_for
from milepost.dataflow.sinks.sink_chain import Addition, SinkChain
from milepost.dataflow.sinks.sink_head import ChainOwner, SinkHead, check_data_key, committable_digest, data_key_owner
from milepost.dataflow.sinks.table_garbage import TableGarbage
from milepost.dataflow.sinks.table_history import TableHistory
from milepost.dataflow.sinks.table_schema import check_rows_schema, latest_per_key, merged_schema, rows_to_stage
from milepost.protocol.records.errors import InvalidRequest, NotFound, ProtocolViolation, StateCorrupt, Superseded
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.at_once import at_once

COMPACT_FILES = 64
"""An upsert table with at least so many live files is compacted by the next epoch that can."""
_NAMED_MARKS = 20


class ParquetSink:
    """One table of Parquet files in one store; what it shares with every sink is said in `contract`."""

    def __init__(self, name: str, *, job: str, mode: SinkMode, key: tuple[str, ...], store: ObjectStore) -> None:
        if mode is SinkMode.UPSERT and not key:
            raise InvalidRequest(
                f"sink {name}: `mode: upsert` needs an input with key columns.", hint="use `mode: append`", sink=name
            )
        self.name = name
        self.mode = mode
        self.key = key
        self._store = store
        self._files = ParquetFiles(name, store)
        self._owner = ChainOwner(job, name, mode.value, key)
        self._reserved = partial(TableOwner, job, sink=name)
        self._chain = SinkChain(store, self._owner)

    def stage(
        self, rows: pa.Table, *, checkpoint_id: int, token: int, subtask: int, distinct: bool = False
    ) -> StagedFile | None:
        """Write one file durably, named by its content; of an upsert table's key its last row. Called inside tasks."""
        place = {"checkpoint_id": checkpoint_id, "token": token, "subtask": subtask}
        return self.stage_pieces([RowsPiece(rows, distinct)], **place, held_bytes=rows.nbytes)

    def stage_pieces(
        self, pieces: Iterable[RowsPiece], *, checkpoint_id: int, token: int, subtask: int, held_bytes: int
    ) -> StagedFile | None:
        """As `stage`, of rows that come piece by piece."""
        rows = rows_to_stage(self.name, pieces, self.key, upsert=self.mode is SinkMode.UPSERT)
        return self._files.stage(rows, checkpoint_id, token, str(subtask), held_bytes)

    def committable(self, files: Iterable[StagedFile | None], schema: pa.Schema) -> Committable:
        return Committable(self.name, tuple(file for file in files if file is not None), encode_schema(schema))

    def staged_table(self, committable: Committable) -> pa.Table:
        """Return the rows this epoch would publish, checksums verified. Raises StateCorrupt."""
        self._check_committable(committable)
        return self._files.rows(committable.files, decode_schema(committable.schema), verify=True)

    def prepare(self, committable: Committable, *, mark: SinkMark | None = None) -> None:
        """Fail now for every reason known now; changes nothing.

        Args:
            mark: the mark that the commit will carry, when known: a table already at or past it is refused too.
        Raises:
            InvalidRequest: foreign owner, other mode or key, a schema change the table cannot take, or a table of an
                earlier life of the job. StateCorrupt: a staged file or the chain is damaged. Superseded: the table is
                past the mark, or follows another timeline.
        """
        self._check_committable(committable)
        head = self._chain.newest()
        self._admit(committable, head)
        if mark is None or head is None or self._chain.already(head, mark, committable_digest(committable)):
            return
        if head.mark.checkpoint_id >= mark.checkpoint_id or head.mark.timeline != mark.timeline:
            raise Superseded(
                f"sink {self.name}: checkpoint {mark.checkpoint_id} of timeline {mark.timeline} is not in the table's "
                f"lineage, which is at checkpoint {head.mark.checkpoint_id} of timeline {head.mark.timeline}. Nothing "
                "was published.",
                sink=self.name,
                checkpoint_id=mark.checkpoint_id,
                head=head.mark.checkpoint_id,
            )

    def reserve(self, identity: str) -> None:
        """Make a new table this job's, before anything is staged for it; refuse another's."""
        reserve(self._store, self._reserved(identity), is_new=lambda: self._chain.newest() is None)

    def is_anothers(self, identity: str) -> bool:
        """Return whether the table is reserved for another job or sink."""
        return reserved_for(self._store) not in (None, self._reserved(identity))

    def compact(
        self, committable: Committable, *, predecessor: int | None, checkpoint_id: int, token: int
    ) -> Committable:
        """Stage the whole table as this epoch leaves it, if the table has grown many files; nothing visible changes.

        Call before the commit point; the result replaces the committable. It is returned unchanged for an append
        table, for one of fewer than `COMPACT_FILES` files, and when the table is not yet at `predecessor` (an earlier
        commit is still to come). Holds the table in memory.
        """
        head = self._chain.newest()
        if (
            self.mode is SinkMode.APPEND
            or head is None
            or head.mark.checkpoint_id != predecessor
            or head.live_files + len(committable.files) < COMPACT_FILES
        ):
            return committable
        schema = decode_schema(self._admit(committable, head))
        files = self._chain.content(head).files + committable.files
        rows = latest_per_key(self._files.rows(files, schema, verify=True), self.key)
        whole = self._files.stage([self._sorted(rows)], checkpoint_id, token, "all", rows.nbytes)
        assert whole is not None, "a table of so many files has rows"
        return Committable(committable.sink, committable.files, committable.schema, Compaction(whole, predecessor))

    def commit(self, committable: Committable, mark: SinkMark) -> bool:
        """Compare-and-swap the sink's head from mark.predecessor to mark (I14); no rows still moves the mark.

        Returns: True when this call published it, False when it (or a descendant) was already there.
        Raises: Superseded, InvalidRequest, StateCorrupt (nothing was published); CommitOutcomeUnknown (call again).
        """
        self._check_committable(committable)
        compaction = committable.compaction
        if compaction is not None and (compaction.predecessor or None) != (mark.predecessor or None):
            raise ProtocolViolation(
                f"sink {self.name}: checkpoint {mark.checkpoint_id} follows checkpoint {mark.predecessor}, but was "
                f"compacted on top of checkpoint {compaction.predecessor}. Nothing was published."
            )
        return self._chain.commit(
            mark,
            added=committable.files,
            replaced_by=compaction.file if compaction else None,
            admit=lambda head: self._admit(committable, head),
            committable_sha256=committable_digest(committable),
        )

    def follow(
        self,
        *,
        base: SinkMark | None,
        committables: Sequence[tuple[CheckpointId, Committable]],
        mark: SinkMark,
        decision: int,
    ) -> bool:
        """Let the table show a decision of the manifest: what it was as of `base`, then these committables in order.

        One new head, also when nothing changes; no file is copied or deleted, so whatever it showed before can be shown
        again. A committable's plain files are taken: its compaction was computed on top of one predecessor.

        Returns: True when this call wrote the head, False when the table followed this decision before.
        Raises: Superseded (a newer decision), NotFound (no such base), StateCorrupt (a file is damaged),
            InvalidRequest (foreign owner, schema); nothing was published. CommitOutcomeUnknown (call again).
        """
        additions = []
        for checkpoint_id, committable in committables:
            self._check_committable(committable)
            additions.append(Addition(checkpoint_id, committable.files, committable_digest(committable)))
        return self._chain.follow(
            base,
            additions,
            mark,
            decision=decision,
            admit=lambda point: self._admit_on(point, [committable for _, committable in committables]),
        )

    def check_follow(self, base: SinkMark | None, committables: Sequence[tuple[CheckpointId, Committable]]) -> None:
        for _, committable in committables:
            self._check_committable(committable)
        self._admit_on(self._chain.base_point(self._chain.newest(), base), [item for _, item in committables])

    def compare(self, base: SinkMark | None, committables: Sequence[tuple[CheckpointId, Committable]]) -> SinkChange:
        """Return what `follow` would change, without writing; it raises what `follow` would raise, the decision apart.

        The rows of an append table are recorded; those of an upsert table are counted: its key columns are read.
        """
        then = self.contents(base, committables)
        head = self._chain.newest()
        rows_now: int | None = None
        with suppress(StateCorrupt):
            rows_now = self._count(self._chain.content(head).files, head.schema if head is not None else None)
        return SinkChange(
            rows_now=rows_now,
            rows_then=self._count(then.files, then.schema),
            files_now=head.live_files if head is not None else 0,
            files_then=len(then.files),
        )

    def contents(
        self, base: SinkMark | None, committables: Sequence[tuple[CheckpointId, Committable]]
    ) -> TableContents:
        """Return the table as of `base` with these committables on it, every file there with its size.

        Raises as `compare`.
        """
        for _, committable in committables:
            self._check_committable(committable)
        point = self._chain.base_point(self._chain.newest(), base)
        schemas = self._admit_on(point, [committable for _, committable in committables])
        added = tuple(file for _, committable in committables for file in committable.files)
        return TableContents(point.files + added, schemas[-1] if schemas else point.schema)

    def import_key(self, file: StagedFile, number: int, *, checkpoint_id: int, token: int) -> str:
        """Return where the n-th file of a table that comes from elsewhere is staged.

        Below the token, named by its content.
        """
        return f"{token_prefix(checkpoint_id, token)}{number}-{file.sha256}.parquet"

    @property
    def store(self) -> ObjectStore:
        return self._store

    def as_it_stands(self) -> ParquetSink:
        sink = copy(self)
        sink._chain = self._chain.as_it_stands()
        return sink

    def undo_limits(self) -> tuple[str, ...]:
        """Return what following a decision cannot undo, for people."""
        return ("rows that a reader has already copied from the table stay where they were copied to",)

    def is_committed(self, mark: SinkMark) -> bool:
        return self._chain.lineage_has(self._chain.newest(), mark)

    def head(self) -> SinkMark | None:
        head = self._chain.newest()
        return head.mark if head else None

    def find(self, checkpoint_id: int) -> SinkMark | None:
        entry = self._chain.find_anywhere(self._chain.newest(), checkpoint_id)
        return self._chain.mark_of(entry) if entry is not None else None

    def abort(self, *, checkpoint_id: int, token: int) -> None:
        """Delete the files that this epoch staged, except what a head of any lineage refers to.

        Only for a checkpoint that the manifest says is aborted, or a token that lost: nothing else keeps its commit
        from coming later.
        """
        published: set[str] = set()
        for version in self._chain.versions_of(self._chain.newest(), checkpoint_id):
            head = self._chain.at(version)
            published |= {file.key for file in (*head.added, *((head.replaced_by,) if head.replaced_by else ()))}
        found = (stat.key for stat in self._store.list(token_prefix(checkpoint_id, token)))
        self._store.delete([key for key in found if data_key_owner(key) is not None and key not in published])

    def read(self, checkpoint_id: int | None = None, *, verify: bool = False) -> pa.Table:
        """Return the published table at the head, or as of a checkpoint, also one of a lineage that was left.

        Append: in commit order; upsert: sorted by key.

        Args:
            verify: compare each file's SHA-256, not only its size.
        Raises:
            NotFound: nothing was published yet, or not by that checkpoint. StateCorrupt: a file is damaged.
        """
        point = self._at(checkpoint_id)
        if point.schema is None:
            raise self._nothing_published()
        rows = self._files.rows(point.files, decode_schema(point.schema), verify=verify)
        return self._sorted(latest_per_key(rows, self.key)) if self.mode is SinkMode.UPSERT else rows

    def verify(self, checkpoint_id: int | None = None, *, deep: bool = False) -> list[str]:
        """Problems of the table at the head or as of a checkpoint, one line each; [] when it is whole.

        Every file must be there with its recorded size; with `deep` also its SHA-256, rows and columns are compared.
        Raises: NotFound, InvalidRequest.
        """
        try:
            point = self._at(checkpoint_id)
        except StateCorrupt as error:
            return [error.message]
        problems = []
        if len(point.files) != point.live_files:
            problems.append(f"{point.live_files} live files are recorded, the chain lists {len(point.files)}")
        schema = decode_schema(point.schema) if point.schema is not None else pa.schema([])
        return problems + self._files.problems(point.files, schema, deep=deep)

    def walk(self) -> TableWalk:
        return walk_chain(self._store, self.history())

    def objects(self) -> tuple[TableObject, ...]:
        return list_table(self._store)

    def history(self) -> TableHistory:
        return TableHistory(self._store, self._owner)

    def garbage(self) -> TableGarbage:
        return TableGarbage(self._store)

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        def size(key: str) -> int | None:
            try:
                return self._store.stat(key).size
            except NotFound:
                return None

        every = list(keys)
        sizes = zip(every, at_once(self._store, size, every), strict=True)
        return {key: size for key, size in sizes if size is not None}

    def _at(self, checkpoint_id: int | None) -> TablePoint:
        head = self._chain.newest()
        if head is None:
            raise self._nothing_published()
        if checkpoint_id is None:
            return self._chain.point_of(head)
        entry = self._chain.find_anywhere(head, checkpoint_id)
        if entry is not None:
            return self._chain.point(entry)
        known = sorted({entry.checkpoint_id for marks in self._chain.lineages(head) for entry in marks})
        shown = ", ".join(map(str, known[-_NAMED_MARKS:]))
        older = f"{len(known) - _NAMED_MARKS} older ones, " if len(known) > _NAMED_MARKS else ""
        raise NotFound(
            f"sink {self.name}: checkpoint {checkpoint_id} did not publish to it; known are {older}{shown}.",
            sink=self.name,
            checkpoint_id=checkpoint_id,
        )

    def _nothing_published(self) -> NotFound:
        return NotFound(f"sink {self.name}: nothing has been published to {self._store.config.url} yet.")

    def _admit(self, committable: Committable, head: SinkHead | None) -> str:
        """Check schema and staged files against the table at `head`; returns the table's next schema."""
        # At checkpoint 0 a lineage has published nothing: it may begin with other columns than one that was left.
        begun = head is not None and head.mark.checkpoint_id > 0
        schema = self._next_schema(head.schema if head is not None and begun else None, committable)
        self._files.check_staged(_all_files(committable))
        return schema

    def _admit_on(self, point: TablePoint, committables: Sequence[Committable]) -> list[str]:
        """Check the base of a follow and what is added to it; returns the table's schema after each of these."""
        self._files.check_published(point.files)
        schemas: list[str] = []
        for committable in committables:
            schemas.append(self._next_schema(schemas[-1] if schemas else point.schema, committable))
            self._files.check_staged(committable.files)
        return schemas

    def _next_schema(self, schema: str | None, committable: Committable) -> str:
        rows = decode_schema(committable.schema)
        check_rows_schema(self.name, rows, self.key)
        return encode_schema(merged_schema(self.name, decode_schema(schema) if schema is not None else None, rows))

    def _count(self, files: Sequence[StagedFile], schema: str | None) -> int:
        if schema is None or self.mode is SinkMode.APPEND:
            return sum(file.rows for file in files)
        keys = self._files.rows(files, decode_schema(schema), columns=self.key)
        return latest_per_key(keys, self.key).num_rows

    def _check_committable(self, committable: Committable) -> None:
        if committable.sink != self.name:
            raise ProtocolViolation(f"sink {self.name}: was given what sink {committable.sink} staged.")
        for file in _all_files(committable):
            check_data_key(file)

    def _sorted(self, rows: pa.Table) -> pa.Table:
        return rows.sort_by([(name, "ascending") for name in self.key])


def _all_files(committable: Committable) -> tuple[StagedFile, ...]:
    return (*committable.files, committable.compaction.file) if committable.compaction else committable.files

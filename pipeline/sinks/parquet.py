"""The Parquet sink: immutable files that become a table when a head of the sink chain names them (I14).

Layout below the sink's root: `data/chk-<20 digits>/t<token>/<subtask>-<sha256>.parquet`, and the chain
(`sink_chain.py`). A reader follows the newest head, so it sees an epoch whole or not at all.

Order of writes: staged files -> [commit point in the manifest] -> head. Published files are never deleted here: an
older checkpoint stays readable as long as nobody prunes the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.protocol.errors import InvalidRequest, NotFound, ProtocolViolation, StateCorrupt, Superseded
from pipeline.protocol.object_store import ObjectStore
from pipeline.sinks.chain_walk import walk_chain
from pipeline.sinks.contract import (
    Committable,
    Compaction,
    SinkMark,
    StagedFile,
    TableWalk,
    decode_schema,
    encode_schema,
)
from pipeline.sinks.sink_chain import SinkChain
from pipeline.sinks.sink_head import ChainOwner, SinkHead, check_data_key, dump
from pipeline.sinks.table_schema import check_rows_schema, conform, latest_per_key, merged_schema

COMPACT_FILES = 64
"""An upsert table with at least so many live files is compacted by the next epoch that can."""

_PARALLEL_READS = 8
_NAMED_MARKS = 20


class SinkMode(Enum):
    """APPEND: every row stays. UPSERT: the table holds the latest row per key."""

    APPEND = "append"
    UPSERT = "upsert"


class ParquetSink:
    """One table of Parquet files in one store; the two-phase participant that `contract.Sink` describes."""

    def __init__(self, name: str, *, job: str, mode: SinkMode, key: tuple[str, ...], store: ObjectStore) -> None:
        if mode is SinkMode.UPSERT and not key:
            raise InvalidRequest(
                f"sink {name}: `mode: upsert` needs an input with key columns.", hint="use `mode: append`", sink=name
            )
        self.name = name
        self.mode = mode
        self.key = key
        self._store = store
        self._chain = SinkChain(store, ChainOwner(job, name, mode.value, key))

    def stage(self, rows: pa.Table, *, checkpoint_id: int, token: int, subtask: int) -> StagedFile | None:
        """Write one file durably, named by its content; None when there are no rows. Called inside tasks.

        In an upsert table a key that occurs more than once keeps its last row.
        """
        if rows.num_rows == 0:
            return None
        check_rows_schema(self.name, rows.schema, self.key)
        if self.mode is SinkMode.UPSERT:
            rows = latest_per_key(rows, self.key)
        return self._stage(rows, checkpoint_id, token, str(subtask))

    def committable(self, files: Iterable[StagedFile | None], schema: pa.Schema) -> Committable:
        """Collect what the subtasks staged, in subtask order; None (a subtask without rows) is left out."""
        return Committable(self.name, tuple(file for file in files if file is not None), encode_schema(schema))

    def staged_table(self, committable: Committable) -> pa.Table:
        """The rows this epoch would publish, checksums verified. Raises StateCorrupt."""
        self._check_committable(committable)
        return self._rows(committable.files, decode_schema(committable.schema), verify=True)

    def prepare(self, committable: Committable, *, mark: SinkMark | None = None) -> None:
        """Fail now for every reason known now; changes nothing.

        Args:
            mark: the mark that the commit will carry, when known: a table already at or past it is refused too.
        Raises:
            InvalidRequest: foreign owner, other mode or key, a schema change the table cannot take, or a table of an
                earlier life of the job. StateCorrupt: a staged file or the chain is damaged. Superseded: the table is
                past the mark.
        """
        self._check_committable(committable)
        head = self._chain.newest()
        self._admit(committable, head)
        if mark is None or head is None or self._chain.already(head, mark, _digest(committable)):
            return
        if head.mark.checkpoint_id >= mark.checkpoint_id:
            raise Superseded(
                f"sink {self.name}: checkpoint {mark.checkpoint_id} is not in the table's lineage, which is at "
                f"checkpoint {head.mark.checkpoint_id}. Nothing was published.",
                sink=self.name,
                checkpoint_id=mark.checkpoint_id,
                head=head.mark.checkpoint_id,
            )

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
        rows = latest_per_key(self._rows(files, schema, verify=True), self.key)
        whole = self._stage(self._sorted(rows), checkpoint_id, token, "all")
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
            committable_sha256=_digest(committable),
        )

    def is_committed(self, mark: SinkMark) -> bool:
        """Whether the head is the mark or descends from it."""
        return self._chain.lineage_has(self._chain.newest(), mark)

    def head(self) -> SinkMark | None:
        """The current mark; None before the first commit."""
        head = self._chain.newest()
        return head.mark if head else None

    def abort(self, *, checkpoint_id: int, token: int) -> None:
        """Delete what this epoch staged, except what a head refers to.

        Only for a checkpoint that the manifest says is aborted, or a token that lost: nothing else keeps its commit
        from coming later.
        """
        head = self._chain.newest()
        entry = self._chain.find(head, checkpoint_id)
        published: set[str] = set()
        if entry is not None:
            committed = self._chain.at(entry.version)
            published = {file.key for file in committed.added}
            if committed.replaced_by is not None:
                published.add(committed.replaced_by.key)
        staged = [stat.key for stat in self._store.list(_token_prefix(checkpoint_id, token))]
        self._store.delete([key for key in staged if key not in published])

    def read(self, checkpoint_id: int | None = None, *, verify: bool = False) -> pa.Table:
        """The published table at the head, or as of a checkpoint: append in commit order, upsert sorted by key.

        Args:
            verify: compare each file's SHA-256, not only its size.
        Raises:
            NotFound: nothing was published yet, or not by that checkpoint. StateCorrupt: a file is damaged.
        """
        head = self._at(checkpoint_id)
        rows = self._rows(self._chain.content(head).files, decode_schema(head.schema), verify=verify)
        return self._sorted(latest_per_key(rows, self.key)) if self.mode is SinkMode.UPSERT else rows

    def verify(self, checkpoint_id: int | None = None, *, deep: bool = False) -> list[str]:
        """Problems of the table at the head or as of a checkpoint, one line each; [] when it is whole.

        Every file must be there with its recorded size; with `deep` also its SHA-256, rows and columns are compared.
        Raises: NotFound, InvalidRequest.
        """
        try:
            head = self._at(checkpoint_id)
            files = self._chain.content(head).files
        except StateCorrupt as error:
            return [error.message]
        problems = []
        if len(files) != head.live_files:
            problems.append(f"head {head.version} counts {head.live_files} live files, its chain lists {len(files)}")
        schema = decode_schema(head.schema)
        for file in files:
            try:
                if deep:
                    self._fetch(file, schema, verify=True)
                elif (size := self._store.stat(file.key).size) != file.size:
                    problems.append(f"{file.key}: {size} bytes, recorded {file.size}")
            except NotFound:
                problems.append(f"{file.key}: missing")
            except StateCorrupt as error:
                problems.append(error.message)
        return problems

    def walk(self) -> TableWalk:
        """Everything that lies below the path, and everything that a head needs. Raises InvalidRequest."""
        return walk_chain(self._store, self._chain)

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        """The sizes of those of these objects that exist now, by key."""
        sizes = {}
        for key in keys:
            with suppress(NotFound):
                sizes[key] = self._store.stat(key).size
        return sizes

    def _at(self, checkpoint_id: int | None) -> SinkHead:
        head = self._chain.newest()
        if head is None:
            raise NotFound(f"sink {self.name}: nothing has been published to {self._store.config.url} yet.")
        if checkpoint_id is None:
            return head
        entry = self._chain.find(head, checkpoint_id)
        if entry is not None:
            return self._chain.at(entry.version)
        known = [str(mark.checkpoint_id) for mark in self._chain.content(head).marks]
        shown = ", ".join(known[-_NAMED_MARKS:])
        older = f"{len(known) - _NAMED_MARKS} older ones, " if len(known) > _NAMED_MARKS else ""
        raise NotFound(
            f"sink {self.name}: checkpoint {checkpoint_id} did not publish to it; known are {older}{shown}.",
            sink=self.name,
            checkpoint_id=checkpoint_id,
        )

    def _admit(self, committable: Committable, head: SinkHead | None) -> str:
        """Check schema and staged files against the table at `head`; returns the table's next schema."""
        rows = decode_schema(committable.schema)
        check_rows_schema(self.name, rows, self.key)
        schema = merged_schema(self.name, decode_schema(head.schema) if head else None, rows)
        self._check_staged(_all_files(committable))
        return encode_schema(schema)

    def _check_committable(self, committable: Committable) -> None:
        if committable.sink != self.name:
            raise ProtocolViolation(f"sink {self.name}: was given what sink {committable.sink} staged.")
        for file in _all_files(committable):
            check_data_key(file)

    def _check_staged(self, files: Sequence[StagedFile]) -> None:
        sizes: dict[str, int] = {}
        for prefix in sorted({file.key.rpartition("/")[0] + "/" for file in files}):
            sizes.update((stat.key, stat.size) for stat in self._store.list(prefix))
        for file in files:
            if sizes.get(file.key) != file.size:
                found = f"{sizes[file.key]} bytes" if file.key in sizes else "missing"
                raise StateCorrupt(
                    f"sink {self.name}: staged file {file.key} is {found}, recorded are {file.size} bytes. "
                    "Nothing was published.",
                    key=file.key,
                )

    def _stage(self, rows: pa.Table, checkpoint_id: int, token: int, label: str) -> StagedFile:
        buffer = pa.BufferOutputStream()
        pq.write_table(rows.replace_schema_metadata(None), buffer, compression="zstd")
        body = buffer.getvalue().to_pybytes()
        sha256 = hashlib.sha256(body).hexdigest()
        key = f"{_token_prefix(checkpoint_id, token)}{label}-{sha256}.parquet"
        self._store.put(key, body)
        return StagedFile(key, rows.num_rows, len(body), sha256)

    def _rows(self, files: Sequence[StagedFile], schema: pa.Schema, *, verify: bool) -> pa.Table:
        if not files:
            return schema.empty_table()
        with ThreadPoolExecutor(min(_PARALLEL_READS, len(files))) as pool:
            tables = list(pool.map(lambda file: self._fetch(file, schema, verify=verify), files))
        return pa.concat_tables(tables)

    def _fetch(self, file: StagedFile, schema: pa.Schema, *, verify: bool) -> pa.Table:
        try:
            body = self._store.get(file.key)
        except NotFound as error:
            raise StateCorrupt(f"sink {self.name}: {file.key} is missing", key=file.key) from error
        if len(body) != file.size or (verify and hashlib.sha256(body).hexdigest() != file.sha256):
            raise StateCorrupt(
                f"sink {self.name}: {file.key} does not match its recorded size and checksum", key=file.key
            )
        try:
            rows = pq.ParquetFile(pa.BufferReader(body)).read()
        except (pa.ArrowException, OSError) as error:
            raise StateCorrupt(f"sink {self.name}: {file.key} is not readable as Parquet", key=file.key) from error
        if rows.num_rows != file.rows:
            raise StateCorrupt(f"{file.key}: {rows.num_rows} rows, recorded {file.rows}", key=file.key)
        return conform(file.key, rows, schema)

    def _sorted(self, rows: pa.Table) -> pa.Table:
        return rows.sort_by([(name, "ascending") for name in self.key])


def _token_prefix(checkpoint_id: int, token: int) -> str:
    return f"data/chk-{checkpoint_id:020d}/t{token}/"


def _all_files(committable: Committable) -> tuple[StagedFile, ...]:
    compaction = committable.compaction
    return (*committable.files, compaction.file) if compaction else committable.files


def _digest(committable: Committable) -> str:
    return hashlib.sha256(dump(committable.to_json())).hexdigest()

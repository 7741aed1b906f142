"""The manifest's part in the life of a table, played for one sink: versions, completions, switches.

What a checkpoint's contents are, production says; what is played is only which transition comes when.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from milepost.codec.records import from_json, to_json
from milepost.jobmaster.run.checkpoint_metadata import write_contents
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.contract import PreparedTable, Sink, SinkMode, TableTarget
from milepost.tables.records.committables import Committable
from milepost.tables.records.contents import ContentsRecords, TableContents
from milepost.tables.records.table_address import TableAddress
from milepost_testkit.tasks.staging import stage_buckets, stage_compacting, stage_each, stage_joining

MAIN = "main"
HERE = TableAddress("parquet", "here")
TOKEN = 1


@dataclass(frozen=True)
class Completed:
    """A checkpoint past its commit point.

    Attributes:
        version: of the manifest that completed it. base: the checkpoint that it continues; None: the empty state.
    """

    version: int
    timeline: str
    contents: TableContents
    base: Completed | None

    @property
    def checkpoint_id(self) -> int:
        return self.contents.checkpoint_id

    @property
    def target(self) -> TableTarget:
        """Where its completion puts the table."""
        follows = 0 if self.base is None else self.base.checkpoint_id
        return TableTarget(self.version, self.timeline, self.contents, follows)


class PlayedManifest:
    """One job's manifest, as far as a sink notices.

    Args:
        store: of the job.

    Attributes:
        version: of the newest transition. next_id: of the next checkpoint. live: the live timeline.
        head: of the live timeline.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.version, self.next_id = 1, 1
        self.live = MAIN
        self.head: Completed | None = None

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def staged(
        self,
        sink: Sink,
        *tables: pa.Table,
        schema: pa.Schema,
        token: int = TOKEN,
        forked: bool = False,
        on: Completed | None = None,
    ) -> Committable:
        """Stage the next checkpoint's rows, one table per subtask; they travel as acknowledgements do.

        Args:
            forked: on a fork, whose tip is `on` (None: empty); else on the head.
        """
        base = on if forked else self.head
        left = None if base is None else base.contents
        if sink.by_buckets:
            committable = stage_buckets(sink, left, self.next_id, token, *tables, schema=schema)
        elif not forked:
            stage_maintaining = stage_compacting if sink.mode is SinkMode.UPSERT else stage_joining
            committable = stage_maintaining(sink, left, self.next_id, token, *tables, schema=schema)
        else:
            committable = stage_each(sink, self.next_id, token, *tables, schema=schema)
        return from_json(Committable, to_json(committable), "committable")

    def completed(self, sink: Sink, committable: Committable, *, waits: bool = False) -> Completed:
        """Prepare the next checkpoint of the live timeline, and pass its commit point.

        Args:
            waits: as `PreparingSink.prepare` has it.
        """
        left = None if self.head is None else self.head.contents
        sink.check_staged(committable)
        prepared = sink.prepare(committable, left, waits=waits)
        contents = self._contents(sink.name, left, prepared)
        self.head = Completed(self.next_version(), self.live, contents, self.head)
        return self.head

    def completed_on_fork(self, sink: Sink, committable: Committable, base: Completed | None, fork: str) -> Completed:
        """Complete the next checkpoint on a fork, without notifying the table."""
        left = None if base is None else base.contents
        sink.check_staged(committable)
        contents = self._contents(sink.name, left, sink.prepare_fork(committable, left))
        return Completed(self.next_version(), fork, contents, base)

    def switched(self, to: Completed | None, timeline: str | None = None) -> TableTarget:
        """Make a timeline live that is at this checkpoint; a new one unless it is named."""
        version = self.next_version()
        self.live, self.head = timeline or f"t{version}", to
        return TableTarget(version, self.live, None if to is None else to.contents)

    def realigned(self) -> TableTarget:
        """Decide that the head counts, whatever the table shows."""
        contents = None if self.head is None else self.head.contents
        return TableTarget(self.next_version(), self.live, contents, realigns=True)

    def _contents(self, sink: str, left: TableContents | None, prepared: PreparedTable) -> TableContents:
        owner = CheckpointId(self.next_id), FencingToken(TOKEN)
        self.next_id += 1
        contents = write_contents(ContentsRecords(self._store), sink, (HERE, "here"), owner, left, prepared)
        return from_json(TableContents, to_json(contents), "contents")

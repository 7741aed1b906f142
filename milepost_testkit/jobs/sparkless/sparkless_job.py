"""A small job over local folders whose epochs a test makes by hand: the real job master, no Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from milepost.epoch.answers import EpochReport
from milepost.epoch.metadata import (
    AcknowledgedSubtask,
    CheckpointMetadata,
    SinkSnapshot,
    SourceSnapshot,
)
from milepost.epoch.plan import decode_input_record
from milepost.jobmaster import JobMaster, Session, Triggered
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.run.checkpoint_metadata import shown_checkpoint, write_contents
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.protocol.manifest.transaction.requests import RebindRequest
from milepost.protocol.records.checkpoints import CompletedCheckpoint, PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId
from milepost.quality.verdict import GateVerdict
from milepost.sources.planning.consumed import append
from milepost.storage.layout import consumed_prefix
from milepost.storage.object_handles import read_handle
from milepost.tables.records.committables import Committable
from milepost.tables.records.table_keys import DATA
from milepost_testkit.rows.key_hashes import KEYED
from milepost_testkit.specs.spec_edits import edited
from milepost_testkit.tasks.staging import stage_each

SPEC = """\
name: small
storage: ../store
sources:
  rows:
    format: csv
    path: ../landing/*.csv
    schema: {k: int64, v: string}
    limits_per_epoch: {max_files: 1}
    settle: 0s
operators:
  - {uid: latest, kind: aggregate, inputs: [rows], key: [k], aggregates: {rows: count(*)}}
sinks:
  - {name: table, input: latest, format: parquet, path: ../lake/table, mode: upsert}
checkpointing: {retained: {last: 1}, timeout: 10m}
"""
SCHEMA = pa.schema([("k", pa.int64()), ("rows", pa.int64())])
TIMEOUT_MS = 600_000


@dataclass(frozen=True)
class SparklessJob:
    """A job under `folder`: `config/small.yaml`, `landing/`, `store/`, `lake/`."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, edit: Mapping[str, str] | None = None) -> SparklessJob:
        """Write the spec; `edit` replaces texts that must occur in it."""
        for name in ("config", "landing"):
            (folder / name).mkdir(parents=True)
        (folder / "config" / "small.yaml").write_text(edited(SPEC, edit or {}))
        return cls(folder)

    def copy_to(self, folder: Path) -> SparklessJob:
        """The same job elsewhere; it knows nothing of where it was."""
        return SparklessJob(Path(shutil.copytree(self.folder, folder)))

    def loaded(self) -> LoadedJob:
        return load_job(str(self.folder / "config" / "small.yaml"))

    @property
    def context(self) -> JobContext:
        return JobContext(self.loaded())

    @property
    def master(self) -> JobMaster:
        return JobMaster(self.loaded())

    def land(self, name: str, text: str = "k,v\n1,a\n") -> Path:
        path = self.folder / "landing" / name
        path.write_text(text)
        return path

    def trigger(self, session: Session) -> PendingCheckpoint:
        """Trigger and rebind, as the start of `run_epoch` does."""
        triggered = self.master.triggers.trigger(session)
        assert isinstance(triggered, Triggered)
        return self.rebind(session)

    def rebind(self, session: Session) -> PendingCheckpoint:
        """Begin another try under a new token."""
        return self.rebind_of(session, self.pending.checkpoint_id)

    def rebind_of(self, session: Session, checkpoint_id: int) -> PendingCheckpoint:
        """Begin a try of this checkpoint, whether it is pending or not."""
        request = RebindRequest(session.session_id, session.holder, CheckpointId(checkpoint_id), TIMEOUT_MS)
        self.context.transact(request)
        return self.pending

    @property
    def pending(self) -> PendingCheckpoint:
        pending = self.context.head().state.timeline().pending
        assert pending is not None
        return pending

    def stage(self, pending: PendingCheckpoint, *, k: int = 1) -> Committable:
        """Stage one row under the token, as its Spark job would."""
        rows = pa.table({"k": [k], "rows": [1]}, schema=SCHEMA)
        sink = self.context.sink("table")
        return stage_each(sink, int(pending.checkpoint_id), int(pending.token), rows, schema=SCHEMA)

    def complete(
        self,
        session: Session,
        pending: PendingCheckpoint,
        change: Callable[[CheckpointMetadata], CheckpointMetadata] = lambda metadata: metadata,
    ) -> CompletedCheckpoint:
        """Stage, write `_metadata` (as `change` makes it) and commit; nothing is published."""
        context = self.context
        context.reserve("table")
        staged = self.stage(pending)
        state = context.head().state
        base = context.base_metadata(state, pending.base)
        tables = dict(base.tables) if base is not None else {}
        context.sink("table").check_staged(staged)
        prepared = context.sink("table").prepare(
            staged,
            tables.get("table"),
            waits=bool(state.unconfirmed()),
        )
        tables["table"] = write_contents(
            context.table_records,
            "table",
            (context.sink_address("table"), context.sink_location("table")),
            (pending.checkpoint_id, pending.token),
            tables.get("table"),
            prepared,
        )
        record = decode_input_record(read_handle(context.store, pending.plan))
        planned = record.sources[0]
        runs, _ = append(
            context.store,
            f"{consumed_prefix(pending.checkpoint_id, pending.token)}rows-",
            base.sources["rows"].consumed if base else (),
            planned.consumed,
            pending.checkpoint_id,
        )
        metadata = CheckpointMetadata(
            job="small",
            checkpoint_id=pending.checkpoint_id,
            epoch=pending.epoch,
            timeline=context.head().state.live,
            token=pending.token,
            base=pending.base,
            code_hash=pending.code_hash,
            code={},
            spec_hash=pending.spec_hash,
            spec_text="",
            signatures=base.signatures if base else {},
            max_parallelism=128,
            hasher=KEYED,
            plan=pending.plan,
            sources={"rows": SourceSnapshot(None, runs, 1, len(planned.objects), (), record.final)},
            operators={},
            sinks={"table": SinkSnapshot(staged.rows, shown_checkpoint(base, "table"))},
            tables=tables,
            acknowledged=tuple(AcknowledgedSubtask(one.level, one.subtask, "d", {}) for one in pending.expected),
            verdict=GateVerdict.of(()),
            held_back=record.held_back,
        )
        metadata = change(metadata)
        handle = context.write_metadata(metadata)
        return Leadership(context).complete(session, pending, EpochReport(metadata, handle)).checkpoint

    def epoch(self, change: Callable[[CheckpointMetadata], CheckpointMetadata] = lambda metadata: metadata) -> int:
        """One whole published epoch of a new session; returns its checkpoint id."""
        session = Session.cli()
        completed = self.complete(session, self.trigger(session), change)
        self.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
        return int(completed.checkpoint_id)

    def staged_files(self, checkpoint_id: int) -> list[str]:
        """Files below the checkpoint's directory of the sink, as ``t<token>/<file>``."""
        root = self.folder / "lake" / "table" / DATA / f"chk-{checkpoint_id:020d}"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

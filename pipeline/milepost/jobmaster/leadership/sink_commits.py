"""Commit completed checkpoints at the sinks, after the commit point, and confirm them (I11).

Sinks commit in parallel; the checkpoints of one sink are committed in order. One transition confirms all sinks that one
process has committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from milepost.errors import (
    CheckpointError,
    CommitOutcomeUnknown,
    InvalidRequest,
    StoreUnavailable,
    Superseded,
)
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.table_contents import is_job_table, table_target
from milepost.protocol.manifest.transaction import ConfirmSinksRequest
from milepost.protocol.records import CompletedCheckpoint, ManifestState
from milepost.sinks import Sink
from milepost.storage.concurrency import parallel_map, prefetch

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Completion:
    """A completed checkpoint whose sinks may commit.

    Attributes:
        state: of a version in which it is completed.
        head: reads the head after the completion. Only that head allows moving a table or deleting anything (I1).
    """

    checkpoint: CompletedCheckpoint
    state: ManifestState
    head: Callable[[], ManifestState]


@dataclass(frozen=True, slots=True)
class Published:
    """The sinks whose tables show a checkpoint, by name, without a confirmation in the log yet.

    Attributes:
        published_ms: when the last of them did, by the clock of this machine, ms since the epoch.
    """

    checkpoint: CompletedCheckpoint
    sinks: Mapping[str, Sink]
    published_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def confirmation(self, session: Session) -> ConfirmSinksRequest:
        """Return the request that records the commits."""
        number, sinks = self.checkpoint.checkpoint_id, tuple(self.sinks)
        return ConfirmSinksRequest(session.session_id, number, sinks, self.published_ms)

    def maintain(self) -> None:
        """Shorten the sinks' logs after the confirmation. Never fails, since a later epoch can do it."""
        for name, sink in self.sinks.items():
            try:
                sink.maintain()
            except CheckpointError as error:
                _LOG.warning("sink %s: its log was not truncated, a later commit tries again: %s", name, error.message)


class SinkCommits:
    """Publishes one job's completed checkpoints at its sinks."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def finish(self, session: Session) -> list[str]:
        """Publish completed checkpoints that are not confirmed, oldest first per sink. Each run starts with this.

        A sink that is down delays only itself; the trigger refuses when too many checkpoints wait for it.
        Returns: one line per checkpoint and sink that was published now.
        Raises: errors that a retry cannot change: Superseded, InvalidRequest, StateCorrupt, EnvironmentUnusable.
        """
        published: list[str] = []
        down: set[str] = set()
        for checkpoint in (state := self._context.head().state).unconfirmed():
            for sink in checkpoint.unconfirmed:
                if sink in down:
                    continue
                try:
                    self.commit(session, state, checkpoint, sink)
                except (StoreUnavailable, CommitOutcomeUnknown) as error:
                    down.add(sink)
                    _LOG.warning("checkpoint %s waits for sink %s: %s", checkpoint.checkpoint_id, sink, error.message)
                else:
                    published.append(f"checkpoint {checkpoint.checkpoint_id} to sink {sink}")
                    _LOG.info("checkpoint %s: sink %s had not confirmed; published", checkpoint.checkpoint_id, sink)
        return published

    def publish(self, session: Session, completion: Completion, spent: Callable[[str, float], None]) -> Published:
        """Commit every sink of a completed checkpoint in parallel. Returns those that the caller has to confirm.

        If one fails, the others are published nevertheless, and confirmed here.

        Args:
            spent: called with each sink and its seconds.
        Raises: the first failed sink's error; its message adds that the checkpoint is completed.
        """
        completed = completion.checkpoint
        completion = replace(completion, head=prefetch(self._context.store, completion.head, "head-afterwards"))

        def commit(sink: str) -> tuple[Sink | None, CheckpointError | None, float]:
            started = time.monotonic()
            try:
                if _older(completion.state, completed, sink):
                    self._commit_older(session, completion.head(), completed, sink)
                moved = self._move(completion.state, completed, sink, partial(_require_due, completion, sink))
                return moved[0], None, time.monotonic() - started
            except CheckpointError as error:
                return None, error, time.monotonic() - started

        sinks = completed.unconfirmed
        committed = dict(zip(sinks, parallel_map(self._context.store, commit, sinks), strict=True))
        failed = {name: error for name, (_, error, _) in committed.items() if error is not None}
        for name, (_, _, seconds) in committed.items():
            spent(name, seconds)
        moved = {name: sink for name, (sink, _, _) in committed.items() if sink is not None}
        published = Published(completed, moved)
        if failed:
            first = next(iter(failed.values()))
            try:
                self._confirm(session, published)
            except CheckpointError:  # the sinks' error is the one to report
                raise waits_for(completed, [*moved, *failed], first) from first
            raise waits_for(completed, failed, first) from first
        return published

    def prefetch_table(self, name: str) -> Callable[[], None]:
        """Start the reads that the commit of one sink will need. Returns a function that waits for them."""
        context = self._context
        if name not in {sink.name for sink in context.spec.sinks}:
            return lambda: None  # the commit reports it
        table = prefetch(context.store, context.sink(name).prefetch_table, "table")
        identity = prefetch(context.store, lambda: context.identity, "identity")

        def wait() -> None:
            table()
            identity()

        return wait

    def commit_up_to(self, session: Session, state: ManifestState, target: CompletedCheckpoint, sink: str) -> bool:
        """Commit a sink's part of a checkpoint, after every older checkpoint that it has not confirmed (I14).

        Returns: whether this call published the target; False if it was published before.
        """
        self._commit_older(session, state, target, sink)
        return sink in target.unconfirmed and self.commit(session, state, target, sink)

    def commit(self, session: Session, state: ManifestState, checkpoint: CompletedCheckpoint, name: str) -> bool:
        """Commit one sink's part of a completed checkpoint and confirm it. Returns True if this call published it.

        A checkpoint that a concurrent rollback has discarded is not published, which is not an error.
        """
        sink, published = self._move(state, checkpoint, name)
        if sink is not None:
            self._confirm(session, Published(checkpoint, {name: sink}))
        return published

    def _commit_older(self, session: Session, state: ManifestState, target: CompletedCheckpoint, sink: str) -> None:
        for checkpoint in _older(state, target, sink):
            self.commit(session, state, checkpoint, sink)

    def _move(
        self,
        state: ManifestState,
        checkpoint: CompletedCheckpoint,
        name: str,
        before_commit: Callable[[], None] = lambda: None,
    ) -> tuple[Sink | None, bool]:
        """Commit one sink's part.

        Returns: the sink, None if the job was rolled back; and whether this call published it.
        Args:
            state: a head. before_commit: as for a sink's `move`.
        """
        metadata = self._context.metadata(checkpoint)
        contents = metadata.tables[name]
        if name not in {sink.name for sink in self._context.spec.sinks}:
            raise InvalidRequest(
                f"checkpoint {checkpoint.checkpoint_id} is completed and waits for sink {name}, which the spec no "
                "longer has. Nothing was published.",
                hint="put the sink back until its last checkpoint is published",
                sink=name,
            )
        if not is_job_table(self._context, name, contents):
            raise InvalidRequest(
                f"checkpoint {checkpoint.checkpoint_id} is completed and waits for sink {name}, but the sink's path "
                "now leads elsewhere than its rows were staged. Nothing was published.",
                hint="set path, environment or endpoint back and run again",
                sink=name,
            )
        follows, sink = metadata.sinks[name].predecessor, self._context.sink(name, contents.address)
        try:
            return sink, sink.move(table_target(state, checkpoint, contents, follows), before_commit)
        except Superseded:
            current = self._context.head().state.checkpoint(checkpoint.checkpoint_id)
            if current is not None and name in current.unconfirmed:
                raise
            _LOG.info("checkpoint %s: the job went back; sink %s gets nothing of it", checkpoint.checkpoint_id, name)
            return None, False

    def _confirm(self, session: Session, published: Published) -> None:
        if published.sinks:
            self._context.record(published.confirmation(session))
            published.maintain()


def _older(state: ManifestState, target: CompletedCheckpoint, sink: str) -> list[CompletedCheckpoint]:
    """Return the older checkpoints that a sink has not confirmed, in order."""
    return [
        checkpoint
        for checkpoint in state.checkpoints
        if checkpoint.checkpoint_id < target.checkpoint_id and sink in checkpoint.unconfirmed
    ]


def _require_due(completion: Completion, sink: str) -> None:
    """Wait for the head after a completion. Raises Superseded: the checkpoint must no longer be published."""
    completed = completion.checkpoint
    current = completion.head().checkpoint(completed.checkpoint_id)
    if current is None or sink not in current.unconfirmed:
        raise Superseded(
            f"sink {sink}: checkpoint {completed.checkpoint_id} of timeline {completed.timeline} is no longer due. "
            "Nothing was moved.",
            sink=sink,
            checkpoint_id=completed.checkpoint_id,
        )


def waits_for(completed: CompletedCheckpoint, sinks: Iterable[str], first: CheckpointError) -> CheckpointError:
    """Return the first error, extended by the fact that the checkpoint is completed and by the sinks that wait."""
    waiting = set(sinks)
    return type(first)(
        f"checkpoint {completed.checkpoint_id} is completed; sinks that wait for it: "
        f"{', '.join(name for name in completed.sinks if name in waiting)}. "
        f"{first.message} The next run publishes them first.",
        hint=first.hint,
        **first.details | {"completed": int(completed.checkpoint_id)},
    )

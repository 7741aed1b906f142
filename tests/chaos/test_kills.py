"""kill -9 of `milepost run` anywhere, its JVM and workers left alive: the next run recovers, every row is there once.

The kills are chained over one job: each process, in another working directory and HOME, first recovers what the killed
one before it left, then goes on to its own end. All of them run without Spark, which changes none of the driver's
writes; those at which Spark lives run on it too, and leave orphans that go on writing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from milepost.jobmaster.retention.garbage_lists import listed_garbage
from milepost.protocol.log.log_entries import LogEntry, Tombstone
from milepost.protocol.manifest.transaction.events import (
    CheckpointAborted,
    CheckpointCompleted,
    Event,
    GarbageDeleted,
    GarbageFolded,
)
from milepost.protocol.records.layout import garbage_list_key, marks_prefix, metadata_key
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit.commands.mortal_processes import MortalProcess
from milepost_testkit.jobs.flights.kill_chain import SINKS, KillChain

JOB = "/flights"
MANIFEST = r"manifest/\d+\.json"
HEAD = r"_milepost/heads/\d+\.json"
CONSUMED = r"chk-\d+/t\d+/consumed/.+"
THREE_HOURS_MS = 3 * 3_600_000
"""Longer than the grace period of garbage of a job with a timeout of 10 minutes."""


def entry(event: str, skip: int = 0) -> dict[str, Any]:
    """The manifest entry of an event."""
    return {"operation": "create", "store": JOB, "key": MANIFEST, "event": event, "skip": skip}


def head_of(sink: str, skip: int = 0) -> dict[str, Any]:
    """The sink's head: what makes an epoch visible to its readers."""
    return {"operation": "create", "store": f"/lake/{sink}", "key": HEAD, "skip": skip}


def mark_of(sink: str) -> dict[str, Any]:
    """The record that goes before the sink's head: by itself it moves nothing."""
    return {"operation": "create", "store": JOB, "key": f"{marks_prefix(sink)}.+"}


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        die: right after this write.
        appears: from outside, once the new run's epoch has a file like this, which a Python worker writes.
        left: what the store must look like then.
        orphan: what it leaves on Spark: a JVM, or none; None: it is not tried there.
    """

    name: str
    left: Callable[[KillChain], None]
    die: dict[str, Any] | None = None
    appears: str | None = None
    orphan: bool | None = None
    clock_ahead_ms: int = 0

    def strike(self, chain: KillChain) -> None:
        run = self._killed(chain)
        expected = chain.spark and self.orphan
        assert run.jvm_lives() == expected, f"killed after: {self.name}: is there an orphaned JVM?"

    def _killed(self, chain: KillChain) -> MortalProcess:
        plan: dict[str, Any] = {"clock_ahead_ms": self.clock_ahead_ms}
        if self.die is not None:
            return chain.dies(plan | {"die": self.die})
        # The driver waits before its first write after the Spark job, so that this kill cannot come too late.
        plan["hold"] = {"operation": "put", "store": JOB, "key": CONSUMED}
        # Orphans of killed runs write such files too, but only below checkpoints of their own.
        assert self.appears is not None
        pattern = self.appears.format(checkpoint=f"chk-{chain.state.next_checkpoint_id:020}")
        return chain.dies(plan, lambda: any(chain.job.folder.glob(pattern)))


# -- what each position means ---------------------------------------------------------------------------------------


def no_checkpoint(chain: KillChain) -> None:
    assert chain.job.master().reports.list_checkpoints() == []
    assert not any(chain.context.store.list("chk-")) and not any(chain.marks().values())


def only_planned(chain: KillChain) -> None:
    assert any(chain.context.store.list("inputs/"))
    no_checkpoint(chain)


def pending_with(*written: str, absent: tuple[str, ...] = ("_metadata",)) -> Callable[[KillChain], None]:
    """A checkpoint is pending, this much of it is durable (nothing, if none is named), and no reader sees any of it."""

    def check(chain: KillChain) -> None:
        pending = chain.pending
        found = chain.written(pending)
        assert pending.prefixes == (pending.token,), "one process triggers and runs under one token"
        assert set(written) <= found if written else not found
        assert not found.intersection(absent)
        assert all(mark < pending.checkpoint_id for mark in chain.marks().values())

    return check


def finished(chain: KillChain) -> None:
    """All is durable and nothing is published: the next run adopts it."""
    pending_with("_metadata", "_heartbeat", "state", "consumed", "metrics", absent=())(chain)


def completed(*, published: int, confirmed: int, adopted: bool | None = None) -> Callable[[KillChain], None]:
    """The head is complete; its first so many sinks show it, and so many have confirmed it."""

    def check(chain: KillChain) -> None:
        state = chain.state
        head = state.head()
        assert head is not None and state.timeline().pending is None
        assert head.unconfirmed == SINKS[confirmed:]
        shown = [name for name, mark in chain.marks().items() if mark == head.checkpoint_id]
        assert shown == list(SINKS[:published])
        if adopted is not None:
            event = next(e.event for e in chain.context.log.entries() if isinstance(e.event, CheckpointCompleted))
            assert event.checkpoint.checkpoint_id == head.checkpoint_id
            assert (event.adopted_by is not None) == adopted

    return check


def subsumed(chain: KillChain) -> None:
    """Publish before delete: dropped objects are listed, and none of them is deleted."""
    dropped = chain.job.master().reports.list_checkpoints("subsumed")
    assert dropped and len(chain.state.checkpoints) == 2
    for item in dropped:
        own = metadata_key(item.checkpoint_id, item.leader.token)
        assert listed_garbage(chain.context.store, chain.state).covers(own)
        assert chain.context.store.stat(own).size


def concluded(chain: KillChain) -> None:
    """One transition confirms all sinks of an epoch, and subsumes what they no longer need."""
    completed(published=3, confirmed=3)(chain)
    subsumed(chain)


def partly_deleted(chain: KillChain) -> None:
    """The manifest still lists what is deleted: the next leader deletes it again, and nothing else."""
    assert deleted(chain) and len(deleted(chain)) < len(listed_garbage(chain.context.store, chain.state).keys)


def deleted(chain: KillChain) -> list[str]:
    store = chain.context.store
    return [key for key in listed_garbage(store, chain.state).keys if not any(store.list(key))]


def partly_compacted(chain: KillChain) -> None:
    """An entry is a tombstone, and the state does not know of it yet (I6)."""
    compacted = chain.state.compacted
    assert any(isinstance(one, Tombstone) and one.version > compacted for one in chain.context.log.entries())


def list_not_named(chain: KillChain) -> None:
    """A list of garbage is stored, and no transition names it yet: nothing of it is garbage by that (I8)."""
    assert _stored_lists(chain) > {garbage_list_key(one.sha256) for one in chain.state.garbage_lists}


def folded(chain: KillChain) -> None:
    """Objects that the fold replaced are no longer referenced, but still exist."""
    list_not_named(chain)
    (event, *_) = (one.event for one in chain.context.log.entries() if isinstance(one, LogEntry))
    assert isinstance(event, GarbageFolded) and event.garbage_list in chain.state.garbage_lists


def _stored_lists(chain: KillChain) -> set[str]:
    return {stat.key for stat in chain.context.store.list("garbage/")}


KILLS = (
    Kill("manifest created", no_checkpoint, entry("JobCreated")),
    Kill("input record", only_planned, {"operation": "put", "store": JOB, "key": r"inputs/.+"}),
    Kill("trigger", pending_with(), entry("CheckpointTriggered"), orphan=False),
    Kill(
        "heartbeat",
        pending_with("_heartbeat"),
        {"operation": "put", "store": JOB, "key": r"chk-\d+/t\d+/_heartbeat"},
    ),
    Kill(
        "state run",
        pending_with("_heartbeat", "state", absent=("consumed", "_metadata")),
        appears="store/flights/{checkpoint}/t*/state/*/*",
        orphan=True,
    ),
    Kill(
        "staged sink file",
        pending_with("state", absent=("consumed", "_metadata")),
        appears="lake/carriers/_milepost/data/{checkpoint}/t*/*",
        orphan=True,
    ),
    Kill(
        "consumed run",
        pending_with("state", "metrics", "consumed"),
        {"operation": "put", "store": JOB, "key": CONSUMED},
        orphan=True,
    ),
    Kill("_metadata", finished, {"operation": "put", "store": JOB, "key": r"chk-\d+/t\d+/_metadata"}, orphan=True),
    Kill(
        "complete, by adoption",
        completed(published=0, confirmed=0, adopted=True),
        entry("CheckpointCompleted"),
        orphan=False,
    ),
    Kill("mark of carriers", completed(published=0, confirmed=0), mark_of("carriers")),
    Kill("head of carriers", completed(published=1, confirmed=0), head_of("carriers")),
    Kill("carriers confirmed", completed(published=1, confirmed=1), entry("SinksConfirmed")),
    Kill("head of hourly", completed(published=2, confirmed=1), head_of("hourly")),
    Kill("hourly confirmed", completed(published=2, confirmed=2), entry("SinksConfirmed")),
    Kill("head of late_flights", completed(published=3, confirmed=2), head_of("late_flights")),
    Kill("late_flights confirmed", completed(published=3, confirmed=3), entry("SinksConfirmed")),
    Kill("complete", completed(published=0, confirmed=0, adopted=False), entry("CheckpointCompleted"), orphan=True),
    # One more head is the recovery of the kill before.
    Kill("head of carriers, at once", completed(published=1, confirmed=0), head_of("carriers", skip=1)),
    Kill("all confirmed, at once, and older ones subsumed", concluded, entry("CheckpointsSubsumed")),
    Kill("tombstone", partly_compacted, {"operation": "put", "store": JOB, "key": r"manifest/.+"}),
    Kill("list of garbage", list_not_named, {"operation": "put", "store": JOB, "key": r"garbage/.+"}),
    Kill("fold of garbage", folded, entry("GarbageFolded")),
    Kill(
        "deletion",
        partly_deleted,
        {"operation": "delete", "store": JOB, "key": r"(chk-|inputs/).+"},
        clock_ahead_ms=THREE_HOURS_MS,
    ),
)

ON_SPARK = tuple(kill for kill in KILLS if kill.orphan is not None)
FEW_ON_SPARK = tuple(kill for kill in ON_SPARK if kill.name in ("trigger", "state run"))

RANDOM_KILLS = 10
UNREAD_DAYS = 12
"""One object an epoch: more epochs than any process gets through before its moment has come."""


Begin = Callable[[int, bool], KillChain]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Makes a job of so many days, with Spark or without."""
    with ExitStack() as stack:

        def begun(days: int, spark: bool) -> KillChain:
            chain = KillChain(tmp_path, days, spark)
            stack.callback(chain.processes.end)
            return chain

        yield begun


def test_a_run_killed_after_any_write_is_recovered_by_the_next(begin: Begin) -> None:
    """DESIGN 3, order of writes: each named point is hit, and leaves what its position means."""
    chain = begin(13, False)
    _named(chain, KILLS)
    _catch_up(chain, clock_ahead_ms=2 * THREE_HOURS_MS)
    assert _told(chain, GarbageDeleted)


@pytest.mark.deep
@pytest.mark.parametrize("kills", [FEW_ON_SPARK, ON_SPARK], ids=["few", "all"])
def test_a_killed_run_is_recovered_while_its_orphaned_spark_job_still_writes(
    begin: Begin, kills: tuple[Kill, ...]
) -> None:
    """I3, I10: each JVM outlives its driver, and its job goes on below a token that is fenced."""
    chain = begin(6, True)
    _named(chain, kills)
    _catch_up(chain)


@pytest.mark.deep
@pytest.mark.parametrize("spark", [False, True])
def test_a_run_killed_at_ten_random_moments_loses_and_doubles_nothing(begin: Begin, seed: int, spark: bool) -> None:
    """I3, I10: also while the orphaned Spark job of the killed run still writes."""
    _random(begin(4, spark), random.Random(seed))


def _named(chain: KillChain, kills: Iterable[Kill]) -> None:
    for kill in kills:
        started = time.monotonic()
        kill.strike(chain)
        print(f"killed after: {kill.name} ({time.monotonic() - started:.1f} s)")
        try:
            kill.left(chain)
            chain.assert_only_completed_is_published()
        except AssertionError as error:
            raise AssertionError(f"killed after: {kill.name}: {error}") from error


def _told(chain: KillChain, event: type[Event]) -> list[dict[str, Any]]:
    """What the history says of each event of one type, compacted or not."""
    return [entry for entry in chain.job.master().reports.history() if entry["event"] == event.__name__]


def _random(chain: KillChain, draw: random.Random) -> None:
    chain.succeeds("--epochs", "2")
    newest, oldest = chain.job.master().reports.list_checkpoints("completed")
    lasts_s = {1: oldest.duration_ms / 1000, 2: newest.duration_ms / 1000}  # a cold epoch, and a warm one
    for number in range(RANDOM_KILLS):
        epoch = 1 + number % 2
        fraction = draw.random()
        chain.keep_unread(UNREAD_DAYS)
        moment = _Moment(chain, epoch, fraction * lasts_s[epoch])
        chain.dies({}, moment)
        print(f"kill {number + 1}: {fraction:.3f} into the {['cold', 'warm'][epoch - 1]} epoch of its process")
        chain.assert_only_completed_is_published()
    _catch_up(chain)


class _Moment:
    """True from so many seconds after a new process has triggered its n-th epoch."""

    def __init__(self, chain: KillChain, epoch: int, delay_s: float) -> None:
        self._manifest = chain.job.folder / "store" / "flights" / "manifest"
        self._chain = chain
        self._before = chain.state.next_checkpoint_id
        self._epoch, self._delay_s = epoch, delay_s
        self._versions = -1
        self._from: float | None = None

    def __call__(self) -> bool:
        if self._from is None:
            versions = sum(1 for _ in self._manifest.iterdir())
            if versions != self._versions:
                self._versions = versions
                if self._chain.state.next_checkpoint_id >= self._before + self._epoch:
                    self._from = time.monotonic()
        return self._from is not None and time.monotonic() >= self._from + self._delay_s


def _catch_up(chain: KillChain, clock_ahead_ms: int = 0) -> None:
    """One clean run to the end: what is left is right, and says by itself why each lost epoch was lost."""
    chain.job.edit(chain.job.spec_path.read_text(), {"max_files: 1": "max_files: 100"})
    chain.succeeds("--until-caught-up", plan={"clock_ahead_ms": clock_ahead_ms})
    chain.assert_orphans_live()
    state = chain.state
    assert state.timeline().pending is None and not state.unconfirmed()
    reasons = {document["reason"] for document in _told(chain, CheckpointAborted)}
    assert reasons == {CheckpointFailureReason.LEADER_LOST.value}
    assert chain.job.master().reports.verify(deep=True).discarded == ()
    chain.job.assert_tables_equal_the_oracle()
    consumed = [key for epoch in chain.job.epochs() for key in epoch]
    assert len(consumed) == len(set(consumed)) == chain.days

"""Concurrent grants, completions and revocations of several processes, ordered by the manifest log (I1, I3, I9).

Real processes on real stores with an atomic conditional create (a local directory, SeaweedFS). Exactly one rival wins,
and every other one gets an answer that says what to do.
"""

from __future__ import annotations

import multiprocessing
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from milepost.errors import CheckpointError
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.decisions import Request, decide
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer
from milepost.protocol.manifest.transaction.events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobCanceled,
    JobCleaned,
    JobFinished,
    aborts_of,
)
from milepost.protocol.manifest.transaction.requests import (
    AbortRequest,
    CancelRequest,
    CleanRequest,
    ConfirmSinksRequest,
    FinishRequest,
)
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.storage.log.manifest_log import ManifestLog
from milepost.storage.open import open_store
from milepost_testkit.jobs.job_log import JobLog, decided
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.stores.manifest_logs import create_job, new_log

pytestmark = pytest.mark.long

RACERS = 4
WAIT_S = 240.0
"""How long one process waits for the others before the test fails."""

Told = tuple[int, str, str]
"""(round, request, outcome): `won`, the reason why it was done already, or the class of the error."""


@dataclass
class Racer:
    """One process with its own session; each method is one request, made on a fresh head."""

    config: StoreConfig
    number: int

    def __post_init__(self) -> None:
        self.log = ManifestLog(open_store(self.config), lambda: uuid.uuid4().hex)
        self.requests = JobLog()
        self.session = SessionId(f"cli:racer-{self.number}")

    def ask(self, request: Callable[[ManifestState], Request]) -> str:
        def present(state: ManifestState | None, now_ms: int) -> Answer:
            assert state is not None
            self.requests.state = state
            return decide(state, request(state), now_ms)

        try:
            outcome = self.log.transact(present).outcome
        except CheckpointError as error:
            return type(error).__name__
        return outcome.outcome.value if isinstance(outcome, AlreadyDone) else "won"

    def trigger(self) -> str:
        return self.ask(lambda _: self.requests.trigger_request(self.session))

    def complete(self) -> str:
        pending = self.head().timeline().pending
        if pending is None:
            return "nothing_pending"
        request = self.requests.complete_request(self.session, pending)
        return self.ask(lambda _: request)

    def sweep(self) -> str:
        pending = self.head().timeline().pending
        if pending is None:
            return "nothing_pending"
        request = AbortRequest(
            self.session,
            pending.checkpoint_id,
            CheckpointFailureReason.ABORTED_BY_USER,
            "enough",
            0,
            pending.token,
            swept=True,
        )
        return self.ask(lambda _: request)

    def confirm(self) -> str:
        waiting = self.head().unconfirmed()
        if not waiting:
            return "already_confirmed"
        request = ConfirmSinksRequest(self.session, waiting[0].checkpoint_id, ("lake",))
        return self.ask(lambda _: request)

    def cancel(self) -> str:
        return self.ask(lambda _: CancelRequest(self.session, decided("enough")))

    def finish(self) -> str:
        request = FinishRequest(self.session, self.head().timeline().head, "all of it")
        return self.ask(lambda _: request)

    def clean(self) -> str:
        return self.ask(lambda _: CleanRequest(self.session, 1))

    def look(self) -> str:
        return f"version {self.head().version}"

    def head(self) -> ManifestState:
        head = self.log.head()
        assert head is not None
        return head.state


def race(config: StoreConfig, number: int, rounds: tuple[str, ...], start: Barrier, told: Queue[list[Told]]) -> None:
    """Run in a process of its own: round by round, together with the others, do this racer's part."""
    racer = Racer(config, number)
    answers: list[Told] = []
    for index, what in enumerate(rounds):
        start.wait(WAIT_S)
        answers.append((index, what, getattr(racer, what)()))
    told.put(answers)


def raced(config: StoreConfig, parts: list[tuple[str, ...]]) -> list[Counter[tuple[str, str]]]:
    """Start one process per entry of `parts`; return per round how often each request had which outcome."""
    processes_of = multiprocessing.get_context("spawn")
    start, told = processes_of.Barrier(len(parts)), processes_of.Queue()
    racers = [
        processes_of.Process(target=race, args=(config, number, rounds, start, told), daemon=True)
        for number, rounds in enumerate(parts)
    ]
    for racer in racers:
        racer.start()
    try:
        answers = [told.get(timeout=WAIT_S) for _ in racers]
    finally:
        for racer in racers:
            racer.join(WAIT_S)
            assert racer.exitcode == 0, f"a racer ended with {racer.exitcode}"
    rounds = [Counter[tuple[str, str]]() for _ in parts[0]]
    for answer in answers:
        for index, what, how in answer:
            rounds[index][(what, how)] += 1
    return rounds


@pytest.fixture(params=["local", pytest.param("seaweed", marks=pytest.mark.deep)])
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreConfig]:
    """A job's store, with its manifest at version 1."""
    if request.param == "local":
        chosen = StoreConfig(file_url(tmp_path / "store"))
    else:
        server: Seaweed = request.getfixturevalue("seaweed")
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        url = f"s3://{server.shared_bucket}/races-{uuid.uuid4().hex}"
        chosen = StoreConfig(url, endpoint_url=server.endpoint_url)
    new_log(open_store(chosen)).transact(create_job("flights"))
    yield chosen


def entries(config: StoreConfig) -> list[LogEntry]:
    """The whole log, oldest first; each state is sound, and each version follows the one before it."""
    found = list(new_log(open_store(config)).entries())[::-1]
    assert [entry.version for entry in found] == list(range(1, len(found) + 1))
    whole = [entry for entry in found if isinstance(entry, LogEntry)]
    assert len(whole) == len(found) and all(faults(entry.state) == [] for entry in whole)
    return whole


def events(config: StoreConfig) -> Counter[str]:
    return Counter(type(entry.event).__name__ for entry in entries(config))


def test_one_of_many_concurrent_triggers_is_granted_and_the_others_are_busy(config: StoreConfig) -> None:
    """I3: one leader at a time, in three rounds, each ended by the first session to sweep.

    Between the rounds every process sweeps: exactly one revokes, the others find nothing pending.
    """
    rounds = raced(config, [("trigger", "sweep") * 3] * RACERS)
    for granted, revoked in zip(rounds[::2], rounds[1::2], strict=True):
        assert granted == {("trigger", "won"): 1, ("trigger", "Busy"): RACERS - 1}
        assert revoked == {("sweep", "won"): 1, ("sweep", "nothing_pending"): RACERS - 1}
    log = entries(config)
    granted_ids = [int(one.event.pending.checkpoint_id) for one in log if isinstance(one.event, CheckpointTriggered)]
    tokens = [int(one.event.leader.token) for one in log if isinstance(one.event, CheckpointTriggered)]
    assert granted_ids == [1, 2, 3] and tokens == sorted(set(tokens))


def test_exactly_one_of_complete_and_abort_wins(config: StoreConfig) -> None:
    """I9, with the completing process and three that sweep it, five times over."""
    owner, other = ("trigger", "complete", "confirm") * 5, ("look", "sweep", "confirm") * 5
    rounds = raced(config, [owner] + [other] * (RACERS - 1))
    for index in range(5):
        ended = rounds[3 * index + 1]
        won = sum(count for (_, how), count in ended.items() if how == "won")
        assert won == 1, ended
        assert {how for _, how in ended} <= {"won", "nothing_pending", "already_completed", "Fenced"}
    found = [entry.event for entry in entries(config)]
    completed = {int(one.checkpoint.checkpoint_id) for one in found if isinstance(one, CheckpointCompleted)}
    aborted = {int(one.pending.checkpoint_id) for one in found if isinstance(one, CheckpointAborted)}
    assert completed | aborted == {1, 2, 3, 4, 5} and not completed & aborted


def test_a_job_ends_once_and_nothing_is_granted_after_it(config: StoreConfig) -> None:
    """A concurrent cancel and grant both return, in either order; no process waits for another.

    Case: JobMasterServiceLeadershipRunnerTest.testJobMasterServiceLeadershipRunnerCloseWhenElectionServiceGrantLeaderShip
    """  # noqa: E501
    parts = [
        ("trigger", "complete", "confirm", "cancel", "clean", "trigger"),
        ("look", "look", "look", "finish", "clean", "trigger"),
        ("look", "look", "look", "trigger", "clean", "trigger"),
        ("look", "look", "look", "cancel", "clean", "trigger"),
    ]
    rounds = raced(config, parts)
    ends = rounds[3]
    assert ends[("cancel", "won")] + ends[("finish", "won")] == 1, ends
    assert {how for _, how in ends} <= {"won", "already_ended", "JobNotRunnable", "Busy"}
    assert rounds[4] == {("clean", "won"): 1, ("clean", "already_clean"): RACERS - 1}
    assert rounds[5] == {("trigger", "JobNotRunnable"): RACERS}
    log = entries(config)
    ended = [entry for entry in log if isinstance(entry.event, JobCanceled | JobFinished)]
    assert len(ended) == 1 and events(config)["JobCleaned"] == 1
    last = [type(entry.event) for entry in log[ended[0].version - 1 :]]
    assert last == [type(ended[0].event), JobCleaned]
    granted = {int(one.event.pending.checkpoint_id) for one in log if isinstance(one.event, CheckpointTriggered)}
    given_up = {int(aborted.pending.checkpoint_id) for one in log for aborted in aborts_of(one.event)}
    assert granted == {1} | given_up, "what was granted just before the cancel is aborted by it"

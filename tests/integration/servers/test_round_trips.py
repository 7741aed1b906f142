"""How many requests of an epoch wait for one another: on a store that is not near, that is its time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.studies.old_job import rows_of, spec_of
from milepost.api import JobMaster, Session, load_job
from milepost.epoch.answers import EpochAnswers
from milepost.epoch.plan import EpochPlan
from milepost.epoch.timing.step_clock import StepClock
from milepost.errors import CommitConflict, Fenced
from milepost.jobmaster.leadership.outcomes import AbortedCheckpoint
from milepost.jobmaster.run.trigger_result import Triggered
from milepost.protocol.manifest.transaction.events import CheckpointTriggered
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.spark.local.local_runner import LocalRunner
from milepost.storage.concurrency.prefetch_store import MAX_PREFETCHED_OBJECTS, ObjectVersion, prefetching_store
from milepost.storage.log.records import LandedTransition
from milepost.storage.open import open_store
from milepost_testkit.proxies.delaying_proxy import CONTINUE, DelayingProxy
from milepost_testkit.runners.side_by_side_runner import SideBySideRunner
from milepost_testkit.servers.s3_servers import Ministack
from milepost_testkit.stores.request_chain import RequestChain, longest_chain

T = TypeVar("T")

IN_LINE = 14
"""Of driver and tasks, with two operators and sinks, a gate, and a checkpoint that is subsumed: head and listing,
input record, trigger; source object, its measurements; runs of state and staged files; staged rows, metadata;
completion; head and mark, table; confirmation with subsumption, measurements and the row of figures, deletion of the
object that it replaces. More of them need a reason: see the decision on what goes beside what."""

TASKS, IN_TASKS = "data plane", 4
"""Of them, of an epoch that joins small files, which are read side by side before what they become is written."""

JOINING = 6
"""The epoch that does is the sixth behind the first: from seven epochs each subtask has so many files."""

COLD = {"trigger": 6, "run_epoch": 11, "validate": 3, "complete": 6, "notify": 8, "subsume": 12}
"""Of each task of such an epoch in a process of its own, which begins with the head, listed and read. `trigger`: its
metadata; runs of consumed objects, beside them the listing; input record, transition. `run_epoch`: rebind; input
record, beside it what the epoch continues; whose the tables are; the tasks; staged rows, else runs of consumed objects
that become one; metadata. `validate`: metadata. `complete`: metadata; completion; what the trigger's token staged;
measurements. `notify`: metadata, beside it the mark; records of contents; the files that are added; the table's head;
confirmation; measurements. `subsume`: metadata, beside it all listings; list of garbage, transition; measurements and
the row of figures, deletion of the object that it replaces. When garbage is folded, a list and a transition more; when
lists of it are, also these, the head and a deletion."""

COLD_EPOCHS = 4
"""So many in a row: one folds entries, one folds lists, one makes one of all runs of consumed objects."""


@pytest.fixture
def master(ministack: Ministack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobMaster:
    for name, value in (ministack.environment() | {"MILEPOST_CACHE_DIR": str(tmp_path / "cache")}).items():
        monkeypatch.setenv(name, value)
    expected = {"type": "expect_column_values_to_not_be_null", "column": "k"}
    spec = spec_of("trips", f"s3://{ministack.new_bucket()}") | {
        "store": {"endpoint_url": ministack.endpoint_url, "region": "us-east-1"},
        "quality": [{"sink": "totals", "expectations": [expected]}],
        "checkpointing": {"retained": {"last": 2}},
    }
    (tmp_path / "trips.yaml").write_text(json.dumps(spec), encoding="utf-8")
    return JobMaster(load_job(str(tmp_path / "trips.yaml")))


def land(master: JobMaster, ministack: Ministack, number: int) -> None:
    """Put the file of one epoch."""
    bucket, body = master.context.store.config.url.split("/")[2], pa.BufferOutputStream()
    pq.write_table(rows_of(number), body)
    ministack.client.put_object(Bucket=bucket, Key=f"landing/{number}.parquet", Body=body.getvalue().to_pybytes())


def epoch(master: JobMaster, ministack: Ministack, number: int) -> RequestChain:
    """Run the epoch of one file; return its requests."""
    chain, runner = RequestChain(), SideBySideRunner()
    land(master, ministack, number)
    with chain.recording():
        chain.clear()
        report = master.epochs.run(Session.cli(), runner, progress=lambda step: chain(step.partition(":")[0]))
    assert report.status == "completed"
    return chain


@pytest.mark.deep
def test_of_a_warm_epoch_so_many_requests_at_most_wait_for_one_another(master: JobMaster, ministack: Ministack) -> None:
    """Counted by what waits for what in the process, not by a clock: the same on every run."""
    for number in range(JOINING + 2):
        chain = epoch(master, ministack, number)
        tasks = [one for one in longest_chain(chain.requests) if one.step == TASKS]
        read_here = [one for one in chain.requests if one.step == TASKS and one.method == "GET"]
        assert number != JOINING or len(read_here) > 8
        assert not number or len(tasks) <= IN_TASKS, tasks
    line = longest_chain(chain.requests)
    told = "\n".join(f"{one.step}: {one.method} {one.key}" for one in line)
    assert len(line) <= IN_LINE, told
    assert {one.step for one in line} >= {"trigger", TASKS, "complete", "notify", "subsume"}, told
    read = Counter(one.key for one in chain.requests if one.method == "GET" and one.step != TASKS)
    assert max(read.values()) == 1, "nothing is read twice"


def cold_epoch(master: JobMaster, ministack: Ministack, number: int) -> dict[str, RequestChain]:
    """Run the epoch of one file as a scheduler does, each task by a job master that knows nothing yet."""
    land(master, ministack, number)
    session, chains = Session.airflow("trips__epoch", f"run {number}", "scheduled", None), dict[str, RequestChain]()

    def task(name: str, act: Callable[[JobMaster], T], *completed: int) -> T:
        chains[name] = chain = RequestChain()
        fresh, clock = JobMaster(master.context.job), StepClock(lambda step: chain(step.partition(" ")[0]))
        with chain.recording():
            chain.clear()
            clock(name)
            told = act(fresh)
            if completed:
                fresh.epochs.keep_times(*completed, clock)
        return told

    triggered = task("trigger", lambda fresh: fresh.triggers.trigger(session))
    assert isinstance(triggered, Triggered)
    number = triggered.checkpoint_id
    task("run_epoch", lambda fresh: fresh.epochs.run_epoch(session, number, SideBySideRunner()))
    task("validate", lambda fresh: fresh.epochs.validate(session, number))
    token = int(task("complete", lambda fresh: fresh.epochs.complete(session, number), number, triggered.token).token)
    for sink in ("minutes", "totals"):
        task(
            f"notify {sink}",
            lambda fresh, sink=sink: fresh.epochs.notify_complete(session, number, sink),
            number,
            token,
        )
    task("subsume", lambda fresh: fresh.epochs.subsume(session), number, token)
    return chains


@pytest.mark.deep
def test_of_each_task_in_a_process_of_its_own_so_many_requests_at_most_wait_for_one_another(
    master: JobMaster, ministack: Ministack
) -> None:
    for number in range(JOINING):
        epoch(master, ministack, number)
    for number in range(JOINING, JOINING + COLD_EPOCHS):
        for task, chain in cold_epoch(master, ministack, number).items():
            line = longest_chain(chain.requests)
            told = "\n".join(f"{one.method} {one.key}" for one in line)
            assert len(line) <= COLD[task.partition(" ")[0]], f"{task}\n{told}"
            read = Counter(one.key for one in chain.requests if one.method == "GET" and "/state/" not in one.key)
            assert max(read.values()) == 1, f"{task}: nothing is read twice"
    fresh, chain = JobMaster(master.context.job), RequestChain()
    with chain.recording():
        fresh.epochs.subsume(Session.airflow("trips__epoch", "run without input", "scheduled", None))
    assert not any("figures/" in one.key or "/metrics/" in one.key for one in chain.requests), "it adds no row"


@pytest.mark.parametrize("reserved", [False, True])
def test_a_session_that_is_overtaken_at_its_trigger_touches_no_table(
    master: JobMaster, ministack: Ministack, reserved: bool
) -> None:
    """I1: the head after the grant is read beside the data plane; what is not below the token's prefix waits for it."""
    bucket, other = master.context.store.config.url.split("/")[2], JobMaster(master.context.job)
    land(master, ministack, 0)
    if reserved:
        with pytest.raises(_Down):
            master.epochs.run(Session.cli(), _DownRunner())

    def overtake(landed: LandedTransition) -> None:
        if isinstance(landed.transition.event, CheckpointTriggered):
            assert isinstance(other.lifecycle.abort_running(), AbortedCheckpoint)

    master.context.listeners.append(overtake)
    before = tables(ministack, bucket)
    with pytest.raises(Fenced):
        master.epochs.run(Session.cli(), LocalRunner())
    assert tables(ministack, bucket) == before


class _Down(Exception):
    pass


class _DownRunner(LocalRunner):
    def run(self, plan: EpochPlan) -> EpochAnswers:
        raise _Down


def tables(server: Ministack, bucket: str) -> dict[str, str]:
    """All objects but those of the job's own storage and what was staged, by their etags."""
    listed = server.client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return {one["Key"]: one["ETag"] for one in listed if "/data/" not in one["Key"] and "/trips/" not in one["Key"]}


def test_small_objects_are_fetched_ahead_of_their_reading(asked: tuple[ObjectStore, DelayingProxy]) -> None:
    """Whoever reads them one after another waits for the first alone; each is of the version that was planned."""
    store, _ = asked
    objects = []
    for number in range(MAX_PREFETCHED_OBJECTS + 1):
        stat = store.put(f"ahead/{number}", b"%d" % number)
        objects.append(ObjectVersion(stat.key, stat.etag, stat.size))
    store.put("ahead/3", b"another version")
    chain = RequestChain()
    with chain.recording():
        chain.clear()
        ahead = prefetching_store(store, objects, 1 << 20)
        for number, obj in enumerate(objects):
            with nullcontext() if number != 3 else pytest.raises(CommitConflict):
                assert ahead.get_if_match(obj.key, obj.etag) == b"%d" % number
    assert [one.method for one in chain.requests] == ["GET"] * len(objects)
    assert len(longest_chain(chain.requests)) == 1
    with chain.recording():
        chain.clear()
        little = prefetching_store(store, objects, 2)
        bodies = [little.get_if_match(obj.key, obj.etag) for obj in objects if obj.key != "ahead/3"]
    assert bodies == [b"%d" % number for number in range(MAX_PREFETCHED_OBJECTS + 1) if number != 3]
    assert len(longest_chain(chain.requests)) > 2, "no more than two bytes are held ahead"


@pytest.fixture
def asked(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ObjectStore, DelayingProxy]]:
    """A store, and its requests."""
    for name, value in ministack.environment().items():
        monkeypatch.setenv(name, value)
    with DelayingProxy(ministack.port, 0.0) as proxy:
        config = StoreConfig(f"s3://{ministack.shared_bucket}/asked", proxy.endpoint_url)
        yield open_store(config), proxy


def test_only_a_large_body_waits_for_leave_to_be_sent(asked: tuple[ObjectStore, DelayingProxy]) -> None:
    store, proxy = asked
    store.put("small", b"x" * 1000)
    store.create("created", b"x" * 1000)
    assert [one.method for one in proxy.answered] == ["PUT", "PUT"]
    store.put("large", b"x" * (2 << 20))
    assert [one.method for one in proxy.answered][2:] == [CONTINUE, "PUT"]


def test_the_clock_of_a_store_that_has_just_answered_is_not_read(
    asked: tuple[ObjectStore, DelayingProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on from the Date of the last reply, and is never ahead of the store's own."""
    store, proxy = asked
    stat = store.put("clock", b"")
    told_ms = store.clock_ms()
    assert len(proxy.answered) == 1 and 0 <= told_ms - stat.last_modified_ms < 60_000
    monkeypatch.setattr("milepost.storage.s3.store._DATE_VALID_S", 0.0)
    assert store.clock_ms() >= told_ms
    assert [one.method for one in proxy.answered] == ["PUT", "HEAD"]

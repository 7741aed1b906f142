"""Leadership through the real scheduler: kill -9 of what watches a task, while the task and its Spark JVM live on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import pytest

from milepost.errors import Fenced
from milepost.jobmaster import Session
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import checkpoint_prefix
from milepost_testkit.airflow.airflow_instance import RUN_S, AirflowInstance
from milepost_testkit.airflow.e2e_job import OF_ITS_OWN, E2eJob
from milepost_testkit.proxies.holding_proxy import Hold, HoldingProxy
from milepost_testkit.servers.s3_servers import Ministack

ORPHAN_S = 240.0
_TOKEN = re.compile(r"/t([0-9]{20})/")


@dataclass
class Orphan:
    """A task that lost its supervisor in the middle of a write.

    Attributes:
        task: its process. jvm: its Spark, if it had one. write: the write that is held back.
    """

    task: psutil.Process
    jvm: psutil.Process | None
    write: Hold

    def freeze(self) -> None:
        """Keep its driver from seeing, at its next heartbeat, that it is fenced; its Spark goes on."""
        self.task.suspend()

    def lives(self) -> bool:
        return self.task.is_running() and (self.jvm is None or self.jvm.is_running())


@dataclass
class Losses:
    """The job of this test, the store behind a proxy, and what was lost so far."""

    airflow: AirflowInstance
    job: E2eJob
    proxy: HoldingProxy
    orphans: list[Orphan] = field(default_factory=list)

    def in_run_epoch(self, run_id: str, checkpoint_id: int) -> Orphan:
        """Wait until a Python worker of the run's Spark job is about to upload state."""
        state = f"/{checkpoint_prefix(CheckpointId(checkpoint_id))}t"
        tokens: list[str] = []

        def uploads_state(method: str, path: str, body: bytes) -> bool:
            if method != "PUT" or state not in path or "/state/" not in path:
                return False
            tokens.extend(_TOKEN.findall(path))
            return _TOKEN.findall(path) == tokens[:1]

        write = self.proxy.hold(uploads_state)
        with self.airflow.explained(self.job.dag_id, run_id):
            write.wait_for_arrival(RUN_S)
        return self._orphan(run_id, "run_epoch", write)

    def in_complete_checkpoint(self, run_id: str) -> Orphan:
        """Wait until the run is about to write its commit point."""

        first: list[bytes] = []

        def completes(method: str, path: str, body: bytes) -> bool:
            if method != "PUT" or "/manifest/" not in path or b'"CheckpointCompleted"' not in body:
                return False
            first.append(body)
            return body == first[0]

        write = self.proxy.hold(completes)
        with self.airflow.explained(self.job.dag_id, run_id):
            write.wait_for_arrival(RUN_S)
        return self._orphan(run_id, "complete_checkpoint", write)

    def _orphan(self, run_id: str, task_id: str, write: Hold) -> Orphan:
        task = self.job.process(run_id, task_id)
        jvm = next((child for child in task.children(recursive=True) if child.name() == "java"), None)
        orphan = Orphan(task, jvm, write)
        self.orphans.append(orphan)
        return orphan

    def kill_supervisor(self, orphan: Orphan) -> None:
        """kill -9 of the process that sends the task's heartbeats to Airflow."""
        supervisor = orphan.task.parent()
        assert supervisor is not None
        supervisor.kill()
        self.airflow.until(lambda: not supervisor.is_running() or supervisor.status() == "zombie", "it is gone")
        assert orphan.lives()

    def kill_scheduler(self, orphan: Orphan) -> None:
        """kill -9 of the scheduler. The supervisor hangs, or it would end the task that Airflow starts once more."""
        supervisor = orphan.task.parent()
        assert supervisor is not None
        supervisor.suspend()
        self.airflow.kill_scheduler()
        assert orphan.lives()

    def let_go(self, orphan: Orphan) -> None:
        """Let the held write reach the store, and wait until the orphan has done all that it could still do."""
        orphan.write.release()
        with suppress(psutil.NoSuchProcess):  # one that was not frozen may have ended by now
            orphan.task.resume()
            supervisor = orphan.task.parent()
            if supervisor is not None and supervisor.status() == psutil.STATUS_STOPPED:
                supervisor.kill()
        orphan.task.wait(ORPHAN_S)

    def end(self) -> None:
        """End the orphans, and their supervisors with them."""
        for orphan in self.orphans:
            with suppress(psutil.NoSuchProcess):
                parent = orphan.task.parent()
                hangs = parent is not None and parent.status() == psutil.STATUS_STOPPED
                for process in (orphan.jvm, orphan.task, parent if hangs else None):
                    if process is not None:
                        process.kill()


@pytest.fixture
def losses(airflow: AirflowInstance, ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Losses]:
    for name, value in ministack.environment().items():
        monkeypatch.setenv(name, value)
    with HoldingProxy(ministack.port) as proxy:
        store = f'store: {{endpoint_url: "{proxy.endpoint_url}", region: us-east-1}}\n'
        job = airflow.add_job("lost", storage=f"s3://{ministack.new_bucket()}", more=store, retries=3, spark=OF_ITS_OWN)
        found = Losses(airflow, job, proxy)
        try:
            yield found
        finally:
            proxy.release_all()
            found.end()


@pytest.mark.deep
def test_whatever_watches_a_task_is_killed_and_every_row_is_published_once(losses: Losses) -> None:
    """I3, I9, I10: Airflow elects, storage fences. Both kills in both places, each orphan with its write in flight.

    Run 1 loses the scheduler in `run_epoch`, then the supervisor in `complete_checkpoint`, and gets through by
    Airflow's own new tries. Run 2 loses the supervisor in `run_epoch` and is given up; run 3 takes over, loses the
    scheduler in `complete_checkpoint` and is given up; run 4 adopts what run 3 had finished. Then every held write
    reaches the store. The drivers of `run_epoch` are frozen meanwhile, or they would end themselves when fenced.
    """
    airflow, job = losses.airflow, losses.job
    job.land("a", {"AA": 5})
    job.land("b", {"AA": 6, "UA": 7})

    one = job.trigger()
    first = losses.in_run_epoch(one, 1)
    losses.kill_scheduler(first)
    first.freeze()
    airflow.start_scheduler()
    second = losses.in_complete_checkpoint(one)
    losses.kill_supervisor(second)
    assert job.wait(one) == "success"
    assert first.lives()
    assert job.statuses() == [(1, "completed")]
    assert job.table() == {"AA": (1, 5)}
    losses.let_go(second)

    two = job.trigger()
    third = losses.in_run_epoch(two, 2)
    losses.kill_supervisor(third)
    third.freeze()
    job.give_up(two)
    three = job.trigger(take_over=True)
    fourth = losses.in_complete_checkpoint(three)
    assert job.statuses() == [(1, "completed"), (2, "aborted"), (3, "pending")]
    losses.kill_scheduler(fourth)
    job.give_up(three)
    four = job.trigger(take_over=True)
    airflow.start_scheduler()
    assert job.wait(four) == "success"
    assert job.statuses() == [(1, "completed"), (2, "aborted"), (3, "completed")]
    assert job.master.reports.show(2).failure_reason == "LEADER_TAKEN_OVER"
    assert first.lives()
    assert third.lives()

    history = job.master.reports.history()
    for orphan in (first, third, fourth):
        losses.let_go(orphan)
    with pytest.raises(Fenced):
        job.master.epochs.complete(Session.airflow(job.dag_id, two, "manual", None), 2)
    assert job.master.reports.history() == history
    assert job.published_checkpoint() == 3
    assert job.table() == {"AA": (2, 11), "UA": (1, 7)}
    assert job.master.reports.status().unread_objects == 0

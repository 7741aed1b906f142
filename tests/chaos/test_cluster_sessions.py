"""Sessions on a cluster: with copies of slow tasks, with executors that come and go, with a driver that is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from milepost.errors import SparkLost
from milepost_testkit.airflow.e2e_job import has_line
from milepost_testkit.cluster.cluster_faults import (
    frozen_driver,
    goes_on_behind_its_copy,
    killed_driver,
    lost_cluster,
    shuffled_is_lost,
    stands_still_beyond_the_deadline,
)
from milepost_testkit.cluster.cluster_runs import PATIENCE_S, Running, first, held_at, running
from milepost_testkit.cluster.clustered_flights import COMMIT, DRIVER_PHASES, PHASES, Matches
from milepost_testkit.commands.milepost_cli import assert_clear_error
from milepost_testkit.processes.processes import wait_until
from milepost_testkit.proxies.holding_proxy import HoldingProxy
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.servers.spark_cluster import SparkCluster

pytestmark = pytest.mark.deep

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
}
"""With these a task gets a copy on another machine soon after the others of its stage have ended."""

HALF = {"spark.executor.cores": "1", "spark.cores.max": "2"}
"""With these a session takes half of the cluster."""

ALLOCATION = {
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "4",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.shuffleTracking.enabled": "false",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "1s",
}
"""With these an executor comes where a task waits, and one without work goes; what it had shuffled goes to another."""


ONE_CORE = {"spark.executor.cores": "1", "spark.cores.max": "1"}
"""With these the tasks of an epoch run one after another."""

KILLED = {"in the first stage": PHASES["sent to the first level"]} | DRIVER_PHASES
"""Where a driver is killed whose session is given up, beside what is told of one half of it."""


@pytest.fixture(scope="module")
def one(
    cluster: SparkCluster, storage: HoldingProxy, seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A job of which each test runs epochs, in the session that it asks for."""
    with running(cluster, storage, seaweed, tmp_path_factory.mktemp("sessions"), SPECULATION) as one:
        yield one


TAKEN = re.compile(r"\b4\b.*\b4\b.*\b2\b.*\b4\b.* milepost-flights \(app-")
"""4 of the 4 cores of its 2 workers, 4 of them by a run of the job."""


def test_a_slow_task_and_the_copy_of_it_that_spark_runs_are_the_same_attempt(one: Running) -> None:
    """I12: the epoch completes with the copy while the first attempt still waits for its storage."""
    one.in_session(SPECULATION)
    hold, before = one.storage.hold(first(PHASES["sinks staged"])), one.copies()
    epoch = one.begin()
    held_at(one.cluster, hold, epoch)
    one.complete(epoch)
    assert not hold.forwarded.is_set(), "the first attempt had no part in it"
    assert one.copies() > before
    hold.release()
    one.complete(one.begin())


@pytest.mark.parametrize(
    "phase",
    [
        "state of the second level uploaded",
        "sent to the first level",
        "state of the first level uploaded",
    ],
)
def test_a_worker_that_wakes_behind_the_copy_of_its_task_writes_on_and_changes_nothing(
    one: Running, phase: str
) -> None:
    """I12, I3: what it writes lands where the copy's lies, or is named by nobody; its answer reaches nobody."""
    one.in_session(SPECULATION)
    goes_on_behind_its_copy(one, PHASES[phase])


def test_a_run_that_gets_no_core_of_a_cluster_says_early_and_at_its_end_who_has_them(one: Running) -> None:
    """I3: a driver that stands still, beyond its lease, keeps every executor; once it is gone the run gets through."""
    one.in_session(SPECULATION)
    with frozen_driver(one, PHASES["sent to the second level"]):
        one.job.set_timeout("5s")
        told = one.driver.run(one.job.spec_path).result(PATIENCE_S)
        (early,) = (line for line in told.stderr.splitlines(keepends=True) if has_line(line, one.cluster.url, "1 s"))
        assert TAKEN.search(early)
        assert_clear_error(
            replace(told, stderr=told.stderr.replace(early, "")),
            SparkLost.exit_code,
            one.cluster.url,
            "5000 ms",
        )
        assert TAKEN.search(told.stderr.replace(early, ""))
        one.job.set_timeout("10m")
    one.complete(one.driver.run(one.job.spec_path))
    assert one.job.master().reports.status().unread_objects == 0


def test_a_run_gets_through_on_the_cores_that_a_driver_which_stands_still_does_not_keep(one: Running) -> None:
    """I3, I10: woken before its commit, it is refused by its token."""
    one.in_session(HALF)
    with frozen_driver(one, COMMIT):
        one.complete(one.driver.run(one.job.spec_path))
        assert one.job.master().reports.status().unread_objects == 0
    one.complete(one.begin())


def test_a_run_whose_machine_stands_still_beyond_the_deadline_expires_and_the_next_does_without(one: Running) -> None:
    """I3, I10: what the machine does when it wakes changes nothing. No copies of its tasks run elsewhere."""
    one.in_session({})
    stands_still_beyond_the_deadline(one, PHASES["sent to the second level"])


@pytest.mark.parametrize(
    ("phase", "skip", "files", "needed"),
    [
        pytest.param(PHASES["sent to the first level"], 1, 1, True, id="the second stage not begun"),
        pytest.param(PHASES["sent to the second level"], 1, 3, True, id="the last stage not begun"),
        pytest.param(PHASES["a table compacted"], 0, 4, True, id="the last stage half done"),
        pytest.param(COMMIT, 0, 4, False, id="all acknowledged"),
    ],
)
def test_shuffle_data_lost_at_any_phase_of_an_epoch_is_rebuilt_if_needed(
    one: Running, phase: Matches, skip: int, files: int, needed: bool
) -> None:
    """I12: a task that has not begun cannot fetch its rows, and stages that had ended run again."""
    one.in_session(ONE_CORE, opened=True)
    shuffled_is_lost(one, phase, skip=skip, files=files, needed=needed)


def test_executors_that_come_and_go_amid_an_epoch_and_between_two_change_nothing(one: Running) -> None:
    """I12: one task holds its executor, the other one leaves with what it shuffled; then two tasks need two again."""
    one.in_session(ALLOCATION)
    hold, gone = one.storage.hold(first(PHASES["sent to the second level"])), len(one.reasons())
    epoch = one.begin()
    held_at(one.cluster, hold, epoch)
    wait_until(lambda: len(one.executors()) == 1, seconds=PATIENCE_S, what="the executors without work to leave")
    assert any("decommission" in reason.lower() for reason in one.reasons()[gone:])
    hold.release()
    one.complete(epoch)
    wait_until(lambda: len(one.executors()) == 1, seconds=PATIENCE_S, what="all but one to leave between epochs")
    both, joined = one.storage.hold(sent_to_the_first_level), len(one.logged("ExecutorAdded"))
    epoch = one.begin()
    held_at(one.cluster, both, epoch, 1)
    assert len(one.logged("ExecutorAdded")) > joined, "two tasks run at once, of one core each"
    both.release()
    one.complete(epoch)


def sent_to_the_first_level(method: str, path: str, _: bytes) -> bool:
    return PHASES["sent to the first level"](method, path)


@pytest.mark.parametrize(
    ("python", "jvm", "phase"),
    [
        pytest.param(False, True, PHASES["sent to the second level"], id="its JVM, amid tasks"),
        pytest.param(True, False, PHASES["sent to the second level"], id="its Python, amid tasks"),
        pytest.param(True, False, COMMIT, id="its Python, before the commit"),
        *(pytest.param(True, True, matches, id=f"both, {phase}") for phase, matches in KILLED.items()),
    ],
)
def test_the_run_after_one_whose_driver_was_killed_is_right_and_has_the_cluster(
    one: Running, python: bool, jvm: bool, phase: Matches
) -> None:
    """I3, I9: its executors end with it; a write of it that comes late lands below a token that leads no more."""
    one.in_session(SPECULATION, opened=True)
    one.job.set_retained(1)
    killed_driver(one, phase, python=python, jvm=jvm)


def test_a_cluster_that_is_not_back_when_the_epoch_is_run_again_is_waited_for(one: Running) -> None:
    """Its address was right: it is lost each time, which restarts try again, and what it was once it is back."""
    one.in_session(SPECULATION)
    lost_cluster(one, PHASES["sent to the second level"])

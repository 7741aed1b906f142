"""Faults of a cluster that strike where a task is just then: at a request of it to the storage, held meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil

from milepost.errors import CheckpointExpired, Fenced, SparkLost
from milepost_testkit.cluster.cluster_runs import PATIENCE_S, Driver, Running, first, held_at, meets
from milepost_testkit.cluster.clustered_flights import SMALL, Matches
from milepost_testkit.commands.milepost_cli import assert_clear_error
from milepost_testkit.processes.processes import wait_until
from milepost_testkit.proxies.holding_proxy import Hold
from milepost_testkit.servers.spark_cluster import Machine, frozen, has_ended

LEASE_OVER = SMALL | {
    "milepost.protocol.manifest.transaction.lease.HEARTBEAT_TIMEOUT_MS": 0,
    "milepost.spark.driver.starvation.WARN_AFTER_S": 1,
}
"""With these constants a driver takes the lease of any other one for over, and is soon told that it has no core."""


def kill_executor(machine: Machine) -> None:
    """kill -9 of the executor; its worker begins another one."""
    (executor,) = machine.executors
    executor.kill()
    psutil.wait_procs([executor], timeout=PATIENCE_S)
    assert not executor.is_running()


@contextmanager
def executor_killed(_: Running, machine: Machine, hold: Hold) -> Iterator[None]:
    """It ends immediately, with everything that it holds."""
    kill_executor(machine)
    hold.release()
    yield


@contextmanager
def executor_decommissioned(one: Running, machine: Machine, hold: Hold) -> Iterator[None]:
    """It is asked to shut down: it ends its work, and gives its data to the others."""
    gone = len(one.reasons())
    (executor,) = machine.executors
    executor.send_signal(signal.SIGPWR)
    hold.release()
    yield
    wait_until(
        lambda: any("decommission" in reason.lower() for reason in one.reasons()[gone:]),
        seconds=PATIENCE_S,
        what="Spark to let it go",
    )


@contextmanager
def machine_lost(one: Running, machine: Machine, hold: Hold) -> Iterator[None]:
    """It stands still, and the driver's connections to it break; when it is there again, it is given up."""
    gone = len(one.reasons())
    with machine.frozen():
        assert sum(line.cut(machine.ports) for line in one.lines) > 0
        wait_until(lambda: len(one.reasons()) > gone, seconds=PATIENCE_S, what="Spark to miss it")
        yield
    hold.release()


Fault = Callable[[Running, Machine, Hold], AbstractContextManager[None]]
"""What befalls a machine where a request is held. The epoch completes within its block; its executors end with that."""

FAULTS: dict[str, Fault] = {
    "executor killed": executor_killed,
    "executor decommissioned": executor_decommissioned,
    "machine lost": machine_lost,
}


def strikes(one: Running, fault: Fault, phase: Matches) -> None:
    """A fault strikes where a task comes to a phase; the epoch completes and the tables are right."""
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    machine = held_at(one.cluster, hold, epoch)
    executors = machine.executors
    with fault(one, machine, hold):
        one.complete(epoch)
    assert executors
    wait_until(lambda: all(map(has_ended, executors)), seconds=PATIENCE_S, what="the end of what the fault befell")


def shuffled_is_lost(one: Running, phase: Matches, *, files: int, skip: int = 0, needed: bool = True) -> None:
    """All shuffle data up to a phase is lost; the epoch completes and the tables are right.

    Args:
        files: of an index, each beside its data, that there are then. skip: so many requests of the phase go before.
        needed: whether a task is still to fetch from them: Spark is told by that, and runs their stages again.
    """

    def indexes() -> set[Path]:
        return {file for machine in one.cluster.machines for file in machine.shuffled if file.suffix == ".index"}

    known, unfetched, again = indexes(), one.unfetched(), one.stages_again()
    hold = one.storage.hold(first(phase, skip))
    epoch = one.begin()
    meets(epoch, hold)
    wait_until(lambda: len(indexes() - known) >= files, seconds=PATIENCE_S, what="the end of the tasks before")
    for file in indexes() - known:
        file.unlink()
        file.with_suffix(".data").unlink(missing_ok=True)
    hold.release()
    one.complete(epoch)
    wait_until(
        lambda: (one.unfetched() > unfetched, one.stages_again() > again) == (needed, needed),
        seconds=PATIENCE_S,
        what="Spark to log what it has run again",
    )


def goes_on_behind_its_copy(one: Running, phase: Matches) -> None:
    """A Python worker stands still from a phase on, the epoch completes with a copy of its task, and it goes on.

    Spark would end it: whom it asks for that stands still as well, so that the worker does all that it has to do.
    """
    hold, copies = one.storage.hold(first(phase)), one.copies()
    epoch = one.begin()
    machine = held_at(one.cluster, hold, epoch)
    worker = machine.process_at(hold.peers[0])
    with frozen([worker.parent()]):
        with frozen([worker]):
            one.complete(epoch)
            assert one.copies() > copies
            assert not hold.forwarded.is_set(), "the first attempt had no part in it"
            before = len(one.storage.requests)
            hold.release()
        wait_until(lambda: has_ended(worker), seconds=PATIENCE_S, what="the end of the worker that was woken")
    late = [path for method, path in one.storage.requests[before:] if method == "PUT"]
    assert late, "it has written behind the epoch"
    one.job.assert_tables_equal_the_oracle()
    one.complete(one.begin())


def stands_still_for_an_epoch(one: Running, phase: Matches) -> None:
    """A machine stands still from a phase on, until the cluster has done without it, and then goes on.

    What its task was about to ask of the storage comes behind the epoch, which completed with another attempt of the
    task, and behind the one after it.
    """
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    machine = held_at(one.cluster, hold, epoch)
    executors, gone = machine.executors, len(one.reasons())
    with machine.frozen():
        one.complete(epoch)
        assert any("heartbeat timed out" in reason for reason in one.reasons()[gone:])
        one.complete(one.begin_now())
        assert not hold.forwarded.is_set(), "the first attempt had no part in it"
        hold.release()
        one.job.assert_tables_equal_the_oracle()
    wait_until(lambda: all(map(has_ended, executors)), seconds=PATIENCE_S, what="the end of what was given up")
    one.complete(one.begin())


def stands_still_beyond_the_deadline(one: Running, phase: Matches) -> None:
    """A machine stands still from a phase on, and the epoch's time is over before the cluster has missed it.

    The next run, a process of its own, does without the machine; what its task was about to ask comes behind that.
    """
    one.job.set_timeout("30s")
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    machine = held_at(one.cluster, hold, epoch)
    executors, gone = machine.executors, len(one.reasons())
    with machine.frozen():
        assert_clear_error(epoch.result(PATIENCE_S), CheckpointExpired.exit_code, "still running after 30000 ms")
        assert len(one.reasons()) == gone, "the machine had not been given up"
        one.job.set_timeout("10m")
        one.driver.close()
        one.driver = Driver()
        one.complete(one.driver.run(one.job.spec_path))
        hold.release()
        one.job.assert_tables_equal_the_oracle()
    assert "CHECKPOINT_EXPIRED" in {done.failure_reason for done in one.job.master().reports.list_checkpoints()}
    wait_until(lambda: all(map(has_ended, executors)), seconds=PATIENCE_S, what="the end of what was given up")
    one.complete(one.begin())
    assert one.job.master().reports.status().unread_objects == 0


@contextmanager
def frozen_driver(one: Running, phase: Matches) -> Iterator[None]:
    """A driver stands still from a phase on, beyond its lease; in the block another process runs the epochs.

    It keeps its executors meanwhile. What was about to be asked of the storage comes behind what they did; when it goes
    on it finds that it leads no more, and its executors end with it.
    """
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    meets(epoch, hold)
    still, kept = one.driver, one.executors()
    assert kept
    with frozen(still.tree):
        one.driver = Driver(LEASE_OVER)
        yield
        assert not any(map(has_ended, kept)), "the master leaves it its executors"
        hold.release()
        one.job.assert_tables_equal_the_oracle()
    woken = epoch.result(PATIENCE_S)
    assert woken.exit_code == Fenced.exit_code, woken.stderr
    still.close()
    wait_until(lambda: all(map(has_ended, kept)), seconds=PATIENCE_S, what="the cluster to be free")


def killed_driver(one: Running, phase: Matches, *, python: bool, jvm: bool) -> None:
    """kill -9 of what drives a session: its Python and its JVM, its Python with a JVM that then ends, or the JVM alone.

    Its executors end, and the next run completes an epoch over what it had read, or finds that done. What it was
    about to ask of the storage when it was killed comes behind that.
    """
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    meets(epoch, hold)
    executors, session = one.executors(), one.driver.jvm
    assert executors
    if python:
        one.driver.process.kill()
    if jvm:
        session.kill()
    wait_until(lambda: all(map(has_ended, (session, *executors))), seconds=PATIENCE_S, what="the cluster to be free")
    if python:
        one.driver.close()
        one.driver = Driver()
    else:
        hold.release()
        lost = epoch.result(PATIENCE_S)
        assert lost.exit_code != 0 and "ended during the epoch" in lost.stderr, lost.stderr
    one.complete(one.driver.run(one.job.spec_path))
    if python:
        hold.release()
        one.job.assert_tables_equal_the_oracle()
    assert one.job.master().reports.status().unread_objects == 0


def lost_cluster(one: Running, phase: Matches) -> None:
    """kill -9 of a cluster's master and machines, and of the JVM that drives them; it is away for two runs.

    Each run learns that Spark is lost, so that restarts continue; the one that finds it back is right.
    """
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    meets(epoch, hold)
    jvm = one.driver.jvm
    one.cluster.stop()
    jvm.kill()
    hold.release()
    lost = epoch.result(PATIENCE_S)
    assert lost.exit_code == SparkLost.exit_code and "ended during the epoch" in lost.stderr, lost.stderr
    gone = f"the Spark master at {one.cluster.url} no longer responds"
    for _ in range(2):
        again = one.driver.run(one.job.spec_path).result(PATIENCE_S)
        assert again.exit_code == SparkLost.exit_code and gone in again.stderr, again.stderr
    one.cluster.start()
    one.complete(one.driver.run(one.job.spec_path))
    assert one.job.master().reports.status().unread_objects == 0

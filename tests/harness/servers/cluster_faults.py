"""Faults of a cluster that strike where a task is just then: at a request of it to the storage, held meanwhile."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from milepost.protocol.records.errors import SparkLost
from tests.harness.jobs.flights.clustered_flights import SMALL, ClusteredFlights, Matches
from tests.harness.jobs.milepost_cli import Outcome, milepost
from tests.harness.servers.processes.processes import wait_until
from tests.harness.servers.proxies.holding_proxy import Hold, HoldingProxy
from tests.harness.servers.s3_servers import Seaweed
from tests.harness.servers.spark_cluster import Machine, SparkCluster, has_ended

PATIENCE_S = 900.0
"""Of waits that end as soon as there is what is waited for; a busy machine starts a JVM in minutes."""


class Driver:
    """A process that runs epochs, one after another, in one Spark.

    Args:
        constants: of Milepost's modules, by their full names, that are others in it.

    Attributes:
        process: itself.
    """

    def __init__(self, constants: Mapping[str, int]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, initializer=_prepare, initargs=(dict(constants),))
        self.process = psutil.Process(self._pool.submit(os.getpid).result(PATIENCE_S))

    def run(self, spec: Path, *options: str) -> Future[Outcome]:
        """Begin an epoch."""
        return self._pool.submit(milepost, "run", spec, *options)

    @property
    def jvm(self) -> psutil.Process:
        """The one of its Spark."""
        (jvm,) = (child for child in self.process.children() if child.name() == "java")
        return jvm

    def close(self) -> None:
        self._pool.shutdown()


def _prepare(constants: Mapping[str, int]) -> None:
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        setattr(import_module(module), constant, value)


@contextmanager
def driver(constants: Mapping[str, int] | None = None) -> Iterator[Driver]:
    """A driver while the block runs; its environment is this process's."""
    made = Driver(constants or {})
    try:
        yield made
    finally:
        made.close()


def first(matches: Callable[[str, str], bool]) -> Callable[[str, str, bytes], bool]:
    """Return what matches the first request that matches, and not those that repeat it."""
    met: list[str] = []

    def once(method: str, path: str, body: bytes) -> bool:
        if met or not matches(method, path):
            return False
        met.append(path)
        return True

    return once


def held_at(cluster: SparkCluster, hold: Hold, epoch: Future[Outcome], number: int = 0) -> Machine:
    """Wait until a request is held, the `number`-th of them; return the machine whose task made it."""
    wait_until(
        lambda: len(hold.peers) > number or epoch.done(), seconds=PATIENCE_S, what="a task that comes to its phase"
    )
    assert len(hold.peers) > number, f"the epoch ended without the request: {epoch.result().stderr}"
    machine = cluster.machine_of(hold.peers[number])
    assert machine is not None, "the held request is a task's"
    return machine


@dataclass
class Running:
    """A job on a cluster, the process that runs its epochs, and what stands before its storage.

    Attributes:
        events: the folder where Spark logs what happens, a file for each of its sessions.
    """

    cluster: SparkCluster
    storage: HoldingProxy
    job: ClusteredFlights
    driver: Driver
    events: Path

    def begin(self) -> Future[Outcome]:
        """Begin an epoch over two days more, when each machine is there."""
        self.cluster.wait_for_workers()
        return self.begin_now()

    def begin_now(self) -> Future[Outcome]:
        """Begin an epoch over two days more."""
        self.job.land_next()
        return self.driver.run(self.job.spec_path)

    def complete(self, epoch: Future[Outcome]) -> None:
        """The epoch completes, and every table is right."""
        self.job.assert_completed(epoch.result(PATIENCE_S))

    def puts(self, part: str) -> int:
        """How often an object was put whose key has this part."""
        return sum(method == "PUT" and part in path for method, path in self.storage.requests)

    def logged(self, kind: str) -> list[dict[str, Any]]:
        """What Spark has logged of one kind; what it has begun to write is no line yet."""
        lines = [line for log in sorted(self.events.iterdir()) for line in log.read_text().splitlines(keepends=True)]
        whole = (json.loads(line) for line in lines if line.endswith("\n"))
        return [one for one in whole if one["Event"] == f"SparkListener{kind}"]

    def executors(self) -> list[psutil.Process]:
        """Those of all machines."""
        return [executor for machine in self.cluster.machines for executor in machine.executors]


@contextmanager
def running(
    cluster: SparkCluster,
    storage: HoldingProxy,
    seaweed: Seaweed,
    folder: Path,
    conf: Mapping[str, str],
) -> Iterator[Running]:
    """A job of its own, after its first epoch."""
    events = folder / "events"
    events.mkdir(parents=True)
    log = {"enabled": "true", "dir": events.as_uri(), "compress": "false", "rolling.enabled": "false"}
    spark = cluster.spark({**conf, **{f"spark.eventLog.{key}": value for key, value in log.items()}})
    one = Running(cluster, storage, ClusteredFlights.on(folder / "job", seaweed, spark), Driver(SMALL), events)
    try:
        one.complete(one.begin())
        yield one
    finally:
        storage.release_all()  # of a test that failed: the driver waits for its epoch
        one.driver.close()


def kill_executor(_: Running, machine: Machine) -> None:
    """kill -9 of the executor; its worker begins another one."""
    (executor,) = machine.executors
    executor.kill()
    psutil.wait_procs([executor], timeout=PATIENCE_S)
    assert not executor.is_running()


def decommission(_: Running, machine: Machine) -> None:
    """Tell the executor that it is to go: it ends what it does, and gives what it has to the others."""
    (executor,) = machine.executors
    executor.send_signal(signal.SIGPWR)


def lose_machine(one: Running, machine: Machine) -> None:
    """kill -9 of everything on the machine, which then comes back with nothing."""
    executors = machine.executors
    machine.stop(kill=True)
    assert executors and not any(executor.is_running() for executor in executors)
    one.cluster.start_worker(machine)


Fault = Callable[[Running, Machine], None]

FAULTS: dict[str, Fault] = {
    "executor killed": kill_executor,
    "executor decommissioned": decommission,
    "machine lost": lose_machine,
}


def strikes(one: Running, fault: Fault, phase: Matches) -> None:
    """A fault strikes where a task comes to a phase; the epoch completes and the tables are right."""
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    machine = held_at(one.cluster, hold, epoch)
    executors = machine.executors
    fault(one, machine)
    hold.release()
    one.complete(epoch)
    psutil.wait_procs(executors, timeout=PATIENCE_S)
    assert executors and not any(executor.is_running() for executor in executors), "the fault was met"


def stands_still_for_an_epoch(one: Running, phase: Matches) -> None:
    """A machine stands still from a phase on, until the cluster has done without it, and then goes on.

    What its task was about to ask of the storage comes behind the epoch, which completed with another attempt of the
    task, and behind the one after it.
    """
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    machine = held_at(one.cluster, hold, epoch)
    executors, lost = machine.executors, len(one.logged("ExecutorRemoved"))
    with machine.frozen():
        one.complete(epoch)
        assert any("heartbeat timed out" in gone["Removed Reason"] for gone in one.logged("ExecutorRemoved")[lost:])
        one.complete(one.begin_now())
        assert not hold.forwarded.is_set(), "the first attempt had no part in it"
        hold.release()
        one.job.assert_tables_equal_the_oracle()
    wait_until(lambda: all(map(has_ended, executors)), seconds=PATIENCE_S, what="the end of what was given up")
    one.complete(one.begin())


def killed_driver(one: Running, phase: Matches, *, whole: bool) -> None:
    """kill -9 of what drives a session: its Python with a JVM that then ends by itself, or the JVM alone.

    Its executors end, and the next run completes an epoch over what it had read, or finds that done. What it was
    about to ask of the storage when it was killed comes behind that.
    """
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    wait_until(lambda: hold.arrived.is_set() or epoch.done(), seconds=PATIENCE_S, what="the phase")
    assert hold.arrived.is_set(), epoch.result().stderr
    executors, jvm = one.executors(), one.driver.jvm
    assert executors
    (one.driver.process if whole else jvm).kill()
    wait_until(lambda: all(map(has_ended, (jvm, *executors))), seconds=PATIENCE_S, what="the cluster to be free")
    if whole:
        one.driver.close()
        one.driver = Driver(SMALL)
    else:
        hold.release()
        lost = epoch.result(PATIENCE_S)
        assert lost.exit_code != 0 and "ended amid the epoch" in lost.stderr, lost.stderr
    one.complete(one.driver.run(one.job.spec_path))
    if whole:
        hold.release()
        one.job.assert_tables_equal_the_oracle()
    assert one.job.master().status().unread_objects == 0


def lost_cluster(one: Running, phase: Matches) -> None:
    """kill -9 of a cluster's master and machines, and of the JVM that drives them; it is away for two runs.

    Each run is told that Spark is lost, so that restarts go on; the one that finds it back is right.
    """
    hold = one.storage.hold(first(phase))
    epoch = one.begin()
    wait_until(lambda: hold.arrived.is_set() or epoch.done(), seconds=PATIENCE_S, what="the phase")
    assert hold.arrived.is_set(), epoch.result().stderr
    jvm = one.driver.jvm
    one.cluster.stop()
    jvm.kill()
    hold.release()
    lost = epoch.result(PATIENCE_S)
    assert lost.exit_code == SparkLost.exit_code and "ended amid the epoch" in lost.stderr, lost.stderr
    gone = f"the Spark master at {one.cluster.url} does not answer any more"
    for _ in range(2):
        again = one.driver.run(one.job.spec_path).result(PATIENCE_S)
        assert again.exit_code == SparkLost.exit_code and gone in again.stderr, again.stderr
    one.cluster.start()
    one.complete(one.driver.run(one.job.spec_path))
    assert one.job.master().status().unread_objects == 0

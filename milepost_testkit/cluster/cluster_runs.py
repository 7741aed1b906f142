"""A job on a cluster: the process that runs its epochs, what its machines do, and where a task is just then."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from milepost_testkit.cluster.clustered_flights import SMALL, ClusteredFlights
from milepost_testkit.commands.milepost_cli import Outcome, milepost
from milepost_testkit.processes.processes import free_ports, wait_until
from milepost_testkit.proxies.cut_line import CutLine
from milepost_testkit.proxies.holding_proxy import Hold, HoldingProxy
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.servers.spark_cluster import DRIVER, Machine, SparkCluster

PATIENCE_S = 900.0
"""Of waits that end as soon as there is what is waited for; a busy machine starts a JVM in minutes."""


class Driver:
    """A process that runs epochs, one after another, in one Spark.

    Args:
        constants: of Milepost's modules, by their full names, that are others in it.

    Attributes:
        process: itself.
    """

    def __init__(self, constants: Mapping[str, int] = SMALL) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, initializer=_prepare, initargs=(dict(constants),))
        self.process = psutil.Process(self._pool.submit(os.getpid).result(PATIENCE_S))

    def run(self, spec: Path, *options: str) -> Future[Outcome]:
        """Begin an epoch."""
        return self._pool.submit(milepost, "run", spec, *options)

    @property
    def tree(self) -> list[psutil.Process]:
        """Itself and all that came of it."""
        return [self.process, *self.process.children(recursive=True)]

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


def first(matches: Callable[[str, str], bool], skip: int = 0) -> Callable[[str, str, bytes], bool]:
    """Return what matches the first request that matches, and not those that repeat it. Args: skip: so many others."""
    met: list[str] = []

    def once(method: str, path: str, body: bytes) -> bool:
        if len(met) > skip or path in met or not matches(method, path):
            return False
        met.append(path)
        return len(met) > skip

    return once


def meets(epoch: Future[Outcome], hold: Hold, number: int = 0) -> None:
    """Wait until a request of the epoch is held, the `number`-th of them."""
    wait_until(lambda: len(hold.peers) > number or epoch.done(), seconds=PATIENCE_S, what="a phase of the epoch")
    assert len(hold.peers) > number, f"the epoch ended without the request: {epoch.result().stderr}"


def held_at(cluster: SparkCluster, hold: Hold, epoch: Future[Outcome], number: int = 0) -> Machine:
    """Wait until a request is held, the `number`-th of them; return the machine whose task made it."""
    meets(epoch, hold, number)
    machine = cluster.machine_of(hold.peers[number])
    assert machine is not None, "the held request is a task's"
    return machine


@dataclass
class Running:
    """A job on a cluster, the process that runs its epochs, and what stands before its storage.

    Attributes:
        events: the folder where Spark logs what happens, a file for each of its sessions.
        conf: what the session of its epochs sets. lines: between the machines and the driver, if they can be cut.
    """

    cluster: SparkCluster
    storage: HoldingProxy
    job: ClusteredFlights
    driver: Driver
    events: Path
    conf: Mapping[str, str]
    lines: Sequence[CutLine] = ()

    def in_session(self, conf: Mapping[str, str], *, opened: bool = False) -> None:
        """Let the epochs from now on run in a session with these settings. Args: opened: by an epoch that completes."""
        if conf == self.conf:
            return
        self.driver.close()
        spec, section = self.job.spec_path, _section(self.cluster, conf, self.events)
        spec.write_text(re.sub(r"^spark: \{.*?\}", lambda _: section, spec.read_text(), flags=re.MULTILINE))
        self.conf, self.driver = conf, Driver()
        if opened:
            self.complete(self.begin())

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
        event = f"SparkListener{kind}"
        lines = [line for log in sorted(self.events.iterdir()) for line in log.read_text().splitlines(keepends=True)]
        whole = (json.loads(line) for line in lines if event in line and line.endswith("\n"))
        return [one for one in whole if one["Event"] == event]

    def reasons(self) -> list[str]:
        """Why executors have been lost so far."""
        return [gone["Removed Reason"] for gone in self.logged("ExecutorRemoved")]

    def copies(self) -> int:
        """How many copies of slow tasks Spark has begun."""
        return sum(begun["Task Info"]["Speculative"] for begun in self.logged("TaskStart"))

    def unfetched(self) -> int:
        """How many tasks have not found what was shuffled for them."""
        return sum(ended["Task End Reason"]["Reason"] == "FetchFailed" for ended in self.logged("TaskEnd"))

    def stages_again(self) -> int:
        """How many stages Spark has run again."""
        return sum(begun["Stage Info"]["Stage Attempt ID"] > 0 for begun in self.logged("StageSubmitted"))

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
    lines: Sequence[CutLine] = (),
) -> Iterator[Running]:
    """A job of its own, after its first epoch."""
    events = folder / "events"
    events.mkdir(parents=True)
    job = ClusteredFlights.on(folder / "job", seaweed, _section(cluster, conf, events))
    one = Running(cluster, storage, job, Driver(), events, conf, lines)
    try:
        one.complete(one.begin())
        yield one
    finally:
        storage.release_all()  # of a test that failed: the driver waits for its epoch
        one.driver.close()


@contextmanager
def cut_lines() -> Iterator[tuple[dict[str, str], tuple[CutLine, ...]]]:
    """Lines between the machines of a cluster and one driver, with what its session has to set for that."""
    rpc, blocks = free_ports(2)
    conf = {"host": DRIVER, "port": str(rpc), "blockManager.port": str(blocks)}
    with CutLine(rpc, DRIVER, rpc) as calls, CutLine(blocks, DRIVER, blocks) as data:
        yield {f"spark.driver.{key}": value for key, value in conf.items()}, (calls, data)


def _section(cluster: SparkCluster, conf: Mapping[str, str], events: Path) -> str:
    """Return a spec's section `spark` without its end; what happens is logged."""
    log = {"enabled": "true", "dir": events.as_uri(), "compress": "false", "rolling.enabled": "false"}
    return cluster.spark({**conf, **{f"spark.eventLog.{key}": value for key, value in log.items()}})

"""Faults of a cluster that strike where a task is just then: at a request of it to the storage, held meanwhile."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from tests.harness.jobs.milepost_cli import Outcome, milepost
from tests.harness.servers.processes.processes import wait_until
from tests.harness.servers.proxies.holding_proxy import Hold
from tests.harness.servers.spark_cluster import Machine, SparkCluster

PATIENCE_S = 900.0
"""Of waits that end as soon as there is what is waited for; a busy machine starts a JVM in minutes."""


class Driver:
    """A process that runs epochs, one after another, in one Spark.

    Args:
        constants: of Milepost's modules, by their full names, that are others in it.
    """

    def __init__(self, constants: Mapping[str, int]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, initializer=_prepare, initargs=(dict(constants),))

    def run(self, spec: Path) -> Future[Outcome]:
        """Begin an epoch."""
        return self._pool.submit(milepost, "run", spec)

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

"""A standalone Spark cluster for tests: a master and two workers, each on an address and in folders of its own.

Its Python has the libraries of this environment and not Milepost: what runs there was shipped. Its processes inherit
nothing but what a login would set, and share no folder that a job could use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import psutil
import pyspark

from milepost.spark.driver.engines.java import find_java
from milepost_testkit.processes.processes import LOOPBACK, free_ports, stop_tree, wait_until

SPARK = Path(pyspark.__file__).parent
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MASTER = "127.0.0.1"
WORKERS = ("127.0.0.2", "127.0.0.3")
DRIVER = "127.0.0.4"
"""Where the machines find a driver to which their connections can be cut."""

CORES = 2
"""Of each worker."""


FOLDERS = {"HOME": "home", "TMPDIR": "tmp", "SPARK_LOCAL_DIRS": "local", "SPARK_WORKER_DIR": "work"}
"""What each machine has for itself, by the variable that says so."""


@dataclass
class Machine:
    """One process, with an address, and a home and folders that no other one has.

    Attributes:
        spark: location of Spark. more: variables in addition to those that all processes have.
    """

    folder: Path
    address: str
    spark: Path = SPARK
    more: Mapping[str, str] = field(default_factory=dict)
    process: psutil.Popen | None = None

    def start(self, program: str, *arguments: str) -> None:
        """Start one of Spark's programs."""
        for folder in FOLDERS.values():
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        command = [str(self.spark / "bin" / program), *arguments]
        with (self.folder / "log").open("ab") as log:
            self.process = psutil.Popen(
                command,
                env=self.environment,
                cwd=self.folder / "home",
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    @property
    def environment(self) -> dict[str, str]:
        """All that its processes have."""
        return {
            "PATH": os.defpath,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(self.spark),
            "SPARK_LOCAL_IP": self.address,
            "SPARK_LOCAL_HOSTNAME": self.address,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} -Djava.io.tmpdir={self.folder / 'tmp'}",
            "NO_PROXY": LOOPBACK,
            "no_proxy": LOOPBACK,
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            **{variable: str(self.folder / folder) for variable, folder in FOLDERS.items()},
            **self.more,
        }

    @property
    def home(self) -> Path:
        """Of those who work on it."""
        return self.folder / FOLDERS["HOME"]

    @property
    def executors(self) -> list[psutil.Process]:
        """The JVMs of the executors that it runs."""
        return [one for one in self.tree() if "CoarseGrainedExecutorBackend" in " ".join(_command(one))]

    def tree(self) -> list[psutil.Process]:
        """Return its process and all that came of it, as far as they still run."""
        if self.process is None:
            return []
        return [self.process, *self.process.children(recursive=True)]

    @property
    def shuffled(self) -> list[Path]:
        """The files of what its executors have shuffled: each has one with the data and one with an index."""
        return [*self.folder.glob(f"{FOLDERS['SPARK_LOCAL_DIRS']}/**/shuffle_*")]

    @property
    def ports(self) -> set[int]:
        """Those that its connections come from, and those where it listens."""
        found: set[int] = set()
        for process in self.tree():
            with suppress(psutil.Error):
                found.update(one.laddr.port for one in process.net_connections("tcp") if one.laddr)
        return found

    def process_at(self, port: int) -> psutil.Process:
        """Return the one of its processes that has a connection from this port."""
        (process,) = (one for one in self.tree() if any(made.laddr.port == port for made in one.net_connections("tcp")))
        return process

    def frozen(self) -> AbstractContextManager[None]:
        """Everything that runs on it stands still, as it is, until the block ends."""
        return frozen(self.tree())

    def stop(self, *, kill: bool = False) -> None:
        """End the process with all that it started."""
        if self.process is not None:
            stop_tree(self.process, kill=kill)
            self.process = None


class SparkCluster:
    """A master and its workers.

    Attributes:
        url: of the master. python: what runs on the workers; it cannot import Milepost by itself.
        machines: the workers.
    """

    def __init__(self, folder: Path) -> None:
        port, self._ui = free_ports(2)
        self.url = f"spark://{MASTER}:{port}"
        self.python = python_without_milepost(folder / "python")
        self._master = Machine(folder / "master", MASTER)
        self.machines = [Machine(folder / address, address) for address in WORKERS]

    def start(self) -> None:
        port = self.url.rpartition(":")[2]
        name = "org.apache.spark.deploy.master.Master"
        self._master.start("spark-class", name, "--host", MASTER, "--port", port, "--webui-port", str(self._ui))
        wait_until(
            lambda: self._workers() is not None, seconds=120, what="the Spark master", process=self._master.process
        )
        for machine in self.machines:
            self.start_worker(machine)
        self.wait_for_workers()

    def start_worker(self, machine: Machine) -> None:
        ports = ("--host", machine.address, "--port", "0", "--webui-port", "0")
        sizes = ("--cores", str(CORES), "--memory", "2g")
        machine.start("spark-class", "org.apache.spark.deploy.worker.Worker", *ports, *sizes, self.url)

    def wait_for_workers(self) -> None:
        """Wait until the master knows each machine."""
        wait_until(self._all_alive, seconds=120, what="the workers of the Spark cluster")

    def stop(self) -> None:
        for machine in (*self.machines, self._master):
            machine.stop(kill=True)

    def machine_of(self, port: int) -> Machine | None:
        """Return the machine that has a connection from this port; None: none of the workers'."""
        return next((machine for machine in self.machines if port in machine.ports), None)

    def conf(self, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Return what a job on it has to set, and more."""
        return {
            "spark.pyspark.python": str(self.python),
            "spark.driver.host": MASTER,
            "spark.driver.bindAddress": MASTER,
            "spark.executor.memory": "700m",
            "spark.executor.extraJavaOptions": QUICK_JVM,
            **more,
        }

    def spark(self, more: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return a spec's section `spark` without its end: a job may add keys."""
        return f'spark: {{master: "{self.url}", conf: {json.dumps(self.conf(more))}'

    def run_python(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run code as a worker would; its exit code is not judged."""
        machine = self.machines[0]
        return subprocess.run(
            [self.python, "-c", code],
            env=machine.environment, cwd=machine.folder / "home", capture_output=True, text=True, check=False,
        )  # fmt: skip

    def _all_alive(self) -> bool:
        return self._workers() == len(self.machines)

    def _workers(self) -> int | None:
        """How many workers the master has; None: it does not answer yet."""
        no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        # Its pages are there before what it says to programs: it answers with one of them at first.
        with (
            suppress(OSError, json.JSONDecodeError),
            no_proxy.open(f"http://{MASTER}:{self._ui}/json/", timeout=10) as answer,
        ):
            return int(json.load(answer)["aliveworkers"])
        return None


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, even if its parent has not waited for it yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@contextmanager
def frozen(tree: Sequence[psutil.Process]) -> Iterator[None]:
    """Processes stand still, as they are, until the block ends."""
    _signal(tree, psutil.Process.suspend)
    try:
        wait_until(lambda: all(map(_stands_still, tree)), seconds=120, what="every process to stand still")
        yield
    finally:
        _signal(tree, psutil.Process.resume)


def _stands_still(process: psutil.Process) -> bool:
    return has_ended(process) or process.status() == psutil.STATUS_STOPPED


def _signal(tree: Iterable[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            act(process)


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def python_without_milepost(folder: Path) -> Path:
    """Make a Python that has what is installed here, without what `.pth` files add: those of an editable Milepost."""
    return python_with(folder, *(Path(place) for place in sys.path if Path(place).name == "site-packages"))


def python_with(folder: Path, *libraries: Path) -> Path:
    """Make a Python that imports from these folders and the standard library only."""
    venv.create(folder, with_pip=False, symlinks=True)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "libraries.pth").write_text("".join(f"{place}\n" for place in libraries), encoding="utf-8")
    return folder / "bin" / "python"


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A cluster while the block runs."""
    cluster = SparkCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()

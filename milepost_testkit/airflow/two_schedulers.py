"""An Airflow whose database is Postgres, with two schedulers: either of them, and the database, a test takes away.

What has ended is started again only when a test says so, as a unit of systemd or a deployment of Kubernetes does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from milepost_testkit.airflow.airflow_instance import SETTINGS, AirflowInstance, until
from milepost_testkit.servers.postgres_server import PostgresServer, new_directory
from scripts.airflow_home import Settings

SCHEDULERS = ("scheduler", "second scheduler")
"""Names of what was started; each has workers of its own, which are its children."""

OWN: Settings = {
    # Of each: whichever starts them, the tasks that are held at all phases keep none of those before them waiting.
    "core": {**SETTINGS["core"], "parallelism": 8},
    # Either takes the other for dead after a dozen missed signs of life: a loaded machine would start tasks for ever.
    "scheduler": {**SETTINGS["scheduler"], "scheduler_heartbeat_sec": 2, "scheduler_health_check_threshold": 24},
}


class TwoSchedulers:
    """The two, and all else that an Airflow needs.

    Attributes:
        airflow: where jobs are added. postgres: what Airflow keeps its database in.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        # The tasks of a killed scheduler have its connection too. If it dies in a transaction, its lock on scheduling
        # stays until they end, unless the database ends that transaction.
        limits = {"max_connections": "200", "idle_in_transaction_session_timeout": "20s"}
        self.postgres = PostgresServer(new_directory(), datestyle="ISO, MDY", timezone="UTC", **limits)
        self._folder, self._environ = folder, environ

    def start(self) -> None:
        """Start all, and wait until the first scheduler says that it works; the second comes meanwhile."""
        self.postgres.start()
        database = self.postgres.new_database()
        url = database.dsn.replace("postgresql://", "postgresql+psycopg://")
        own = {
            "sql_alchemy_conn": url,
            "sql_alchemy_conn_async": url,
            "sql_alchemy_connect_args": None,
            "sql_alchemy_connect_args_async": None,
        }
        self.airflow = AirflowInstance(
            self._folder / "airflow",
            settings={**SETTINGS, **OWN, "database": own},
            environ=self._environ,
            may_end=True,
        )
        self.airflow.start()
        self.airflow.stack.start_service("scheduler", label=SCHEDULERS[1])
        self._names = tuple(self.airflow.stack.started)

    def stop(self) -> None:
        try:
            with suppress(AttributeError):  # it was not begun
                self.airflow.stop()
        finally:
            self.postgres.remove()

    def tree(self, name: str) -> list[psutil.Process]:
        """What was started by this name, and all that came of it: a scheduler's workers and their tasks."""
        process = self.airflow.stack.started[name].process()
        return [] if process is None else [process, *process.children(recursive=True)]

    def lose_machine(self, name: str) -> None:
        """kill -9 of a scheduler with its workers, and the tasks that they run."""
        tree = self.tree(name)
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(tree, timeout=60)

    @contextmanager
    def without_database(self) -> Iterator[None]:
        """Take the database away as a crash does, for as long as the block lasts."""
        self.postgres.stop(kill=True)
        try:
            yield
        finally:
            self.postgres.start()

    def ended(self) -> list[str]:
        """The names of what was started and runs no more."""
        return [name for name in self._names if self.airflow.stack.started[name].process() is None]

    def start_again(self) -> list[str]:
        """Start again what has ended; returns its names."""
        stack = self.airflow.stack
        names = self.ended()
        for name in names:
            service, port = "scheduler" if name in SCHEDULERS else name, stack.started[name].port
            self.airflow.set_aside(name)
            stack.start_service(service, port, label=name)
        return names

    def until(self, condition: Callable[[], object], what: str, timeout_s: float) -> None:
        """Wait for a condition, and start again what ends meanwhile."""

        def holds() -> object:
            self.start_again()
            return condition()

        until(holds, what, timeout_s)

    def database_errors(self, name: str) -> int:
        """How often a process has logged that the database does not respond."""
        log = self.airflow.stack.folder / "logs" / f"{name}.log"
        return log.read_text(errors="replace").count("OperationalError")

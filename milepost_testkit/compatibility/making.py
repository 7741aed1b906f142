"""Make a fixture with this version: a folder for each job, which knows nothing of the machine that made it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

from milepost_testkit.compatibility import every_kind, landed, lives, sources
from milepost_testkit.compatibility.stored_job import FIXTURE, StoredJob
from milepost_testkit.servers.postgres_server import PostgresServer, new_directory

JOBS: Mapping[str, Callable[[StoredJob], None]] = {
    "kinds": every_kind.run_all_kinds,
    "operated": lives.operate,
    "migrated": lives.migrate,
    "aged": lives.grow_old,
    "judged": lives.judge,
    "quarantined": lives.leave_out,
    "ended": lives.end,
    "begun": lives.begin,
    "unpublished": lives.leave_unpublished,
    "running": lives.leave_running,
    "taken": lives.take_over,
    "sources": sources.read_odd_input,
    "landed": landed.land_everything,
    "heir": landed.start_elsewhere,
    "accepted": landed.accept_false_rows,
    "referring": landed.refer_to_files,
}
"""The jobs by name, in the order in which they are made."""


def make_fixture(folder: Path) -> None:
    """Make every job below an empty folder."""
    server = PostgresServer(new_directory())
    try:
        server.start()
        variables = {"PG_DSN": server.new_database().dsn, FIXTURE: str(folder), "LOGNAME": "maker"}
        with (
            patch.dict(os.environ, variables),
            patch("socket.gethostname", return_value="maker"),
        ):
            for name, make in JOBS.items():
                make(StoredJob(folder / name))
                print(f"made the job {name}", flush=True)
    finally:
        server.remove()

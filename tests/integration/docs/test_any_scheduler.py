"""The how-to's crontab line and loop run as processes, and react to epochs that succeed, are vetoed or fail."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from milepost.language.spark_remote import TOKEN_VARIABLE
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.servers.connect_server import ConnectServer
from scripts.processes import PYTHON_PATH, python
from scripts.stack import REMOTE_VARIABLE
from scripts.transcripts import blocks

pytestmark = pytest.mark.deep

PAGE = (REPOSITORY / "docs" / "how-to" / "any-scheduler.md").read_text("utf-8")
FILES = {block.title: block.body for block in blocks(PAGE) if block.title}
HEADER = "city,visitor,minutes,at\n"
LIMIT_S = 300


class Scheduler:
    """A folder with a job and the page's scripts, and an environment as cron gives it: no variable of this process."""

    def __init__(self, folder: Path, server: ConnectServer) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        variables = {
            "PYTHONPATH": PYTHON_PATH,
            REMOTE_VARIABLE: server.remote,
            TOKEN_VARIABLE: server.stack.spark_token,
        }
        exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        command = folder / "bin" / "milepost"
        command.write_text(f'#!/bin/sh\n{exports}exec "{python()}" -m milepost "$@"\n')
        command.chmod(0o700)
        for name in ("epoch.sh", "loop.sh"):
            (folder / name).write_text(FILES[name])
        self.milepost("init", "visits")
        for file in (folder / "config" / "visits_data").iterdir():
            self.age(file)

    def milepost(self, *words: str) -> None:
        ended = subprocess.run(
            [self.folder / "bin" / "milepost", *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr

    def land(self, name: str, rows: str) -> None:
        file = self.folder / "config" / "visits_data" / name
        file.write_text(HEADER + rows)
        self.age(file)

    def age(self, file: Path) -> None:
        """Make a file old enough to be complete."""
        os.utime(file, (time.time() - 60,) * 2)

    @property
    def environment(self) -> Mapping[str, str]:
        path = re.search(r"^PATH=(.*)$", FILES["visits.cron"], re.MULTILINE)
        assert path is not None
        return {"HOME": str(self.folder), "SHELL": "/bin/sh", "PATH": self.here(path[1])}

    def here(self, text: str) -> str:
        """Return a text of the page with the folders of this test."""
        return text.replace("/home/ada/milepost", str(self.folder)).replace("/home/ada/jobs", str(self.folder))

    def cron(self, command: str = "epoch.sh") -> tuple[int, str]:
        """Run the crontab's line with this command as cron does; return its exit code and its mail."""
        (line,) = [line for line in FILES["visits.cron"].splitlines() if f" {command} " in line]
        command = self.here(line.split(maxsplit=5)[5])
        ended = subprocess.run(
            ["/bin/sh", "-c", command], cwd="/", env=self.environment, capture_output=True, text=True, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
        return ended.returncode, ended.stdout + ended.stderr

    def loop(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["/bin/sh", "loop.sh", "visits", "1"], cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


@pytest.fixture
def scheduler(tmp_path: Path, spark_connect: ConnectServer) -> Scheduler:
    return Scheduler(tmp_path, spark_connect)


def test_cron_mails_only_what_a_person_must_see(scheduler: Scheduler) -> None:
    assert scheduler.cron() == (0, "")
    assert scheduler.cron() == (0, "")
    scheduler.land("3.csv", "Bergen,ben,-90,2026-01-03T10:00:00Z\n")
    code, mail = scheduler.cron()
    assert code == 5 and mail.startswith("ALERT visits: exit code 5: Error: checkpoint 2: the quality gate")
    code, mail = scheduler.cron()
    assert code == 1 and "job visits is FAILED" in mail
    assert "milepost resume visits" in scheduler.cron("milepost status")[1]
    scheduler.land("3.csv", f"Bergen,ben,90,{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n")
    scheduler.milepost("resume", "visits")
    assert scheduler.cron() == (0, "")
    assert scheduler.cron("milepost status") == (0, "")


def test_the_loop_runs_epochs_until_one_needs_a_person(scheduler: Scheduler) -> None:
    loop = scheduler.loop()
    assert loop.stdout is not None and loop.stderr is not None
    assert [loop.stdout.readline() for _ in range(2)] == ["visits: done\n"] * 2
    scheduler.land("1.csv", "Bergen,ben,90,2026-01-03T10:00:00Z\n")
    assert loop.stdout.readline() == "visits: done\n"
    scheduler.land("2026-01-01.csv", "Bergen,ada,1,2026-01-01T08:15:00Z\n")  # a consumed file has another version
    rest, mail = loop.communicate(timeout=LIMIT_S)
    assert loop.returncode == 1 and set(rest.splitlines()) <= {"visits: done"}
    assert mail.startswith("ALERT visits: exit code 1: Error")

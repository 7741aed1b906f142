"""`milepost spark-server`: a Connect server of this machine, for epochs that wait for no Spark to start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.recovering_job import quality_section
from milepost_testkit.processes.processes import free_ports, stop_tree, wait_until


@contextmanager
def ended(process: psutil.Popen) -> Iterator[None]:
    """However the block ends, nothing of the process lives on."""
    try:
        yield
    finally:
        stop_tree(process, kill=True)


@pytest.mark.deep
def test_an_epoch_runs_on_it_and_it_ends_with_its_whole_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On loopback alone; the token is in a file that only its owner reads, and on no command line."""
    port, file = free_ports(1)[0], tmp_path / "a token"
    words = ["spark-server", "--port", str(port), "--token-file", str(file), "--json"]
    command = [sys.executable, "-m", "milepost", *words]
    with psutil.Popen(command, stdout=subprocess.PIPE, text=True) as serving, ended(serving):
        assert serving.stdout is not None
        told = json.loads(serving.stdout.readline())["data"]
        server = psutil.Process(told["pid"])
        bound = {one.laddr.ip.removeprefix("::ffff:") for one in server.net_connections() if one.status == "LISTEN"}
        token = file.read_text()
        assert (told["remote"], bound, file.stat().st_mode & 0o077) == (f"sc://localhost:{port}", {"127.0.0.1"}, 0)
        assert token not in " ".join(server.cmdline())
        assert_clear_error(milepost(*words[:-1]), 8, str(port), "--port", golden="spark-server")

        monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", token)
        monkeypatch.setenv("MILEPOST_SPARK_REMOTE", told["remote"])
        job = FlightsJob.create(tmp_path / "job", {quality_section(): ""})
        job.land([1])
        ran = milepost("run", job.spec_path)
        assert ran.exit_code == 0, ran.stderr
        job.assert_tables_equal_the_oracle()

        serving.terminate()
        assert serving.wait(60) == 128 + 15
    wait_until(lambda: not server.is_running(), seconds=60, what="the end of the server")

"""A store that does not answer: that is what `run` and `doctor` say, in bounded time, and where its address is from."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from milepost.storage.s3 import probe
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import free_ports


@contextmanager
def silent() -> Iterator[int]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def closed() -> Iterator[int]:
    yield free_ports(1)[0]


@pytest.mark.long
@pytest.mark.parametrize(("server", "within_s"), [(closed, 60.0), (silent, 1.0)], ids=["closed", "silent"])
def test_a_store_that_does_not_answer_is_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: type, within_s: float
) -> None:
    monkeypatch.setattr(probe, "_ANSWER_S", within_s)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "unused")
    store = "storage: s3://milepost\nstore: {endpoint_url: '${env:LAKE_ENDPOINT}'}\n"
    job = SparklessJob.create(tmp_path, {"storage: ../store\n": store})
    spec = job.folder / "config" / "small.yaml"
    with server() as port:
        monkeypatch.setenv("LAKE_ENDPOINT", f"http://127.0.0.1:{port}")
        run = milepost("run", spec)
        doctor = milepost("doctor", spec, "--json")
    address = f"http://127.0.0.1:{port} (from LAKE_ENDPOINT)"
    first = run.error[0]
    assert first.startswith("Error: ") and address in first, run.stderr
    wording.matches("run", run.error)
    checks = json.loads(doctor.stdout)["data"]["checks"]
    (store_check,) = [check for check in checks if check["check"] == "store"]
    assert not store_check["ok"] and address in store_check["detail"]
    wording.matches("doctor", store_check["detail"])
    assert doctor.exit_code == 8

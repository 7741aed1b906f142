"""A stranger's machine: a new virtual environment, `pip install`, and an epoch, with nothing of the clone on a path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.bare_environment import BareEnvironment, bare_environment
from milepost_testkit.repository.distribution import build, copy_sources
from milepost_testkit.servers.s3_servers import S3Server

TOKEN = "of-this-test"
PATHS = "import sys, milepost; print(milepost.__file__, *sys.path, sep='\\n')"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareEnvironment]:
    folder = tmp_path_factory.mktemp("distribution")
    wheel = build("build_wheel", copy_sources(folder / "sources"), folder)
    with bare_environment() as bare:
        bare.pip("install", f"{wheel}[spark,s3,delta]")
        yield bare


@pytest.fixture(scope="module")
def spec(environment: BareEnvironment) -> Path:
    """The job that `milepost init` writes: without its gate, whose extra is not installed."""
    made = environment.milepost("init", "orders")
    assert made.returncode == 0 and 'pip install "milepost[quality]"' in made.stderr
    return environment.work / "config" / "orders.yaml"


def counts(environment: BareEnvironment, job: str = "orders", **credentials: str) -> dict[str, int]:
    read = environment.milepost("read", job, "totals", "--json", **credentials)
    return {row["city"]: row["orders"] for row in json.loads(read.stdout)["data"]["rows"]}


def land(spec: Path, day: str) -> None:
    rows = f"city,visitor,minutes,at\nLima,ada,5,{day}T08:00:00Z\n"
    (spec.parent / "orders_data" / f"{day}.csv").write_text(rows, encoding="utf-8")


@pytest.mark.deep
def test_nothing_of_the_clone_is_on_any_path_of_the_environment(environment: BareEnvironment) -> None:
    found = environment.python(PATHS)
    assert str(environment.folder / "env") in found.splitlines()[0] and str(REPOSITORY) not in found
    missing = environment.python("import importlib.util as u; print(u.find_spec('airflow'), u.find_spec('tests'))")
    assert missing.split() == ["None", "None"]


@pytest.mark.deep
def test_a_landed_file_is_in_the_table_after_a_run(environment: BareEnvironment, spec: Path) -> None:
    land(spec, "2026-01-03")
    ran = environment.milepost("run", "orders", "--until-caught-up")
    assert ran.returncode == 0, ran.stderr
    assert counts(environment) == {"Bergen": 2, "Porto": 2, "Quito": 1, "Lima": 1}


@pytest.mark.deep
def test_a_job_in_a_bucket_runs_with_what_its_extra_brought(
    environment: BareEnvironment, spec: Path, seaweed: S3Server
) -> None:
    bucket, text = f"s3://{seaweed.new_bucket()}", spec.read_text(encoding="utf-8")
    inside = text.replace("../.milepost", bucket).replace("name: orders", "name: in_bucket", 1)
    store = f'store: {{endpoint_url: "{seaweed.endpoint_url}", region: us-east-1}}'
    (spec.parent / "in_bucket.yaml").write_text(f"{inside}\n{store}\n", encoding="utf-8")
    ran = environment.milepost("run", "in_bucket", **seaweed.environment())
    assert ran.returncode == 0, ran.stderr
    assert counts(environment, "in_bucket", **seaweed.environment())["Quito"] == 1


@pytest.mark.deep
def test_an_epoch_runs_on_a_connect_server_of_that_environment(environment: BareEnvironment, spec: Path) -> None:
    """The same job goes on: what it runs on is not part of its state."""
    environment.milepost("run", "orders", "--until-caught-up")
    before = counts(environment).get("Lima", 0)
    land(spec, "2026-01-04")
    with environment.connect_server(TOKEN) as remote:
        server = {"MILEPOST_SPARK_REMOTE": remote, "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN}
        ran = environment.milepost("run", "orders", **server)
        doctor = environment.milepost("doctor", "orders", **server)
    assert ran.returncode == 0, ran.stderr
    assert counts(environment)["Lima"] == before + 1
    assert f"at {remote}, local[2,3]" in doctor.stdout

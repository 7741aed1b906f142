"""Epochs on a cluster of machines that share no disk and have nothing of Milepost but what Spark brings them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.language.spark_remote import TOKEN_VARIABLE
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost, milepost_process
from milepost_testkit.jobs.connected_job import ConnectedJob, lake_connection
from milepost_testkit.jobs.keyed_job import KeyedJob
from milepost_testkit.processes.own_process import in_own_process
from milepost_testkit.servers.packed_environment import packed_environment
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.servers.spark_cluster import SparkCluster, python_with, spark_cluster
from milepost_testkit.servers.stock_connect_server import stock_connect_server
from milepost_testkit.specs.spec_edits import edit_spec

PARALLELISM = (2, 4, 3)
"""Of one epoch after another."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def lake(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver knows the bucket's server and its credentials; the epoch's tasks pass them to the workers."""
    for name, value in lake_connection(seaweed).items():
        monkeypatch.setenv(name, value)


def run_elsewhere(spec: Path, parallelism: tuple[int, ...] = PARALLELISM) -> None:
    """Run an epoch of each parallelism in one process of its own: this one's Spark, if it has one, has its master."""
    in_own_process(_run, spec, parallelism)


def _run(spec: Path, parallelism: tuple[int, ...]) -> None:
    before = "parallelism: 2}"
    for number in parallelism:
        now = f"parallelism: {number}}}"
        edit_spec(spec, {before: now})
        before = now
        ran = milepost("run", spec)
        assert ran.exit_code == 0, ran.stderr


@pytest.mark.deep
@pytest.mark.parametrize("parallelism", [(2, 4), PARALLELISM])
def test_flights_on_a_cluster_rescaled_between_epochs_equal_the_oracle(
    cluster: SparkCluster, seaweed: Seaweed, tmp_path: Path, parallelism: tuple[int, ...]
) -> None:
    """What an epoch needs comes with it: code, credentials, state. Both machines work, each with a cache of its own."""
    alone = cluster.run_python("import pyarrow, milepost")
    assert (alone.returncode, "No module named 'milepost'" in alone.stderr) == (1, True)
    job = ConnectedJob.connected(tmp_path / "job", seaweed, cluster.spark())
    edit_spec(job.spec_path, {"max_files: 4": "max_files: 2"})
    job.land(range(1, 2 * len(parallelism) + 1))
    run_elsewhere(job.spec_path, parallelism)
    assert len(job.epochs()) == len(parallelism)
    job.assert_tables_equal_the_oracle()
    for machine in cluster.machines:
        assert [*machine.folder.glob("home/.cache/milepost/state-1/*/*")], f"{machine.address} kept state"
        assert [*machine.folder.glob("work/app-*/*/milepost/__init__.py")], f"{machine.address} was sent the code"
    here = job.master().context.cache_directory
    assert not Path(here).exists(), "the driver is not one of the machines"


@pytest.mark.deep
@pytest.mark.parametrize(("keys", "rows"), [(200_000, 100_000), (5_000_000, 1_000_000)])
def test_many_keys_and_a_class_of_the_user_on_a_cluster_rescaled_between_epochs(
    cluster: SparkCluster, seaweed: Seaweed, tmp_path: Path, seed: int, keys: int, rows: int
) -> None:
    """State reaches other machines through the bucket only; modules next to the spec are sent with the tasks."""
    job = KeyedJob.create(tmp_path / "job", seaweed, cluster.spark())
    for landed in (keys, rows, rows):
        job.land(seed, keys, landed)
    run_elsewhere(job.spec_path)
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_workers_that_lack_what_tasks_import_are_refused_before_anything_runs(
    cluster: SparkCluster, seaweed: Seaweed, tmp_path: Path, seed: int
) -> None:
    job = KeyedJob.create(
        tmp_path / "job", seaweed, cluster.spark({"spark.pyspark.python": str(python_with(tmp_path / "bare"))})
    )
    job.land(seed, 10, 10)
    ran = milepost_process("run", job.spec_path)
    assert_clear_error(ran, 8, cluster.url, golden="run")


@pytest.mark.deep
def test_a_connect_server_of_a_cluster_hands_code_and_archives_on_to_its_workers(
    cluster: SparkCluster, seaweed: Seaweed, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own environment has neither Milepost nor a library, and its workers have Spark alone."""
    bare = python_with(tmp_path / "bare")
    archive = packed_environment(tmp_path)
    conf = {"spark.archives": f"{archive}#environment", "spark.pyspark.python": "./environment/bin/python"}
    limits = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "700m"}
    with stock_connect_server(tmp_path / "server", bare, master=cluster.url, conf=limits) as server:
        monkeypatch.setenv(TOKEN_VARIABLE, server.token)
        spark = f'spark: {{remote: "{server.remote}", conf: {json.dumps(conf)}'
        job = KeyedJob.create(tmp_path / "job", seaweed, spark)
        for landed in (1000, 100):
            job.land(seed, 1000, landed)
        ran = milepost("run", job.spec_path, "--until-caught-up")
        assert ran.exit_code == 0, ran.stderr
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_libraries_come_by_an_archive_of_a_virtual_environment(
    cluster: SparkCluster, seaweed: Seaweed, tmp_path: Path, seed: int
) -> None:
    """The workers' machines have Spark, a Python without packages, and nothing else."""
    archive = packed_environment(tmp_path)
    conf = {"spark.archives": f"{archive.as_uri()}#environment", "spark.pyspark.python": "./environment/bin/python"}
    job = KeyedJob.create(tmp_path / "job", seaweed, cluster.spark(conf))
    for landed in (1000, 100, 100):
        job.land(seed, 1000, landed)
    run_elsewhere(job.spec_path)
    job.assert_tables_equal_the_oracle()

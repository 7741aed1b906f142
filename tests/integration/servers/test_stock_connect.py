"""Epochs on a Spark Connect server that knows nothing of Milepost: what decides is a probe of its executors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from milepost import extras
from milepost.errors import EnvironmentUnusable
from milepost.language.spark_remote import TOKEN_VARIABLE, parse_remote
from milepost.spark.driver.engines.connect import open_unshared
from milepost.spark.driver.executors import probe
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.recovering_job import quality_section
from milepost_testkit.jobs.reference_job import NAMED, TOTALS, tables_with_references
from milepost_testkit.repository.distribution import link_libraries
from milepost_testkit.servers.spark_cluster import python_with, python_without_milepost
from milepost_testkit.servers.stock_connect_server import StockConnectServer, stock_connect_server
from scripts.older_versions import OLDER, VERSIONS, version_of

LOCAL = 'spark: {master: "local[2]", remote: "${env:MILEPOST_SPARK_REMOTE:-}", parallelism: 2}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockConnectServer]:
    folder = tmp_path_factory.mktemp("stock")
    with stock_connect_server(folder / "server", python_without_milepost(folder / "python")) as server:
        yield server


@pytest.fixture(autouse=True)
def client(server: StockConnectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, server.token)


def flights(folder: Path, server: StockConnectServer, conf: str = "{}", days: int = 1) -> FlightsJob:
    spark = f'spark: {{remote: "{server.remote}", parallelism: 2, conf: {conf}}}'
    job = FlightsJob.create(folder, {quality_section(): "", "max_files: 4": "max_files: 1", LOCAL: spark})
    job.land(range(1, days + 1))
    return job


@pytest.mark.deep
def test_code_comes_with_the_session_and_executors_are_probed_once(
    server: StockConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm epoch, by the same process or by a new one, finds the session as it was left."""
    asked: list[int] = []
    answers = probe._answers
    monkeypatch.setattr(probe, "_answers", lambda *to: asked.append(1) or answers(*to))
    job = flights(tmp_path / "job", server, days=2)
    job.run_until_caught_up()
    assert (len(job.epochs()), asked) == (2, [1])
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_references_to_settings_in_sql_are_text(server: StockConnectServer, tmp_path: Path) -> None:
    """Also on a server that replaces them in the sessions of others."""
    spark = f'remote: "{server.remote}"'
    assert tables_with_references(tmp_path / "job", spark, SparkEpochRunner()) == (NAMED, TOTALS)


@pytest.mark.deep
def test_doctor_probes_executors_too(server: StockConnectServer, tmp_path: Path) -> None:
    job = flights(tmp_path / "job", server)
    assert f"ok    spark server: Spark 4.3.0 at {server.remote}, local[2]" in milepost("doctor", job.spec_path).stdout
    python = tmp_path / "python" / "bin" / "python"
    lacking = flights(tmp_path / "lacking", server, f"{{spark.pyspark.python: {python}}}")
    checks = milepost("doctor", lacking.spec_path).stdout
    assert f"FAIL  spark server: the Spark Connect server at {server.remote} does not run what an epoch is" in checks


@pytest.mark.deep
def test_a_library_that_executors_lack_is_named_before_anything_runs(
    server: StockConnectServer, tmp_path: Path
) -> None:
    """Everything that is missing, in one message; if Python's workers do not even start, their error."""
    some = python_with(tmp_path / "some", link_libraries(tmp_path / "libraries", without={"psutil", "pydantic"}))
    none = python_with(tmp_path / "none")
    for python, missing in ((some, "psutil, pydantic"), (none, "p")):
        job = flights(tmp_path / f"job of {python.parent.parent.name}", server, f"{{spark.pyspark.python: {python}}}")
        ran = milepost("run", job.spec_path)
        assert_clear_error(ran, 8, f"{missing}", "cannot be imported by", "Nothing was run", "spark.archives")
        assert milepost("status", job.spec_path, "--json").document()["job_status"] == "running"


@pytest.mark.deep
def test_a_library_that_does_not_do_what_tasks_do_is_refused_with_what_it_raised(
    server: StockConnectServer, tmp_path: Path
) -> None:
    folder = link_libraries(tmp_path / "libraries", without={"pydantic"})
    (folder / "pydantic.py").write_text("")
    python = python_with(tmp_path / "python", folder)
    ran = milepost("run", flights(tmp_path / "job", server, f"{{spark.pyspark.python: {python}}}").spec_path)
    assert_clear_error(
        ran,
        8,
        "cannot do what tasks do: expected rows and a run of state, got ImportError: ",
        "Nothing was run",
    )


@contextlib.contextmanager
def server_of(minor: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StockConnectServer]:
    """A server of another version of Spark while the block runs, and this process as its client."""
    if (reason := VERSIONS.unreached.reason()) is not None:
        pytest.skip(f"no package index was reached: {reason}")
    (spark,) = VERSIONS.interpreter(OLDER["pyspark"][minor]).parent.parent.glob("lib/python*/site-packages/pyspark")
    python = python_without_milepost(folder / "python")
    with stock_connect_server(folder / "server", python, spark=spark) as server:
        monkeypatch.setenv(TOKEN_VARIABLE, server.token)
        yield server


@pytest.mark.deep
@pytest.mark.parametrize("minor", OLDER["pyspark"])
def test_a_server_of_another_minor_version_runs_epochs(
    minor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its probe passes, and so does what an epoch does."""
    with server_of(minor, tmp_path / "other", monkeypatch) as other:
        job = flights(tmp_path / "job", other, days=3)
        checks = milepost("doctor", job.spec_path).stdout
        assert f"ok    spark server: Spark {version_of('pyspark', minor)} at {other.remote}" in checks
        job.run_until_caught_up()
        assert len(job.epochs()) == 3
        job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_server_of_an_unsupported_version_is_refused_when_its_session_is_opened(
    server: StockConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.SUPPORTED, "pyspark", ("4.9", "5"))
    with wording.raises(EnvironmentUnusable, replace={r"localhost:\d+": "localhost:{port}"}) as refused:
        open_unshared(parse_remote(server.remote), {})
    assert f"runs Spark {pyspark.__version__}: expected >=4.9,<5" in refused.value.message

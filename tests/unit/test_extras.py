"""What an extra brings, and is not there, is refused by its name: before anything runs, and without a stack trace."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from milepost.__main__ import main
from milepost.cli.workspace.doctor import environment_checks
from milepost.cli.workspace.scaffold import write_job
from milepost.errors import EnvironmentUnusable
from milepost.extras import EXTRAS, SUPPORTED, require, supported_range, unsupported_libraries
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.processes.processes import REPOSITORY, run_python
from milepost_testkit.repository.distribution import OF_EXTRAS, link_libraries, run_installed

COMES_WITH = {"grpcio": "pyspark", "psycopg-binary": "psycopg"}


@pytest.fixture(scope="module")
def without_extras(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("bare")
    return [REPOSITORY / "pipeline", link_libraries(folder / "libraries", without=OF_EXTRAS)]


@pytest.fixture(scope="module")
def without_quality(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("ungated")
    return [REPOSITORY / "pipeline", link_libraries(folder / "libraries", without={"great_expectations"})]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A folder with the job `orders`, which has a gate, and `orders_s3`, which is the same in a bucket."""
    write_job("orders", tmp_path, gated=True, opened=False)
    text = (tmp_path / "config" / "orders.yaml").read_text(encoding="utf-8")
    in_bucket = text.replace("name: orders", "name: orders_s3").replace("storage: ..", "storage: s3://bucket/")
    (tmp_path / "config" / "orders_s3.yaml").write_text(in_bucket, encoding="utf-8")
    return tmp_path


def milepost(path: list[Path], jobs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_installed("-m", "milepost", *words, path=path, cwd=jobs)


def assert_refused(ran: subprocess.CompletedProcess[str], library: str, extra: str) -> None:
    assert ran.returncode == EnvironmentUnusable.exit_code, ran.stderr
    assert library in ran.stderr and "Traceback" not in ran.stderr
    assert f'pip install "milepost[{extra}]"' in ran.stderr
    wording.matches("EnvironmentUnusable", ran.stderr)


def test_the_extras_are_those_of_the_distribution() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        extra: {Requirement(one).name for one in ranges}
        for extra, ranges in project["optional-dependencies"].items()
        if extra != "dev"
    }
    assert declared.keys() == EXTRAS.keys()
    for extra, libraries in EXTRAS.items():
        assert {COMES_WITH.get(name, name) for name in libraries.values()} <= declared[extra]


def of_spark(library: str) -> object:
    return pytest.param(library, marks=() if library == "pyspark" else (pytest.mark.deep,))


@pytest.mark.deep
@pytest.mark.parametrize("library", [of_spark(one) for one in sorted({*EXTRAS["spark"]} - {"py4j"})])
def test_a_run_without_all_of_spark_is_refused_by_the_extra(library: str, jobs: Path) -> None:
    """PySpark itself asks for the others in the midst of an epoch, which would be taken for an error of its SQL."""
    bare = [REPOSITORY / "pipeline", link_libraries(jobs / "libraries", without={library})]
    assert_refused(milepost(bare, jobs, "run", "orders"), EXTRAS["spark"][library], "spark")
    assert not (jobs / ".milepost").exists(), "nothing was triggered"


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["status", "orders_s3"], id="status"),
        pytest.param(["list", "orders_s3"], id="list", marks=pytest.mark.deep),
    ],
)
def test_a_bucket_without_boto3_is_refused_by_the_extra(
    words: list[str], without_extras: list[Path], jobs: Path
) -> None:
    assert_refused(milepost(without_extras, jobs, *words), "boto3", "s3")


@pytest.mark.deep
def test_a_gate_without_great_expectations_is_refused_before_an_epoch_is_triggered(
    without_quality: list[Path], jobs: Path
) -> None:
    assert_refused(milepost(without_quality, jobs, "run", "orders"), "great-expectations", "quality")
    listed = milepost(without_quality, jobs, "list", "orders", "--json")
    assert json.loads(listed.stdout)["data"]["checkpoints"] == []


@pytest.mark.deep
@pytest.mark.parametrize(("library", "extra"), [("deltalake", "delta"), ("pyiceberg", "iceberg"), ("boto3", "s3")])
def test_a_table_whose_library_is_missing_is_refused_before_an_epoch_is_triggered(
    library: str, extra: str, jobs: Path
) -> None:
    bare = [REPOSITORY / "pipeline", link_libraries(jobs / "libraries", without={library})]
    spec = jobs / "config" / "orders.yaml"
    table = {
        "deltalake": "format: delta",
        "pyiceberg": 'format: iceberg, table: shop.t, catalog: {type: sql, uri: "sqlite:///../catalog.db"}',
        "boto3": "format: iceberg, table: shop.t, catalog: {type: glue}",
    }[library]
    text = spec.read_text(encoding="utf-8")
    spec.write_text(text.replace("format: parquet", table), encoding="utf-8")
    assert_refused(milepost(bare, jobs, "run", "orders"), library, extra)
    assert milepost(bare, jobs, "lint", "orders").returncode == 0, "what is read is the spec alone"
    assert not (jobs / ".milepost").exists(), "nothing was triggered"


@pytest.mark.deep
def test_init_writes_a_job_that_runs_with_the_installed_extras(
    without_extras: list[Path], without_quality: list[Path], tmp_path: Path
) -> None:
    """A missing library is reported first, with the line that installs it: not by the refusal of its first run."""
    for name, path, missing in (
        ("bare", without_extras, ["spark", "quality", "delta"]),
        ("plain", without_quality, ["quality"]),
    ):
        ran = milepost(path, tmp_path, "init", name)
        assert [extra for extra in EXTRAS if f'`pip install "milepost[{extra}]"`' in ran.stderr] == missing
        assert milepost(path, tmp_path, "lint", name).returncode == 0
        spec = tmp_path / "config" / f"{name}.yaml"
        assert not load_job(spec).spec.quality
        assert [sink.format for sink in load_job(spec).spec.sinks] == ["parquet" if "delta" in missing else "delta"]
        before, _, gate = spec.read_text(encoding="utf-8").partition("these comment marks.\n")
        spec.write_text(before + "\n" + "".join(line.removeprefix("# ") for line in gate.splitlines(keepends=True)))
        assert [one.sink for one in load_job(spec).spec.quality] == ["totals"]


@pytest.mark.parametrize(("library", "extra"), [("pyspark", "spark"), ("apache-airflow", "airflow")])
@pytest.mark.parametrize("supported", [("2.0", "2.9"), ("99.1", "100")], ids=["too new", "too old"])
def test_an_unsupported_version_is_refused_with_the_range(
    library: str, extra: str, supported: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unsupported_libraries(extra) == {}
    monkeypatch.setitem(SUPPORTED, library, supported)
    with wording.raises(EnvironmentUnusable) as refused:
        require(extra, "running an epoch")
    assert f"needs {library} >={supported[0]},<{supported[1]}" in refused.value.message
    assert version(library) in refused.value.message
    assert f'pip install "milepost[{extra}]"' in refused.value.hint
    (check,) = (check for check in environment_checks() if check.check == f"extra {extra}")
    assert check.ok is (extra != "spark") and supported_range(library) in check.detail


def test_the_dags_of_a_job_are_refused_with_an_unsupported_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUPPORTED, "pyspark", ("99.1", "100"))
    monkeypatch.delitem(sys.modules, "milepost.airflow.dags", raising=False)
    with wording.raises(EnvironmentUnusable) as refused:
        import_module("milepost.airflow.dags")
    assert "running the epochs of these DAGs needs pyspark >=99.1,<100" in refused.value.message


def test_an_unsupported_python_is_refused_in_one_sentence_by_commands_and_dags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    monkeypatch.setattr(sys, "executable", "/opt/python")
    with pytest.raises(SystemExit) as ended:
        main()
    problem = "Milepost needs Python 3.11 to 3.13, and /opt/python is 3.14.0: install it in a supported one."
    assert (ended.value.code, capsys.readouterr().err) == (8, f"Error: {problem}\n")
    monkeypatch.delitem(sys.modules, "milepost.airflow.dags", raising=False)
    with wording.raises(EnvironmentUnusable) as refused:
        import_module("milepost.airflow.dags")
    assert refused.value.message == problem


def test_dags_without_airflow_are_refused_by_the_extra(without_extras: list[Path], tmp_path: Path) -> None:
    ran = run_installed("-c", "import milepost.airflow.dags.dag_factory", path=without_extras, cwd=tmp_path)
    said = ran.stderr.splitlines()[-1]
    assert "apache-airflow" in said
    wording.matches("EnvironmentUnusable", said)


@pytest.mark.deep
def test_the_doctor_says_which_extras_are_there(
    without_extras: list[Path], without_quality: list[Path], jobs: Path
) -> None:
    """Without Spark no epoch runs; any other is missed only by a job that uses it."""
    for path, missing in ((without_extras, set(EXTRAS)), (without_quality, {"quality"})):
        ran = milepost(path, jobs, "doctor", "--json")
        checks = {check["check"]: check for check in json.loads(ran.stdout)["data"]["checks"]}
        for extra in EXTRAS:
            check = checks[f"extra {extra}"]
            assert check["ok"] is (extra not in missing or extra != "spark")
            assert (f'pip install "milepost[{extra}]"' in check["detail"]) is (extra in missing)
            assert check["warning"] is (extra in missing and check["ok"])


@pytest.mark.deep
def test_use_cases_of_landed_sources_are_imported_without_the_library_of_any_format() -> None:
    modules = "milepost.jobmaster.landing.landings, milepost.jobmaster.landing.gaps, milepost.cli.main"
    libraries = ("deltalake", "pyiceberg", "pyspark", "confluent_kafka", "dlt", "sqlalchemy")
    code = f"import sys, {modules}; print([name for name in {libraries!r} if name in sys.modules])"
    assert run_python(code).stdout == "[]\n"

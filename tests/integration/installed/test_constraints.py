"""Both ends of the version ranges: pip resolves all extras, and a real job runs with the lowest versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.bare_environment import BareEnvironment, bare_environment
from milepost_testkit.repository.distribution import build, copy_sources

CONSTRAINTS = REPOSITORY / "tests" / "constraints"
DAG_FILE = """
from pathlib import Path

from milepost.airflow.dags.dag_factory import job_dags

globals().update(job_dags(Path(__file__).parent.parent / "config"))
"""
EVERYTHING = """
import importlib, pkgutil
import milepost

names = {module.name for module in pkgutil.walk_packages(milepost.__path__, "milepost.")}
names.remove("milepost.airflow.provider.new_objects")  # refused by name before Airflow 3.3
for name in names:
    importlib.import_module(name)
print(len(names))
"""
PARSED = """
import json, sys
from airflow import plugins_manager
from airflow.models.dagbag import DagBag  # where it is in 3.1

bag, infos = DagBag(sys.argv[1]), plugins_manager.get_plugin_info()
tabs = [view["url_route"] for info in infos for view in info["external_views"]]
errors = {**bag.import_errors, **plugins_manager.import_errors}
print(json.dumps({"dags": sorted(bag.dags), "tabs": tabs, "errors": errors}))
"""


def constraint(end: str) -> Path:
    """Return the newest file for one end; file names begin with the date."""
    return max(CONSTRAINTS.glob(f"*-{end}.txt"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The wheel with every extra for users, as an argument of pip."""
    folder = tmp_path_factory.mktemp("distribution")
    made = build("build_wheel", copy_sources(folder / "sources"), folder)
    return f"{made}[airflow,spark,s3,quality,delta,iceberg,lineage,otel,postgres]"


@pytest.fixture(scope="module")
def environment() -> Iterator[BareEnvironment]:
    with bare_environment() as bare:
        yield bare


@pytest.fixture(scope="module")
def lowest(environment: BareEnvironment, wheel: str) -> BareEnvironment:
    environment.pip("install", "--constraint", constraint("lowest"), wheel)
    return environment


@pytest.mark.deep
@pytest.mark.parametrize("end", ["newest", "lowest"])
def test_all_extras_resolve_at_both_ends_of_the_ranges(end: str, environment: BareEnvironment, wheel: str) -> None:
    """Packages that are already installed are ignored."""
    report = environment.folder / f"{end}.json"
    options = ("--dry-run", "--ignore-installed", "--report", report, "--constraint", constraint(end))
    environment.pip("install", "--quiet", *options, wheel)
    chosen = {package["metadata"]["name"] for package in json.loads(report.read_text())["install"]}
    assert {"milepost", "apache-airflow", "pyspark", "boto3", "pyarrow"} <= chosen


@pytest.mark.deep
def test_with_the_lowest_versions_every_module_is_imported(lowest: BareEnvironment) -> None:
    imported = int(lowest.python(EVERYTHING, AIRFLOW_HOME=str(lowest.folder / "airflow")).splitlines()[-1])
    assert imported > 300


@pytest.mark.deep
def test_with_the_lowest_versions_an_epoch_passes_its_gate(lowest: BareEnvironment) -> None:
    assert lowest.milepost("init", "orders").returncode == 0
    ran = lowest.milepost("run", "orders")
    assert ran.returncode == 0, ran.stderr
    read = lowest.milepost("read", "orders", "totals", "--json")
    assert len(json.loads(read.stdout)["data"]["rows"]) == 3


@pytest.mark.deep
def test_with_the_lowest_versions_airflow_has_the_dags_of_a_job_and_its_page(lowest: BareEnvironment) -> None:
    lowest.milepost("init", "visits")
    dags = lowest.work / "dags"
    dags.mkdir()
    (dags / "jobs.py").write_text(DAG_FILE, encoding="utf-8")
    settings = {"AIRFLOW_HOME": str(lowest.folder / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    parsed = json.loads(lowest.python(PARSED, dags, **settings).splitlines()[-1])
    assert parsed["errors"] == {} and parsed["tabs"] == ["milepost", "checkpoints"]
    forms = ("epoch", "operate")
    assert {f"visits__{form}" for form in forms} <= set(parsed["dags"])

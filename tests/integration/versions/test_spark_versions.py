"""One job on each supported minor version of PySpark: in a session of its own, and on a Spark Connect server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pyspark
import pytest

from milepost.language.spark_remote import TOKEN_VARIABLE
from milepost_testkit.commands.milepost_cli import Outcome
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.servers.spark_cluster import python_with
from milepost_testkit.servers.stock_connect_server import stock_connect_server
from scripts.older_versions import OLDER, VERSIONS, version_of
from tests.integration.versions.nested_pytest import assert_tests_pass

pytestmark = pytest.mark.deep

WHERE = ("session", "server")
VERSION = "import pyspark; print(pyspark.__version__)"
MASTER = "local-cluster[2,1,1024]"
"""Two executors in processes of their own, with a core each: one can be lost."""

STATEMENTS = {
    "large": "SELECT id, upper(customer) AS buyer, ordered_at FROM orders WHERE amount > 10",
    "by_customer": "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer",
    "sizes": "SELECT n, count(*) AS customers FROM by_customer WHERE n > 2 GROUP BY n",
    "unpaid": (
        "SELECT o.customer, count(*) AS n, count(p.amount) AS paid FROM orders o LEFT JOIN payments p "
        "ON o.id = p.order_id GROUP BY o.customer"
    ),
    "quarters": ("SELECT window.start AS begins, count(*) AS n FROM orders GROUP BY window(ordered_at, '15 minutes')"),
}
"""SQL, an aggregate, an aggregate over its updates, a join whose rows are retracted, and a window."""

EXPECTED = STATEMENTS | {
    "by_customer": STATEMENTS["by_customer"].replace("sum(amount)", "CAST(sum(amount) AS DECIMAL(20, 2))"),
    "sizes": STATEMENTS["sizes"].replace("by_customer", f"({STATEMENTS['by_customer']})"),
    "quarters": (
        "SELECT time_bucket(INTERVAL 15 MINUTES, ordered_at) AS begins, count(*) AS n FROM orders GROUP BY 1 "
        "HAVING begins + INTERVAL 15 MINUTES <= (SELECT max(ordered_at) FROM orders)"
    ),
    "counts": "SELECT customer, count(*) AS n FROM orders WHERE customer IS NOT NULL GROUP BY customer",
}
SQL = "\n".join(
    f"CREATE {'STREAMING TABLE' if name == 'large' else 'MATERIALIZED VIEW'} {name} AS {query};"
    for name, query in STATEMENTS.items()
)
FUNCTION = """\
import contextlib
import os
import signal
from pathlib import Path

LOSE = Path({lose!r})


class Counting:
    state = {{"n": "int64"}}
    output = {{"customer": "string", "n": "int64"}}

    def on_rows(self, key, rows, state, ctx):
        with contextlib.suppress(FileNotFoundError):
            LOSE.rename(LOSE.with_name("lost"))
            kill_executor()
        state["n"] = (state["n"] or 0) + len(rows)
        yield {{"customer": key, "n": state["n"]}}


def kill_executor():
    pid = os.getpid()
    while "java" not in Path(f"/proc/{{pid}}/exe").readlink().name:
        pid = int(Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
"""
"""Counts rows per customer. Kills the executor that runs it, once, where a file `lose` is."""


class VersionedJob(SqlJob):
    """The job, whose epochs a PySpark of some version runs in a process of its own."""

    def __init__(self, folder: Path, spark: Mapping[str, object]) -> None:
        folder.mkdir()
        (folder / "counting.py").write_text(FUNCTION.format(lose=str(folder / "lose")))
        super().__init__(
            folder,
            SQL,
            {
                "tables": {"format": "delta", "path": "lake/{name}"},
                "operators": [
                    {"uid": "known", "kind": "sql", "inputs": ["orders"],
                     "sql": "SELECT customer, id FROM orders WHERE customer IS NOT NULL"},
                    {"uid": "counting", "kind": "process", "inputs": ["known"], "key": ["customer"],
                     "function": "counting:Counting"},
                    {"uid": "counts", "kind": "latest", "inputs": ["counting"], "key": ["customer"],
                     "sequence_by": ["n"]},
                ],
                "sinks": [{"name": "counts", "input": "counts", "format": "delta", "path": "lake/counts",
                           "mode": "upsert"}],
                "quality": [{"sink": "counts", "expectations": [
                    {"type": "expect_column_values_to_not_be_null", "column": "customer"}]}],
                "spark": spark,
            },
        )  # fmt: skip

    def on(self, parallelism: int) -> None:
        self.write(self.sql, spark={**self.changes["spark"], "parallelism": parallelism})


def milepost(python: Path, *words: str | Path, environment: Mapping[str, str] = MappingProxyType({})) -> Outcome:
    ran = subprocess.run(
        [python, "-m", "milepost", *words],
        env={**os.environ, "SPARK_LOCAL_HOSTNAME": "localhost", **environment},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    return Outcome(ran.returncode, ran.stdout, ran.stderr)


@contextmanager
def server_of(python: Path, folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """A Spark Connect server of the version of an interpreter, without Milepost; gives its address and the token."""
    code = "import sys; print(*(one for one in sys.path if one.endswith('site-packages')), sep='\\n')"
    places = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    (spark, *_) = (Path(place) / "pyspark" for place in places if (Path(place) / "pyspark").is_dir())
    workers = python_with(folder / "python", *map(Path, places))
    with stock_connect_server(folder / "server", workers, master=MASTER, spark=spark) as server:
        yield server.remote, {TOKEN_VARIABLE: server.token}


@contextmanager
def python_of(minor: str) -> Iterator[Path]:
    """The interpreter with an older version of PySpark while the block runs."""
    if (reason := VERSIONS.unreached.reason()) is not None:
        pytest.skip(f"no package index was reached: {reason}")
    found = VERSIONS.interpreter(OLDER["pyspark"][minor])
    yield found
    for left in found.parent.parent.glob("lib/python*/site-packages/pyspark/work"):
        shutil.rmtree(left)  # what a local cluster leaves in Spark's own folder


def run_with_a_lost_executor(job: VersionedJob, python: Path, environment: Mapping[str, str]) -> None:
    """Run two epochs of different parallelism, and lose an executor in the second one. Compare with DuckDB."""
    for parallelism in (2, 3):
        job.land()
        job.on(parallelism)
        if parallelism == 3:
            (job.folder / "lose").touch()
        ran = milepost(python, "run", job.folder / "shop.yaml", environment=environment)
        assert ran.exit_code == 0, ran.stderr
        for table, query in EXPECTED.items():
            assert job.check(table, query) > 0, table
    assert (job.folder / "lost").exists()


def makes_the_tables_of_duckdb(python: Path, version: str, where: str, folder: Path) -> None:
    if where == "session":
        shown = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=True).stdout
        assert shown.strip() == version
        run_with_a_lost_executor(VersionedJob(folder / "job", {"master": MASTER}), python, {})
        return
    with server_of(python, folder) as (remote, environment):
        job = VersionedJob(folder / "job", {"remote": remote})
        checks = milepost(python, "doctor", job.folder / "shop.yaml", environment=environment)
        assert f"Spark {version} at {remote}, {MASTER}" in checks.stdout, checks
        run_with_a_lost_executor(job, python, environment)


# A function per version: `make test-all PART=2/6` divides functions, not their parameters.


@pytest.mark.parametrize("where", WHERE)
def test_pyspark_4_0_makes_the_tables_of_duckdb(where: str, tmp_path: Path) -> None:
    with python_of("4.0") as python:
        makes_the_tables_of_duckdb(python, version_of("pyspark", "4.0"), where, tmp_path)


@pytest.mark.parametrize("where", WHERE)
def test_pyspark_4_1_makes_the_tables_of_duckdb(where: str, tmp_path: Path) -> None:
    with python_of("4.1") as python:
        makes_the_tables_of_duckdb(python, version_of("pyspark", "4.1"), where, tmp_path)


@pytest.mark.parametrize("where", WHERE)
def test_pyspark_4_2_makes_the_tables_of_duckdb(where: str, tmp_path: Path) -> None:
    with python_of("4.2") as python:
        makes_the_tables_of_duckdb(python, version_of("pyspark", "4.2"), where, tmp_path)


@pytest.mark.parametrize("where", WHERE)
def test_the_newest_pyspark_makes_the_tables_of_duckdb(where: str, tmp_path: Path) -> None:
    makes_the_tables_of_duckdb(Path(sys.executable), pyspark.__version__, where, tmp_path)


def test_the_law_holds_on_the_oldest_pyspark(tmp_path: Path) -> None:
    """`make test` runs it on the newest. Of the laws, only those of SQL depend on Spark."""
    oldest = next(iter(OLDER["pyspark"]))
    with python_of(oldest) as python:
        assert_tests_pass(python, tmp_path, ["tests/integration/epochs/sql/test_law_on_spark.py"])

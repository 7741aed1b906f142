"""The examples of formats run as they are shipped, and engines that know nothing of Milepost read their tables."""

from __future__ import annotations

import shutil
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from milepost.jobmaster import CheckpointReport, JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.postgres_server import Database
from milepost_testkit.specs.examples import EXAMPLES

pytestmark = pytest.mark.deep

SECOND_DAY = "sale,shop,amount,sold_at\n4,Porto,5.25,2026-03-02T08:00:00Z\n5,Quito,7.00,2026-03-02T08:30:00Z\n"
FIRST_TOTALS = {"Bergen": (2, Decimal("140.40")), "Porto": (1, Decimal("80.00"))}
SECOND_TOTALS = {**FIRST_TOTALS, "Porto": (2, Decimal("85.25")), "Quito": (1, Decimal("7.00"))}


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """The folder of the examples, in a place where nothing else is."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "config"))


def run(spec: Path) -> int:
    report = JobMaster(load_job(str(spec))).epochs.run(Session.cli(), SparklessRunner())
    assert isinstance(report, CheckpointReport)
    return report.checkpoint_id


def land_second_day(examples: Path) -> None:
    file = examples / "sales" / "2026-03-02.csv"
    file.write_text(SECOND_DAY)
    shutil.copystat(examples / "sales" / "2026-03-01.csv", file)


def totals(rows: list[dict[str, Any]]) -> dict[str, tuple[int, Decimal]]:
    found = {row["shop"]: (row["sales"], row["revenue"]) for row in rows}
    assert len(found) == len(rows), "two rows of one shop"
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_the_delta_example_is_read_by_engines_forward_and_back(
    examples: Path, engine: str, reading_engines: ReadingEngines
) -> None:
    spec, tables = examples / "delta.yaml", examples.parent / ".milepost" / "examples" / "delta"

    def rows(table: str) -> list[dict[str, Any]]:
        read: list[dict[str, Any]] = reading_engines.read(engine, tables / table).to_pylist()
        return read

    assert run(spec) == 1
    first = rows("changes")
    assert sorted(row["sale"] for row in rows("sales")) == [1, 2, 3]
    assert totals(rows("totals")) == totals(first) == FIRST_TOTALS
    land_second_day(examples)
    assert run(spec) == 2
    assert sorted(row["sale"] for row in rows("sales")) == [1, 2, 3, 4, 5]
    assert totals(rows("totals")) == SECOND_TOTALS
    changed = [(row["_op"], row["_checkpoint"], row["shop"]) for row in rows("changes") if row["_checkpoint"] > 1]
    assert sorted(changed) == [("upsert", 2, "Porto"), ("upsert", 2, "Quito")]
    roll_back(JobMaster(load_job(str(spec))), 1)
    assert sorted(row["sale"] for row in rows("sales")) == [1, 2, 3]
    assert totals(rows("totals")) == FIRST_TOTALS
    assert sorted(rows("changes"), key=lambda row: row["shop"]) == sorted(first, key=lambda row: row["shop"])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_iceberg_example_is_read_by_engines_forward_and_back(
    examples: Path, engine: str, reading_engines: ReadingEngines
) -> None:
    spec, catalog = examples / "iceberg.yaml", examples.parent / ".milepost" / "examples-iceberg.db"

    def rows(table: str) -> list[dict[str, Any]]:
        asked = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = 'shop' AND table_name = ?"
        with sqlite3.connect(catalog) as database:
            ((newest,),) = database.execute(asked, [table])
        read: list[dict[str, Any]] = reading_engines.read(engine, newest, table_format="iceberg").to_pylist()
        return read

    assert run(spec) == 1
    assert sorted(row["sale"] for row in rows("sales")) == [1, 2, 3]
    assert totals(rows("totals")) == FIRST_TOTALS
    land_second_day(examples)
    assert run(spec) == 2
    assert sorted(row["sale"] for row in rows("sales")) == [1, 2, 3, 4, 5]
    assert totals(rows("totals")) == SECOND_TOTALS
    roll_back(JobMaster(load_job(str(spec))), 1)
    assert sorted(row["sale"] for row in rows("sales")) == [1, 2, 3]
    assert totals(rows("totals")) == FIRST_TOTALS


def test_the_postgres_example_is_read_by_sql_forward_and_back(examples: Path, database: Database) -> None:
    spec = examples / "postgres.yaml"

    def shown() -> dict[str, tuple[int, Decimal]]:
        rows = database.run("SELECT shop, sales, revenue FROM public.shop_totals")
        return totals([{"shop": shop, "sales": sales, "revenue": revenue} for shop, sales, revenue in rows])

    assert run(spec) == 1
    assert shown() == FIRST_TOTALS
    land_second_day(examples)
    assert run(spec) == 2
    assert shown() == SECOND_TOTALS
    roll_back(JobMaster(load_job(str(spec))), 1)
    assert shown() == FIRST_TOTALS

"""SQL in which Spark would read a string as a time that depends on when it runs is refused (I12)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from milepost.language.sql.nondeterminism import check_nondeterminism
from milepost.language.sql.sql_parse import SqlProblem
from milepost.language.types import ColumnType
from milepost_testkit import wording

COLUMNS = {
    "s": ColumnType("string"),
    "ts": ColumnType("timestamp", unit="us", utc=True),
    "dt": ColumnType("date"),
    "n": ColumnType("int64"),
    "computed": None,
    "arr": None,
}

EXPRESSIONS = yaml.safe_load((Path(__file__).parent / "golden" / "nondeterminism.yaml").read_text(encoding="utf-8"))


@pytest.mark.long
@pytest.mark.parametrize("expression", EXPRESSIONS["refused"])
def test_a_string_that_spark_may_read_as_a_relative_time_is_refused(expression: str) -> None:
    for sql in (f"SELECT {expression} AS q FROM t", f"SELECT n FROM t WHERE {expression} IS NOT NULL"):
        with wording.raises(SqlProblem):
            check_nondeterminism(sql, "t", COLUMNS)


@pytest.mark.long
@pytest.mark.parametrize("expression", EXPRESSIONS["fine"])
def test_a_string_that_stays_a_string_or_is_a_full_timestamp_is_accepted(expression: str) -> None:
    check_nondeterminism(f"SELECT {expression} AS q FROM t", "t", COLUMNS)

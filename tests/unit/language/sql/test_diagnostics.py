"""`lint` refuses SQL that Spark would reject at run time or read differently than intended."""

from __future__ import annotations

import pytest

from milepost.language.sql.condition import check_condition
from milepost.language.sql.diagnostics import check_mistakes
from milepost.language.sql.sql_parse import SqlProblem
from milepost.language.types import parse_type
from milepost_testkit import wording

COLUMNS = {
    "id": parse_type("int64"),
    "city": parse_type("string"),
    "at": parse_type("timestamp[us, UTC]"),
    "day": parse_type("date"),
    "paid": parse_type("bool"),
    "tags": parse_type("list<int64>"),
    "computed": None,
}


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT CAST(id AS int64) AS x FROM t",
            "line 1, column 19: CAST AS int64: it is not a Spark type; did you mean BIGINT?",
        ),
        (
            "SELECT try_cast(city AS text) AS x FROM t",
            "line 1, column 25: CAST AS text: it is not a Spark type; did you mean STRING?",
        ),
        (
            "SELECT\n  paid::bool AS x FROM t",
            "line 2, column 9: CAST AS bool: it is not a Spark type; did you mean BOOLEAN?",
        ),
        (
            "SELECT CAST(id AS varchar) AS x FROM t",
            "line 1, column 19: CAST AS varchar: the type needs a length; did you mean STRING?",
        ),
        (
            "SELECT CAST(lower(CAST(id AS string)) AS float64) AS x FROM t",
            "line 1, column 42: CAST AS float64: it is not a Spark type; did you mean DOUBLE?",
        ),
        (
            "SELECT CAST(NULL AS ARRAY<int64>) AS x FROM t",
            "line 1, column 27: CAST AS int64: it is not a Spark type; did you mean BIGINT?",
        ),
        (
            "SELECT CAST(NULL AS map<string, list<int>>) AS x FROM t",
            "line 1, column 33: CAST AS list: it is not a Spark type; did you mean ARRAY<…>?",
        ),
        (
            "SELECT CAST(NULL AS struct<a: decimal(9, 2) NOT NULL, b array<struct<text: text>>>) AS x FROM t",
            "line 1, column 76: CAST AS text: it is not a Spark type; did you mean STRING?",
        ),
        ("SELECT id FROM t WHERE city = NULL", "city = NULL is never true; write IS NULL or IS NOT NULL"),
        ("SELECT NULL <> city AS x FROM t", "NULL <> city is never true; write IS NULL or IS NOT NULL"),
        (
            "SELECT id FROM t WHERE \"City\" = 'Oslo'",
            (
                'line 1, column 24: "City" is a string in Spark; write city or `city` for the column, '
                "or 'city' for the string"
            ),
        ),
        (
            "SELECT city + ', ' + city AS x FROM t",
            "city + ', ': + adds numbers, but ', ' is a string; join strings with || or concat(…)",
        ),
        ("SELECT at + 1 AS x FROM t", "at + 1: at is timestamp[us, UTC]; write an interval: INTERVAL 1 DAY"),
        ("SELECT tags * 2 AS x FROM t", "tags * 2: tags is list<int64>, which has no arithmetic"),
        ("SELECT 1 + (paid) AS x FROM t", "1 + (paid): paid is bool, which has no arithmetic"),
        ("SELECT id FROM t WHERE (id)", "WHERE (id): the condition is int64, not boolean; compare it with a value"),
    ],
)
def test_a_likely_mistake_is_refused_with_a_correction(sql: str, message: str) -> None:
    with pytest.raises(SqlProblem) as raised:
        check_mistakes(sql, COLUMNS)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CAST(id AS varchar(3)) AS a, CAST(id AS DECIMAL(10, 2)) AS b, id::string AS c FROM t",
        "SELECT CAST(tags AS ARRAY<STRUCT<text: INT>>) AS a, CAST(id AS INTERVAL DAY) AS b FROM t",
        "SELECT id AS text, city AS bool FROM t",
        "SELECT id FROM t WHERE city <=> NULL OR city IN ('a', NULL)",
        'SELECT id FROM t WHERE city = "Oslo"',
        "SELECT city || ', ' AS a, id + '1' AS b, day + 1 AS c, at + INTERVAL 1 DAY AS d, 'NaN' + id AS e FROM t",
        "SELECT id FROM t WHERE paid",
        "SELECT id FROM t WHERE city",
        "SELECT id FROM t WHERE computed + 1 > 2",
        "SELECT transform(tags, paid_ -> paid_ + 1) AS x FROM t",
    ],
)
def test_correct_sql_is_accepted(sql: str) -> None:
    check_mistakes(sql, COLUMNS)


def test_a_condition_is_checked_as_well() -> None:
    with wording.raises(SqlProblem):
        check_condition("city = NULL", "t", COLUMNS)

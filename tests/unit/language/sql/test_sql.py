"""A sql operator is one row-wise, deterministic SELECT; Spark gets the user's text with only columns qualified."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from milepost.language.sql.plan import Exploded, SqlPlan
from milepost.language.sql.sql import sql_plan
from milepost.language.sql.sql_parse import SqlProblem
from milepost_testkit import wording

COLUMNS = ["year", "month", "day", "hour", "carrier", "dep_delay", "time_hour", "date", "user", "s", "arr", "c d"]

REFUSED = yaml.safe_load((Path(__file__).parent / "golden" / "refused.yaml").read_text(encoding="utf-8"))


def plan(sql: str) -> SqlPlan:
    return sql_plan(sql, "flights", COLUMNS, qualify="n_flights")


def test_a_star_is_every_input_column_in_order() -> None:
    result = plan("SELECT * FROM flights WHERE dep_delay IS NOT NULL")
    assert result.columns == tuple((c, f"`n_flights`.`{c}`") for c in COLUMNS)
    assert result.filter_sql == "`n_flights`.`dep_delay` IS NOT NULL"
    assert result.passthrough == {c: c for c in COLUMNS}
    assert plan("SELECT f.* FROM flights f").columns == result.columns


def test_columns_match_without_regard_to_case_and_keep_their_own_names() -> None:
    result = plan("SELECT F.Carrier, DEP_DELAY AS late, `C D` FROM Flights f")
    assert result.columns == (
        ("carrier", "`n_flights`.`Carrier`"),
        ("late", "`n_flights`.`DEP_DELAY`"),
        ("c d", "`n_flights`.`C D`"),
    )
    assert result.passthrough == {"carrier": "carrier", "late": "dep_delay", "c d": "c d"}


def test_an_explode_is_separated_from_the_other_columns() -> None:
    result = plan("SELECT hour, explode(filter(arr, x -> x > hour)) AS `an item`, day FROM flights WHERE day > 1")
    assert result.columns == (("hour", "`n_flights`.`hour`"), ("an item", "`__item`"), ("day", "`n_flights`.`day`"))
    assert result.exploded == Exploded("an item", "filter(`n_flights`.`arr`, x -> x > `n_flights`.`hour`)", None)
    assert plan("SELECT Explode(f.ARR) e FROM flights f").exploded == Exploded("e", "`n_flights`.`ARR`", "arr")
    assert plan("SELECT s.explode AS e FROM flights").exploded is None


def test_without_a_qualifier_columns_are_not_qualified() -> None:
    assert sql_plan("SELECT a + 1 AS b FROM t", "t", ["a"]).columns == (("b", "`a` + 1"),)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("nvl(month, 3)", "nvl(`n_flights`.`month`, 3)"),
        ("luhn_check(hour)[0].x", "luhn_check(`n_flights`.`hour`)[0].x"),
        ("dep_delay/2", "`n_flights`.`dep_delay`/2"),
        ("year::bigint", "`n_flights`.`year`::bigint"),
        ("date_add(date, 1)", "date_add(`n_flights`.`date`, 1)"),
        ("hour(time_hour)", "hour(`n_flights`.`time_hour`)"),
        ("datediff(DAY, date, time_hour)", "datediff(DAY, `n_flights`.`date`, `n_flights`.`time_hour`)"),
        ("extract(year FROM date)", "extract(year FROM `n_flights`.`date`)"),
        ("s.q.r.t.u.v", "`n_flights`.`s`.q.r.t.u.v"),
        ("flights.s.q", "`n_flights`.`s`.q"),
        ("transform(arr, x -> x + hour)", "transform(`n_flights`.`arr`, x -> x + `n_flights`.`hour`)"),
        ("filter(arr, (e, I) -> E.hour > i)", "filter(`n_flights`.`arr`, (e, I) -> E.hour > i)"),
        (
            "exists(arr, x -> exists(x, y -> X = Y + day))",
            "exists(`n_flights`.`arr`, x -> exists(x, y -> X = Y + `n_flights`.`day`))",
        ),
        ("timestampadd(HOUR, hour, date)", "timestampadd(HOUR, `n_flights`.`hour`, `n_flights`.`date`)"),
        ("array(hour)[0]", "array(`n_flights`.`hour`)[0]"),
        ("CAST(hour AS decimal(10, 2))", "CAST(`n_flights`.`hour` AS decimal(10, 2))"),
        ("struct(Hour, day AS D).hour", "struct(`n_flights`.`Hour`, `n_flights`.`day` AS D).hour"),
        ("carrier LIKE ANY ('a', 'b')", "`n_flights`.`carrier` LIKE ANY ('a', 'b')"),
        ("hour IS DISTINCT FROM day", "`n_flights`.`hour` IS DISTINCT FROM `n_flights`.`day`"),
        ("CASE WHEN hour THEN 'a, FROM' ELSE \"b\" END", "CASE WHEN `n_flights`.`hour` THEN 'a, FROM' ELSE \"b\" END"),
        ("named_struct('hour', hour).hour", "named_struct('hour', `n_flights`.`hour`).hour"),
        ("date '2013-01-01' + interval 1 day", "date '2013-01-01' + interval 1 day"),
        ("hour -- FROM here, WHERE\n + 1", "`n_flights`.`hour` -- FROM here, WHERE\n + 1"),
        ("'it''s' || carrier", "'it''s' || `n_flights`.`carrier`"),
    ],
)  # fmt: skip
def test_an_expression_keeps_its_text_and_only_columns_are_qualified(expression: str, expected: str) -> None:
    """Functions that sqlglot does not know, or would generate differently, are passed unchanged."""
    result = plan(f"SELECT {expression} AS x, day FROM flights WHERE {expression} IS NOT NULL -- end")
    assert result.columns == (("x", expected), ("day", "`n_flights`.`day`"))
    assert result.filter_sql == f"{expected} IS NOT NULL"
    assert "x" not in result.passthrough


@pytest.mark.long
@pytest.mark.parametrize(("sql", "problem"), REFUSED.items())
def test_sql_that_is_not_row_wise_or_not_deterministic_is_refused(sql: str, problem: str) -> None:
    """DESIGN 8.1, I12: an epoch that runs again must produce the same rows."""
    with pytest.raises(SqlProblem) as caught:
        plan(sql)
    assert str(caught.value) == problem


def test_a_problem_has_line_and_column_in_the_sql() -> None:
    with pytest.raises(SqlProblem) as caught:
        plan("SELECT hour,\n   nope FROM flights")
    assert (caught.value.line, caught.value.column) == (2, 4)
    with pytest.raises(SqlProblem) as caught:
        plan("SELECT hour,\n day day day FROM flights")
    assert caught.value.line == 2


def test_unix_timestamp_of_a_column_and_columns_named_like_functions_are_accepted() -> None:
    sql = "SELECT unix_timestamp(time_hour) AS u, user, date FROM flights"
    assert [name for name, _ in plan(sql).columns] == ["u", "user", "date"]


_NAMES = st.sampled_from(COLUMNS)
_LITERALS = st.one_of(st.integers(0, 99).map(str), st.sampled_from(["'a, b'", "'FROM'", "'it''s'", "NULL", '"q"']))
_EXPRESSIONS = st.recursive(
    st.one_of(_NAMES.map(lambda name: ("col", name)), _LITERALS.map(lambda text: ("lit", text))),
    lambda inner: st.one_of(
        st.tuples(st.just("bin"), st.sampled_from([" + ", "-", " AND ", " IS DISTINCT FROM ", "||"]), inner, inner),
        st.tuples(st.just("call"), st.sampled_from(["nvl", "luhn_check", "Greatest", "st_setsrid"]), inner, inner),
        st.tuples(st.just("case"), inner, inner),
    ),
    max_leaves=6,
)


def _render(node: tuple, column: str) -> str:
    match node:
        case ("col", name):
            return column.format(f"`{name}`")
        case ("lit", text):
            return text
        case ("bin", operator, left, right):
            return f"({_render(left, column)}{operator}{_render(right, column)})"
        case ("call", name, *arguments):
            return f"{name}({', '.join(_render(a, column) for a in arguments)})"
        case ("case", test, value):
            return f"CASE WHEN {_render(test, column)} THEN {_render(value, column)} END"
    raise AssertionError(node)


@given(st.lists(_EXPRESSIONS, min_size=1, max_size=3), st.one_of(st.none(), _EXPRESSIONS))
def test_splitting_a_select_changes_only_the_qualifiers(items: list[tuple], condition: tuple | None) -> None:
    select = ", ".join(f"{_render(item, '{}')} AS x{i}" for i, item in enumerate(items))
    where = f" WHERE {_render(condition, '{}')}" if condition else ""
    result = plan(f"SELECT {select} FROM flights{where}")
    assert [text for _, text in result.columns] == [_render(item, "`n_flights`.{}") for item in items]
    assert result.filter_sql == (_render(condition, "`n_flights`.{}") if condition else None)


@pytest.mark.parametrize("name", ["list", "`list`", "`array`"])
def test_a_column_that_looks_like_a_type_needs_parentheses(name: str) -> None:
    columns = ["list", "array"]
    with wording.raises(SqlProblem):
        sql_plan(f"SELECT {name}[0] AS x FROM t", "t", columns, qualify="n_t")
    text = sql_plan(f"SELECT ({name})[0] AS x FROM t", "t", columns, qualify="n_t").columns
    assert text == (("x", f"(`n_t`.`{name.strip('`')}`)[0]"),)


@pytest.mark.parametrize(("sql", "word"), [("SELEC * FROM t", "SELEC"), ("  slect a FROM t", "slect"), ("a", "a")])
def test_an_unknown_first_word_is_reported(sql: str, word: str) -> None:
    with wording.raises(SqlProblem) as caught:
        plan(sql)
    assert word in str(caught.value)
    assert (caught.value.line, caught.value.column) == (1, sql.index(word) + 1)

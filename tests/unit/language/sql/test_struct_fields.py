"""`lint` refuses a field that a struct does not have, before Spark would at run time."""

from __future__ import annotations

import pytest

from milepost.language.sql.condition import check_condition
from milepost.language.sql.sql_parse import SqlProblem
from milepost.language.sql.struct_fields import check_fields
from milepost.language.types import parse_type
from milepost_testkit import wording

COLUMNS = {
    "id": parse_type("int64"),
    "name": parse_type("string"),
    "user": parse_type("struct<id: int64, home: struct<city: string, Zip: string>, tags: list<string>>"),
    "items": parse_type("list<struct<article: string, price: float64, parts: list<struct<n: int64>>>>"),
    "computed": None,
}


@pytest.mark.parametrize(
    "expression",
    [
        "user.id",
        "t.user.home.city",
        "USER.Home.zip",
        "(user).home.city",
        "user.tags[0]",
        "items.price",
        "items.parts",
        "items[0].article",
        "items[0].parts[1].n",
        "filter(items, x -> x.price > 1 AND user.id > 0)",
        "transform(items, (x, i) -> x.parts[i].n)",
        "exists(items, item -> exists(item.parts, part -> part.n = id))",
        "transform(items, x -> x.price)[0]",
        "computed.whatever.it.has",
        "reduce(items, 0D, (sum, x) -> sum + x.price)",
        "from_json(name, 'a INT').a",
        "named_struct('a', id).a",
        "count_if",
    ],
)
def test_existing_or_unknown_fields_are_accepted(expression: str) -> None:
    columns = COLUMNS | {"count_if": parse_type("int64")}
    check_fields(f"SELECT {expression} AS q FROM t", "t", columns)
    check_fields(f"SELECT id FROM orders t WHERE {expression} IS NOT NULL", "orders", columns)


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("user.ids", "ids"),
        ("t.user.home.town", "town"),
        ("(user).hom.city", "hom"),
        ("user.home.city.x", "x"),
        ("id.x", "x"),
        ("user.tags.x", "x"),
        ("items.prize", "prize"),
        ("items[0].parts[1].m", "m"),
        ("filter(items, x -> x.prise > 1)", "prise"),
        ("exists(items, i -> exists(i.parts, p -> p.m = 1))", "m"),
    ],
)
def test_a_missing_field_is_refused_with_position_and_suggestion(expression: str, field: str) -> None:
    with wording.raises(SqlProblem) as raised:
        check_fields(f"SELECT\n  {expression} AS q FROM t", "t", COLUMNS)
    assert str(expression.rindex(field) + 3) in str(raised.value)


def test_the_fields_of_a_condition_are_checked() -> None:
    with wording.raises(SqlProblem):
        check_condition("user.idd = 3", "changes", COLUMNS)

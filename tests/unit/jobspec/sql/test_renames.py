"""`renamed`: former names of statements and common table expressions."""

from __future__ import annotations

import pytest

from milepost.jobspec.sql import first_name, former_uid, former_uids, rename_problems

UIDS = ("c", "c__agg", "d", "d__recent__agg")


@pytest.mark.parametrize(
    ("renamed", "problem"),
    [
        ({"c": "b"}, ""),
        ({"c": "b", "b": "a"}, ""),
        ({"d.recent": "d.newest"}, ""),
        ({"d.recent": "d.newest", "d.newest": "d.last"}, ""),
        ({"d": "b", "b.recent": "b.newest"}, ""),
        ({"d": "b", "d.recent": "b.newest"}, ""),
        ({"x": "a"}, "there is no statement x"),
        ({"c": "b", "x": "a"}, "there is no statement x"),
        ({"c": "d"}, "d is in the SQL file, and continues its own state"),
        ({"c": "a", "d": "a"}, "c already continues the state of a"),
        ({"c": "d.recent"}, "a statement was a statement, and statement.name a common table expression"),
        ({"d.last": "d.newest"}, "statement d has no step of last"),
        ({"b.last": "b.newest"}, "there is no statement b"),
    ],
)
def test_a_former_name_belongs_to_one_query_that_is_in_the_file(renamed: dict[str, str], problem: str) -> None:
    problems = [one.message for one in rename_problems(renamed, ["c", "d"], UIDS)]
    assert problems == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("step", "former"),
    [
        ("left_from_c", "left_from_b"),
        ("value_from_scalar_c", "value_from_scalar_b"),
        ("join_from_in_c", "join_from_in_b"),
        ("union_c_2", "union_b_2"),
        ("from_query_recent", "from_query_newest"),
        ("rows", "rows"),
        ("top_in", "top_in"),
    ],
)
def test_each_step_that_is_named_by_a_relation_has_its_former_name(step: str, former: str) -> None:
    renamed = {"c": "b", "d.recent": "d.newest", "rows": "lines", "top": "best"}
    assert former_uid(f"d__{step}", renamed) == f"d__{former}"


def test_a_table_has_the_first_name_and_state_the_former_one() -> None:
    renamed = {"c": "b", "b": "a", "d.recent": "d.newest"}
    assert [first_name(name, renamed) for name in ("c", "d")] == ["a", "d"]
    assert [former_uid(uid, renamed) for uid in (*UIDS, "d__join_c", "d__join_from_recent")] == [
        "b", "b__agg", "d", "d__newest__agg", "d__join_b", "d__join_from_newest",
    ]  # fmt: skip
    twice = {"d": "b", "b.recent": "b.newest", "b.newest": "b.last"}
    assert former_uids(UIDS[3], twice) == [
        "b__recent__agg", "b__newest__agg", "b__last__agg",
    ]  # fmt: skip
    assert former_uids("c__join_d", {"c": "b", "d": "a"}) == ["b__join_a", "b__join_d", "c__join_a"]
    assert first_name("x", {"x": "y", "y": "x"}) == "y", "a circle ends"

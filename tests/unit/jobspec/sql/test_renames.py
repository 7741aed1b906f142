"""`renamed`: former names of statements and common table expressions."""

from __future__ import annotations

import pytest

from milepost.jobspec.sql import first_name, former_uid, rename_problems

UIDS = ("c", "c__agg", "d", "d__recent__agg")


@pytest.mark.parametrize(
    ("renamed", "problem"),
    [
        ({"c": "b"}, ""),
        ({"c": "b", "b": "a"}, ""),
        ({"d.recent": "d.newest"}, ""),
        ({"x": "a"}, "there is no statement x"),
        ({"c": "b", "x": "a"}, "there is no statement x"),
        ({"c": "d"}, "d is in the SQL file, and continues its own state"),
        ({"c": "a", "d": "a"}, "c already continues the state of a"),
        ({"c": "d.recent"}, "a statement was a statement, and statement.name a common table expression"),
        ({"d.last": "d.newest"}, "statement d has no step of last"),
    ],
)
def test_a_former_name_belongs_to_one_query_that_is_in_the_file(renamed: dict[str, str], problem: str) -> None:
    problems = [one.message for one in rename_problems(renamed, ["c", "d"], UIDS)]
    assert problems == ([problem] if problem else [])


def test_a_table_has_the_first_name_and_state_the_former_one() -> None:
    renamed = {"c": "b", "b": "a", "d.recent": "d.newest"}
    assert [first_name(name, renamed) for name in ("c", "d")] == ["a", "d"]
    assert [former_uid(uid, renamed) for uid in (*UIDS, "d__join_c", "d__join_from_recent")] == [
        "b", "b__agg", "d", "d__newest__agg", "d__join_b", "d__join_from_newest",
    ]  # fmt: skip
    assert first_name("x", {"x": "y", "y": "x"}) == "y", "a circle ends"

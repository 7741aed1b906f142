"""A UNION ALL is split into its SELECTs, each at its position in the text."""

from __future__ import annotations

import pytest

from milepost.language.sql.sql_parse import SqlProblem
from milepost.language.sql.union import Branch, branches
from milepost_testkit import wording


def test_without_union_the_only_select_is_the_whole_text() -> None:
    text = "SELECT 'UNION ALL' AS a, `union` FROM t -- UNION ALL SELECT"
    assert branches(text, ["t"]) == (Branch("t", text),)


def test_each_select_keeps_its_position_in_the_whole_sql() -> None:
    text = "SELECT a FROM t\nUNION /* of */ ALL\n SELECT b FROM u\nunion all SELECT c FROM T"
    selects = branches(text, ["t", "u"])
    assert [select.input for select in selects] == ["t", "u", "t"]
    assert selects[0].sql == "SELECT a FROM t\n"
    assert selects[1].sql == "               \n                  \n SELECT b FROM u\n"
    assert selects[2].sql.lstrip() == "SELECT c FROM T" and selects[2].sql.count("\n") == 3


def test_expressions_of_a_second_select_need_no_name() -> None:
    """The first SELECT names the columns, so only its expressions need names."""
    first, second = branches("SELECT a + 1 AS b, a FROM t UNION ALL SELECT a, -a FROM t", ["t"])
    assert [name for name, _ in first.plan(["a"]).columns] == ["b", "a"]
    assert second.plan(["a"], "n_t").columns == (("a", "`n_t`.`a`"), ("(2)", "-`n_t`.`a`"))
    with wording.raises(SqlProblem):
        branches("SELECT a + 1 FROM t UNION ALL SELECT a AS b FROM t", ["t"])[0].plan(["a"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT a FROM t UNION SELECT a FROM u", "line 1, column 17: UNION without ALL compares rows with other rows"),
        ("SELECT a FROM t UNION DISTINCT SELECT a FROM u", "line 1, column 17: UNION without ALL"),
        ("SELECT a FROM t\nUNION ALL BY NAME SELECT a FROM u", "line 2, column 1: `UNION ALL BY NAME` is not"),
        ("(SELECT a FROM t) UNION ALL SELECT a FROM u", "parentheses around a SELECT are not available"),
        ("SELECT a FROM t UNION ALL (SELECT a FROM u)", "parentheses around a SELECT are not available"),
        ("SELECT a FROM t UNION ALL SELECT a FROM t", "no SELECT reads the input u"),
        ("SELECT a FROM t UNION ALL SELECT a FROM v", "FROM v: the operator's inputs are t, u"),
        ("SELECT a FROM t UNION ALL", "expected one SELECT"),
    ],
)
def test_anything_but_a_union_of_selects_over_the_inputs_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SqlProblem) as caught:
        branches(text, ["t", "u"])
    assert problem in str(caught.value)

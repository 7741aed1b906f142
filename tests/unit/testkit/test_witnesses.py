"""Witnesses of tables must see a state that was never published, one that came too late, and a missing end."""

from __future__ import annotations

import pyarrow as pa
import pytest

from milepost_testkit.readers.reading_engines import Where
from milepost_testkit.readers.witnesses import assert_in_order, kept_rows
from milepost_testkit.rows.tables import fingerprint

PUBLISHED = ["a", "b", "c", "b", "c"]
"""Back once, and forward again."""


@pytest.mark.parametrize("seen", [["c"], ["b", "c"], ["a", "b", "c", "b", "c"], ["a", "c", "b", "c"], ["c", "b", "c"]])
def test_states_in_the_order_in_which_they_were_published_pass(seen: list[str]) -> None:
    assert_in_order("table", seen, PUBLISHED)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (["a", "mixture", "c"], "never published"),
        (["b", "a", "c"], "in order"),
        (["c", "b", "c", "b", "c"], "in order"),
        (["a", "b"], "last"),
        ([], "last"),
    ],
)
def test_a_mixture_a_step_back_and_a_missing_end_are_reported(seen: list[str], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        assert_in_order("table", seen, PUBLISHED)


def test_a_fingerprint_is_of_all_rows_and_columns_whatever_their_order() -> None:
    table = pa.table({"k": [1, 2, None], "v": ["a", "b", "b"], "f": [0.1, None, 0.3]})
    known = fingerprint(table)
    assert fingerprint(table.take([2, 0, 1]).select(["f", "v", "k"])) == known
    others = [
        table.slice(1),
        pa.concat_tables([table, table.slice(2)]),
        table.drop_columns(["f"]),
        table.set_column(2, "f", pa.array([0.1 + 2**-55, None, 0.3])),
    ]
    assert known not in {fingerprint(other) for other in others}


@pytest.mark.parametrize(
    ("where", "kept"),
    [(("v", "=", "b"), [2]), (("k", ">", "1"), [2]), (("at", ">=", "1970-01-01 00:00:01+00:00"), [2])],
)
def test_a_filter_keeps_what_it_says(where: Where, kept: list[int]) -> None:
    rows = pa.table({"k": [1, 2], "v": ["a", "b"], "at": [999_999, 1_000_000]})
    assert kept_rows(rows, where).column("k").to_pylist() == kept

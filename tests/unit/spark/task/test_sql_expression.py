"""The wide frame's columns have names that Spark resolves, whatever of a node they carry."""

from __future__ import annotations

from milepost.spark.task.row_steps.sql_expression import column_of


def test_a_part_of_a_node_has_a_column_without_a_dot_that_no_node_has() -> None:
    """Spark takes `n_visits.bad` for a field of `n_visits` where it plans a Python stage."""
    names = ("visits", "visits.bad", "visits.late", "visits_bad")
    columns = [column_of(name) for name in names]
    assert len(set(columns)) == len(names) and not any("." in column for column in columns)

"""A SELECT means what it says: nothing in it fails in the run only, or is taken for something else, by Spark."""

from __future__ import annotations

from collections.abc import Mapping

from milepost.spec.sql.diagnostics import check_mistakes
from milepost.spec.sql.nondeterminism import check_nondeterminism
from milepost.spec.sql.struct_fields import check_fields
from milepost.spec.values.types import ColumnType


def check_semantics(sql: str, input_name: str, columns: Mapping[str, ColumnType | None]) -> None:
    """Check a SELECT of one input beyond its syntax and its names.

    Args:
        columns: as of `check_nondeterminism`; empty: none is known.
    Raises:
        SqlProblem: says what is wrong, and what to write.
    """
    check_mistakes(sql, columns)
    check_fields(sql, input_name, columns)
    check_nondeterminism(sql, input_name, columns)

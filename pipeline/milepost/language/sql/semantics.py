"""Check a SELECT for what Spark would reject or misread only when it runs."""

from __future__ import annotations

from collections.abc import Mapping

from milepost.language.sql.diagnostics import check_mistakes
from milepost.language.sql.nondeterminism import check_nondeterminism
from milepost.language.sql.struct_fields import check_fields
from milepost.language.types import ColumnType


def check_semantics(sql: str, input_name: str, columns: Mapping[str, ColumnType | None]) -> None:
    """Check a SELECT of one input beyond its syntax and its names.

    Args:
        columns: as for `check_nondeterminism`; empty if they are not known.
    Raises:
        SqlProblem: with what to write instead.
    """
    check_mistakes(sql, columns)
    check_fields(sql, input_name, columns)
    check_nondeterminism(sql, input_name, columns)

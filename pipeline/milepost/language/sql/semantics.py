"""Check a SELECT for what Spark would reject or misread only when it runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from milepost.language.sql.diagnostics import check_mistakes
from milepost.language.sql.nondeterminism import check_nondeterminism
from milepost.language.sql.sql_parse import CACHED_TEXTS
from milepost.language.sql.struct_fields import check_fields
from milepost.language.types import ColumnType


def check_semantics(sql: str, input_name: str, columns: Mapping[str, ColumnType | None]) -> None:
    """Check a SELECT of one input beyond its syntax and its names.

    Args:
        columns: as for `check_nondeterminism`; empty if they are not known.
    Raises:
        SqlProblem: with what to write instead.
    """
    _check(sql, input_name, tuple(columns.items()))


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _check(sql: str, input_name: str, named_types: tuple[tuple[str, ColumnType | None], ...]) -> None:
    """Compiler, graph and reports check the same SELECT: only the first check takes time. An error is found again."""
    columns = dict(named_types)
    check_mistakes(sql, columns)
    check_fields(sql, input_name, columns)
    check_nondeterminism(sql, input_name, columns)

"""Check sources that are tables of a database: how they are reached, and their columns."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.jobspec.job.sources.postgres_source import NEEDED_METADATA, PostgresSourceSpec
from milepost.language import ColumnType, Path, Problem, did_you_mean


def table_problems(path: Path, source: PostgresSourceSpec) -> Iterator[Problem]:
    """Yield what a source that is a table of Postgres cannot have."""
    if (source.dsn is None) == (source.conn_id is None):
        needs_one = "format: postgres needs `dsn` or `conn_id`"
        message = needs_one if source.dsn is None else "`conn_id` already determines it; remove one of them"
        yield Problem(path if source.dsn is None else (*path, "dsn"), message)
    for name, type_ in source.table_columns.items():
        problem = _type_problem(type_)
        if problem is not None:
            yield Problem((*path, "schema", name), problem)
    for at, name in enumerate(source.key):
        if name not in source.table_columns:
            message = f"the schema has no column {name}; {did_you_mean(name, source.table_columns)}"
            yield Problem((*path, "key", at), message)
        elif name in source.key[:at]:
            yield Problem((*path, "key", at), f"{name} occurs twice")
    for item in NEEDED_METADATA:
        if item not in source.metadata.values():
            message = f"a column for {item} is missing: a feed of changes needs {', '.join(NEEDED_METADATA)}"
            yield Problem((*path, "metadata"), message)


def _type_problem(type_: ColumnType) -> str | None:
    if type_.is_nested:
        return "arrays and composite types are landed as text: declare a string"
    if type_.kind == "timestamp" and type_.unit != "us":
        return f"times of Postgres have microseconds: declare timestamp[us{', UTC' if type_.utc else ''}]"
    return None

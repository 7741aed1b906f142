"""The statements of a SQL file of the examples."""

from __future__ import annotations


def statements(text: str) -> dict[str, str]:
    """Return the CREATE statements of a file by the name of what they create. No literal has a semicolon."""
    runs = [run.strip() for run in text.split(";")]
    created = [run[run.index("CREATE") :] for run in runs if "CREATE" in run]
    return {one.split()[3]: one for one in created}


def query_of(statement: str) -> str:
    """Return the SELECT of a CREATE statement."""
    return statement[statement.index(" AS\n") + len(" AS\n") :]

"""Expected results of a small job: DuckDB queries over landed CSV files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb

Rows = list[tuple[Any, ...]]


class LandedRows:
    """Rows of the columns k and v, by the name of their object.

    Args:
        landings: the folders that may contain an object.
    """

    def __init__(self, landings: Sequence[Path]) -> None:
        self._landings = landings
        self._duckdb = duckdb.connect(config={"threads": 1})
        self._duckdb.execute("create table landed (name varchar, k bigint, v varchar)")
        self._loaded: set[str] = set()
        self._answers: dict[tuple[str, tuple[str, ...]], Rows] = {}

    def per_key(self, names: Iterable[str], rule: str) -> Rows:
        """Return an aggregate over the rows of these objects, by key."""
        return self._query(f"select k, ({rule})::bigint from {{}} group by k order by k", names)

    def distinct(self, names: Iterable[str]) -> Rows:
        """Return the distinct rows of these objects, in order."""
        return self._query("select distinct k, v from {} order by k, v", names)

    def _query(self, sql: str, names: Iterable[str]) -> Rows:
        wanted = tuple(sorted(names))
        for name in {*wanted} - self._loaded:
            self._loaded.add(name)
            path = next(str(folder / name) for folder in self._landings if (folder / name).is_file())
            source = "read_csv(?, header = true, columns = {'k': 'BIGINT', 'v': 'VARCHAR'})"
            self._duckdb.execute(f"insert into landed select ?, * from {source}", [name, path])
        if (sql, wanted) not in self._answers:  # landed objects never change
            source = "(select k, v from landed where name in (select unnest(?)))"
            self._answers[sql, wanted] = self._duckdb.execute(sql.format(source), [[*wanted]]).fetchall()
        return self._answers[sql, wanted]

"""The process that runs one reader's code, as the page of a table shows it, and prints the rows as JSON.

The request is one JSON document on stdin: `engine`, `code`, and `more`, a folder of libraries that the environment
lacks. Python code assigns `rows`; SQL is DuckDB's.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def rows_of(engine: str, code: str) -> list[dict[str, Any]]:
    if engine == "DuckDB":
        import duckdb
        from reading_process import connected

        connection = connected()
        if not code.startswith("import "):
            found = connection.execute(code)
            return found.to_arrow_table().to_pylist()
        duckdb.sql = connection.sql  # type: ignore[assignment]
    names: dict[str, Any] = {}
    exec(code, names)
    rows = names["rows"]
    if engine == "Polars":
        return list(rows.to_dicts())
    return list(rows.to_arrow_table().to_pylist() if engine == "DuckDB" else rows.to_dict("records"))


if __name__ == "__main__":
    request = json.load(sys.stdin)
    sys.path.append(request["more"])
    print(json.dumps(rows_of(request["engine"], request["code"]), default=str))

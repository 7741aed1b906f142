"""The SQL that the how-to's show compiles to the operators that they show as YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.jobspec.load.explain_sql import explained_statements
from milepost.jobspec.load.load import from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost_testkit.processes.processes import REPOSITORY

HOW_TO = REPOSITORY / "docs" / "how-to"
EXAMPLES = REPOSITORY / "pipeline" / "milepost" / "cli" / "workspace" / "examples"
ORDERS = {"order_id": "int64", "customer": "int64", "amount": "decimal(12,2)", "ordered_at": "timestamp[us, UTC]"}
CUSTOMER_CHANGES = {
    "customer_id": "int64",
    "city": "string",
    "segment": "string",
    "op": "string",
    "changed_at": "timestamp[us, UTC]",
}
SALE_CHANGES = {"id": "int64", "seller": "string", "price": "decimal(12,2)", "sold_at": "date", "op": "string",
                "changed_at": "timestamp[us, UTC]"}  # fmt: skip
SALES = {"uid": "sales", "kind": "latest", "inputs": ["sale_changes"], "key": ["id"], "sequence_by": ["changed_at"],
         "delete_when": "op = 'D'"}  # fmt: skip
OPERATORS = {"over": [SALES]}
"""Per page: operators of the spec that its statements read."""

VISITS = {"city": "string", "visitor": "string", "minutes": "int32", "at": "timestamp[us, UTC]"}


def source(columns: dict[str, str], event_time: str | None = None) -> dict[str, Any]:
    timed = {} if event_time is None else {"event_time": event_time}
    return {"format": "csv", "path": "landing/*.csv", "schema": columns, **timed}


def of_example(name: str) -> dict[str, Any]:
    """Return the sources of an example of `milepost init`."""
    sources: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text("utf-8"))["sources"]
    return sources


def of_page(name: str) -> dict[str, Any]:
    """Return the sources of the first spec on a page."""
    text = (HOW_TO / f"{name}.md").read_text("utf-8")
    spec = next(block for block in re.findall(r"```(?:yaml|console)\n(.*?)```", text, re.S) if "\nsources:" in block)
    sources: dict[str, Any] = yaml.safe_load(spec[spec.index("\nname:") if "$" in spec[:2] else 0 :])["sources"]
    return sources


PAGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "aggregates": ({"visits": source(VISITS, "at")}, ["aggregate", "aggregate"]),
    "asof": (of_example("sensors"), ["asof"]),
    "chain-two-jobs": (of_page("read-tables"), ["aggregate"]),
    "change-feed": (of_example("orders"), ["latest"]),
    "history": ({"changes": source(CUSTOMER_CHANGES)}, ["history"]),
    "join": (of_example("join"), ["join", "join"]),
    "join-tables": (
        {
            "orders": source(ORDERS, "ordered_at"),
            "customers": source({"id": "int64", "city": "string", "lsn": "int64", "op": "string"}),
        },
        ["latest", "latest", "join", "materialize"],
    ),
    "land-a-source": (of_page("land-a-source"), ["aggregate"]),
    "land-with-dlt": (of_page("land-with-dlt"), ["latest"]),
    "lookup": (of_example("lookup"), ["lookup"]),
    "materialize": ({"orders": source(ORDERS, "ordered_at")}, ["top"]),
    "over": ({"sale_changes": source(SALE_CHANGES)}, ["over"]),
    "read-postgres": (of_page("read-postgres"), ["latest"]),
    "read-tables": (of_page("read-tables"), ["aggregate"]),
    "replicate-with-debezium": (of_page("replicate-with-debezium"), ["latest"]),
    "sessions": (of_example("sessions"), ["window", "window"]),
    "sql": (
        {
            "orders": source({"id": "int64", **ORDERS}, "ordered_at"),
            "payments": source(
                {"order_id": "int64", "paid": "decimal(12,2)", "paid_at": "timestamp[us, UTC]"}, "paid_at"
            ),
            "order_changes": source({"id": "int64", "changed_at": "timestamp[us, UTC]"}),
        },
        ["join", "aggregate", "latest", "top"],
    ),
    "start-from-files": (of_page("start-from-files"), ["latest"]),
    "top": (of_example("top"), ["window", "top"]),
}
"""Per page with SQL: its sources, and the operators with state or a list, in the order of the statements."""


def statements(page: str) -> str:
    """Return the statements of a page; a query of a table that was published is none."""
    shown = re.findall(r"```sql\n(.*?)```", (HOW_TO / f"{page}.md").read_text("utf-8"), re.S)
    return "\n".join(block for block in shown if block.startswith("CREATE"))


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_sql_of_a_how_to_compiles_to_the_operators_that_it_explains(page: str) -> None:
    sources, kinds = PAGES[page]
    spec = {"name": "shop", "storage": "store", "sources": sources, "sql": "shop.sql",
            "tables": {"format": "parquet", "path": "lake/{name}"}, "operators": OPERATORS.get(page, [])}  # fmt: skip
    job = from_text(yaml.safe_dump(spec, sort_keys=False), Path("shop.yaml"), SqlText.of("shop.sql", statements(page)))
    steps = [step["kind"] for one in explained_statements(job, job.graph()) for step in one["steps"]]
    assert [kind for kind in steps if kind != "sql"] == kinds


def test_each_how_to_of_an_operator_shows_sql() -> None:
    """The other pages with operators explain something else, or an operator that SQL does not have."""
    with_operators = {
        page.stem for page in HOW_TO.glob("*.md") if re.search(r"^operators:$", page.read_text("utf-8"), re.M)
    }
    assert with_operators - PAGES.keys() == set()

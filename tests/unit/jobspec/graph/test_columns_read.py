"""Which columns of a node's rows are read downstream."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.jobspec.graph.read_columns import columns_read
from milepost.jobspec.job.spec import JobSpec
from milepost_testkit.specs.graphs import build_graph

ROWS = {"format": "csv", "path": "in/*.csv", "schema": {"at": "timestamp[us, UTC]", "k": "int32", "v": "string"}}
ROWS |= {"event_time": "at"}
NAMES = {"format": "csv", "path": "x/*", "schema": {"id": "int64", "name": "string", "more": "string"}, "static": True}
FOUND = {"uid": "found", "kind": "lookup", "inputs": ["rows", "names"], "key": [{"k": "id"}]}
EVERY = {"at", "k", "v", "name", "more"}


def read(*operators: dict[str, Any], sinks: tuple[dict[str, Any], ...] = (), uid: str = "found") -> set[str]:
    document = {"name": "job", "storage": "lake", "sources": {"rows": ROWS, "names": NAMES}}
    spec = JobSpec.model_validate({**document, "operators": [FOUND, *operators], "sinks": list(sinks)})
    return set(columns_read(spec, build_graph(spec), uid))


def behind(kind: str, **options: Any) -> dict[str, Any]:
    return {"uid": "behind", "kind": kind, "inputs": ["found"], **options}


def sql(text: str) -> dict[str, Any]:
    return behind("sql", sql=text)


WINDOW = behind("window", key=["name"], window={"tumbling": "1h"}, aggregates={"n": "count(*)"})


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (behind("aggregate", key=["name"], aggregates={"n": "count(k)"}), {"name", "k", "at"}),
        (WINDOW, {"name", "at"}),
        (behind("deduplicate", key=["name"]), EVERY),
        (behind("latest", key=["name"], sequence_by=["at"], columns=["name", "v"]), {"name", "at", "v"}),
        (behind("latest", key=["name"], sequence_by=["at"], columns=["name", "v"], delete_when="more = 'D'"), EVERY),
        (sql("SELECT upper(NAME) AS n, k FROM found WHERE more IS NOT NULL"), {"name", "k", "more"}),
        (sql("SELECT name FROM found UNION ALL SELECT v FROM found WHERE k > 1"), {"name", "v", "k"}),
        (sql("SELECT transform(array(v), x -> concat(x, more)) AS l FROM found"), {"v", "more"}),
        (sql("SELECT *, 1 AS one FROM found"), EVERY),
        (sql("SELECT 1 AS one FROM found"), EVERY),
    ],
    ids=lambda given: given.get("sql", given["kind"]) if isinstance(given, dict) else "",
)
def test_an_operator_reads_the_columns_it_names_and_the_event_time(
    operator: dict[str, Any], expected: set[str]
) -> None:
    """SQL that names no column reads all, because rows without columns cannot be counted."""
    assert read(operator) == expected


def test_a_sink_reads_all_columns_and_so_does_a_sink_of_late_rows() -> None:
    sink = {"format": "parquet", "path": "lake/x", "mode": "append"}
    assert read(sinks=({"name": "x", "input": "found", **sink},)) == EVERY
    assert read(WINDOW, sinks=({"name": "x", "input": "behind.late", **sink},)) == EVERY
    assert read() == EVERY, "nobody does: it is not known what for it is there"


def test_a_lookup_reads_its_key_and_the_columns_read_downstream() -> None:
    again = behind("lookup", key=[{"name": "name"}], columns={"other": "right.more"}) | {"inputs": ["found", "names"]}
    last = {"uid": "last", "kind": "aggregate", "inputs": ["behind"], "key": ["other"], "aggregates": {"n": "max(v)"}}
    assert read(again, last) == {"name", "v", "at"}
    assert read(again, last, uid="behind") == {"other", "v", "at"}
    assert read(again, last, WINDOW | {"uid": "w"}, sql("SELECT more AS m FROM found") | {"uid": "s"}) == {
        "name", "v", "at", "more"
    }  # fmt: skip

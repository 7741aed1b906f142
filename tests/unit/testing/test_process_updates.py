"""Rows of a process function with an output key replace each other: an upsert table has the last one of each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from milepost.testing.case_run import CaseResult
from milepost_testkit import wording
from milepost_testkit.specs.case_steps import Step, run_steps
from milepost_testkit.specs.spec_edits import edit_spec

SPEC = """\
name: stock
storage: s3://nobody/asks/for/it
sources:
  moves:
    {format: csv, path: "s3://landing/moves/*.csv", event_time: t,
     schema: {item: string, place: string, n: int64, t: "timestamp[us, UTC]"}}
operators:
  - {uid: stock, kind: process, inputs: [moves], key: [item], function: "ops:Stock", output_key: [item, place]}
sinks:
  - {name: stock, input: stock, format: FORMAT, path: s3://lake/stock, mode: upsert}
  - {name: changes, input: stock, format: parquet, path: s3://lake/changes, mode: changelog}
spark: {parallelism: 2}
"""
STOCK = """\
from datetime import timedelta


class Stock:
    state = {"places": "list<string>", "left": "list<int64>"}
    output = {"n": "int64", "place": "string", "item": "string"}

    def on_rows(self, key, rows, state, ctx):
        left = dict(zip(state["places"] or [], state["left"] or []))
        for row in rows.to_pylist():
            left[row["place"]] = left.get(row["place"], 0) + row["n"]
            yield {"item": key, "place": row["place"], "n": left[row["place"]]}
        state["places"], state["left"] = list(left), list(left.values())
        ctx.set_timer(rows.column("t").to_pylist()[-1] + timedelta(hours=1))

    def on_timer(self, key, time, state, ctx):
        for place in state["places"]:
            yield {"item": key, "place": place, "n": -1}
"""


@pytest.fixture(params=["parquet", "delta"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "stock.yaml").write_text(SPEC.replace("FORMAT", request.param))
    (tmp_path / "ops.py").write_text(STOCK)
    return tmp_path


def run(folder: Path, *steps: Step) -> CaseResult:
    return run_steps(folder / "stock.yaml", *steps)


def moves(*rows: tuple[str | None, str, int, int]) -> list[dict[str, Any]]:
    return [{"item": i, "place": p, "n": n, "t": f"2026-01-01T{m // 60:02}:{m % 60:02}:00Z"} for i, p, n, m in rows]


def stock(*rows: tuple[str | None, str, int]) -> list[dict[str, Any]]:
    return [{"item": item, "place": place, "n": n} for item, place, n in rows]


def epoch(rows: list[dict[str, Any]], **tables: Any) -> Step:
    return {"epoch": {"moves": rows}} | ({"expect": {"tables": tables}} if tables else {})


@pytest.mark.deep
def test_a_row_replaces_the_last_one_of_its_output_key_within_and_over_epochs(folder: Path) -> None:
    first = epoch(
        moves(("a", "x", 1, 1), ("a", "y", 2, 2), ("a", "x", 5, 3)),
        stock=stock(("a", "x", 6), ("a", "y", 2)),
        changes=[row | {"_op": "upsert"} for row in stock(("a", "x", 6), ("a", "y", 2))],
    )
    second = epoch(moves(("a", "x", 1, 4), ("b", "y", 1, 4)),
                   stock=stock(("a", "x", 7), ("a", "y", 2), ("b", "y", 1)))  # fmt: skip
    back = {"rollback": 1, "expect": {"tables": {"stock": stock(("a", "x", 6), ("a", "y", 2))}}}
    again = epoch([], stock=stock(("a", "x", 7), ("a", "y", 2), ("b", "y", 1)))
    assert run(folder, first, {"spec": {"parallelism: 2": "parallelism: 3"}}, second, back, again).faults == ()


@pytest.mark.deep
def test_rows_of_timers_come_after_those_of_rows(folder: Path) -> None:
    fired = epoch(moves(("a", "x", 1, 1), ("b", "x", 1, 200)), stock=stock(("a", "x", -1), ("b", "x", 1)))
    assert run(folder, fired).faults == ()


def test_a_batch_gives_the_last_row_of_each_key(folder: Path) -> None:
    (folder / "ops.py").write_text(
        """\
class Stock:
    output = {"item": "string", "place": "string", "n": "int64"}

    def on_batch(self, batch, state, ctx):
        return batch.select(["item", "place", "n"]), None
"""
    )
    given = moves(("a", "x", 1, 1), ("b", "x", 9, 1), ("a", "x", 2, 2))
    assert run(folder, epoch(given, stock=stock(("a", "x", 2), ("b", "x", 9)))).faults == ()


@pytest.mark.parametrize(
    "function",
    [
        "def on_rows(self, key, rows, state, ctx): yield {'item': 'z', 'place': '', 'n': 1}",
        "def on_batch(self, batch, state, ctx): return batch.drop_columns('t').set_column(0, 'item', [['z']]), None",
    ],
    ids=["on_rows", "on_batch"],
)
def test_a_row_of_another_key_is_refused(folder: Path, function: str) -> None:
    """Two subtasks would else have rows of one output key."""
    output = 'output = {"item": "string", "place": "string", "n": "int64"}'
    (folder / "ops.py").write_text(f"class Stock:\n    {output}\n    {function}\n")
    wording.matches("problems", run(folder, epoch(moves(("a", "x", 1, 1)))).faults[0])


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (("output_key: [item, place]", "output_key: [place]"), ["item"]),
        (("output_key: [item, place]", "output_key: [item, plaec]"), ["plaec", '"place"']),
        (("schema: {item: string", "schema: {item: int64"), ["item", "string", "int64"]),
    ],
    ids=["missing", "misspelt", "type"],
)
def test_an_output_key_that_is_none_is_refused(folder: Path, change: tuple[str, str], refused: list[str]) -> None:
    edit_spec(folder / "stock.yaml", dict([change]))
    fault = run(folder, epoch(moves(("1", "x", 1, 1)))).faults[0]
    assert all(one in fault for one in refused)
    wording.matches("problems", fault)


def test_rows_that_replace_each_other_feed_no_append_sink(folder: Path) -> None:
    edit_spec(folder / "stock.yaml", {"mode: upsert": "mode: append"})
    wording.matches("problems", run(folder, epoch([])).faults[0])


SOLD_OUT = (
    STOCK.replace(
        """            yield {"item": key, "place": row["place"], "n": left[row["place"]]}
""",
        """            if left[row["place"]]:
                yield {"item": key, "place": row["place"], "n": left[row["place"]]}
            else:
                ctx.delete(place=row["place"])
""",
    )
    .replace('yield {"item": key, "place": place, "n": -1}', "ctx.delete(place=place)")
    .replace("    def on_timer", "        yield from ()\n\n    def on_timer")
)


def test_a_retracted_row_is_deleted_until_it_arrives_again(folder: Path) -> None:
    """Within an epoch and over epochs, back and forth; a delete of what never was changes nothing."""
    (folder / "ops.py").write_text(SOLD_OUT)
    first = epoch(
        moves(("a", "x", 1, 1), ("a", "y", 2, 2), ("a", "x", -1, 3), ("b", "z", 0, 3)), stock=stock(("a", "y", 2))
    )
    second = epoch(moves(("a", "y", -2, 4), ("a", "x", 4, 4)), stock=stock(("a", "x", 4)))
    third = epoch(moves(("a", "y", 5, 5)), stock=stock(("a", "x", 4), ("a", "y", 5)))
    back = {"rollback": 2, "expect": {"tables": {"stock": stock(("a", "x", 4))}}}
    assert run(folder, first, second, third, back, epoch([])).faults == ()


def test_a_changelog_has_retractions(folder: Path) -> None:
    (folder / "ops.py").write_text(SOLD_OUT)
    changes = [row | {"_op": "upsert"} for row in stock(("a", "x", 1), ("a", "y", 2))]
    gone = {"item": "a", "place": "x", "n": None, "_op": "delete"}
    given = epoch(moves(("a", "x", 1, 1), ("a", "y", 2, 1))), epoch(moves(("a", "x", -1, 2)), changes=[*changes, gone])
    assert run(folder, *given).faults == ()


def test_timers_take_rows_back(folder: Path) -> None:
    (folder / "ops.py").write_text(SOLD_OUT)
    fired = epoch(moves(("a", "x", 1, 1), ("b", "x", 1, 200)), stock=stock(("b", "x", 1)))
    assert run(folder, fired).faults == ()


def test_a_batch_retracts_a_table_of_output_keys(folder: Path) -> None:
    (folder / "ops.py").write_text(
        """\
import pyarrow.compute as pc


class Stock:
    output = {"item": "string", "place": "string", "n": "int64"}

    def on_batch(self, batch, state, ctx):
        rows = batch.select(["item", "place", "n"])
        ctx.delete(rows.filter(pc.field("n") == 0).select(["place", "item"]))
        return rows.filter(pc.field("n") != 0), None
"""
    )
    first = epoch(moves(("a", "x", 1, 1), ("b", "x", 9, 1)), stock=stock(("a", "x", 1), ("b", "x", 9)))
    assert run(folder, first, epoch(moves(("a", "x", 0, 2)), stock=stock(("b", "x", 9)))).faults == ()


@pytest.mark.long
@pytest.mark.parametrize(
    "call",
    ["ctx.delete()", "ctx.delete(place=1)", "ctx.delete(place='x', n=1)", "ctx.delete(rows)"],
)
def test_a_delete_that_names_no_row_is_refused_with_the_users_line(folder: Path, call: str) -> None:
    (folder / "ops.py").write_text(
        STOCK.replace('            yield {"item": key', f'            {call}\n            yield {{"item": key', 1)
    )
    fault = run(folder, epoch(moves(("a", "x", 1, 1)))).faults[0]
    assert "place" in fault and re.search(r"ops\.py\D+12\b", fault)
    wording.matches("problems", fault)


def test_without_an_output_key_nothing_is_retracted(folder: Path) -> None:
    spec = (folder / "stock.yaml").read_text().replace(", output_key: [item, place]", "").replace("upsert", "append")
    (folder / "stock.yaml").write_text(spec)
    (folder / "ops.py").write_text(SOLD_OUT)
    given = epoch(moves(("a", "x", 0, 1)))
    wording.matches("problems", run(folder, given).faults[0])

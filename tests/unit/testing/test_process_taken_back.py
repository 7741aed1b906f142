"""Operators read the updates of a process function: its emitted rows are stored, and retracted exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost_testkit import wording
from milepost_testkit.specs.case_steps import Step, run_steps

SPEC = """\
name: stock
storage: s3://nobody/asks/for/it
sources:
  moves: {format: csv, path: "s3://landing/moves/*.csv", schema: {item: string, place: string, n: int64}}
operators:
  - {uid: stock, kind: process, inputs: [moves], key: [item], function: "ops:Stock", output_key: [item, place]}
  - {uid: per_place, kind: aggregate, inputs: [stock], key: [place], aggregates: {items: count(*), n: sum(n)}}
  - {uid: most, kind: top, inputs: [stock], key: [place], order_by: [{n: desc}], n: 1, rank: at}
sinks:
  - {name: stock, input: stock, format: parquet, path: s3://lake/stock, mode: upsert}
  - {name: per_place, input: per_place, format: parquet, path: s3://lake/per_place, mode: upsert}
  - {name: most, input: most, format: parquet, path: s3://lake/most, mode: upsert}
spark: {parallelism: 2}
"""
STOCK = """\
class Stock:
    output = {"n": "int64", "place": "string", "item": "string"}

    def on_rows(self, key, rows, state, ctx):
        for row in rows.to_pylist():
            if row["n"]:
                yield {"item": key, "place": row["place"], "n": row["n"]}
            else:
                ctx.delete(place=row["place"])
"""
Stock = tuple[str | None, str, int]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stock.yaml").write_text(SPEC)
    (tmp_path / "ops.py").write_text(STOCK)
    return tmp_path


def epoch(*moves: Stock, **tables: list[dict[str, Any]]) -> Step:
    given = {"moves": [{"item": item, "place": place, "n": n} for item, place, n in moves]}
    return {"epoch": given} | ({"expect": {"tables": tables}} if tables else {})


def places(*rows: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [{"place": place, "items": items, "n": n} for place, items, n in rows]


def test_replaced_or_deleted_rows_are_retracted_downstream(folder: Path) -> None:
    """Within an epoch only the last row of a key counts; back, forth, and on another number of subtasks."""
    first = epoch(("a", "x", 9), ("a", "x", 1), ("b", "x", 2), ("b", "y", 5), (None, "y", 0),
                  per_place=places(("x", 2, 3), ("y", 1, 5)))  # fmt: skip
    second = epoch(("a", "x", 4), ("b", "y", 0), per_place=places(("x", 2, 6)),
                   most=[{"item": "a", "place": "x", "n": 4, "at": 1}])  # fmt: skip
    third = epoch(("a", "x", 0), ("b", "x", 0), ("b", "y", 7), per_place=places(("y", 1, 7)))
    back = {"rollback": 1, "expect": {"tables": {"per_place": places(("x", 2, 3), ("y", 1, 5))}}}
    again = epoch(("a", "y", 1), per_place=places(("y", 2, 8)))
    wider = {"spec": {"parallelism: 2": "parallelism: 3"}}
    assert run_steps(folder / "stock.yaml", first, second, wider, third, back, again).faults == ()


def test_rows_of_another_version_of_the_class_are_retracted_as_they_were(folder: Path) -> None:
    first = epoch(("a", "x", 1), ("b", "x", 2), per_place=places(("x", 2, 3)))
    second = epoch(("a", "x", 4), per_place=places(("x", 2, 402)))
    (folder / "ops_2.py").write_text(STOCK.replace('"n": row["n"]}', '"n": 100 * row["n"]}'))
    assert run_steps(folder / "stock.yaml", first, {"spec": {"ops:Stock": "ops_2:Stock"}}, second).faults == ()


def test_a_new_reader_needs_everything_that_was_emitted(folder: Path) -> None:
    """What the function gave out before was not kept, so rows could not be taken back: a new uid begins anew."""
    whole = (folder / "stock.yaml").read_text()
    alone = [line for line in whole.splitlines() if "per_place" not in line and "most" not in line]
    (folder / "stock.yaml").write_text("\n".join(alone) + "\n")
    plain = run_steps(folder / "stock.yaml", epoch(("a", "x", 1), stock=[{"item": "a", "place": "x", "n": 1}]))
    assert plain.faults == ()
    read = {"spec": {"sinks:": whole.splitlines()[6] + "\nsinks:"}}
    refused = run_steps(folder / "stock.yaml", epoch(("a", "x", 1)), read, epoch(("a", "x", 2))).faults[0]
    wording.matches("problems", refused)

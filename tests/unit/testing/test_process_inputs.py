"""A process function with several inputs sees whose rows come, over one state, as a job's epochs run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.testing.case_run import CaseResult
from milepost_testkit import wording
from milepost_testkit.specs.case_steps import Step, run_steps
from milepost_testkit.specs.spec_edits import edit_spec

SPEC = """\
name: balances
storage: s3://nobody/asks/for/it
sources:
  orders:
    {format: csv, path: "s3://landing/orders/*.csv", schema: {k: int32, v: int64, t: "timestamp[us, UTC]"},
     event_time: t}
  payments:
    {format: csv, path: "s3://landing/payments/*.csv", schema: {paid: int64, k: int64, t: "timestamp[us, UTC]"},
     event_time: t}
operators:
  - {uid: open, kind: process, inputs: [orders, payments], key: [k], function: "ops:Open"}
sinks:
  - {name: open, input: open, format: parquet, path: s3://lake/open, mode: append}
spark: {parallelism: 2}
"""
OPEN = """\
from datetime import timedelta


class Open:
    state = {"owed": "int64", "calls": "string"}
    output = {"k": "int64", "owed": "int64", "calls": "string", "t": "timestamp[us, UTC]"}

    def on_rows(self, key, rows, state, ctx):
        amounts = rows.column("v" if ctx.input.startswith("orders") else "paid").to_pylist()
        sign = 1 if ctx.input.startswith("orders") else -1
        state["owed"] = (state["owed"] or 0) + sign * sum(amounts)
        state["calls"] = (state["calls"] or "") + f"{ctx.input}:{','.join(map(str, amounts))};"
        ctx.set_timer(rows.column("t").to_pylist()[-1] + timedelta(hours=1))

    def on_timer(self, key, time, state, ctx):
        assert ctx.input is None
        yield {"k": key, "owed": state["owed"], "calls": state["calls"], "t": time}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "balances.yaml").write_text(SPEC)
    (tmp_path / "ops.py").write_text(OPEN)
    return tmp_path


def run(folder: Path, *steps: Step) -> CaseResult:
    return run_steps(folder / "balances.yaml", *steps)


def at(minute: int) -> str:
    return f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"


def orders(*rows: tuple[int | None, int, int]) -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "t": at(minute)} for k, v, minute in rows]


def payments(*rows: tuple[int | None, int, int]) -> list[dict[str, Any]]:
    return [{"k": k, "paid": v, "t": at(minute)} for k, v, minute in rows]


def epoch(rows: dict[str, list[dict[str, Any]]], **expect: Any) -> Step:
    return {"epoch": rows} | ({"expect": expect} if expect else {})


def test_inputs_take_turns_in_the_order_of_the_spec_each_in_event_time_order(folder: Path) -> None:
    given = {"payments": payments((1, 5, 9), (1, 3, 2)), "orders": orders((1, 7, 8), (2, 4, 1), (1, 1, 3))}
    state = [
        {"k": 1, "owed": 0, "calls": "orders:1,7;payments:3,5;"},
        {"k": 2, "owed": 4, "calls": "orders:4;"},
    ]
    assert run(folder, epoch(given, state={"open": state})).faults == ()


@pytest.mark.deep
def test_one_state_serves_all_inputs_over_epochs_parallelism_and_a_rollback(folder: Path) -> None:
    """int32 and int64 keys are one key; null is a key too."""
    first = {"orders": orders(*((k, k, 1) for k in range(9)), (None, 2, 1)), "payments": []}
    second = {"orders": [], "payments": payments(*((k, 1, 2) for k in range(9)), (None, 2, 2))}
    left = {"state": {"open": [*({"k": k, "owed": k - 1} for k in range(9)), {"k": None, "owed": 0}]}}
    rescaled = {"spec": {"parallelism: 2": "parallelism: 3"}}
    back = {"rollback": 1, "expect": {"state": {"open": [*({"k": k, "owed": k} for k in range(9)), {"owed": 2}]}}}
    assert run(folder, epoch(first), rescaled, epoch(second, **left), back, epoch({}, **left)).faults == ()


def test_timers_follow_the_slowest_input(folder: Path) -> None:
    """A watermark is the least of all inputs'."""
    fast = epoch({"orders": orders((1, 7, 0), (1, 1, 200)), "payments": payments((1, 2, 0))}, tables={"open": []})
    fired = {"k": 1, "owed": 6, "calls": "orders:7,1;payments:2;", "t": at(60)}
    slow = epoch({"orders": [], "payments": payments((5, 0, 90))}, tables={"open": [fired]})
    assert run(folder, fast, slow).faults == ()


def test_one_input_twice_comes_under_two_names(folder: Path) -> None:
    spec = (folder / "balances.yaml").read_text().replace("[orders, payments]", "[orders, orders]")
    (folder / "balances.yaml").write_text(spec)
    state = [{"k": 1, "owed": 14, "calls": "orders:7;orders.2:7;"}]
    assert run(folder, epoch({"orders": orders((1, 7, 1)), "payments": []}, state={"open": state})).faults == ()


def test_a_batch_says_whose_rows_it_has(folder: Path) -> None:
    (folder / "ops.py").write_text(
        """\
import pyarrow as pa


class Open:
    output = {"k": "int64", "calls": "string", "t": "timestamp[us, UTC]"}

    def on_batch(self, batch, state, ctx):
        names = pa.array([ctx.input] * batch.num_rows)
        return pa.table({"k": batch["k"].cast("int64"), "calls": names, "t": batch["t"]}), None
"""
    )
    table = [{"k": 1, "calls": "orders"}, {"k": 2, "calls": "payments"}]
    given = {"orders": orders((1, 7, 1)), "payments": payments((2, 7, 1))}
    assert run(folder, epoch(given, tables={"open": table})).faults == ()


@pytest.mark.deep
def test_a_further_input_may_come_to_the_state_that_there_is(folder: Path) -> None:
    """What a class makes of it is the class's: no state of it is judged by which inputs there were."""
    spec = (folder / "balances.yaml").read_text()
    (folder / "balances.yaml").write_text(spec.replace("[orders, payments]", "[orders]"))
    first = epoch({"orders": orders((1, 7, 1)), "payments": []}, state={"open": [{"k": 1, "owed": 7}]})
    more = {"spec": {"inputs: [orders]": "inputs: [orders, payments]"}}
    second = epoch({"orders": [], "payments": payments((1, 7, 1))}, state={"open": [{"k": 1, "owed": 0}]})
    assert run(folder, first, more, second).faults == ()


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (("paid: int64, k: int64", "paid: int64, k: string"), ["k", "int32", "orders", "string", "payments"]),
        (("paid: int64, k: int64", "paid: int64, q: int64"), ["payments", "k"]),
    ],
    ids=["type", "missing"],
)
def test_a_key_that_is_not_one_in_all_inputs_is_refused(
    folder: Path, change: tuple[str, str], refused: list[str]
) -> None:
    edit_spec(folder / "balances.yaml", dict([change]))
    fault = run(folder, epoch({"orders": []})).faults[0]
    assert all(one in fault for one in refused)
    wording.matches("problems", fault)

"""`milepost test` tells aggregates whose filters are conditions that Spark evaluates, and late rows without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.specs.case_steps import Step, run_steps

pytestmark = pytest.mark.deep

SPEC = """\
name: orders
storage: s3://nobody/asks/for/it
sources:
  orders:
    {format: csv, path: "s3://landing/orders/*.csv", schema: {city: string, status: string, amount: int64, at: "timestamp[us, UTC]"},
     event_time: at}
operators:
  - uid: by_city
    kind: aggregate
    inputs: [orders]
    key: [city]
    aggregates:
      orders: count(*)
      paid: count(*) filter (where lower(status) rlike '^paid' and amount > 0)
      paid_sum: sum(amount) filter (where lower(status) rlike '^paid' and amount > 0)
      large: count(distinct status) filter (where amount >= 10)
  - {uid: hourly, kind: window, inputs: [orders], key: [city], window: {tumbling: 1h}, aggregates: {open: "count(*) filter (where status = 'open')"}}
sinks:
  - {name: by_city, input: by_city, format: parquet, path: s3://lake/by_city, mode: upsert}
  - {name: hourly, input: hourly, format: parquet, path: s3://lake/hourly, mode: append}
  - {name: late, input: hourly.late, format: parquet, path: s3://lake/late, mode: append}
spark: {parallelism: 2}
"""  # noqa: E501


def order(city: str, status: str | None, amount: int | None, hour: int) -> Step:
    return {"city": city, "status": status, "amount": amount, "at": f"2026-03-01T{hour:02}:00:00Z"}


def hour(begins: int) -> Step:
    return {"window_start": f"2026-03-01T{begins:02}:00:00Z", "window_end": f"2026-03-01T{begins + 1:02}:00:00Z"}


def test_a_condition_is_evaluated_by_spark_and_is_in_no_late_row(tmp_path: Path) -> None:
    """A row for which it is null does not count, and a key without one that does is there."""
    (tmp_path / "orders.yaml").write_text(SPEC)
    first = [order("a", "PAID late", 10, 1), order("a", "paid", 0, 2), order("b", None, 5, 2)]
    first.append(order("a", "open", None, 3))
    late = order("b", "open", 20, 1)
    by_city = [
        {"city": "a", "orders": 3, "paid": 1, "paid_sum": 10, "large": 1},
        {"city": "b", "orders": 1, "paid": 0, "paid_sum": None, "large": 0},
    ]
    hourly = [{"city": city, **hour(begins), "open": 0} for city, begins in (("a", 1), ("a", 2), ("b", 2))]
    steps = [
        {"epoch": {"orders": first}, "expect": {"tables": {"by_city": by_city, "hourly": hourly}}},
        {
            "epoch": {"orders": [late]},
            "expect": {"tables": {"by_city": [by_city[0], {**by_city[1], "orders": 2, "large": 1}], "late": [late]}},
        },
    ]
    assert run_steps(tmp_path / "orders.yaml", *steps).faults == ()

"""`milepost test` runs SQL between updates and operators that read them as an epoch does."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.specs.case_steps import run_steps

pytestmark = pytest.mark.long

SPEC = """\
name: shop
storage: s3://nobody/asks/for/it
sources:
  clicks: {format: csv, path: "s3://landing/clicks/*.csv", schema: {cart: int64, price: int64}}
operators:
  - {uid: carts, kind: aggregate, inputs: [clicks], key: [cart], aggregates: {items: count(*), paid: sum(price)}}
  - {uid: sizes, kind: sql, inputs: [carts],
     sql: "SELECT CASE WHEN items > 1 THEN 'large' ELSE 'small' END AS size, paid FROM carts WHERE paid < 100"}
  - {uid: by_size, kind: aggregate, inputs: [sizes], key: [size], aggregates: {carts: count(*), paid: sum(paid)}}
sinks:
  - {name: by_size, input: by_size, format: parquet, path: s3://lake/by_size, mode: upsert}
spark: {parallelism: 2}
"""


@pytest.mark.deep
def test_a_row_moves_from_key_to_key_and_out_of_the_filter(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SPEC)
    small, large = {"size": "small", "carts": 1, "paid": 3}, {"size": "large", "carts": 1, "paid": 9}
    steps = (
        ([{"cart": 1, "price": 4}, {"cart": 2, "price": 3}], [{"size": "small", "carts": 2, "paid": 7}]),
        ([{"cart": 1, "price": 5}], [small, large]),
        ([{"cart": 1, "price": 100}], [small]),
    )
    cases = [{"epoch": {"clicks": rows}, "expect": {"tables": {"by_size": shown}}} for rows, shown in steps]
    assert run_steps(tmp_path / "shop.yaml", *cases).faults == ()

"""A lookup against DuckDB's join, and what it makes of nulls, NaN, zeros, collisions of hashes and several rows."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.operators.contract import OperatorFailed
from milepost.operators.lookup.run import Lookup
from milepost.operators.lookup.spec import LookupOperator
from milepost.spark.task.row_steps.lookup_index import LookupIndex, prepare
from milepost_testkit import wording
from milepost_testkit.rows.key_hashes import KEYED, WEAK


def lookup_of(left: pa.Schema, right: pa.Schema, key: list[Any], **options: Any) -> Lookup:
    document = {"uid": "found", "kind": "lookup", "inputs": ["rows", "names"], "key": key, **options}
    return Lookup.of(LookupOperator.model_validate(document), left, right)


def found(lookup: Lookup, rows: pa.Table, dimension: pa.Table, hasher: Any = KEYED) -> pa.Table:
    return LookupIndex.of(lookup, prepare(lookup, dimension, hasher), hasher).find(rows)


def pairs(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


@pytest.mark.deep
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("hasher", [KEYED, WEAK], ids=["keyed", "nearly all keys share a hash"])
@pytest.mark.parametrize("seed", range(3))
def test_it_gives_what_a_batch_join_gives(how: str, hasher: Any, seed: int) -> None:
    """Two key columns of other widths and names; a null finds nothing; the rows keep their order."""
    chosen = random.Random(seed)
    texts = ["a", "", "ä", "a key that is longer than what a view holds", None]
    rows = pa.table(
        {
            "n": pa.array(range(200)),
            "i": pa.array([chosen.choice([1, 2, -1, None, 2**31 - 1]) for _ in range(200)], pa.int32()),
            "t": pa.array([chosen.choice(texts) for _ in range(200)]),
        }
    )
    keys = {(chosen.choice([1, 2, -1, 5, None, 2**31 - 1, 2**40]), chosen.choice(texts)) for _ in range(12)}
    unique = [key for key in keys if None not in key] + [(None, "a"), (None, "a"), (1, None)]
    right = pa.table(
        {
            "text": pa.array([text for _, text in unique], pa.large_string()),
            "n": pa.array([f"of {number}" for number, _ in unique]),
            "number": pa.array([number for number, _ in unique], pa.int64()),
            "items": pa.array([[number] for number, _ in unique], pa.list_(pa.int64())),
        }
    )
    lookup = lookup_of(
        rows.schema, right.schema, [{"i": "number"}, {"t": "text"}], how=how, columns={"name": "right.n"}
    )
    got = found(lookup, rows, right, hasher)
    assert got.column_names == ["n", "i", "t", "name", "items"]
    query = f"""
        SELECT l.n, l.i, l.t, r.n AS name, r.items FROM rows l {how} JOIN "right" r
        ON l.i = r.number AND l.t = r.text ORDER BY l.n"""
    assert pairs(got) == [tuple(row) for row in duckdb.execute(query).fetchall()]


def test_one_zero_and_one_nan_are_found_and_the_row_stays_as_it_is() -> None:
    """As Spark joins floats."""
    rows = pa.table({"x": pa.array([0.0, -0.0, float("nan"), None, 1.5], pa.float32())})
    right = pa.table({"x": [-0.0, float("nan"), 1.5, None], "name": ["zero", "nan", "more", "null"]})
    got = found(lookup_of(rows.schema, right.schema, ["x"], how="left"), rows, right)
    assert got.column("name").to_pylist() == ["zero", "zero", "nan", None, "more"]
    assert got.column("x").type == pa.float32()
    assert np.signbit(got.column("x").to_numpy(zero_copy_only=False)[:2]).tolist() == [False, True]


def test_several_rows_of_a_key_are_named_also_where_python_lacks_its_year() -> None:
    right = pa.table({"k": pa.array([3_000_000, 3_000_000, 1, 1], pa.int32()).cast(pa.date32())})
    with wording.raises(OperatorFailed):
        prepare(lookup_of(right.schema, right.schema, ["k"]), right, KEYED)


def test_several_rows_of_a_key_are_named_a_few_of_them() -> None:
    right = pa.table({"k": [3, 1, 2, 3, 2, 1, 5, 5, None, None]})
    with wording.raises(OperatorFailed):
        lookup_of(pa.schema([("k", pa.int64())]), right.schema, ["k"]).prepare(right)


def test_which_row_is_found_does_not_depend_on_the_order_of_rows() -> None:
    rows = pa.table({"k": [1, 2]})
    records = [(1, 5, "b"), (1, 5, "a"), (1, 4, "z"), (2, None, "n"), (2, 7, "m"), (2, 7, "m")]
    for seed in range(5):
        random.Random(seed).shuffle(records)
        right = pa.table([list(column) for column in zip(*records, strict=True)], names=["k", "at", "name"])
        got = found(lookup_of(rows.schema, right.schema, ["k"], order_by=[{"at": "desc"}]), rows, right)
        assert pairs(got) == [(1, 5, "a"), (2, 7, "m")]
        got = found(lookup_of(rows.schema, right.schema, ["k"], order_by=["at"]), rows, right)
        assert pairs(got) == [(1, 4, "z"), (2, None, "n")]


def test_names_that_look_like_those_of_prepared_rows_and_none_at_all() -> None:
    rows = pa.table({"hash": [1], "key_0": [2]})
    right = pa.table({"k": [1], "value_0": ["v"], "hash2": ["h"], "value_1": ["w"]})
    got = found(lookup_of(rows.schema, right.schema, [{"hash": "k"}]), rows, right)
    assert pairs(got) == [(1, 2, "v", "h", "w")]
    only = found(lookup_of(rows.schema, right.schema.empty_table().select(["k"]).schema, [{"hash": "k"}]), rows, right)
    assert pairs(only) == [(1, 2)], "a key that is there, and nothing of it"


def test_no_rows_and_rows_that_all_find_nothing() -> None:
    right = pa.table({"k": [1], "name": ["one"]})
    lookup = lookup_of(pa.schema([("k", pa.int64())]), right.schema, ["k"])
    assert found(lookup, pa.table({"k": pa.array([], pa.int64())}), right).num_rows == 0
    nothing = found(lookup, pa.table({"k": [7, 8]}), right)
    assert nothing.num_rows == 0 and nothing.schema == lookup.output_schema
    assert found(lookup, pa.table({"k": [1]}), right.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize("how", ["inner", "left"])
def test_only_columns_that_are_read_are_given_and_kept_of_the_static_source(how: str) -> None:
    """Also none of its own: then it only says which rows there are."""
    rows = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"], "w": [1, 2, 3]})
    right = pa.table({"id": [2, 1], "name": ["two", "one"], "more": [20, 10]})
    document = {"uid": "found", "kind": "lookup", "inputs": ["rows", "names"], "key": [{"k": "id"}], "how": how,
                "columns": {"m": "right.more"}}  # fmt: skip
    spec = LookupOperator.model_validate(document)
    outside = [("c", None)] if how == "left" else []
    some = Lookup.of(spec, rows.schema, right.schema, {"v", "m"})
    assert some.output_schema == pa.schema([("v", pa.string()), ("m", pa.int64())])
    assert pairs(found(some, rows, right)) == [("a", 10), ("b", 20), *outside]
    assert some.prepare(right).column_names == ["key_0", "value_0"]
    none = Lookup.of(spec, rows.schema, right.schema, {"v"})
    assert pairs(found(none, rows, right)) == [("a",), ("b",), *(one[:1] for one in outside)]
    assert none.prepare(right).column_names == ["key_0"]


def test_columns_that_do_not_fit_are_refused() -> None:
    left, right = (
        pa.schema([("k", pa.string()), ("v", pa.string())]),
        pa.schema([("k", pa.int64()), ("v", pa.string())]),
    )
    with wording.raises(InvalidRequest):
        lookup_of(left, right, ["k"], columns={"w": "right.v"})
    with wording.raises(InvalidRequest):
        lookup_of(right, right, ["k"])
    with wording.raises(InvalidRequest):
        lookup_of(right, right, ["k"], columns={"w": "right.z"})


def test_a_null_finds_nothing_even_where_the_hash_of_it_is_there() -> None:
    """Whatever the value behind a null is: Arrow leaves it open."""
    validity = pa.array([True, False]).buffers()[1]
    hidden = pa.Array.from_buffers(pa.int64(), 2, [validity, pa.array([1, 1], pa.int64()).buffers()[1]])
    right = pa.table({"k": [1], "name": ["one"]})

    def of_values(table: pa.Table, key: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return np.ones(table.num_rows, dtype=np.uint64)

    got = found(
        lookup_of(pa.schema([("k", pa.int64())]), right.schema, ["k"], how="left"),
        pa.table({"k": hidden}),
        right,
        of_values,
    )
    assert got.column("name").to_pylist() == ["one", None]

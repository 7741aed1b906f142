"""The interval join gives DuckDB's join of all on-time rows, however they are cut into epochs, subtasks and pieces."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

import milepost.operators.join.run as interval_join
from milepost.errors import InvalidRequest
from milepost.operators.base.two_inputs import SIDES
from milepost.operators.contract import OperatorInput
from milepost.operators.join.run import IntervalJoinByKey, JoinShape
from milepost.operators.pairs.join_columns import common_key_type
from milepost.protocol.exchange.watermarks import END_OF_TIME_US
from milepost_testkit import profiles, wording
from milepost_testkit.rows.key_hashes import KEYED, WEAK
from milepost_testkit.tasks.operators.two_inputs import TwoInputRun

MINUTE = timedelta(minutes=1)
MINUTE_US = 60_000_000
UTC_US = pa.timestamp("us", "UTC")
ORDERS = pa.schema([("k", pa.int32()), ("x", pa.float64()), ("at", UTC_US), ("amount", pa.int64())])
PAYMENTS = pa.schema(
    [
        ("order", pa.int64()),
        ("y", pa.float64()),
        ("paid_at", pa.timestamp("ms", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
KEYS = [("k", "order"), ("x", "y")]


def joined(
    low: int = -1, high: int = 2, left: pa.Schema = ORDERS, right: pa.Schema = PAYMENTS, **options: Any
) -> IntervalJoinByKey:
    inputs = [OperatorInput(left, "at"), OperatorInput(right, "paid_at")]
    shape = JoinShape(
        options.get("keys", KEYS),
        (low * MINUTE, high * MINUTE),
        options.get("how", "inner"),
        options.get("renamed", {}),
    )
    return IntervalJoinByKey("joined", shape, inputs)


def at(minute: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + minute * MINUTE


def us(minute: float) -> int:
    return int(at(minute).timestamp()) * 1_000_000


def orders(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.table(list(zip(*rows, strict=True)) if rows else [[] for _ in ORDERS], schema=ORDERS)


def payments(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.table(list(zip(*rows, strict=True)) if rows else [[] for _ in PAYMENTS], schema=PAYMENTS)


nan = float("nan")
some_keys = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, 0.0, -0.0, nan, 1.5]))
minutes = st.integers(0, 12)
left_rows = st.builds(lambda key, minute, v: (*key, at(minute), v), some_keys, minutes, st.integers(0, 1))
right_rows = st.builds(
    lambda key, minute, tags: (*key, at(minute), tags), some_keys, minutes, st.sampled_from([None, [], ["a"]])
)
pieces = st.lists(
    st.one_of(
        st.lists(left_rows, max_size=6).map(lambda rows: (0, orders(*rows))),
        st.lists(right_rows, max_size=6).map(lambda rows: (1, payments(*rows))),
    ),
    max_size=4,
)
histories = st.lists(st.tuples(pieces, st.sampled_from([1, 2, 3]), st.integers(0, 4)), min_size=1, max_size=6)
bounds = st.tuples(st.integers(-4, 4), st.integers(0, 5)).map(lambda pair: (pair[0], pair[0] + pair[1]))


HOWS = ("inner", "left", "right", "full", "semi", "anti")
WIDE_ORDERS = ORDERS.set(0, pa.field("k", pa.int64()))


def expected_rows(how: str, low: int, high: int, firing_us: int | None) -> str:
    """The batch query over on-time rows `l` and `r`: what waits in vain is there once the watermark is past it."""
    near = f"""r."order" = l.k AND r.y = l.x
        AND r.paid_at BETWEEN l."at" + INTERVAL ({low}) MINUTE AND l."at" + INTERVAL ({high}) MINUTE"""
    left, right = 'l.k, l.x + 0.0 AS x, l."at", l.amount', "r.paid_at, r.tags"
    past = "false" if firing_us is None else f'epoch_us(l."at" + INTERVAL ({high}) MINUTE) < {firing_us}'
    alone = f"NOT EXISTS (SELECT 1 FROM r WHERE {near}) AND (l.k IS NULL OR l.x IS NULL OR {past})"
    if how == "semi":
        return f"SELECT {left} FROM l WHERE EXISTS (SELECT 1 FROM r WHERE {near})"
    if how == "anti":
        return f"SELECT {left} FROM l WHERE {alone}"
    pairs = f"SELECT {left}, {right} FROM l JOIN r ON {near}"
    if how in ("left", "full"):
        pairs = f"{pairs} UNION ALL SELECT {left}, NULL, NULL FROM l WHERE {alone}"
    if how in ("right", "full"):
        past = "false" if firing_us is None else f"epoch_us(r.paid_at + INTERVAL ({-low}) MINUTE) < {firing_us}"
        alone = f"NOT EXISTS (SELECT 1 FROM l WHERE {near}) AND (r.order IS NULL OR r.y IS NULL OR {past})"
        return f"""{pairs} UNION ALL SELECT r."order", r.y + 0.0, r.paid_at, NULL, {right} FROM r WHERE {alone}"""
    return pairs


@pytest.mark.long
@profiles.examples(share=0.4, phases=[Phase.explicit, Phase.generate])
@given(
    how=st.sampled_from(HOWS),
    history=histories,
    interval=bounds,
    weak=st.booleans(),
    at_once=st.sampled_from([1, 10**6]),
)
def test_rows_are_those_of_duckdb_whatever_the_cut(
    tmp_path_factory: pytest.TempPathFactory, how: str, history: Any, interval: tuple[int, int], weak: bool,
    at_once: int,
) -> None:  # fmt: skip
    """Over epochs, rescales and collisions; what is late is recorded, and what is kept is what may still matter."""
    left_schema = WIDE_ORDERS if how in ("right", "full") else ORDERS
    operator = joined(*interval, left=left_schema, how=how)
    run = TwoInputRun(operator, tmp_path_factory.mktemp("join"), WEAK if weak else KEYED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval_join, "OUTPUT_BYTES", at_once)
        found, seen, late = run.follow(history, us, (orders(), payments()))
    low, high = interval
    left, right, late_left, late_right = (pa.concat_tables(part) for part in (*seen, *late))
    connection = duckdb.cursor()
    connection.execute("SET TimeZone='UTC'")
    for name, table in (("lefts", left), ("rights", right), ("late_lefts", late_left), ("late_rights", late_right)):
        connection.register(name, table)
    connection.execute("CREATE TEMP TABLE l AS SELECT * FROM lefts EXCEPT ALL SELECT * FROM late_lefts")
    connection.execute("CREATE TEMP TABLE r AS SELECT * FROM rights EXCEPT ALL SELECT * FROM late_rights")
    expected = (
        connection.sql(expected_rows(how, low, high, run.firing_us)).to_arrow_table().cast(operator.output_schema)
    )
    assert Counter(map(repr, pa.concat_tables(found).to_pylist())) == Counter(map(repr, expected.to_pylist()))
    for name, side, column, until in (("left", left, "at", high), ("right", right, "paid_at", -low)):
        kept = sum(run.restore(name).rows()["__weight"].to_pylist())
        gone = late_left if name == "left" else late_right
        keyed = list(operator.routing_keys[SIDES.index(name)])

        def lives(row: dict[str, Any], column: str = column, until: int = until, keyed: list[str] = keyed) -> bool:
            moment = int((row[column] + until * MINUTE).timestamp()) * 1_000_000
            return moment >= (run.firing_us or 0) and all(row[name] is not None for name in keyed)

        all_alive = sum(map(lives, side.to_pylist())) - sum(map(lives, gone.to_pylist()))
        assert kept <= all_alive if operator.by_existence and name == "left" else kept == all_alive


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_left_row_is_kept_only_until_its_first_match(how: str, tmp_path: Path) -> None:
    """And of right rows nothing but key and time."""
    run = TwoInputRun(joined(how=how), tmp_path)
    first = run.epoch([(0, orders((1, 0.0, at(10), 7), (1, 0.0, at(10), 7), (2, 0.0, at(10), 8)))], None, None)[0]
    assert not first.num_rows and sum(run.restore("left").rows()["__weight"].to_pylist()) == 3
    paid = [(1, payments((1, 0.0, at(11), ["a"]), (1, 0.0, at(12), None)))]
    found, _ = run.epoch(paid, None, us(12))
    assert found.num_rows == (2 if how == "semi" else 0), "one for each of the equal left rows, once"
    assert run.restore("left").rows()["k"].to_pylist() == [2]
    assert [name for name in run.operator.tables["right"].schema.names if name[:2] != "__"] == ["order", "y", "paid_at"]
    found, _ = run.epoch([(0, orders((1, 0.0, at(12), 9)))], us(12), us(12) + 1)
    assert found["amount"].to_pylist() == ([9] if how == "semi" else [8])
    assert not run.restore("left").rows().num_rows


def test_a_row_waits_in_vain_for_as_long_as_another_may_come(tmp_path: Path) -> None:
    """With within [-1m, 2m], a left row of minute 10 is emitted when the watermark is past 12, a right one past 11."""
    for how, moment, side in (("left", us(12), 0), ("right", us(11), 1)):
        run = TwoInputRun(joined(left=WIDE_ORDERS, how=how), tmp_path / how)
        alone = (0, orders((1, 0.0, at(10), 7))) if side == 0 else (1, payments((1, 0.0, at(10), ["a"])))
        null = (0, orders((None, 0.0, at(10), 7))) if side == 0 else (1, payments((None, 0.0, at(10), ["a"])))
        first, _ = run.epoch([alone, null], None, moment)
        assert first["k"].to_pylist() == [None], "a null key pairs with nothing, which is known at once"
        out = pa.concat_tables([first, run.epoch([], moment + 1, moment + 10)[0]])
        assert out["k"].to_pylist() == [None, 1] and out["at"].to_pylist() == [at(10), at(10)], "once"
        amounts, tags = ([7, 7], [None, None]) if side == 0 else ([None, None], [["a"], ["a"]])
        assert (out["amount"].to_pylist(), out["tags"].to_pylist()) == (amounts, tags)


def test_a_full_join_emits_the_unmatched_rows_of_both_sides(tmp_path: Path) -> None:
    """Of within [-1m, 2m]: left rows of minute 10 after minute 12, right ones after minute 11; matched rows never."""
    run = TwoInputRun(joined(left=WIDE_ORDERS, how="full"), tmp_path)
    rows = [
        (0, orders((1, 0.0, at(10), 7), (2, 0.0, at(10), 8))),
        (1, payments((3, 0.0, at(10), []), (2, 0.0, at(11), []))),
    ]
    first, _ = run.epoch(rows, None, us(11))
    assert [(row["k"], row["amount"], row["tags"]) for row in first.to_pylist()] == [(2, 8, [])]
    second, _ = run.epoch([], us(11), us(11) + 1)
    assert [(row["k"], row["at"], row["amount"], row["tags"]) for row in second.to_pylist()] == [(3, at(10), None, [])]
    third, _ = run.epoch([], us(11) + 1, us(20))
    assert [(row["k"], row["amount"], row["paid_at"]) for row in third.to_pylist()] == [(1, 7, None)]
    assert not any(run.restore(name).rows().num_rows for name in SIDES)


def test_a_row_that_can_no_longer_pair_is_emitted_immediately(tmp_path: Path) -> None:
    """Of within [-2h, -1h] the right row is the older one: it is late already where the left row is on time."""
    run = TwoInputRun(joined(-120, -60, how="anti"), tmp_path)
    run.epoch([], None, us(0))
    out, _ = run.epoch([(0, orders((1, 0.0, at(5), 7), (1, 0.0, at(61), 8)))], us(0), us(0))
    assert out["amount"].to_pylist() == [7] and run.restore("left").rows()["amount"].to_pylist() == [8]


@pytest.mark.parametrize("how", ["left", "anti", "right"])
def test_a_row_that_expires_at_the_watermark_is_emitted_alone_and_one_microsecond_later_it_waits(
    tmp_path: Path, how: str
) -> None:
    """Its expiry is one microsecond past the last watermark at which its partner would be on time."""
    side, (low, high) = (1, (60, 120)) if how == "right" else (0, (-120, -60))
    exact = PAYMENTS.set(2, pa.field("paid_at", UTC_US))
    run = TwoInputRun(joined(low, high, left=WIDE_ORDERS, right=exact, how=how), tmp_path)
    run.epoch([], None, us(0))
    last = [at(60) - timedelta(microseconds=1), at(60)]
    piece = [orders(*((1, 0.0, one, 0) for one in last)), pa.table([[1, 1], [0.0, 0.0], last, [[], []]], schema=exact)]
    first, _ = run.epoch([(side, piece[side])], us(0), us(0))
    assert first["at"].to_pylist() == last[:1], "its expiry is the watermark: nothing can pair with it"
    second, _ = run.epoch([], us(0), us(0) + 1)
    assert second["at"].to_pylist() == last[1:]
    assert not any(run.restore(name).rows().num_rows for name in SIDES)


def test_a_row_waits_for_the_other_side_and_is_forgotten_when_none_can_come(tmp_path: Path) -> None:
    """Of within [-1m, 2m]: a left row of minute 10 until the watermark is past 12, a right one until past 11."""
    run = TwoInputRun(joined(), tmp_path)
    run.epoch([(0, orders((1, 0.0, at(10), 7))), (1, payments((2, 0.0, at(10), None)))], None, us(11))
    assert [run.restore(name).rows().num_rows for name in SIDES] == [1, 1]
    out, late = run.epoch(
        [(1, payments((1, -0.0, at(12), ["a"]), (1, 0.0, at(10.5), None))), (0, orders((2, 0.0, at(11), 1)))],
        us(11),
        us(12) + 1,
    )
    assert out.to_pylist() == [
        {"k": 1, "x": 0.0, "at": at(10), "amount": 7, "paid_at": at(12), "tags": ["a"]},
        {"k": 2, "x": 0.0, "at": at(11), "amount": 1, "paid_at": at(10), "tags": None},
    ]
    assert [sum(rows.num_rows for rows in own) for own in late] == [0, 1], "minute 10.5 is before the stamp, 11 is not"
    assert [run.restore(name).rows().num_rows for name in SIDES] == [1, 1], "what a later row may pair with"


def test_the_pairs_of_a_hot_key_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of all pairs of one key could have any size; a row of it alone with many others too."""
    operator = joined()
    monkeypatch.setattr(interval_join, "OUTPUT_BYTES", operator.columns.row_bytes * 100)
    run = TwoInputRun(operator, tmp_path)
    run.epoch([(1, payments(*[(1, 0.0, at(0), [str(n)]) for n in range(300)]))])
    tables = {name: run.restore(name) for name in SIDES}
    left = orders(*[(1, 0.0, at(0), n) for n in range(3)])
    sizes = [output.rows.num_rows for output in operator.begin(tables, None).rows(0, left, None)]
    assert sum(sizes) == 900 and max(sizes) == 100


def test_times_at_the_edge_of_time_do_not_overflow(tmp_path: Path) -> None:
    run = TwoInputRun(
        joined(left=ORDERS, right=PAYMENTS.set(2, pa.field("paid_at", ORDERS.field("at").type))), tmp_path
    )
    edge = pa.table([[1], [0.0], pa.array([END_OF_TIME_US]).cast(ORDERS.field("at").type), [1]], schema=ORDERS)
    out, _ = run.epoch([(0, edge)], None, us(0))
    assert not out.num_rows and run.restore("left").rows()["__expires"].to_pylist() == [END_OF_TIME_US]


def test_key_types_are_equal_after_exact_widening() -> None:
    utc_us, utc_ms, plain = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us")
    assert common_key_type(pa.int8(), pa.int64()) == pa.int64()
    assert common_key_type(pa.float64(), pa.float32()) == pa.float64()
    assert common_key_type(utc_ms, utc_us) == utc_us and common_key_type(utc_us, plain) is None
    assert common_key_type(pa.decimal128(9, 2), pa.decimal128(12, 2)) == pa.decimal128(12, 2)
    for left, right in ((pa.int64(), pa.float64()), (pa.string(), pa.int32()), (pa.date32(), utc_us)):
        assert common_key_type(left, right) is None
    assert common_key_type(pa.decimal128(9, 2), pa.decimal128(9, 3)) is None
    assert joined().tables["left"].schema.field("k").type == pa.int64() == joined().tables["right"].schema[0].type


@pytest.mark.parametrize(
    "options",
    [
        {"keys": [("k", "nothing")]},
        {"keys": [("k", "tags")]},
        {"keys": [("amount", "y")]},
        {"right": PAYMENTS.append(pa.field("amount", pa.int32()))},
        {"renamed": {"b": "nothing"}},
        {"renamed": {"b": "y"}},
        {"renamed": {"amount": "tags"}},
        {"how": "right"},
    ],
)
def test_a_join_that_cannot_run_is_refused_when_it_is_built(options: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        joined(**options)


def test_columns_of_the_right_side_are_renamed_and_its_key_left_out() -> None:
    operator = joined(right=PAYMENTS.append(pa.field("amount", pa.decimal128(9, 2))), renamed={"paid": "amount"})
    assert operator.output_schema.names == ["k", "x", "at", "amount", "paid_at", "tags", "paid"]
    assert operator.output_schema.field("paid").type == pa.decimal128(9, 2)
    assert operator.output_schema.field("k").type == pa.int32(), "as the left side has it"


def test_rows_without_a_key_are_divided_among_the_subtasks() -> None:
    """A null matches nothing, so it may be anywhere; others are where rows of the other side are."""
    operator = joined()
    rows = payments(*[(None, 0.0, at(number), None) for number in range(100)])
    groups = KEYED.key_groups(rows, operator.routing_keys[1], 8)
    assert len(set(groups)) == 8
    left, right = orders((1, 0.0, at(0), 1)), payments((1, -0.0, at(0), None))
    placed = [KEYED.key_groups(one, key, 8)[0] for one, key in zip((left, right), operator.routing_keys, strict=True)]
    assert placed[0] == placed[1]

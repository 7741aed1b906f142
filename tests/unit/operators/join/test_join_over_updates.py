"""The join over updates adds up to DuckDB's join of the current rows, however they come, go and are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.operators.base.two_inputs import SIDES
from milepost.operators.contract import OperatorFailed, OperatorInput
from milepost.operators.join.condition import Comparison
from milepost.operators.join.join_over_updates import JoinOverUpdates, JoinRules
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost_testkit import profiles, wording
from milepost_testkit.rows.key_hashes import KEYED, WEAK
from milepost_testkit.tasks.operators.two_inputs import TwoInputRun

ORDERS = pa.schema(
    [("k", pa.int32()), ("x", pa.float64()), ("amount", pa.int16()), ("price", pa.float64()), ("name", pa.string())]
)
LIMITS = pa.schema(
    [
        ("order", pa.int64()),
        ("y", pa.float64()),
        ("rid", pa.int64()),
        ("most", pa.int64()),
        ("cap", pa.float32()),
        ("label", pa.string()),
    ]
)
KEYS = (("k", "order"), ("x", "y"))
HOWS = ("inner", "left", "right", "full", "semi", "anti")
WIDE_ORDERS = ORDERS.set(0, pa.field("k", pa.int64()))
CONDITIONS = (
    (),
    (Comparison("amount", "<", "most"),),
    (Comparison("price", "<=", "cap"),),
    (Comparison("name", "=", "label"),),
    (Comparison("name", "<=>", "label"),),
    (Comparison("name", "<>", "label"),),
    (Comparison("price", "<>", "cap"), Comparison("amount", ">=", "most")),
    (Comparison("price", ">", "cap"), Comparison("amount", "<=", "most")),
    (Comparison("name", "<>", "label"), Comparison("price", "<>", "cap"), Comparison("amount", "<=>", "most")),
)
Piece = tuple[int, list[tuple[Any, ...]]]


def joined(
    how: str = "inner",
    condition: Sequence[Comparison] = (),
    keys: Sequence[tuple[str, str]] = KEYS,
    appends: tuple[bool, bool] = (False, False),
    left: pa.Schema = ORDERS,
    right: pa.Schema = LIMITS,
) -> JoinOverUpdates:
    weight = pa.field(WEIGHT_COLUMN, pa.int64())
    schemas = [schema if own else schema.append(weight) for schema, own in zip((left, right), appends, strict=True)]
    return JoinOverUpdates("joined", JoinRules(keys, how, condition, {}), [OperatorInput(one, None) for one in schemas])


def weighted(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    schema = schema.append(pa.field(WEIGHT_COLUMN, pa.int64()))
    return pa.table(list(map(list, zip(*rows, strict=True))) if rows else [[] for _ in schema], schema=schema)


def orders(*rows: tuple[Any, ...]) -> tuple[int, pa.Table]:
    """Order, weight, and the other columns by default."""
    return 0, weighted(ORDERS, [(*row[:-1], *(0.0, 1, 1.0, "a")[len(row) - 2 :], row[-1]) for row in rows])


def limits(*rows: tuple[Any, ...]) -> tuple[int, pa.Table]:
    return 1, weighted(LIMITS, [(*row[:-1], *(0.0, 5, 9, 2.0, "b")[len(row) - 2 :], row[-1]) for row in rows])


def listed(tables: Sequence[pa.Table], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in (*columns, WEIGHT_COLUMN)) for one in tables for row in one.to_pylist()]


def batch(operator: JoinOverUpdates, net: Sequence[pa.Table]) -> Counter[str]:
    """Return the join of the rows by DuckDB: each row with its weight, which may be below 0."""
    connection = duckdb.cursor()
    for name, rows in zip("lr", net, strict=True):
        connection.register(f"{name}_rows", rows)
        columns = ", ".join(f'"{column}"' for column in rows.column_names if column != WEIGHT_COLUMN)
        columns += ", x::VARCHAR AS zero" if name == "l" else ", y::VARCHAR AS zero"  # -0.0 is another row than 0.0
        connection.execute(
            f"CREATE TEMP TABLE {name} AS SELECT *, row_number() OVER () AS id FROM (SELECT {columns}, "
            f"sum({WEIGHT_COLUMN})::BIGINT AS w FROM {name}_rows GROUP BY ALL HAVING sum({WEIGHT_COLUMN}) <> 0)"
        )
    symbols = {"<=>": "IS NOT DISTINCT FROM"}
    on = [f'l."{left}" = r."{right}"' for left, right in zip(*operator.keys, strict=True)]
    on += [f'l."{one.left}" {symbols.get(one.symbol, one.symbol)} r."{one.right}"' for one in operator.condition]
    near = " AND ".join(on) or "true"
    floats = operator.keys[0]
    left = ", ".join(
        f'l."{name}" + 0.0 AS "{name}"' if name == "x" and name in floats else f'l."{name}"' for name in ORDERS.names
    )
    right = ", ".join(f'r."{name}"' for name in LIMITS.names if name not in operator.keys[1])
    matches = f"coalesce((SELECT sum(r.w) FROM r WHERE {near}), 0)"
    pairs = f"SELECT {left}, {right}, l.w * r.w AS w FROM l JOIN r ON {near}"
    nulls = ", ".join("NULL" for name in LIMITS.names if name not in operator.keys[1])
    matches_of_right = f"coalesce((SELECT sum(l.w) FROM l WHERE {near}), 0)"
    under = dict(zip(*operator.keys, strict=True))
    of_right = ", ".join(
        f'r."{under[name]}"{" + 0.0" if name == "x" else ""}' if name in under else "NULL" for name in ORDERS.names
    )
    of_left = f"SELECT {left}, {nulls}, l.w FROM l WHERE {matches} <= 0"
    of_right = f"SELECT {of_right}, {right}, r.w FROM r WHERE {matches_of_right} <= 0"
    query = {
        "inner": pairs,
        "left": f"{pairs} UNION ALL {of_left}",
        "right": f"{pairs} UNION ALL {of_right}",
        "full": f"{pairs} UNION ALL {of_left} UNION ALL {of_right}",
        "semi": f"SELECT {left}, l.w FROM l WHERE {matches} > 0",
        "anti": f"SELECT {left}, l.w FROM l WHERE {matches} <= 0",
    }[operator.how]
    rows = connection.sql(query).to_arrow_table()
    rows = rows.rename_columns([*operator.output_schema.names, WEIGHT_COLUMN])
    return counted(
        [
            rows.select(operator.output_schema.names)
            .cast(operator.output_schema)
            .append_column(WEIGHT_COLUMN, rows["w" if "w" in rows.column_names else WEIGHT_COLUMN])
        ]
    )


def counted(tables: Sequence[pa.Table]) -> Counter[str]:
    """Return the weight of each row. Rows that cancel are left out."""
    found = Counter[str]()
    for table in tables:
        has_weight = WEIGHT_COLUMN in table.column_names
        for row in table.to_pylist():
            weight = int(row.pop(WEIGHT_COLUMN)) if has_weight else 1
            found[repr(row)] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


nan = float("nan")
keys_ = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, 0.0, -0.0, nan]))
left_rows = st.builds(
    lambda key, *values: (*key, *values),
    keys_,
    st.integers(0, 2),
    st.sampled_from([None, 0.0, 1.5, nan]),
    st.sampled_from([None, "a", "b"]),
)
right_rows = st.builds(
    lambda key, *values: (*key, *values),
    keys_,
    st.integers(0, 1),
    st.none() | st.integers(0, 2),
    st.sampled_from([None, 0.0, 1.5, nan]),
    st.sampled_from([None, "a", "b"]),
)
pieces = st.lists(
    st.one_of(
        *(
            st.lists(st.tuples(rows, st.sampled_from([1, 1, 2, -1])), max_size=5).map(
                lambda many, side=side: (side, many)
            )
            for side, rows in enumerate((left_rows, right_rows))
        )
    ),
    max_size=4,
)
histories = st.lists(st.tuples(pieces, st.sampled_from([1, 2, 3])), min_size=1, max_size=5)


@profiles.examples(share=0.3)
@given(
    how=st.sampled_from(HOWS),
    condition=st.sampled_from(CONDITIONS),
    keys=st.sampled_from([KEYS, KEYS[:1], ()]),
    appends=st.tuples(st.booleans(), st.booleans()),
    history=histories,
    weak=st.booleans(),
    batch_rows=st.sampled_from([1, 10**6]),
)
def test_the_output_adds_up_to_duckdbs_join_after_each_epoch(
    tmp_path_factory: pytest.TempPathFactory, how: str, condition: Sequence[Comparison], keys: Any,
    appends: tuple[bool, bool], history: Any, weak: bool, batch_rows: int,
) -> None:  # fmt: skip
    """Weights below 0, nulls, NaN, duplicates, changes of both sides, rescales and collisions; each change once."""
    left_schema = WIDE_ORDERS if how in ("right", "full") else ORDERS
    operator = joined(how, condition, keys, appends, left=left_schema)
    operator.batch_rows = batch_rows
    run = TwoInputRun(operator, tmp_path_factory.mktemp("join"), WEAK if weak else KEYED)
    seen: list[list[pa.Table]] = [[weighted(ORDERS, [])], [weighted(LIMITS, [])]]
    shown = Counter[str]()
    for given_pieces, parallelism in history:
        sent = []
        for side, many in given_pieces:
            rows = [(*row, abs(weight) if appends[side] else weight) for row, weight in many]
            table = weighted((ORDERS, LIMITS)[side], rows)
            seen[side].append(table)
            if appends[side]:
                copies = [at for at, row in enumerate(rows) for _ in range(row[-1])]
                table = table.drop_columns([WEIGHT_COLUMN]).take(pa.array(copies, pa.int64()))
            sent.append((side, table))
        run.epoch(sent, parallelism=parallelism)
        if not operator.only_adds:
            every = [repr(row) for one in run.changes for row in one.drop_columns([WEIGHT_COLUMN]).to_pylist()]
            assert len({*every}) == len(every), "a row is emitted once"
            assert all(weight for one in run.changes for weight in one[WEIGHT_COLUMN].to_pylist())
        assert all(one.num_rows <= batch_rows for one in run.changes)
        for row, weight in counted(run.changes).items():
            shown[row] += weight
        net = [pa.concat_tables(tables) for tables in seen]
        assert Counter({row: weight for row, weight in shown.items() if weight}) == batch(operator, net)
    whole = operator.whole({name: run.restore(name) for name in SIDES})
    assert counted([*whole]) == batch(operator, [pa.concat_tables(tables) for tables in seen])


def test_a_change_on_either_side_emits_the_pairs_that_change_and_no_others(tmp_path: Path) -> None:
    run = TwoInputRun(joined(keys=KEYS[:1]), tmp_path)
    run.epoch([orders((1, 1), (2, 1), (7, 1)), limits((1, 1), (2, 1))])
    assert sorted(listed(run.changes, "k", "rid")) == [(1, 5, 1), (2, 5, 1)]
    run.epoch([limits((2, -1), (2, 0.0, 6, 9, 2.0, "b", 1), (3, 1))])
    assert sorted(listed(run.changes, "k", "rid")) == [(2, 5, -1), (2, 6, 1)]
    run.epoch([orders((2, -1), (2, 0.0, 4, 1.0, "a", 1)), limits((2, 0.0, 6, 9, 2.0, "b", -1), (2, 1))])
    assert sorted(listed(run.changes, "k", "amount", "rid")) == [(2, 1, 6, -1), (2, 4, 5, 1)], "both sides of a key"
    run.epoch([orders((1, -1), (1, 1)), limits((1, 1), (1, -1))])
    assert not run.changes


def test_rows_of_both_sides_are_padded_until_they_have_a_match(tmp_path: Path) -> None:
    """A key that changes on both sides in one epoch, and rows with a null in their key, which never match."""
    condition = (Comparison("amount", "<", "most"),)
    run = TwoInputRun(joined("full", condition, KEYS[:1], left=WIDE_ORDERS), tmp_path)
    run.epoch([orders((1, 1), (None, 1)), limits((2, 1), (None, 1))], parallelism=2)
    shown = ("k", "amount", "rid", "most")
    assert Counter(listed(run.changes, *shown)) == Counter(
        [(1, 1, None, None, 1), (None, 1, None, None, 1), (2, None, 5, 9, 1), (None, None, 5, 9, 1)]
    )
    run.epoch([orders((2, 1), (1, -1)), limits((1, 1), (2, -1), (2, 0.0, 6, 0, 2.0, "b", 1))], parallelism=3)
    assert Counter(listed(run.changes, *shown)) == Counter(
        [(1, 1, None, None, -1), (2, None, 5, 9, -1), (2, None, 6, 0, 1), (1, None, 5, 9, 1), (2, 1, None, None, 1)]
    ), "the pair of key 2 fails the condition, so both of its rows are padded"
    run.epoch([limits((2, 0.0, 7, 9, 2.0, "b", 1))])
    assert Counter(listed(run.changes, *shown)) == Counter([(2, 1, None, None, -1), (2, 1, 7, 9, 1)])
    run.epoch([orders((2, -1), (None, -1)), limits((None, -1))])
    assert Counter(listed(run.changes, *shown)) == Counter(
        [(2, 1, 7, 9, -1), (2, None, 7, 9, 1), (None, 1, None, None, -1), (None, None, 5, 9, -1)]
    )


def test_rows_with_a_null_key_are_stored_only_where_they_are_emitted(tmp_path: Path) -> None:
    for how, stored in (("inner", [0, 0]), ("left", [1, 0]), ("right", [0, 1]), ("full", [1, 1])):
        run = TwoInputRun(joined(how, left=WIDE_ORDERS), tmp_path / how)
        run.epoch([orders((None, 1)), limits((None, 1))])
        assert [run.restore(name).rows().num_rows for name in SIDES] == stored, how


def test_a_right_row_without_a_match_stays_so_while_another_row_of_its_key_changes(tmp_path: Path) -> None:
    """Its unchanged left rows decide whether it has a match, so they are read too."""
    run = TwoInputRun(joined("right", left=WIDE_ORDERS), tmp_path)
    run.epoch([orders((1, 1)), limits((1, 1))])
    run.epoch([orders((1, 0.0, 2, 1.0, "a", 1))])
    assert listed(run.changes, "amount", "rid") == [(2, 5, 1)]
    run.epoch([orders((1, -1))])
    assert listed(run.changes, "amount", "rid") == [(1, 5, -1)], "the other left row still matches"
    run.epoch([orders((1, 0.0, 2, 1.0, "a", -1))])
    assert Counter(listed(run.changes, "amount", "rid")) == Counter([(2, 5, -1), (None, 5, 1)])


def test_a_left_row_changes_only_when_its_outcome_does(tmp_path: Path) -> None:
    """A second match, a match that fails the condition, and a change of what is not compared change nothing."""
    run = TwoInputRun(joined("semi", (Comparison("amount", "<", "most"),), ()), tmp_path)
    run.epoch([orders(*((key, 0.0, key, 1.0, "a", 1) for key in range(10))), limits((1, 0.0, 5, 4, 2.0, "b", 1))])
    assert sorted(listed(run.changes, "amount")) == [(amount, 1) for amount in range(4)]
    run.epoch([limits((1, 0.0, 5, 4, 2.0, "b", -1), (2, 0.0, 5, 6, 2.0, "c", 1))])
    assert sorted(listed(run.changes, "amount")) == [(4, 1), (5, 1)], "a new limit emits only the rows between"
    run.epoch([limits((9, 0.0, 5, 3, 2.0, "b", 1))])
    assert not run.changes
    assert run.operator.tables["right"].schema.names[:1] == ["most"], "of right rows only the compared columns are kept"


def test_of_a_right_side_that_is_only_tested_for_rows_their_number_is_stored(tmp_path: Path) -> None:
    run = TwoInputRun(joined("anti", (), ()), tmp_path)
    run.epoch([orders((1, 1)), limits((1, 1), (2, 1))])
    assert not run.changes and run.restore("right").rows().column(WEIGHT_COLUMN).to_pylist() == [2]
    run.epoch([limits((1, -1))])
    assert not run.changes
    run.epoch([limits((2, -1))])
    assert listed(run.changes, "k") == [(1, 1)]


def test_append_sides_emit_final_rows_as_often_as_they_occur(tmp_path: Path) -> None:
    operator = joined("semi", appends=(True, True))
    operator.batch_rows = 2
    run = TwoInputRun(operator, tmp_path)
    (_, left), (_, right) = orders((1, 1), (1, 1), (1, 1)), limits((1, 1))
    run.epoch([(0, left.drop_columns([WEIGHT_COLUMN]))])
    assert not run.changes and operator.only_adds and not joined("left", appends=(True, True)).only_adds
    run.epoch([(1, right.drop_columns([WEIGHT_COLUMN]))])
    assert [one.num_rows for one in run.changes] == [2, 1]
    assert pa.concat_tables(run.changes).schema == operator.output_schema


def test_a_retraction_without_its_row_is_refused_once_nothing_is_in_flight(tmp_path: Path) -> None:
    run = TwoInputRun(joined(), tmp_path)
    run.epoch([limits((1, -1))])
    opened: Any = run.operator.begin({name: run.restore(name) for name in SIDES}, None)
    list(opened.rows(*orders((2, 1)), None))
    opened.finish(None)
    opened.check_settled(all_keys=False)
    with wording.raises(OperatorFailed):
        opened.check_settled(all_keys=True)
    list(opened.rows(*limits((3, -1)), None))
    again: Any = run.operator.begin({name: run.restore(name) for name in SIDES}, None)
    list(again.rows(*limits((3, -1)), None))
    with wording.raises(OperatorFailed):
        again.check_settled(all_keys=False)


def test_rows_with_lists_and_structs_are_joined_and_retracted(tmp_path: Path) -> None:
    nested = pa.schema([("order", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.struct([("x", pa.int8())]))])
    run = TwoInputRun(joined(keys=KEYS[:1], right=nested), tmp_path)
    rows = [(1, ["a"], {"x": 1}, 1), (1, ["a", "b"], None, 1)]
    run.epoch([orders((1, 1)), (1, weighted(nested, rows))])
    assert sum(one.num_rows for one in run.changes) == 2
    run.epoch([(1, weighted(nested, [(*rows[0][:-1], -1)]))])
    assert [row["tags"] for one in run.changes for row in one.to_pylist()] == [["a"]]


@pytest.mark.parametrize(
    "options",
    [
        {"keys": (("k", "absent"),)},
        {"keys": (("name", "order"),)},
        {"condition": (Comparison("absent", "=", "label"),)},
        {"condition": (Comparison("name", "<", "most"),)},
        {"condition": (Comparison("price", "=", "most"),)},
        {"how": "right"},
        {"how": "full"},
        {"left": ORDERS.append(pa.field("label", pa.string()))},
    ],
)
def test_columns_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        joined(**options)


def test_a_left_row_without_a_match_stays_so_if_a_retraction_arrives_first(tmp_path: Path) -> None:
    run = TwoInputRun(joined("anti"), tmp_path)
    run.epoch([orders((1, 1)), limits((1, -1))])
    assert listed(run.changes, "k") == [(1, 1)]
    run.epoch([limits((1, 1))])
    assert not run.changes
    run.epoch([limits((1, 1))])
    assert listed(run.changes, "k") == [(1, -1)]


def test_pairs_of_a_hot_key_are_emitted_in_pieces(tmp_path: Path) -> None:
    """A right row of 300 left rows, and 300 left rows of it, in outputs of 100 rows."""
    operator = joined("left")
    operator.batch_rows = 100
    run = TwoInputRun(operator, tmp_path)
    run.epoch([orders(*((1, 0.0, number, 1.0, "a", 1) for number in range(300)))])
    assert [one.num_rows for one in run.changes] == [100] * 3
    run.epoch([limits((1, 1))])
    assert [one.num_rows for one in run.changes] == [100] * 6
    assert sum(one.column(WEIGHT_COLUMN).to_pylist().count(-1) for one in run.changes) == 300

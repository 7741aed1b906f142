"""Column lineage of sinks: the expected origins, and that no column depends on any other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from milepost.jobspec.column_lineage.sink_columns import lineage_document, sink_lineage
from milepost.jobspec.graph.graph import analyse
from milepost.jobspec.job.spec import JobSpec
from milepost.operators.base.origins import RowsLineage, SourceColumn
from milepost_testkit import profiles
from milepost_testkit.specs.graphs import build_graph

AT = "timestamp[us, UTC]"
SOURCES = {
    "sales": {
        "format": "json",
        "path": "sales/*",
        "schema": {"id": "int64", "shop": "int64", "a": "int64", "b": "int64", "s": "string", "at": AT},
        "event_time": "at",
    },
    "returns": {
        "format": "json",
        "path": "returns/*",
        "schema": {"sale": "int64", "why": "string", "back_at": AT},
        "event_time": "back_at",
    },
    "shops": {"format": "json", "path": "shops/*", "schema": {"shop": "int64", "city": "string"}, "static": True},
}
SALE = ("id", "shop", "a", "b", "s", "at")


def lineage_of(*operators: dict[str, Any], output: str, mode: str = "append") -> RowsLineage:
    return sink_lineage(spec := job(*operators, output=output, mode=mode), build_graph(spec))["shown"]


def job(*operators: dict[str, Any], output: str, mode: str = "append") -> JobSpec:
    sink = {"name": "shown", "input": output, "format": "parquet", "path": "lake/shown", "mode": mode}
    read = {name for operator in operators for name in operator["inputs"]} or {"sales"}
    sources = {name: source for name, source in SOURCES.items() if name in read}
    value = {"name": "job", "storage": "lake", "sources": sources, "operators": list(operators), "sinks": [sink]}
    return JobSpec.model_validate(value)


def words(rows: RowsLineage, column: str | None = None) -> set[str]:
    """Return each origin as text; of a column, or of the rows."""
    origins = rows.rows if column is None else rows.of(column)
    return {
        f"{origin.source}.{origin.column} {transformation.subtype}{' masked' if transformation.masking else ''}"
        for origin, transformations in origins.items()
        for transformation in transformations
    }


def operator(uid: str, kind: str, *inputs: str, **rest: Any) -> dict[str, Any]:
    return {"uid": uid, "kind": kind, "inputs": list(inputs or ("sales",)), **rest}


def test_sql_lineage_has_identity_transformation_conditions_and_hashes() -> None:
    sql = (
        "SELECT shop, A + b AS total, CASE WHEN a > 0 THEN s END AS word, if(b > 1, id, 0) AS i, sha2(s, 256) AS h, "
        "transform(array(a), v -> v + b) AS l, at FROM sales AS x WHERE x.id > 3"
    )
    rows = lineage_of(operator("made", "sql", sql=sql), output="made")
    assert {name: words(rows, name) for name in rows.columns} == {
        "shop": {"sales.shop IDENTITY"},
        "total": {"sales.a TRANSFORMATION", "sales.b TRANSFORMATION"},
        "word": {"sales.a CONDITIONAL", "sales.s TRANSFORMATION"},
        "i": {"sales.b CONDITIONAL", "sales.id TRANSFORMATION"},
        "h": {"sales.s TRANSFORMATION masked"},
        "l": {"sales.a TRANSFORMATION", "sales.b TRANSFORMATION"},
        "at": {"sales.at IDENTITY"},
    }
    assert words(rows) == {"sales.id FILTER"}


def test_a_union_is_traced_by_column_and_an_explode_decides_the_number_of_rows() -> None:
    union = "SELECT id AS n, s AS t FROM sales UNION ALL SELECT sale, upper(why) AS t FROM returns"
    rows = lineage_of(operator("both", "sql", "sales", "returns", sql=union), output="both")
    assert words(rows, "n") == {"sales.id IDENTITY", "returns.sale IDENTITY"}
    assert words(rows, "t") == {"sales.s IDENTITY", "returns.why TRANSFORMATION"}
    rows = lineage_of(operator("apart", "sql", sql="SELECT id, explode(split(s, ' ')) AS w FROM sales"), output="apart")
    assert (words(rows, "w"), words(rows)) == ({"sales.s TRANSFORMATION"}, {"sales.s FILTER"})


def test_aggregates_and_windows_depend_on_arguments_keys_filters_and_event_time() -> None:
    calls = {"n": "count(*)", "most": "arg_max(s, a)", "sum": "sum(b) filter (where id > 3)", "newest": "last(s)"}
    windows = operator("hourly", "window", key=["shop"], window={"tumbling": "1h"}, aggregates=calls)
    rows = lineage_of(windows, output="hourly")
    assert {name: words(rows, name) for name in rows.columns} == {
        "shop": {"sales.shop IDENTITY"},
        "window_start": {"sales.at TRANSFORMATION"},
        "window_end": {"sales.at TRANSFORMATION"},
        "n": set(),
        "most": {"sales.s AGGREGATION", "sales.a SORT"},
        "sum": {"sales.b AGGREGATION", "sales.id FILTER"},
        "newest": {"sales.s AGGREGATION", "sales.at SORT"},
    }
    assert words(rows) == {"sales.shop GROUP_BY", "sales.at WINDOW"}
    late = lineage_of(windows, output="hourly.late")
    assert (words(late, "s"), words(late)) == ({"sales.s IDENTITY"}, {"sales.at FILTER"})


def test_joins_depend_on_the_columns_of_both_sides_and_on_the_join_keys() -> None:
    pairs = operator("pairs", "join", "sales", "returns", key=[{"id": "sale"}], within=["0s", "1h"], how="right")
    rows = lineage_of(pairs, output="pairs")
    assert words(rows, "why") == {"returns.why IDENTITY"}
    assert words(rows, "id") == {"sales.id IDENTITY", "returns.sale IDENTITY"}, "a right row alone shows its own key"
    assert words(rows) == {f"{column} JOIN" for column in ("sales.id", "sales.at", "returns.sale", "returns.back_at")}
    anti = lineage_of({**pairs, "how": "anti"}, output="pairs")
    assert set(anti.columns) == set(SALE) and words(anti) == words(rows)
    found = operator("found", "lookup", "sales", "shops", key=["shop"], order_by=[{"city": "desc"}])
    rows = lineage_of(found, output="found")
    assert words(rows, "city") == {"shops.city IDENTITY"}
    assert words(rows) == {"sales.shop JOIN", "shops.shop JOIN", "shops.city SORT"}


def test_through_several_operators_the_strongest_transformation_counts() -> None:
    clean = operator("clean", "sql", sql="SELECT shop, a + 1 AS a, at FROM sales WHERE b > 0")
    totals = operator("totals", "aggregate", "clean", key=["shop"], aggregates={"most": "max(a)"})
    shown = operator("doubled", "sql", "totals", sql="SELECT shop, most * 2 AS most FROM totals")
    rows = lineage_of(clean, totals, shown, output="doubled", mode="upsert")
    assert words(rows, "most") == {"sales.a AGGREGATION"}
    assert words(rows) == {"sales.b FILTER", "sales.shop GROUP_BY"}


def test_downstream_of_a_class_every_column_depends_on_all_its_inputs() -> None:
    made = operator("made", "process", key=["shop"], function="ops:Made")
    rows = lineage_of(made, operator("kept", "sql", "made", sql="SELECT x FROM made"), output="kept")
    assert rows.columns == {} and {origin.column for origin in rows.of("whatever")} == set(SALE)
    assert "sales.shop GROUP_BY" in words(rows)


def test_bad_records_have_no_source_columns() -> None:
    sources = {"sales": {**SOURCES["sales"], "bad_records": "dead_letter"}}
    sink = {"name": "shown", "input": "sales.bad", "format": "parquet", "path": "lake/shown", "mode": "append"}
    spec = JobSpec.model_validate({"name": "job", "storage": "lake", "sources": sources, "sinks": [sink]})
    document = lineage_document(spec, build_graph(spec))["shown"]
    assert document["rows"] == [] and set(map(len, document["columns"].values())) == {0}


# --- The oracle: DuckDB, with other values in one column ---


@dataclass(frozen=True)
class Step:
    """One operator, and the equivalent DuckDB query over its inputs. columns: output columns with types."""

    operator: dict[str, Any]
    query: str
    columns: Mapping[str, str]


_IF = ("CASE WHEN {a} > {b} THEN {a} ELSE 0 END", "if({a} > 1, {b}, {a})")
_CALLS = ("coalesce({a}, {b})", "abs({a}) % 3", "greatest({a}, {b})", "length({t})")
INTEGERS = st.sampled_from(["{a}", "{a} + {b}", "{a} * 2", *_IF, *_CALLS])
_CASE = "CASE {a} WHEN 1 THEN {t} ELSE 'x' END"
TEXTS = st.sampled_from(["{t}", "upper({t})", "concat({t}, cast({a} AS string))", "md5({t})", _CASE])
WHERE = st.sampled_from(["", "", " WHERE {a} > 1", " WHERE {a} < {b} OR {t} = 'y'"])


def _filled(draw: st.DrawFn, template: str, columns: Mapping[str, str]) -> str:
    def reference(kind: str, fallback: str) -> str:
        names = sorted(name for name, type_ in columns.items() if type_ == kind)
        return draw(st.sampled_from(names)) if names else fallback

    return template.format(a=reference("int", "1"), b=reference("int", "2"), t=reference("text", "'y'"))


@st.composite
def sql_step(draw: st.DrawFn, uid: str, name: str, columns: Mapping[str, str]) -> Step:
    items = {f"i{uid}": (INTEGERS, "int"), f"j{uid}": (INTEGERS, "int"), f"t{uid}": (TEXTS, "text")}
    texts = [f"{_filled(draw, draw(kind), columns)} AS {made}" for made, (kind, _) in items.items()]
    kept = draw(st.sampled_from(sorted(columns)))
    sql = f"SELECT {kept}, {', '.join(texts)} FROM {name}{_filled(draw, draw(WHERE), columns)}"
    known = {kept: columns[kept]} | {made: type_ for made, (_, type_) in items.items()}
    return Step(operator(uid, "sql", name, sql=sql), sql, known)


@st.composite
def keyed_step(draw: st.DrawFn, uid: str, name: str, columns: Mapping[str, str]) -> Step:
    key = draw(st.sampled_from(sorted(columns)))
    of, by = _filled(draw, "{a}", columns), _filled(draw, "{b}", columns)
    if not (of.isidentifier() and by.isidentifier()):
        of = by = key
    kind = draw(st.sampled_from(["aggregate", "top", "lookup"]))
    if kind == "aggregate":
        calls = {
            f"n{uid}": "count(*)",
            f"m{uid}": f"max({of})",
            f"f{uid}": f"count({of}) filter (where {by} IS NOT NULL)",
        }
        text = ", ".join(f"{call} AS {made}" for made, call in calls.items())
        known = {key: columns[key], f"n{uid}": "int", f"m{uid}": columns[of], f"f{uid}": "int"}
        query = f"SELECT {key}, {text} FROM {name} GROUP BY {key}"
        return Step(operator(uid, kind, name, key=[key], aggregates=calls), query, known)
    if kind == "top":
        query = (
            f"SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY {of} DESC, {by}) AS r{uid} FROM {name} "
            f"QUALIFY r{uid} <= 2"
        )
        order = [{of: "desc"}] + ([by] if by != of else [])
        return Step(operator(uid, kind, name, key=[key], order_by=order, n=2, rank=f"r{uid}"), query, {
            **columns, f"r{uid}": "int"})  # fmt: skip
    pair = next((name for name in sorted(columns) if columns[name] == "int"), None)
    if pair is None or {"city"} & set(columns):
        return draw(sql_step(uid, name, columns))
    query = f"SELECT l.*, d.city FROM {name} l JOIN (SELECT shop AS key_, city FROM shops) d ON l.{pair} = d.key_"
    return Step(operator(uid, kind, name, "shops", key=[{pair: "shop"}]), query, {**columns, "city": "text"})


@st.composite
def chains(draw: st.DrawFn) -> list[Step]:
    """Draw one to three operators, each reading the previous one."""
    name, columns = "sales", {"id": "int", "shop": "int", "a": "int", "b": "int", "s": "text"}
    steps: list[Step] = []
    kinds = draw(
        st.sampled_from([["sql"], ["sql", "keyed"], ["keyed", "sql"], ["sql", "sql", "keyed"], ["sql", "keyed", "sql"]])
    )
    for at, kind in enumerate(kinds):
        step = draw((sql_step if kind == "sql" else keyed_step)(f"x{at}", name, columns))
        steps.append(step)
        name, columns = step.operator["uid"], step.columns
    return steps


Rows = dict[str, list[list[Any]]]
TYPES = {"sales": "id BIGINT, shop BIGINT, a BIGINT, b BIGINT, s VARCHAR", "shops": "shop BIGINT, city VARCHAR"}


def rows_at_random(seed: int) -> Rows:
    rng = random.Random(seed)
    sales = [
        [n, rng.randint(1, 3), rng.choice([None, *range(4)]), rng.randint(0, 3), rng.choice("xyz")] for n in range(12)
    ]
    return {"sales": sales, "shops": [[shop, rng.choice(["Rome", "Oslo", "Bern"])] for shop in range(4)]}


def changed(rows: Rows, source: str, at: int, seed: int) -> Rows:
    """Return the rows with changed values in one column. The key of the static source stays unique."""
    rng = random.Random(seed)
    values = [row[at] for row in rows[source]]
    if source == "shops":
        new: list[Any] = [value + 1 if isinstance(value, int) else f"{value}!" for value in values]
    else:
        new = [f"{value}!" if isinstance(value, str) else rng.randint(0, 5) for value in values]
    return rows | {source: [[*row[:at], value, *row[at + 1 :]] for row, value in zip(rows[source], new, strict=True)]}


def shown_by(database: duckdb.DuckDBPyConnection, steps: list[Step], rows: Rows) -> dict[str, Counter[Any]]:
    """Return the values of each column of the last query, counted."""
    for name, columns in TYPES.items():
        values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows[name])
        database.execute(f"CREATE OR REPLACE TABLE {name} ({columns}); INSERT INTO {name} VALUES {values}")
    named = ", ".join(f"{step.operator['uid']} AS ({step.query})" for step in steps)
    last = database.execute(f"WITH {named} SELECT * FROM {steps[-1].operator['uid']}")
    names = [column[0] for column in last.description or ()]
    results = last.fetchall()
    return {name: Counter(row[index] for row in results) for index, name in enumerate(names)}


def _literal(value: object) -> str:
    return "NULL" if value is None else repr(value)


def source_columns() -> Iterator[tuple[str, int, str]]:
    for source, columns in TYPES.items():
        for at, column in enumerate(columns.split(", ")):
            yield source, at, column.split()[0]


@pytest.mark.deep
@given(steps=chains(), seed=st.integers(0, 1_000))
@profiles.examples(share=0.3)
def test_a_column_outside_the_lineage_does_not_affect_the_result(steps: list[Step], seed: int) -> None:
    """Soundness, by DuckDB: changed values in a source column affect only columns whose lineage contains it.

    Where it decides which rows there are, they may all change.
    """
    last = steps[-1].operator["uid"]
    mode = "append" if all(step.operator["kind"] in ("sql", "lookup") for step in steps) else "upsert"
    spec = job(*(step.operator for step in steps), output=last, mode=mode)
    graph, _ = analyse(spec)
    assume(graph is not None)  # a key that SQL drops behind updates is refused: then there is no lineage
    assert graph is not None
    rows = sink_lineage(spec, graph)["shown"]
    data = rows_at_random(seed)
    database = duckdb.connect(":memory:")
    before = shown_by(database, steps, data)
    for source, at, column in source_columns():
        if SourceColumn(source, column) in rows.rows:
            continue
        after = shown_by(database, steps, changed(data, source, at, seed))
        for name, values in before.items():
            if SourceColumn(source, column) not in rows.of(name):
                assert after.get(name) == values, (source, column, name, [step.query for step in steps])


def test_lint_shows_the_lineage_of_each_sink() -> None:
    spec = job(operator("made", "sql", sql="SELECT id, a + b AS c FROM sales"), output="made")
    columns = lineage_document(spec, build_graph(spec))["shown"]["columns"]
    expected = {"source": "sales", "type": "DIRECT", "subtype": "TRANSFORMATION", "masking": False}
    assert columns["c"] == [{**expected, "column": "a"}, {**expected, "column": "b"}] and len(columns["id"]) == 1

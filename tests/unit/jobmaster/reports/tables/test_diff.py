"""`milepost diff` finds the same changes between two checkpoints as DuckDB."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import NotFound
from milepost.jobmaster import Session, Triggered
from milepost.jobmaster.reports.tables import state_rows
from milepost.jobmaster.reports.tables.diff import Difference
from milepost.jobmaster.reports.tables.row_changes import (
    RowChanges,
    changes_by_key,
    changes_of_rows,
    compare_by_columns,
    compare_by_key,
)
from milepost.spill.external_sort import sorted_rows
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.sparkless.changing_job import SINK, SPEC, ChangingJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.held_rows import hold_few_rows
from milepost_testkit.stores.hooked_store import HookedStore

RENAMED = SPEC.replace("uid: sums,", "uid: totals, renamed_from: sums,")


HELD = ("in memory", "on the disk", "on the disk, of every key")
PAIRS = ((1, 2), (2, 3), (1, 3), (3, 1), (2, 2), (0, 2))
IN_MAKE_TEST = {*product(HELD, [(1, 3)]), *product(HELD[:1], [(2, 2), (0, 2)])}


@pytest.fixture(params=[*HELD[:2], pytest.param(HELD[2], marks=pytest.mark.deep)])
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a comparison holds: the answer is the same."""
    if request.param != "in memory":
        hold_few_rows(monkeypatch)
    if request.param.endswith("every key"):
        monkeypatch.setattr(state_rows, "MAX_CHANGED_ROWS", 0)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ChangingJob:
    """Four checkpoints; 3 widens a column of state and adds one, 4 has the aggregate renamed."""
    job = ChangingJob.empty(tmp_path_factory.mktemp("diff"))
    job.write({"a": "int32"}, SPEC + SINK)
    rows = "".join(f"{k},{k}\n" for k in range(40))
    job.land("0.csv", f"k,v\n{rows}")
    job.run()
    job.land("1.csv", "k,v\n3,100\n50,5\n")
    job.run()
    job.write({"a": "int64", "b": "int32"}, SPEC + SINK)
    job.land("2.csv", "k,v\n3,7\n60,6\n")
    job.run()
    job.write({"a": "int64", "b": "int32"}, RENAMED + SINK.replace("input: sums", "input: totals"))
    job.land("3.csv", "k,v\n1,-1\n")
    job.run()
    return job


def difference(job: ChangingJob, before: int, after: int, kind: str, name: str) -> Difference:
    return next(item for item in job.master.reports.diff(before, after) if (item.kind, item.name) == (kind, name))


def oracle(before: pa.Table, after: pa.Table, key: str) -> list[tuple[Any, ...]]:
    """DuckDB's account of two tables with one key column, as rows of `changes_by_key`."""
    names = list(dict.fromkeys(name for name in (*before.column_names, *after.column_names) if name != key))
    shown, differs = [], []
    for name in names:
        sides = [
            f'{side}."{name}"' if name in table.column_names else "NULL"
            for side, table in (("a", before), ("b", after))
        ]
        differs.append(f"{sides[0]} IS DISTINCT FROM {sides[1]}")
        shown += [text for text, table in zip(sides, (before, after), strict=True) if name in table.column_names]
    query = f"""
        SELECT CASE WHEN b.here IS NULL THEN 'removed' WHEN a.here IS NULL THEN 'added' ELSE 'changed' END,
               coalesce(a."{key}", b."{key}"), {", ".join(shown)}
        FROM (SELECT true AS here, * FROM before) a FULL OUTER JOIN (SELECT true AS here, * FROM after) b
          ON a."{key}" = b."{key}"
        WHERE a.here IS NULL OR b.here IS NULL OR {" OR ".join(differs)}"""
    return sorted(duckdb.sql(query).fetchall(), key=repr)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.long
@pytest.mark.parametrize(
    ("held", "before", "after"),
    [
        pytest.param(held, *pair, marks=() if (held, pair) in IN_MAKE_TEST else pytest.mark.deep)
        for held in HELD
        for pair in PAIRS
    ],
    indirect=["held"],
)
@pytest.mark.parametrize("uid", ["totals", "lasts"])
@pytest.mark.usefixtures("held")
def test_changed_keys_equal_those_of_duckdb(job: ChangingJob, before: int, after: int, uid: str) -> None:
    """Old and new values of every differing key, whatever the schemas, runs and order of the two."""
    stored = "sums" if uid == "totals" else uid
    new = job.master.reports.state_values(stored, after)
    old = job.master.reports.state_values(stored, before) if before else new.schema.empty_table()
    found = difference(job, before, after, "operator", uid)
    assert rows_of(found.changes.table) == oracle(old, new, "k")
    counts = Counter(row[0] for row in rows_of(found.changes.table))
    assert {name: found.changes.count(name) for name in ("added", "removed", "changed")} == {
        name: counts[name] for name in ("added", "removed", "changed")
    }


def test_a_renamed_operator_is_compared_with_its_former_uid(job: ChangingJob) -> None:
    found = difference(job, 3, 4, "operator", "totals")
    assert rows_of(found.changes.table) == oracle(
        job.master.reports.state_values("sums", 3), job.master.reports.state_values("totals", 4), "k"
    )
    assert found.changes.count("changed") == 1


@pytest.mark.long
@pytest.mark.usefixtures("held")
def test_sources_show_objects_and_sinks_rows(job: ChangingJob) -> None:
    objects = difference(job, 1, 3, "source", "rows").changes.table
    assert [(row["change"], row["key"]) for row in objects.to_pylist()] == [("added", "1.csv"), ("added", "2.csv")]
    assert difference(job, 3, 1, "source", "rows").changes.count("removed") == 2
    sums = difference(job, 1, 3, "sink", "sums").changes.table
    assert rows_of(sums) == oracle(job.master.reports.read("sums", 1), job.master.reports.read("sums", 3), "k")
    seen = difference(job, 1, 3, "sink", "lasts").changes.table
    published = [rows_of(job.master.reports.read("lasts", at)) for at in (1, 3)]
    added = Counter(published[1]) - Counter(published[0])
    assert Counter(row[1:] for row in rows_of(seen)) == added and set(seen["change"].to_pylist()) == {"added"}


@pytest.mark.deep
def test_a_table_of_totals_shows_the_row_of_both_sides(tmp_path: Path) -> None:
    """Both checkpoints have the files of the earlier one, whose row is the latest of one side only."""
    job = ChangingJob.empty(tmp_path)
    total = "  - {uid: all, kind: aggregate, inputs: [rows], key: [], aggregates: {n: count(*)}}\n"
    sink = "  - {name: all, input: all, format: parquet, path: ../lake/all, mode: upsert}\n"
    for _ in range(2):
        job.next({"a": "int32"}, SPEC.replace("sinks:\n", total + "sinks:\n") + sink)
    assert rows_of(difference(job, 1, 2, "sink", "all").changes.table) == [("added", 2 + 1), ("removed", 1)]
    assert rows_of(difference(job, 2, 1, "sink", "all").changes.table) == [("added", 1), ("removed", 2 + 1)]


def test_a_run_that_both_refer_to_is_read_once_and_equal_states_are_not_read(
    job: ChangingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def count(operation: str, key: str) -> None:
        if operation == "get" and "/state/" in key:
            read.append(key)

    monkeypatch.setattr(
        "milepost.jobmaster.job.context.open_store", lambda config: HookedStore(open_store(config), before=count)
    )
    master = job.master
    assert all(item.changes.table.num_rows == 0 for item in master.reports.diff(2, 2))
    assert read == []
    master.reports.diff(1, 2, ("operator", "totals"))
    assert len(read) == len(set(read)) > 1, "a base that both refer to, and a delta"
    runs = {run.key for at in (1, 2) for run in runs_of(job, at)}
    assert set(read) <= runs


def runs_of(job: ChangingJob, at: int) -> list[Any]:
    context = job.context
    checkpoint = context.head().state.checkpoint(at)  # type: ignore[arg-type]
    assert checkpoint is not None
    return [run for handle in context.metadata(checkpoint).operators["sums"].handles for run in handle.runs]


@pytest.mark.long
def test_the_command_prints_counts_tables_and_documents(job: ChangingJob, tmp_path: Path) -> None:
    """DESIGN 8.2: data on stdout, one versioned document with --json, formats as `state` has them."""
    spec = job.folder / "config" / "small.yaml"
    text = milepost("diff", spec, "1", "2")
    assert text.exit_code == 0 and "3 → 103" in text.stdout
    wording.matches("diff", text.stdout)
    document = json.loads(milepost("diff", spec, "1", "2", "--json").stdout)
    assert document["ok"] and (document["data"]["from"], document["data"]["to"]) == (1, 2)
    totals = next(item for item in document["data"]["differences"] if item["name"] == "totals")
    assert (totals["added"], totals["removed"], totals["changed"]) == (1, 0, 1)
    one = milepost("diff", spec, "1", "2", "--operator", "totals", "--format", "json")
    assert json.loads(one.stdout) == totals["rows"]
    file = tmp_path / "diff.parquet"
    assert milepost("diff", spec, "1", "2", "--sink", "sums", "--output", file).exit_code == 0
    assert pq.read_table(file).num_rows == 2
    same = milepost("diff", spec, "1", "1", "--sink", "sums")
    assert same.exit_code == 0
    wording.matches("diff", same.stderr)
    assert_clear_error(milepost("diff", spec, "1", "9"), 3, golden="diff")
    assert_clear_error(milepost("diff", spec, "1", "2", "--operator", "nobody"), 3, golden="diff")
    assert_clear_error(milepost("diff", spec, "1", "2", "--format", "csv"), 2, golden="diff")
    assert_clear_error(milepost("diff", spec, "1", "2", "--sink", "sums", "--source", "rows"), 2, golden="diff")


def test_rows_are_sorted_by_key_and_limited(job: ChangingJob) -> None:
    """Rows beyond the limit are omitted but counted."""
    spec = job.folder / "config" / "small.yaml"
    told = milepost("diff", spec, "0", "2", "--json", "--limit", "7").document()["differences"]
    totals, rows = (next(item for item in told if item["name"] == name) for name in ("totals", "rows"))
    assert [row["k"] for row in totals["rows"]] == [0, 1, 2, 3, 4, 5, 6]
    assert (totals["added"], totals["left_out"]) == (41, 34)
    assert [(row["key"], rows["left_out"]) for row in rows["rows"]] == [("0.csv", 0), ("1.csv", 0)]
    short = milepost("diff", spec, "0", "2", "--operator", "totals", "--format", "csv", "--limit", "2")
    assert [line.split(",")[1] for line in short.stdout.splitlines()] == ['"k"', "0", "1"]
    wording.matches("diff", short.stderr)
    wording.matches("diff", milepost("diff", spec, "0", "2").stderr)


def test_both_checkpoints_are_pinned_during_a_comparison(job: ChangingJob) -> None:
    job.master.reports.diff(1, 2)
    events = [event["event"] for event in job.master.reports.history(4)]
    assert events == ["CheckpointUnpinned", "CheckpointUnpinned", "CheckpointPinned", "CheckpointPinned"]
    with pytest.raises(NotFound):
        job.master.reports.diff(1, 77)
    assert not job.context.head().state.pins


@pytest.mark.long
def test_a_table_that_cannot_be_read_at_a_checkpoint_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else is compared. A table that is unpublished or moved in the spec is read."""
    job = ChangingJob.empty(tmp_path)
    monkeypatch.setenv("LAKE", str(tmp_path / "lake"))
    sink = SINK.replace("../lake/sums", '"${env:LAKE}/sums"')
    job.next({"a": "int32"}, SPEC + sink)
    job.land("9.csv", "k,v\n5,5\n")
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    assert isinstance(triggered, Triggered)
    job.master.epochs.run_epoch(session, triggered.checkpoint_id, SparklessRunner())
    job.master.epochs.complete(session, triggered.checkpoint_id)
    unpublished = difference(job, 1, 2, "sink", "sums")
    assert unpublished.changes.table.num_rows == 1 and not unpublished.note
    assert difference(job, 1, 2, "operator", "sums").changes.count("added") == 1
    job.write({"a": "int32"}, SPEC)
    wording.matches("diff", difference(job, 1, 2, "sink", "sums").note)
    job.write({"a": "int32"}, SPEC + SINK.replace("lake/sums", "lake/other"))
    moved = difference(job, 1, 2, "sink", "sums")
    assert moved.changes.table == unpublished.changes.table and not moved.note
    monkeypatch.setenv("LAKE", str(tmp_path / "another"))
    gone = difference(job, 1, 2, "sink", "sums")
    wording.matches("diff", gone.note)


@pytest.mark.long
def test_state_that_was_restarted_with_another_key_is_not_compared(tmp_path: Path) -> None:
    job = ChangingJob.empty(tmp_path)
    job.next({"a": "int32"})
    job.next({"a": "int32"}, SPEC.replace("uid: sums", "uid: others"), allow_non_restored_state=True)
    job.next(
        {"a": "int32"},
        SPEC.replace("inputs: [rows], key: [k], agg", "inputs: [rows], key: [v], agg"),
        allow_non_restored_state=True,
    )
    wording.matches("diff", difference(job, 1, 2, "operator", "sums").note)
    wording.matches("diff", difference(job, 2, 3, "operator", "sums").note)
    found = difference(job, 1, 3, "operator", "sums")
    assert found.changes.table.num_rows == 0
    wording.matches("diff", found.note)


keys = st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan])
values = st.none() | st.sampled_from([1.0, 2.0, math.nan])
tables = st.dictionaries(keys.map(lambda key: "nan" if key is not None and key != key else key), values, max_size=5)


def float_table(rows: dict[Any, Any], type_: pa.DataType) -> pa.Table:
    names = [math.nan if key == "nan" else key for key in rows]
    return pa.table({"k": pa.array(names, pa.float64()), "v": pa.array(list(rows.values()), type_)})


def pieces_of(rows: pa.Table) -> list[pa.Table]:
    return [rows.slice(at, 2) for at in range(0, rows.num_rows, 2)]


@pytest.mark.long
@given(tables, tables)
def test_changes_by_key_are_those_of_two_dictionaries(old: dict[Any, Any], new: dict[Any, Any]) -> None:
    """Nulls equal nulls, NaN equals NaN, one zero; a narrower type is compared in the wider one."""
    sides = float_table(old, pa.float32()), float_table(new, pa.float64())
    none = sides[0].slice(0, 0), sides[1].slice(0, 0)
    steps = compare_by_key(tuple(pieces_of(sorted_rows(side, ["k"])) for side in sides), none, ["k"])
    changes = RowChanges(changes_by_key(*none, ["k"]).schema, (changes_by_key(*step, ["k"]) for step in steps))
    assert repr(changes.table.to_pylist()) == repr(changes_by_key(*sides, ["k"]).to_pylist()), "as all at once"
    same = {key for key in old.keys() & new.keys() if repr(old[key]) == repr(new[key])}
    assert changes.count("removed") == len(old.keys() - new.keys())
    assert changes.count("added") == len(new.keys() - old.keys())
    assert changes.count("changed") == len((old.keys() & new.keys()) - same)
    order = [(key is None, key != key, key) for key in changes.table["k"].to_pylist()]
    assert [each[:2] for each in order] == sorted(each[:2] for each in order), "numbers, then NaN, then null"
    numbers = [key for null, nan, key in order if not null and not nan]
    assert numbers == sorted(numbers)


FAR_TIMES = st.sampled_from([None, 0, 2**60, -(2**60)])


@given(st.lists(FAR_TIMES, max_size=4), st.lists(FAR_TIMES, max_size=4))
def test_changes_name_times_of_years_that_python_lacks(old: list[int | None], new: list[int | None]) -> None:
    """In columns, in lists and in keys."""

    def table(values: list[int | None]) -> pa.Table:
        times = pa.array(values, pa.timestamp("us"))
        return pa.table({"t": times, "l": pa.array([[one] for one in values], pa.list_(pa.timestamp("us")))})

    changes = changes_of_rows(table(old), table(new))
    surplus = Counter(new) - Counter(old), Counter(old) - Counter(new)
    numbered = zip(changes["change"].to_pylist(), changes["t"].cast(pa.int64()).to_pylist(), strict=True)
    assert Counter(numbered) == Counter(
        {(change, one): n for change, of in zip(("added", "removed"), surplus, strict=True) for one, n in of.items()}
    )
    keyed = [table(list(dict.fromkeys(values))) for values in (old, new)]
    assert changes_by_key(*keyed, ["t"]).num_rows == len(set(old) ^ set(new))


@pytest.mark.deep
@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_changes_of_rows_are_those_of_two_multisets(old: list[str], new: list[str]) -> None:
    sides = [pa.table({"x": pa.array(rows, pa.string()), "l": [[x] for x in rows]}) for rows in (old, new)]
    sides = [side.cast(pa.schema([("x", pa.string()), ("l", pa.list_(pa.string()))])) for side in sides]
    none = sides[0].slice(0, 0), sides[1].slice(0, 0)
    with pytest.MonkeyPatch.context() as patch:
        hold_few_rows(patch, 20)
        steps = compare_by_columns(pieces_of(sides[0]), pieces_of(sides[1]), none)
        changes = RowChanges(changes_of_rows(*none).schema, (changes_of_rows(*step) for step in steps))
    assert changes.table.equals(changes_of_rows(*sides)), "as all at once"
    rows = Counter((row["change"], row["x"]) for row in changes.table.to_pylist())
    gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
    expected = {("removed", x): count for x, count in gone.items()} | {("added", x): n for x, n in come.items()}
    assert rows == Counter(expected)
    ordered = [(row["x"], row["change"]) for row in changes.table.to_pylist()]
    assert ordered == sorted(ordered)

"""Trace rows of random jobs: the listed input rows are there, and make the row again."""

from __future__ import annotations

import io
import random
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import InvalidRequest, NotFound
from milepost.jobmaster import CheckpointReport, OriginInput, RowOrigin
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.tracing.output_row import exact_rows
from milepost.jobmaster.tracing.tracing import TraceLimits
from milepost.language.times import python_rows
from milepost.operators.base.operator_spec import KeyedOperator
from milepost.storage.open import open_store
from milepost_testkit.law.examples import JobExample
from milepost_testkit.law.job import LawJob
from milepost_testkit.law.landings import WHOLE
from milepost_testkit.law.rows import rows_table
from milepost_testkit.runners.duckdb_tracer import duckdb_tracer

_EVERY_ROW = TraceLimits(rows=10_000)


def play(example: JobExample, job: LawJob) -> None:
    """Run the acts of an example, and then epochs until all input is read.

    Epochs have one subtask per level, as a replay has: from the second exchange on, the order of subtasks may decide.
    """
    landings = example.landings or ((WHOLE, 0),) * len(example.acts)
    for number, (act, back, _, rows) in enumerate(example.acts):
        for source, numbers in zip(list(example.document["sources"]), rows, strict=True):
            if numbers:
                job.land(source, rows_table(numbers, number, example.domain))
        job.append(*landings[number])
        if act == "rollback":
            job.rollback(back)
        elif act == "backfill":
            job.backfill(back, ranges_per_epoch=1)
        else:
            job.run(cut_short=act == "cut short")
    job.append(WHOLE, 0)
    while isinstance(job.run(), CheckpointReport):
        pass


def check_traces(job: LawJob, per_table: int, seed: int) -> Counter[str]:
    """Trace random rows of each table, named by all their values. Returns how many, by kind of operator.

    Raises: AssertionError.
    """
    met: Counter[str] = Counter()
    numbers, graph, master = random.Random(seed), job.loaded.graph(), job.master
    for name, table in sorted(job.tables().items()):
        if not table.num_rows:
            continue
        node = graph.nodes[graph.sink_inputs[name].uid]
        for at in numbers.sample(range(table.num_rows), min(per_table, table.num_rows)):
            row = table.slice(at, 1)
            try:
                origin = master.tracing.origin(name, named(row), duckdb_tracer(), limits=_EVERY_ROW)
            except InvalidRequest as error:  # rows that differ only in -0.0 and 0.0
                assert "they differ" in error.message, error
                continue
            assert origin.is_proven, f"{name} ({node.kind}): {python_rows(row)}: {origin.problem}"
            assert exact_rows(origin.row) == exact_rows(row), "another row was traced"
            for item in origin.inputs:
                check_places(job, item)
                check_keys(job, node.uid, item, row)
            met[node.kind] += 1
            if since := numbers.choice((None, *job.lineage[:-1])):
                later = master.tracing.origin(
                    name, named(row), duckdb_tracer(), limits=replace(_EVERY_ROW, since=since)
                )
                check_proof_since(job, name, row, later, since)
                assert later.cut is not None and later.cut.checkpoint_id == since
                met[f"{node.kind} since"] += 1
    return met


def check_proof_since(job: LawJob, table: str, row: pa.Table, origin: RowOrigin, since: int) -> None:
    """Raise AssertionError unless a row is proven, or was in the table before and is not called proven."""
    try:
        then = job.master.reports.read(table, since)
    except NotFound:  # the table did not exist yet
        then = row.slice(0, 0)
    was_there = exact_rows(row)[0] in exact_rows(then.select(row.column_names))
    text = f"{table}, since {since}: {python_rows(row)}: {origin.problem}"
    if not origin.is_proven:
        assert was_there and origin.problem is not None and "before the cut" in origin.problem, text
        return
    is_upsert = job.loaded.graph().sink_inputs[table].mode == "upsert"
    assert is_upsert or not was_there, f"{text}: called proven, though the table had it"


def named(row: pa.Table) -> dict[str, str]:
    """Return the values of a row as a person names them."""
    values = python_rows(row)[0]
    return {name: _text(value) for name, value in values.items()}


def _text(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else "null" if value is None else str(value)


def check_places(job: LawJob, item: OriginInput) -> None:
    """Raise AssertionError unless each listed row is where its place says."""
    store = open_store(JobContext(job.loaded).source_store(item.source))
    for number, place in enumerate(item.places):
        rows = pq.read_table(io.BytesIO(store.get(place.object)))
        there = rows.slice(place.row - 1, 1).select(item.listed.column_names)
        assert exact_rows(there) == exact_rows(item.listed.slice(number, 1)), f"{place} is another row"


def check_keys(job: LawJob, uid: str, item: OriginInput, row: pa.Table) -> None:
    """Raise AssertionError if a listed row has another key, where the operator of the table reads the source."""
    operator = next((one for one in job.loaded.spec.operators if one.uid == uid), None)
    if not isinstance(operator, KeyedOperator) or operator.inputs[0] != item.source:
        return
    key = [name for name in operator.key if name in row.column_names]
    texts = {repr([value if value != 0 else 0.0 for value in one]) for one in exact_rows_of(item.listed, key)}
    assert len(texts) <= 1, f"rows of several keys {key} are listed: {texts}"


def exact_rows_of(rows: pa.Table, names: list[str]) -> list[list[object]]:
    """Return the values of some columns, row by row."""
    return [[one[name] for name in names] for one in python_rows(rows.select(names))]

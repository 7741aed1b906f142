"""`on_fail: drop` and `quarantine`: a refused row is in no table, or in that of rejected rows, and moves with it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from milepost.epoch import decode_metadata
from milepost.errors import CheckpointError, NotFound, QualityGateFailed, StoreUnavailable
from milepost.jobmaster import CheckpointDetails, Condition, Session
from milepost.quality import decode_veto
from milepost.sinks.table.table_sink import TableSink
from milepost.views import View, checkpoint_view, table_view
from milepost_testkit import wording
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.jobs.sparkless.traced_job import TracedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

SINKS = (
    "sinks:\n  - {name: all, input: rows, format: parquet, path: ../lake/all, mode: append}\n"
    "  - {name: refused, input: all.rejected, format: parquet, path: ../lake/refused, mode: append}\n"
)
RANGE = {"type": "expect_column_values_to_be_between", "column": "k", "min_value": 0, "on_fail": "quarantine"}
NAMED = {"type": "expect_column_value_lengths_to_be_between", "column": "v", "min_value": 1, "on_fail": "drop"}
LABEL = "expect_column_values_to_be_between(k)"


def made(folder: Path, *rules: Mapping[str, Any], edit: Mapping[str, str] | None = None) -> SparklessJob:
    """A job that publishes its rows, and those that its rules quarantine."""
    suite = f"quality:\n  - {{sink: all, expectations: {json.dumps(rules)}}}\n"
    return SparklessJob.create(
        folder,
        {"sinks:\n": SINKS, "checkpointing:": f"{suite}checkpointing:", "last: 1": "last: 20"} | dict(edit or {}),
    )


def run(job: SparklessJob, **options: Any) -> CheckpointDetails:
    result = job.master.epochs.run(Session.cli(), SparklessRunner(), **options)
    assert isinstance(result, CheckpointDetails)
    return result


def rows(job: SparklessJob, table: str, at: int | None = None) -> list[dict[str, Any]]:
    return sorted(job.master.reports.read(table, at).to_pylist(), key=str)


def test_a_quarantined_row_is_in_the_rejected_table_with_its_rule_and_a_dropped_one_is_counted(tmp_path: Path) -> None:
    job = made(tmp_path, RANGE, NAMED)
    job.land("a.csv", "k,v\n1,a\n-2,b\n3,\n-4,\n")
    shown = run(job)
    assert rows(job, "all") == [{"k": 1, "v": "a"}]
    both = f"{LABEL}; expect_column_value_lengths_to_be_between(v)"
    assert rows(job, "refused") == [
        {"k": -2, "v": "b", "_rule": LABEL, "_object": "a.csv"},
        {"k": -4, "v": "", "_rule": both, "_object": "a.csv"},
    ]
    assert (shown.rows_in, shown.rows_out, shown.rejected_rows, shown.quarantined_rows) == (4, 7, 3, 2)
    (verdict,) = shown.verdict.verdicts
    assert (verdict.status.value, verdict.rows) == ("passed", 1)
    observed = [dict(result.observed) for result in verdict.expectations]
    assert [one["unexpected_count"] for one in observed] == [2, 2]
    assert [one["refused_rows"] for one in observed] == [2, 2]
    assert [result.severity for result in verdict.expectations] == [None, None]
    of_sink = (job.master.reports.show(1).published or {})["all"]
    assert (of_sink.rejected_rows, of_sink.quarantined_rows, of_sink.dropped_rows) == (3, 2, 1)


def shown_rules(view: View, title: str) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Return lines and rows of a section with a table of rules."""
    (section,) = (one for one in view.sections if one.title == title)
    (table,) = section.tables
    texts = [[cell if isinstance(cell, str) else cell.text for cell in row.cells] for row in table.rows]
    return section.lines, [dict(zip(table.columns, row, strict=True)) for row in texts]


def test_show_counts_refusals_per_rule_and_quarantined_and_dropped_rows_per_sink(tmp_path: Path) -> None:
    """Row -4 fails both rules. Only the first has `mostly`, so only its severity has an effect."""
    job = made(tmp_path, RANGE | {"mostly": 0.25, "severity": "warning"}, NAMED)
    job.land("a.csv", "k,v\n1,a\n-2,b\n3,\n-4,\n")
    run(job)
    lines, rules = shown_rules(checkpoint_view(job.master.reports.show(1)), "Quality")
    assert lines == ("all: 3 of 4 rows rejected: 2 quarantined, 1 dropped",)
    assert [(rule["result"], rule["severity"]) for rule in rules] == [("2 refused", "warning"), ("2 refused", "")]
    assert not any(word in rule["observed"] for rule in rules for word in ("dropped", "quarantined"))
    assert ["required percent 25" in rule["observed"] for rule in rules] == [True, False]


@pytest.mark.deep
def test_a_table_says_what_its_rules_refused_in_the_newest_result(tmp_path: Path) -> None:
    job = made(tmp_path, RANGE, NAMED | {"mostly": 0.5})
    land_and_run(job, 3, 1)
    _, rules = shown_rules(table_view(job.master.reports.table("all")), "Quality rules")
    assert [(rule["met"], rule["newest refused"], rule["severity"]) for rule in rules] == [
        ("2 of 2", "1", ""),
        ("2 of 2", "0", "critical"),
    ]


@pytest.mark.parametrize(
    ("options", "refused"),
    [("", []), ('    options: {null_values: [""], strings_can_be_null: true}\n', [{"k": 2, "v": None}])],
)
def test_an_empty_text_field_of_a_csv_is_null_only_if_its_source_says_so(
    tmp_path: Path, options: str, refused: list[dict[str, Any]]
) -> None:
    rule = {"type": "expect_column_values_to_not_be_null", "column": "v", "on_fail": "quarantine"}
    limits = "    limits_per_epoch: {max_files: 1}\n"
    job = made(tmp_path, rule, edit={limits: options + limits})
    job.land("a.csv", "k,v\n1,NA\n2,\n")
    run(job)
    assert [{"k": row["k"], "v": row["v"]} for row in rows(job, "refused")] == refused
    assert len(rows(job, "all")) == 2 - len(refused)


def test_a_store_with_the_former_names_of_refused_rows_is_readable(tmp_path: Path) -> None:
    job = made(tmp_path, RANGE, NAMED)
    job.land("a.csv", "k,v\n1,a\n-2,b\n3,\n-4,\n")
    run(job)
    (stored,) = (tmp_path / "store").rglob("_metadata")
    former = json.loads(stored.read_text())
    (verdict,) = former["verdict"]["verdicts"]
    for result, name in zip(verdict["expectations"], ("quarantined_rows", "dropped_rows"), strict=True):
        result["observed"][name] = result["observed"].pop("refused_rows")
        result["severity"] = "critical"
    (read,) = decode_metadata(json.dumps(former).encode(), "_metadata").verdict.verdicts
    assert [(one.refused, one.observed["refused_rows"]) for one in read.expectations] == [("2 refused", 2)] * 2


LINES = {number: "k,v\n" + "".join(f"{k},{number}\n" for k in range(-number, 20 - number)) for number in (1, 2, 3)}
"""Object -> 20 rows, of which as many as its number are below 0."""


def land_and_run(job: SparklessJob, *numbers: int) -> None:
    for number in numbers:
        job.land(f"{number}.csv", LINES[number])
        run(job)


def refused_keys(job: SparklessJob, at: int | None = None) -> list[int]:
    return sorted(row["k"] for row in rows(job, "refused", at))


@pytest.mark.deep
def test_a_rollback_takes_rejected_rows_back_and_a_read_of_the_past_shows_them(tmp_path: Path) -> None:
    job = made(tmp_path, RANGE)
    land_and_run(job, 1, 2, 3)
    assert refused_keys(job) == [-3, -2, -2, -1, -1, -1]
    roll_back(job.master, 1)
    assert refused_keys(job) == [-1] and len(rows(job, "all")) == 19
    assert refused_keys(job, 1) == [-1]
    run(job)
    assert refused_keys(job) == [-2, -1, -1] and len(rows(job, "all")) == 37


@pytest.mark.deep
@pytest.mark.parametrize("ranges_per_epoch", [1, 3])
def test_a_backfill_judges_all_rows_by_the_new_rule(tmp_path: Path, ranges_per_epoch: int) -> None:
    job = made(tmp_path, RANGE)
    land_and_run(job, 1, 2, 3)
    every = len(rows(job, "all")) + len(rows(job, "refused"))
    edit_spec(tmp_path / "config" / "small.yaml", {'"min_value": 0': '"min_value": -1'})
    back_fill(job.master, SparklessRunner(), from_checkpoint=0, ranges_per_epoch=ranges_per_epoch)
    assert refused_keys(job) == [-3, -2, -2]
    assert len(rows(job, "all")) + 3 == every
    roll_back(job.master, 3)
    assert refused_keys(job) == [-3, -2, -2, -1, -1, -1]


def test_a_crash_between_the_publication_of_the_table_and_of_its_rejected_rows_loses_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = made(tmp_path, RANGE)
    land_and_run(job, 1)
    job.land("2.csv", LINES[2])
    move = TableSink.move

    def crash(sink: TableSink, *args: Any, **options: Any) -> Any:
        if sink.name == "refused":
            raise StoreUnavailable("the process is killed here")
        return move(sink, *args, **options)

    with monkeypatch.context() as killed:
        killed.setattr(TableSink, "move", crash)
        with pytest.raises(StoreUnavailable):
            run(job)
    assert len(rows(job, "all")) == 37
    assert job.context.head().state.unconfirmed()
    land_and_run(job, 3)
    assert refused_keys(job) == [-3, -2, -2, -1, -1, -1] and len(rows(job, "all")) == 54


def test_a_retry_stages_the_same_rejected_rows(tmp_path: Path) -> None:
    """I12: the second attempt's staged files have the first one's bytes."""
    job = made(tmp_path, RANGE)
    job.land("2.csv", LINES[2])
    staged: list[dict[str, bytes]] = []

    def look(_: object) -> None:
        files = sorted((tmp_path / "lake" / "refused").rglob("*.parquet"))
        staged.append({path.name: path.read_bytes() for path in files})
        if len(staged) == 1:
            raise CheckpointError("the machine went away")

    with pytest.raises(CheckpointError):
        job.master.epochs.run(Session.cli(), SparklessRunner(after=look))
    job.master.epochs.run(Session.cli(), SparklessRunner(after=look))
    first, second = staged
    assert first and set(first.values()) == set(second.values())
    assert refused_keys(job) == [-2, -1]


@pytest.mark.deep
@pytest.mark.parametrize("parallelism", [1, 3])
def test_how_many_subtasks_judge_the_rows_changes_nothing(tmp_path: Path, parallelism: int) -> None:
    many = {
        "    limits_per_epoch: {max_files: 1}\n": "",
        "operators:\n": f"spark: {{parallelism: {parallelism}}}\noperators:\n",
    }
    job = made(tmp_path, RANGE, edit=many)
    for number in (1, 2, 3):
        job.land(f"{number}.csv", LINES[number])
    shown = run(job)
    files = f"read_csv('{tmp_path}/landing/*.csv')"
    refused = duckdb.sql(f"SELECT k FROM {files} WHERE k < 0 ORDER BY k").fetchall()
    accepted = duckdb.sql(f"SELECT count(*) FROM {files} WHERE k >= 0").fetchall()
    assert refused_keys(job) == [k for (k,) in refused]
    assert all(row["_object"] == f"{row['v']}.csv" for row in rows(job, "refused"))
    assert [(len(rows(job, "all")),)] == accepted and shown.rejected_rows == len(refused)


def test_too_many_refused_rows_veto_the_epoch_and_their_values_are_shown(tmp_path: Path) -> None:
    job = made(tmp_path, RANGE | {"mostly": 0.9, "severity": "critical"})
    land_and_run(job, 1, 2)
    job.land("3.csv", LINES[3])
    with wording.raises(QualityGateFailed):
        run(job)
    assert refused_keys(job) == [-2, -1, -1] and len(rows(job, "all")) == 37
    veto = job.master.reports.show(3).veto
    assert isinstance(veto, dict)
    (refusal,) = veto["refusals"]
    assert refusal["rows"] == [{"k": -3}, {"k": -2}, {"k": -1}]
    assert (refusal["observed"]["element_count"], refusal["observed"]["unexpected_count"]) == (20, 3)
    assert refusal["observed"]["required_percent"] == 90
    (stored,) = (path for path in (tmp_path / "store").rglob("*veto*") if path.is_file())
    former = stored.read_bytes().replace(b"refused_rows", b"quarantined_rows")
    (former_refusal,) = decode_veto(former, "the veto")["refusals"]
    assert former_refusal | {"bounds": {"min_value": 0, "mostly": 0.9}} == refusal


@pytest.mark.deep
def test_an_epoch_of_which_all_rows_are_refused_publishes_only_those(tmp_path: Path) -> None:
    later = {"type": "expect_column_values_to_be_in_set", "column": "v", "value_set": ["a"]}
    job = made(tmp_path, RANGE, later)
    job.land("1.csv", "k,v\n-1,a\n-2,b\n")
    (verdict,) = run(job).verdict.verdicts
    assert [result.type for result in verdict.expectations] == [RANGE["type"]] and verdict.status.value == "passed"
    assert (rows(job, "all"), refused_keys(job)) == ([], [-2, -1])
    job.land("2.csv", "k,v\n-1,b\n3,a\n")
    (verdict,) = run(job).verdict.verdicts
    assert [(result.type, result.success) for result in verdict.expectations] == [
        (RANGE["type"], True),
        (later["type"], True),
    ]


def test_other_expectations_judge_the_rows_that_remain(tmp_path: Path) -> None:
    """The row that would break the last expectation is dropped before."""
    largest = {"type": "expect_column_max_to_be_between", "column": "k", "max_value": 10}
    cap = {"type": "expect_column_values_to_be_between", "column": "k", "max_value": 10, "on_fail": "drop"}
    job = made(tmp_path, RANGE, cap, largest)
    job.land("1.csv", "k,v\n1,a\n99,b\n")
    shown = run(job)
    assert shown.quality == "passed" and (shown.rejected_rows, shown.quarantined_rows) == (1, 0)
    job.land("2.csv", "k,v\n10,a\n11,b\n")
    assert run(job).quality == "passed"


@pytest.mark.long
@pytest.mark.parametrize("where", ["driver", "tasks"])
def test_a_veto_by_another_expectation_shows_its_rows_whatever_stands_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "tasks":
        monkeypatch.setattr("milepost.epoch.gate_shares.DRIVER_ROWS", 0)
    known = {"type": "expect_column_values_to_be_in_set", "column": "v", "value_set": ["a", "b"]}
    job = made(tmp_path, {"type": "expect_column_values_to_not_be_null", "column": "k"}, RANGE, NAMED, known)
    job.land("1.csv", "k,v\n1,a\n-2,c\n3,\n4,b\n5,d\n")
    with pytest.raises(QualityGateFailed):
        run(job)
    veto = job.master.reports.show(1).veto
    assert isinstance(veto, dict)
    (refusal,) = veto["refusals"]
    assert (refusal["type"], refusal["rows"]) == (known["type"], [{"v": "d"}])
    assert (refusal["observed"]["element_count"], refusal["observed"]["unexpected_count"]) == (3, 1)


@pytest.mark.deep
def test_rules_may_be_added_and_removed_while_the_job_runs(tmp_path: Path) -> None:
    """A table of rejected rows begins with the epoch that has the rule, and stays when the rule goes."""
    job = SparklessJob.create(tmp_path, {"sinks:\n": SINKS.partition("  - {name: refused")[0], "last: 1": "last: 20"})
    spec = tmp_path / "config" / "small.yaml"
    land_and_run(job, 1)
    plain = spec.read_text()
    suite = f"quality:\n  - {{sink: all, expectations: {json.dumps([RANGE])}}}\n"
    refused = "  - {name: refused" + SINKS.partition("  - {name: refused")[2]
    spec.write_text(plain.replace("sinks:\n", f"sinks:\n{refused}") + suite)
    land_and_run(job, 2)
    assert refused_keys(job) == [-2, -1] and len(rows(job, "all")) == 38
    spec.write_text(plain)
    land_and_run(job, 3)
    assert len(rows(job, "all")) == 58
    roll_back(job.master, 2)
    spec.write_text(plain.replace("sinks:\n", f"sinks:\n{refused}") + suite)
    run(job)
    assert refused_keys(job) == [-3, -2, -2, -1, -1] and len(rows(job, "all")) == 55


@pytest.mark.deep
def test_a_flood_of_rejected_rows_is_a_condition_and_the_figures_are_stored(tmp_path: Path) -> None:
    job = made(tmp_path, RANGE)
    land_and_run(job, 1, 2, 3)
    assert job.master.reports.status().condition is Condition.HEALTHY
    job.land("9.csv", "k,v\n" + "-1,x\n" * 12 + "1,x\n" * 8)
    run(job)
    status = job.master.reports.status()
    assert (status.condition, status.exit_code) == (Condition.ROWS_MISSING, 6)
    text = "0 of 20 rows late, 12 of 20 rejected by rules (usually 10.0%), in the newest epoch"
    assert status.verdict.complete.text == text
    assert [(edge.output, edge.rows[-1]) for edge in job.master.reports.data_flow().edges if edge.part] == [
        ("all.rejected", 12)
    ]
    figures = pa.concat_tables(
        [pq.read_table(path) for path in sorted((tmp_path / "store").rglob("figures/*/*.parquet"))],
        promote_options="default",
    ).to_pylist()
    assert (max(row["rejected_rows"] for row in figures), figures[-1]["judged_rows"]) == (12, 20)


@pytest.mark.deep
def test_savepoints_audits_and_garbage_collection_know_the_rejected_rows(tmp_path: Path) -> None:
    job = made(tmp_path, RANGE)
    land_and_run(job, 1, 2)
    master = job.master
    master.savepoints.create("before")
    assert master.reports.fsck().exit_code == 0 and master.reports.verify(deep=True).objects
    land_and_run(job, 3)
    master.collect_garbage()
    assert refused_keys(job) == [-3, -2, -2, -1, -1, -1]
    master.savepoints.cancel()
    job.master.restores.start(job.master.find_savepoint("before").location)
    assert refused_keys(job) == [-2, -1, -1]


def test_a_job_without_row_rules_stores_and_acknowledges_what_it_did_before(tmp_path: Path) -> None:
    job = SparklessJob.create(
        tmp_path, {"sinks:\n": SINKS.splitlines(keepends=True)[0] + SINKS.splitlines(keepends=True)[1]}
    )
    job.land("1.csv", LINES[1])
    payloads: list[Mapping[str, Any]] = []

    def keep(answers: tuple[Any, ...]) -> tuple[Any, ...]:
        payloads.extend(answer.payload for answer in answers)
        return answers

    shown = job.master.epochs.run(Session.cli(), SparklessRunner(answers=keep))
    assert isinstance(shown, CheckpointDetails)
    assert payloads and not any("rejected" in payload for payload in payloads)
    assert shown.rejected_rows is None
    (stored,) = (tmp_path / "store").rglob("_metadata")
    assert "rejected" not in stored.read_text()


FEW = {"type": "expect_column_values_to_be_between", "column": "n", "min_value": 2, "on_fail": "quarantine"}
SUITE = (
    f"quality:\n  - {{{{sink: {{sink}}, expectations: [{json.dumps(FEW).replace('{', '{{').replace('}', '}}')}]}}}}\n"
)
UNION = "SELECT k, paid AS n FROM payments UNION ALL SELECT k, n FROM hourly"


def few(sink: str) -> dict[str, str]:
    """Edits of a traced job: the rows of a sink with n below 2 go to another one."""
    table = f"  - {{name: few, input: {sink}.rejected, format: parquet, path: ../lake/few, mode: append}}\n"
    return {"sinks:\n": f"sinks:\n{table}", "checkpointing:": f"{SUITE.format(sink=sink)}checkpointing:"}


def traced(folder: Path, edit: Mapping[str, str] | None = None) -> TracedJob:
    """A job that has processed two objects of each source: orders of three keys in a few hours."""
    job, numbers = TracedJob.create(folder, edit), random.Random(7)
    for epoch in range(2):
        times = [
            f"2026-01-01T{12 + 3 * epoch + numbers.randrange(3)}:{numbers.randrange(60):02}:00Z" for _ in range(12)
        ]
        orders = [f"{at},{numbers.choice('abc')},{at},{time}" for at, time in enumerate(times)]
        job.land("orders", f"{epoch}.csv", "id,k,v,t", *orders)
        job.land("payments", f"{epoch}.csv", "k,paid,at", *(f"a,{at % 4},{time}" for at, time in enumerate(times)))
    while isinstance(job.run(), CheckpointDetails):
        pass
    return job


def query(sql: str, **tables: pa.Table) -> list[tuple[Any, ...]]:
    with duckdb.connect() as db:
        for name, table in tables.items():
            db.register(name, table)
        return db.sql(sql).fetchall()


@pytest.mark.long
def test_rejected_windows_are_those_that_duckdb_refuses_and_are_traced_to_object_and_line(tmp_path: Path) -> None:
    """Windows are emitted downstream of state, by several subtasks and in any epoch."""
    job = traced(tmp_path / "job", few("hourly"))
    every = traced(tmp_path / "plain").master.reports.read("hourly")
    published, rejected = (job.master.reports.read(name) for name in ("hourly", "few"))
    ordered = "ORDER BY ALL"
    assert query(f"FROM t {ordered}", t=published) == query(f"FROM t WHERE n >= 2 {ordered}", t=every)
    without = "SELECT * EXCLUDE (_rule, _object) FROM t"
    assert query(f"{without} {ordered}", t=rejected) == query(f"FROM t WHERE n < 2 {ordered}", t=every) != []
    assert set(rejected["_object"].to_pylist()) == {None}
    row = {"k": rejected["k"][0].as_py(), "window_start": rejected["window_start"][0].as_py()}
    with pytest.raises(NotFound) as absent:
        job.origin("hourly", row)
    assert absent.value.hint == "a rule may have rejected it: check table few"
    origin = job.origin("few", row)
    assert origin.is_proven and origin.sink == "few"
    assert [(place.object, place.line) for item in origin.inputs for place in item.places]


@pytest.mark.deep
def test_a_table_that_two_levels_stage_rejects_the_rows_of_both(tmp_path: Path) -> None:
    """A union of a source and of the windows of another one."""
    both = f'  - {{uid: both, kind: sql, inputs: [payments, hourly], sql: "{UNION}"}}\n'
    table = "  - {name: both, input: both, format: parquet, path: ../lake/both, mode: append}\n"
    edit = few("both") | {
        "  - {uid: totals,": f"{both}  - {{uid: totals,",
        "  - {name: totals,": f"{table}  - {{name: totals,",
    }
    job = traced(tmp_path / "job", edit)
    payments = pa.concat_tables([pacsv.read_csv(job.folder / f"landing/payments/{epoch}.csv") for epoch in range(2)])
    tables = {"payments": payments, "hourly": job.master.reports.read("hourly")}
    for name, where in (("few", "n < 2"), ("both", "n >= 2")):
        wanted = query(f"SELECT k, n FROM ({UNION}) WHERE {where} ORDER BY ALL", **tables)
        assert query("SELECT k, n FROM t ORDER BY ALL", t=job.master.reports.read(name)) == wanted != []

"""A changed spec or class is compared with recorded state, operator by operator, before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster.compatibility.preflight import preflight
from milepost.jobmaster.compatibility.spec_check import report_lines
from milepost.jobmaster.job.code import read_code
from milepost.jobspec.graph.compatibility import NEW_UID, NON_RESTORED, UNCHANGED
from milepost.state.buffers.channel_state import ChannelStateHandle
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.changing_job import SINK, SPEC, ChangingJob


@pytest.fixture
def job(tmp_path: Path) -> ChangingJob:
    return ChangingJob.empty(tmp_path)


def state_of(job: ChangingJob, uid: str = "lasts", at: int | None = None) -> list[dict[str, Any]]:
    return sorted(job.master.reports.state(uid, at).to_pylist(), key=lambda row: int(row["k"]))


@pytest.mark.deep
def test_a_state_gains_widens_and_loses_columns_and_old_runs_stay_as_they_are(job: ChangingJob) -> None:
    """DESIGN 5: untouched keys are converted when they are read. Old checkpoints are unchanged."""
    job.next({"a": "int32", "b": "int64"})
    job.next({"a": "int32", "b": "int64"})
    before = state_of(job)
    job.write({"a": "int64", "b": "int64", "c": "int32"})
    told = dict(job.report()["lasts"])
    wording.matches("compatibility", told.pop("detail"))
    assert told == {
        "kind": "operator", "name": "lasts", "uid": "lasts", "outcome": "converted", "verdict": "compatible"
    }  # fmt: skip
    (job.folder / "landing" / "2.csv").write_text("k,v\n0,20\n")
    job.run()
    assert state_of(job) == [
        {"k": 0, "a": 20, "b": 20, "c": 20, "__timer": None},
        {"k": 1, "a": 11, "b": 11, "c": None, "__timer": None},
    ]
    job.write({"a": "int64", "c": "int32"})
    wording.matches("compatibility", job.report()["lasts"]["detail"])
    (job.folder / "landing" / "3.csv").write_text("k,v\n0,30\n")
    job.run()
    assert state_of(job, at=2) == before
    assert state_of(job) == [{"k": 0, "a": 30, "c": 30, "__timer": None}, {"k": 1, "a": 11, "c": None, "__timer": None}]


@pytest.mark.deep
def test_a_column_that_returns_is_a_new_column(job: ChangingJob) -> None:
    """Old runs still have values of the dropped column, which must not reappear."""
    job.next({"a": "int32", "b": "int64"})
    job.next({"a": "int32", "b": "int64"})
    job.write({"a": "int32"})
    (job.folder / "landing" / "2.csv").write_text("k,v\n0,20\n")
    job.run()
    job.write({"a": "int32", "b": "float64"})  # which an int64 is not exactly
    (job.folder / "landing" / "3.csv").write_text("k,v\n7,1\n")
    job.run()
    assert [(row["k"], row["a"], row["b"]) for row in state_of(job)] == [(0, 20, None), (1, 11, None), (7, 1, 1.0)]


@pytest.mark.deep
@pytest.mark.parametrize(
    "state",
    [
        {"a": "int16", "b": "int64"},
        {"a": "float32", "b": "int64"},
        {"a": "int32", "b": "float64"},
        {"a": "string", "b": "int64"},
    ],
)
def test_a_type_that_does_not_hold_every_value_is_refused_before_anything_is_planned(
    job: ChangingJob, state: dict[str, str]
) -> None:
    job.next({"a": "int32", "b": "int64"})
    with wording.raises(InvalidRequest):
        job.next(state)
    assert [row.checkpoint_id for row in job.master.reports.list_checkpoints()] == [1]
    job.next({"a": "int32", "b": "int64"})


def test_a_renamed_column_is_not_lost_without_the_flag(job: ChangingJob) -> None:
    """One dropped and one added column look like a rename, and the values would be lost."""
    job.next({"a": "int32"})
    with wording.raises(InvalidRequest):
        job.next({"z": "int32"})
    job.run(allow_non_restored_state=True)
    assert [(row["k"], row["z"]) for row in state_of(job)] == [(0, 10), (1, 11)]


def changed(old: str, new: str, text: str = SPEC) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "verdict", "outcome"),
    [
        ("worst: max(v)", "worst: max(v), mean: avg(v), n: count(v)", "compatible", "restored"),
        (", worst: max(v)", "", "compatible", "converted"),
        ("total: sum(v), ", "sum: sum(v), ", "compatible", "restored"),
        ("v: int32}", "v: int64}", "compatible", "converted"),
        ("k: int32", "k: int64", "compatible", "converted"),
        ("worst: max(v)", "worst: min(v)", NEW_UID, "refused"),
        ("worst: max(v)", "worst: max(v), n: count(*)", NEW_UID, "refused"),
        ("v: int32}", "v: int16}", NEW_UID, "refused"),
        ("v: int32}", 'v: "decimal(12,2)"}', NEW_UID, "refused"),
        ("key: [k], aggregates", "key: [v], aggregates", NEW_UID, "refused"),
        ("uid: sums,", "uid: sums, renamed_from: other,", "compatible", "restored"),
        ("uid: sums,", "uid: all_sums, renamed_from: sums,", "compatible", "restored"),
        ("uid: sums,", "uid: all_sums, renamed_from: typo,", NON_RESTORED, "refused"),
    ],
    ids={NEW_UID: "NEW_UID", NON_RESTORED: "NON_RESTORED"}.get,
)  # fmt: skip
def test_each_change_of_an_aggregate_gets_its_outcome(
    job: ChangingJob, old: str, new: str, verdict: str, outcome: str
) -> None:
    """An aggregate continues if and only if it can be computed from the stored state, without the original rows."""
    job.next({"a": "int32"})
    job.write({"a": "int32"}, changed(old, new))
    uid = "all_sums" if "all_sums" in new else "sums"
    row = job.report()[uid]
    assert (row["verdict"], row["outcome"]) == (verdict, outcome)
    wording.matches("compatibility", row["detail"])


@pytest.mark.deep
def test_widened_state_continues_with_exact_sums(job: ChangingJob) -> None:
    """The converted state equals that of a job with the wider type: sums, maxima and keys beyond 32 bits."""
    job.next({"a": "int64"})
    job.next({"a": "int64"})
    job.write({"a": "int64"}, changed("schema: {k: int32, v: int32}", "schema: {k: int64, v: int64}"))
    job.land("2.csv", f"k,v\n0,{2**40}\n{2**33},5\n")
    job.run()
    rows = {row["k"]: (row["max(v)"], row["sum(v).low"], row["count(v)"]) for row in state_of(job, "sums")}
    assert rows == {0: (2**40, 0 + 10 + 2**40, 3), 1: (11, 11, 1), 2**33: (5, 5, 1)}


@pytest.mark.deep
def test_a_renamed_operator_continues_its_state_and_the_checkpoint_records_the_new_name(job: ChangingJob) -> None:
    job.next({"a": "int32"})
    renamed = changed("uid: sums,", "uid: all_sums, renamed_from: sums,")
    job.next({"a": "int32"}, renamed)
    assert [(row["k"], row["count(v)"]) for row in state_of(job, "all_sums")] == [(0, 2), (1, 1)]
    job.next({"a": "int32"}, renamed)  # it was renamed already
    job.next({"a": "int32"}, changed("renamed_from: sums,", "", renamed))
    assert [(row["k"], row["count(v)"]) for row in state_of(job, "all_sums")] == [(0, 4), (1, 3), (2, 2)]
    assert [row["k"] for row in state_of(job, "sums", at=1)] == [0]


@pytest.mark.deep
def test_a_table_that_cannot_hold_the_new_rows_is_refused_before_the_epoch_runs(job: ChangingJob) -> None:
    """A published table cannot drop a column or change its type. The epoch would fail in the prepare step."""
    job.next({"a": "int32"}, SPEC + SINK)
    for old, new in (
        ("v: int32}", "v: int64}"),
        (", worst: max(v)", ""),
    ):
        with wording.raises(InvalidRequest):
            job.next({"a": "int32"}, changed(old, new, SPEC + SINK))
    job.next({"a": "int32"}, changed("worst: max(v)", "worst: max(v), mean: avg(v)", SPEC + SINK))
    rows = {row["k"]: row["mean"] for row in job.master.reports.read("sums").to_pylist()}
    assert rows[0] is not None


@pytest.mark.deep
def test_run_reports_continued_state_only_if_spec_or_code_changed(job: ChangingJob) -> None:
    told: list[list[dict[str, str]]] = []
    job.next({"a": "int32"}, tell=told.append)
    job.next({"a": "int32"}, tell=told.append)
    assert told == []
    job.next({"a": "int64"}, tell=told.append)
    assert len(told) == 1
    wording.matches("compatibility", report_lines(told[0]))
    job.next({"a": "int64"}, changed("uid: sums", "uid: other"), tell=told.append, allow_non_restored_state=True)
    outcomes = {row["uid"]: row["outcome"] for row in told[1]}
    assert (outcomes["other"], outcomes["sums"], outcomes["lasts"]) == ("new", "dropped", "restored")


def test_lint_states_what_it_cannot_check_without_loading_a_class(job: ChangingJob) -> None:
    job.next({"a": "int32"})
    job.write({"a": "string"}, changed(", worst: max(v)", ""))
    rows = {row["uid"]: row for row in job.master.reports.compatibility()}
    assert rows["lasts"]["outcome"] == "restored"
    wording.matches("compatibility", rows["lasts"]["detail"])
    assert rows["sums"]["outcome"] == "converted"


def test_lint_does_not_check_operators_downstream_of_an_unloaded_class(job: ChangingJob) -> None:
    """Operators downstream of a process operator have columns, and maybe event time, that only its class declares."""
    job.next({"a": "int32"})
    below = "  - {uid: below, kind: aggregate, inputs: [lasts], key: [k], aggregates: {n: count(seen)}}\nsinks:\n"
    job.write({"a": "int32"}, changed("sinks:\n", below))
    context = job.context
    state = context.head().state
    base = context.base_metadata(state, state.timeline().head)
    assert base is not None
    signatures = {
        **base.signatures,
        "operators": {**base.signatures["operators"], "below": {"kind": "aggregate", "key": ["k"]}},
    }
    recorded = replace(base, operators={**base.operators, "below": base.operators["sums"]}, signatures=signatures)
    unloaded = {row["uid"]: row for row in preflight(context, recorded, None)}
    assert unloaded["below"]["outcome"] == "restored"
    wording.matches("compatibility", unloaded["below"]["detail"])
    loaded = {row["uid"]: row for row in preflight(context, recorded, read_code(context).load(context))}
    assert loaded["below"]["outcome"] == "refused"
    wording.matches("compatibility", loaded["below"]["detail"])


def test_show_pins_spec_and_code_and_names_what_differs(job: ChangingJob) -> None:
    """Each checkpoint has the text of its spec and the hash of every module that ran."""
    job.next({"a": "int32"})
    first = job.master.reports.show(1)
    assert first.spec == SPEC and first.code_differs == ()
    assert first.code.keys() == {"milepost", "lasts: ops"} and len(first.code_hash) == 64
    job.next({"a": "int64"}, SPEC + SINK)
    wording.matches("show", job.master.reports.show(1).code_differs)
    assert job.master.reports.show(1).spec == SPEC and job.master.reports.show(2).spec == SPEC + SINK
    helped = (job.folder / "config" / "ops.py").read_text()
    (job.folder / "config" / "helper.py").write_text("ONE = 1\n")
    (job.folder / "config" / "ops.py").write_text("import helper\n" + helped)
    wording.matches("show", job.master.reports.show(2).code_differs)
    (job.folder / "config" / "ops.py").unlink()
    wording.matches("show", job.master.reports.show(2).code_differs)


def test_timestamps_are_compared_with_the_units_of_spark_and_of_process_classes(job: ChangingJob) -> None:
    """Spark stores microseconds whatever the source has. A process class emits the unit that it declares."""
    job.next({"a": "int32"})
    text = changed("schema: {k: int32, v: int32}", 'schema: {k: int32, v: int32, t: "timestamp[ms, UTC]"}')
    text = changed("inputs: [rows], key: [k], function", "inputs: [mid], key: [k], function", text)
    mid = '  - {uid: mid, kind: sql, inputs: [rows], sql: "SELECT k, v, t FROM rows"}\n'
    newest = "kind: aggregate, key: [k], aggregates: {newest: max(t)}"
    after = f"  - {{uid: of_sql, inputs: [mid], {newest}}}\n  - {{uid: of_class, inputs: [lasts], {newest}}}\nsinks:\n"
    job.write({"a": "int32"}, changed("operators:\n", f"operators:\n{mid}", changed("sinks:\n", after, text)))
    source = (job.folder / "config" / "ops.py").read_text()
    output = '"seen": "string", "t": "timestamp[ms, UTC]"'
    (job.folder / "config" / "ops.py").write_text(source.replace('"seen": "string"', output))
    context = job.context
    state = context.head().state
    base = context.base_metadata(state, state.timeline().head)
    assert base is not None
    operators, signatures = dict(base.operators), dict(base.signatures["operators"])
    for uid, key, unit in (("of_sql", pa.int32(), "us"), ("of_class", pa.int64(), "ms")):
        schema = pa.schema([("k", key), ("max(t)", pa.timestamp(unit, "UTC"))])
        sums = base.operators["sums"]
        operators[uid] = replace(sums, tables={"": replace(sums.tables[""], schema=schema)})
        signatures[uid] = {"kind": "aggregate", "key": ["k"]}
    recorded = replace(base, operators=operators, signatures={**base.signatures, "operators": signatures})
    rows = {row["uid"]: row for row in preflight(context, recorded, read_code(context).load(context))}
    assert (rows["of_sql"]["detail"], rows["of_class"]["detail"]) == (UNCHANGED, UNCHANGED)


def test_rows_in_flight_that_the_spec_would_produce_differently_are_in_the_report(job: ChangingJob) -> None:
    """`lint` also reports what `run` refuses with its own hint."""
    job.next({"a": "int32"})
    context = job.context
    state = context.head().state
    base = context.base_metadata(state, state.timeline().head)
    assert base is not None
    channel = ChannelStateHandle("chk-1/c", 9, "0" * 64, "sums", range(128), 1, 700, None, "made by another spec")
    sums = replace(base.operators["sums"], channels=(channel, None))
    recorded = replace(base, operators={**base.operators, "sums": sums})
    row = next(row for row in preflight(context, recorded, None) if row["uid"] == "sums")
    assert (row["outcome"], row["verdict"]) == ("refused", NEW_UID)
    wording.matches("compatibility", row["detail"])


@pytest.mark.long
def test_emitted_rows_of_a_function_are_discarded_if_no_operator_reads_them(job: ChangingJob) -> None:
    alone = SPEC.replace('"ops:Lasts"}', '"ops:Lasts", output_key: [k]}').replace("mode: append", "mode: upsert")
    reader = "  - {uid: per_text, kind: aggregate, inputs: [lasts], key: [seen], aggregates: {n: count(*)}}\n"
    read = alone.replace("sinks:\n", reader + "sinks:\n").replace("input: lasts", "input: per_text")
    job.next({"a": "int32"}, read)
    job.next({"a": "int32"}, read)
    assert job.master.reports.state("lasts.output").sort_by("k").to_pylist() == [
        {"k": 0, "seen": "{'a': 0}"}, {"k": 1, "seen": "{'a': None}"},
    ]  # fmt: skip
    job.write(
        {"a": "int32"}, alone.replace("name: lasts, input", "name: texts, input").replace("lake/lasts", "lake/texts")
    )
    told = job.report()["lasts"]
    assert told["verdict"] == NON_RESTORED
    wording.matches("compatibility", told["detail"])
    (job.folder / "landing" / "9.csv").write_text("k,v\n0,20\n")
    with wording.raises(InvalidRequest):
        job.run()
    job.run(allow_non_restored_state=True)
    assert [row["a"] for row in state_of(job)] == [20, 11], "its own state goes on"
    job.write({"a": "int32"}, read)
    assert job.report()["lasts"]["verdict"] == NEW_UID, "what it put out since was not kept"

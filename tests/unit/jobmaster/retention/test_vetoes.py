"""What the gate refused is seen: failing rows in an object of their own, and nowhere else; it is collected in time."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.codec.records import to_json
from milepost.errors import NotFound, QualityGateFailed
from milepost.jobmaster import JobMaster, Session, Triggered
from milepost.jobspec.load import load_job
from milepost.protocol.log.entry_codec import encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.records.layout import VETOES_PREFIX, veto_key
from milepost.quality.gate import collect_evidence, evaluate
from milepost.quality.verdict import GateVerdict
from milepost.quality.veto import MAX_BYTES, VetoedInput, build_veto, decode_veto
from milepost.views import checkpoint_view
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import page_client
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store
from tests.unit.jobmaster.retention.test_pruning import at_hour
from tests.unit.quality.test_gate import suite

SECRET = "<b>TopSecret\x1b[31m</b>"
"""A value of the data that must be seen in `show`, as text, and nowhere else."""

GATE = """quality:
  - sink: table
    expectations:
      - {type: expect_column_values_to_not_match_regex, column: v, regex: "TopSecret"}
      - {type: expect_table_row_count_to_be_between, max_value: 100}
checkpointing:"""
DAY_MS = 24 * 3_600_000


def vetoed(folder: Path, edit: dict[str, str] | None = None) -> SparklessJob:
    """Checkpoint 1 is complete, checkpoint 2 is aborted: 30 of its 31 keys have a value that the gate refuses."""
    key = "key: [k], aggregates: {rows: count(*)}"
    rules = {"checkpointing:": GATE, key: "key: [k], aggregates: {v: max(v), extra: min(v)}"}
    job = SparklessJob.create(folder, rules | (edit or {}))
    job.land("1.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    job.land("2.csv", "k,v\n" + "".join(f"{number},{SECRET}\n" for number in range(100, 130)) + "99,fine\n")
    with pytest.raises(QualityGateFailed) as refused:
        job.master.epochs.run(Session.cli(), SparklessRunner())
    assert "milepost show small 2" in refused.value.hint
    return job


def spec(job: SparklessJob) -> str:
    return str(job.folder / "config" / "small.yaml")


@pytest.mark.long
def test_show_has_failing_rows_with_the_columns_of_the_expectation_and_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = vetoed(tmp_path)
    (refusal,) = job.master.reports.show(2).veto["refusals"]
    assert (refusal["sink"], refusal["column"], refusal["observed"]["unexpected_count"]) == ("table", "v", 30)
    acks = job.master.reports.show(2).acks
    assert acks.received == acks.expected == 3, "the gate is asked last"
    assert len(refusal["rows"]) == 20 and all(row.keys() == {"k", "v"} for row in refusal["rows"])
    assert {row["v"] for row in refusal["rows"]} == {SECRET}
    assert refusal["bounds"] == {"regex": "TopSecret"}
    assert milepost("show", spec(job), "2", "--json").document()["veto"]["refusals"] == [refusal]
    told = milepost("show", spec(job), "2").stdout
    assert "<b>TopSecret\\x1b[31m</b>" in told and "\x1b" not in told
    took = {r"\btook [\d.]+ s\b": "took {time} s"}
    texts = [text.partition(" k v ")[0] for text in wording.paragraphs(told, "sink table:")]
    wording.matches("show", texts, replace=took)
    client = page_client(monkeypatch, *job_dags(tmp_path / "config").values())
    page = client.get("/jobs/small__epoch/checkpoints/2").text
    assert page.count("&lt;b&gt;TopSecret") == 20 and "<b>TopSecret" not in page
    assert job.master.reports.show(1).veto is None
    assert Path(spec(job)).read_text() in milepost("show", spec(job), "1", "--spec").stdout


def test_bounds_are_shown_with_the_spec_and_only_while_it_has_not_changed(tmp_path: Path) -> None:
    job = vetoed(tmp_path)
    report = job.master.reports.show(2)
    subject = "expect_column_values_to_not_match_regex(v)"
    for with_spec, text in ((True, f"{subject} with regex TopSecret: element"), (False, f"{subject}: element")):
        (section,) = [
            one for one in checkpoint_view(report, with_spec=with_spec).sections if one.title.startswith("Refused")
        ]
        assert text in section.tables[0].title
    file = Path(spec(job))
    file.write_text(file.read_text().replace('regex: "TopSecret"', "regex: AnotherSecret"))
    (refusal,) = JobMaster(load_job(file)).reports.show(2).veto["refusals"]
    assert "bounds" not in refusal and "AnotherSecret" not in milepost("show", spec(job), "2").stdout


@pytest.mark.deep
def test_row_data_is_in_no_manifest_entry_log_line_error_or_list(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    job = vetoed(tmp_path)
    entries = list(job.context.log.entries())
    assert any("vetoes/" in repr(entry) for entry in entries), "the event names the object"
    told = [encode_entry(entry).decode() for entry in entries if isinstance(entry, LogEntry)]
    told += [
        caplog.text,
        json.dumps(job.master.reports.history(None)),
        json.dumps(to_json(job.master.reports.list_checkpoints())),
    ]
    assert not [text for text in told if "TopSecret" in text]
    (listed,) = [one for one in job.master.reports.list_checkpoints() if one.status == "aborted"]
    assert listed.veto.key == veto_key(2)


@pytest.mark.deep
def test_without_rows_only_counts_and_observed_values_are_kept(tmp_path: Path) -> None:
    """`rows: 0`, for data that no one may see."""
    table = {"  - sink: table\n": "  - sink: table\n    rows: 0\n", "max_value: 100": "max_value: 3"}
    gate = GATE
    for old, new in table.items():
        gate = gate.replace(old, new)
    job = vetoed(tmp_path, {"checkpointing:": gate})
    values, count = job.master.reports.show(2).veto["refusals"]
    assert (values["rows"], values["observed"]["unexpected_count"]) == ([], 30)
    assert (count["rows"], count["observed_value"]) == ([], 31)


def test_a_veto_that_the_store_refuses_stops_no_abort(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as outage:
        faults = Fault(lambda operation, key: VETOES_PREFIX in key, Effect.UNAVAILABLE, times=10_000)
        job = SparklessJob.create(tmp_path / "probe")
        break_store(outage, job.context.store.config.url.replace("/probe/", "/job/"), faults)
        job = vetoed(tmp_path / "job")
    (aborted,) = [one for one in job.master.reports.list_checkpoints() if one.status == "aborted"]
    assert (aborted.failure_reason, aborted.veto) == ("QUALITY_GATE_FAILED", None)
    assert aborted.spec_hash == job.context.job.spec_hash


@pytest.mark.long
def test_a_veto_is_kept_for_retained_daily_and_collected_afterwards(tmp_path: Path) -> None:
    """I8: needed while it is young, garbage afterwards; the event then names a deleted object, and `show` says so."""
    job = vetoed(tmp_path, {"retained: {last: 1}": "retained: {last: 1, daily: 3}"})
    report = job.master.reports.fsck()
    assert (report.exit_code, report.foreign) == (0, ())
    file = job.folder / "store" / "small" / veto_key(2)
    assert veto_key(2) not in {item.key for item in report.unreachable} and file.is_file()
    now_ms = job.context.store.clock_ms()
    for age_ms, stays in ((3 * DAY_MS - 60_000, True), (3 * DAY_MS + 60_000, False)):
        os.utime(file, ((now_ms - age_ms) / 1000,) * 2)
        assert (veto_key(2) in {item.key for item in job.master.reports.fsck().unreachable}) is not stays
        assert (job.master.collect_garbage(dry_run=True).vetoes == ()) is stays
        job.master.collect_garbage()
        assert file.is_file() is stays
    wording.matches("show", job.master.reports.show(2).veto["problem"])
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.long
def test_an_epoch_deletes_expired_vetoes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anybody typing `gc`: once per grace period, with the tables."""
    job = vetoed(tmp_path)
    file = job.folder / "store" / "small" / veto_key(2)
    for number, hour in enumerate((20, 25), start=3):
        at_hour(monkeypatch, hour)
        (job.folder / "landing" / "2.csv").unlink(missing_ok=True)
        job.land(f"{number}.csv")
        job.master.lifecycle.resume()
        job.master.epochs.run(Session.cli(), SparklessRunner())
        assert file.exists() is (hour < 24)


def test_a_failing_row_with_a_time_that_python_lacks_is_shown_and_refuses_the_epoch_as_any_other() -> None:
    far = pa.array([10**18], pa.timestamp("us", "UTC"))
    rows = pa.table({"v": [-5], "at": far})
    specs = [suite({"type": "expect_column_values_to_be_between", "column": "v", "min_value": 0})]
    verdict = GateVerdict.of((evaluate(specs[0], rows),))
    (refusal,) = build_veto(7, verdict, specs, {"carriers": collect_evidence(specs[0], [0], rows, ["at"])}).refusals
    assert refusal.rows == ({"v": -5, "at": "33658-09-27T01:46:40.000000Z"},)


@pytest.mark.deep
def test_a_veto_object_stays_small_however_wide_the_rows_are() -> None:
    names = [f"column_{number}" for number in range(100)]
    rows = pa.table({name: ["x" * 5_000 + str(number) for number in range(50)] for name in names})
    expectations = [{"type": "expect_column_values_to_be_null", "column": name} for name in names]
    specs = [suite(*expectations)]
    verdict = GateVerdict.of((evaluate(specs[0], rows),))
    seen = {"carriers": collect_evidence(specs[0], verdict.verdicts[0].vetoing, rows, names[:5])}
    body = build_veto(7, verdict, specs, seen).encode()
    document = decode_veto(body, "veto")
    assert len(body) <= MAX_BYTES == 64_000
    assert document["shortened"] and document["checkpoint_id"] == 7


def test_a_veto_names_what_the_epoch_read_as_far_as_it_fits() -> None:
    """Names of objects are left out before failing rows are; an older version recorded no input."""
    rows = pa.table({"v": ["x" * 150 + str(number) for number in range(20)]})
    specs = [suite({"type": "expect_column_values_to_be_null", "column": "v"})]
    verdict = GateVerdict.of((evaluate(specs[0], rows),))
    seen = {"carriers": collect_evidence(specs[0], [0], rows, ["v"])}
    for sources, named in ((1, 20), (10, 3), (200, 0)):
        read = {f"s{at}": VetoedInput(7, 900, tuple("k" * 1_000 for _ in range(20)), None) for at in range(sources)}
        body = build_veto(7, verdict, specs, seen, read).encode()
        document = decode_veto(body, "veto")
        assert len(body) <= MAX_BYTES and document["shortened"] is (named < 20)
        assert {len(one["first"]) for one in document["read"].values()} == {named}
        assert len(document["refusals"][0]["rows"]) == 20 and len(document["read"]) == sources
    many = {f"s{at}": VetoedInput(7, 900, (), "position" * 100) for at in range(500)}
    body = build_veto(7, verdict, specs, seen, many).encode()
    assert len(body) <= MAX_BYTES and "read" not in decode_veto(body, "veto")
    old = json.loads(build_veto(7, verdict, specs, seen).encode())
    assert "read" not in old and decode_veto(json.dumps(old).encode(), "veto")["refusals"]


@pytest.mark.long
def test_what_a_later_process_aborts_names_what_the_newest_try_has_refused(tmp_path: Path) -> None:
    """As Airflow's tasks do it: each in a process of its own, `run_epoch` twice; the object is created once."""
    job = vetoed(tmp_path)
    job.master.lifecycle.resume()
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    assert isinstance(triggered, Triggered)
    for _ in range(2):
        verdict = job.master.epochs.run_epoch(session, triggered.checkpoint_id, SparklessRunner()).verdict
    with pytest.raises(QualityGateFailed) as refused:
        job.master.epochs.validate(session, triggered.checkpoint_id)
    assert verdict.vetoes and "TopSecret" not in str(refused.value) + json.dumps(refused.value.details, default=str)
    key = veto_key(triggered.checkpoint_id)
    with pytest.raises(NotFound):
        job.context.store.get(key)
    told = job.master.epochs.abort(session, triggered.checkpoint_id, "QUALITY_GATE_FAILED", refused.value.message)
    assert "TopSecret" not in json.dumps(to_json(told))
    assert len(job.master.reports.show(triggered.checkpoint_id).veto["refusals"][0]["rows"]) == 20
    job.context.store.put(key, b"{}")
    shown = job.master.reports.show(triggered.checkpoint_id).veto
    assert shown["refusals"] == [], "another content than the event names"
    wording.matches("show", shown["problem"])

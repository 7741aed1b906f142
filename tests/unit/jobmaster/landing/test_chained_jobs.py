"""A job that reads the published table of another one: each published row once, whatever that job does meanwhile."""

from __future__ import annotations

import json
import random
import re
import shutil
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import InvalidRequest, QualityGateFailed, SourceUnreachable
from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobmaster.landing.lander import Lander
from milepost.jobmaster.landing.open_sources import open_source
from milepost.jobmaster.landing.source_probe import probe_landed_sources
from milepost.jobspec.load.load import load_job
from milepost.openlineage.dataset_names import sink_name, source_name
from milepost.protocol.landed import SourceBacklog
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sinks.staging import small_files
from milepost.sources.landed.contract import RewindableSource
from milepost.storage.open import open_store
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.landed_table import AFTER, BEFORE, Killed, KilledLog
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.chained_jobs import ChainedJobs
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore
from milepost_testkit.stores.hooked_store import HookedStore


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChainedJobs:
    """Two jobs, of which `orders` joins two files of equal size."""
    monkeypatch.setattr(small_files, "GROWTH", 2)
    return ChainedJobs.create(tmp_path / "jobs")


def table_files(jobs: ChainedJobs) -> list[int]:
    """Rows of each file that the table of `orders` shows."""
    sink = jobs.context("orders").sink("rows")
    return [file.rows for file in sink.files(sink.position().contents)]


@pytest.mark.deep
def test_each_published_row_is_landed_once_although_files_are_joined_and_deleted(jobs: ChainedJobs) -> None:
    for count in (1, 2, 1, 3, 5):
        for key in range(count):
            jobs.publish(key)
        jobs.collect()
        assert jobs.land().rows == count
        jobs.epoch("sales")
        jobs.assert_tables(jobs.rows)
    assert len(table_files(jobs)) < 5, "files that were landed are joined with files that were not"
    assert jobs.land().records == 0


@pytest.mark.deep
def test_a_joined_file_counts_as_the_files_it_was_made_of(jobs: ChainedJobs) -> None:
    for key in (1, 2, 3):
        jobs.publish(key)
        jobs.land()
    jobs.publish(4)
    before = table_files(jobs)
    while table_files(jobs)[0] <= sum(before[:-1]):  # until the landed rows and others are in one file
        jobs.publish(5)
    assert jobs.land().rows == len(jobs.rows) - 3
    jobs.epoch("sales")
    jobs.assert_tables(jobs.rows)


@pytest.mark.deep
def test_a_landing_of_many_records_goes_on_where_the_one_before_stopped(tmp_path: Path) -> None:
    jobs = ChainedJobs.create(
        tmp_path / "jobs", down={"event_time: at\n": "event_time: at\n    land: {max_bytes: 1B}\n"}
    )
    for key in (1, 2, 3):
        jobs.publish(key)
    assert jobs.land().records == 3
    jobs.publish(4)
    assert jobs.land().records == 1
    jobs.epoch("sales")
    jobs.assert_tables(jobs.rows)


def test_the_log_begins_with_what_follows_if_it_starts_at_the_latest(tmp_path: Path) -> None:
    jobs = ChainedJobs.create(tmp_path / "jobs", down={"event_time: at\n": "event_time: at\n    start: latest\n"})
    jobs.publish(1, 2)
    assert jobs.land().rows == 0
    jobs.publish(3)
    assert jobs.land().rows == 1
    jobs.epoch("sales")
    jobs.assert_tables(jobs.rows[2:])


def test_a_table_without_a_published_epoch_is_empty(jobs: ChainedJobs) -> None:
    context = jobs.context("orders")
    jobs.publish(1)
    (jobs.folder / "kept").mkdir()
    heads = jobs.folder / "lake" / "orders" / "_milepost" / "heads"
    heads.rename(jobs.folder / "kept" / "heads")
    assert jobs.land().rows == 0
    assert context.head().version
    (jobs.folder / "kept" / "heads").rename(heads)
    assert jobs.land().rows == 1


@pytest.mark.long
def test_a_rollback_to_before_the_landed_mark_stops_the_landing_until_it_is_undone(jobs: ChainedJobs) -> None:
    first = jobs.publish(1)
    jobs.land()
    second = jobs.publish(2)
    landed = jobs.land()
    jobs.epoch("sales")
    roll_back(jobs.master("orders"), first)
    failed = jobs.failed_landing()
    assert (failed.error, failed.may_pass) == ("SourceWentBack", False)
    mark = landed.end["mark"]
    assert f"landed up to mark {mark} (checkpoint {second} of timeline main)" in failed.message
    assert f"(checkpoint {first} of timeline " in failed.message
    assert f"the newest checkpoint of job orders that both have is {first}" in failed.message
    context = jobs.context("sales")
    source, log = open_source(context, "orders", context.spec.landed["orders"]), context.source_log("orders")
    assert isinstance(source, RewindableSource)
    assert source.newest_true(log.record(number).record.end for number in (3, 2, 1)) == 1
    jobs.assert_tables(jobs.rows)
    roll_back(jobs.master("orders"), second)
    assert jobs.land().rows == 0
    jobs.publish(3)
    assert jobs.land().rows == 1


@pytest.mark.deep
def test_the_second_job_goes_on_after_the_rows_that_were_rolled_back_are_void(jobs: ChainedJobs) -> None:
    first = jobs.publish(1)
    jobs.land()
    kept = jobs.epoch("sales")
    jobs.publish(2, 3)
    jobs.land()
    jobs.epoch("sales")
    jobs.roll_back(first)
    jobs.publish(4)
    assert jobs.failed_landing().error == "SourceWentBack"
    jobs.void()
    assert jobs.epoch_or_rollback("sales") == kept
    assert jobs.land().rows == 1
    jobs.epoch("sales")
    jobs.assert_tables(jobs.rows)


def test_a_table_that_was_emptied_went_back(jobs: ChainedJobs) -> None:
    jobs.publish(1)
    jobs.land()
    jobs.roll_back(0)
    failed = jobs.failed_landing()
    assert failed.error == "SourceWentBack"
    assert "the table shows mark " in failed.message and "(checkpoint 0 of timeline " in failed.message
    jobs.publish(2)
    assert jobs.failed_landing().error == "SourceWentBack", "another row is at its place"


@pytest.mark.long
def test_false_rows_are_found_although_a_joined_file_has_rows_before_and_after_them(jobs: ChainedJobs) -> None:
    jobs.publish(1)
    second, third = jobs.publish(2), jobs.publish(3)
    landed = jobs.land()
    jobs.roll_back(second)
    jobs.publish(4)
    while table_files(jobs)[0] <= 3:
        jobs.publish(5)
    failed = jobs.failed_landing()
    assert failed.error == "SourceWentBack"
    assert f"no longer continues mark {landed.end['mark']} (checkpoint {third} of timeline main)" in failed.message
    assert f"both have is {second}" in failed.message


@pytest.mark.deep
def test_rows_that_were_published_and_rolled_back_before_a_landing_are_not_landed(jobs: ChainedJobs) -> None:
    jobs.publish(1)
    jobs.land()
    second = jobs.publish(2)
    jobs.publish(3)
    jobs.roll_back(second)
    jobs.publish(4)
    assert jobs.land().rows == 2
    jobs.epoch("sales")
    jobs.assert_tables(jobs.rows)
    assert [key for key, _ in jobs.rows] == [1, 2, 4]


@pytest.mark.deep
def test_a_backfill_stops_the_landing_unless_it_wrote_the_same_files(tmp_path: Path) -> None:
    jobs = ChainedJobs.create(tmp_path / "jobs", up={"retained: {last: 2}": "retained: {last: 9}"})
    first = jobs.publish(1)
    jobs.publish(2)
    last = jobs.publish(3)
    jobs.land()
    back_fill(jobs.master("orders"), SparklessRunner(), from_checkpoint=first)
    assert jobs.land().rows == 0
    spec = jobs.folder / "config" / "orders.yaml"
    spec.write_text(spec.read_text().replace("{k: int64, n: int64,", "{n: int64, k: int64,"))
    back_fill(jobs.master("orders"), SparklessRunner(), from_checkpoint=first)
    failed = jobs.failed_landing()
    assert failed.error == "SourceWentBack"
    assert f"(checkpoint {last} of timeline main)" in failed.message
    assert f"that both have is {first}" in failed.message


@pytest.mark.deep
def test_rows_that_a_quality_gate_vetoed_are_never_landed(tmp_path: Path) -> None:
    rule = "{type: expect_column_values_to_be_between, column: k, max_value: 9, severity: critical}"
    gate = f"quality:\n  - {{sink: rows, expectations: [{rule}]}}\ncheckpointing:"
    jobs = ChainedJobs.create(tmp_path / "jobs", up={"checkpointing:": gate})
    jobs.publish(1)
    jobs.land()
    jobs.write(99)
    with pytest.raises(QualityGateFailed):
        jobs.epoch("orders")
    assert jobs.land().rows == 0


@pytest.mark.deep
def test_a_changelog_is_landed_with_its_operations(tmp_path: Path) -> None:
    edit = {
        "../lake/orders": "../lake/changes",
        '{k: int64, n: int64, at: "timestamp[us, UTC]"}\n    event_time: at': "{k: int64, rows: int64, _op: string}",
        "total: sum(n)": "total: sum(rows)",
    }
    jobs = ChainedJobs.create(tmp_path / "jobs", down=edit)
    jobs.publish(1, 2)
    jobs.publish(1)
    jobs.land()
    jobs.epoch("sales")
    read = jobs.master("sales").reports.read("rows").select(["k", "rows", "_op"]).to_pylist()
    expected = jobs.master("orders").reports.read("changes").select(["k", "rows", "_op"]).to_pylist()
    order = repr
    assert sorted(read, key=order) == sorted(expected, key=order) and len(read) > 2


SECOND = "format: milepost\n    path: ../lake/"


@pytest.mark.long
@pytest.mark.parametrize(
    ("edit", "problem", "way_out"),
    [
        ({"../lake/orders": "../lake/nowhere"}, "does not exist", "correct `path`"),
        ({"../lake/orders": "../lake"}, "does not exist", "correct `path`"),
        ({"../lake/orders": "../lake/totals"}, "has mode: upsert", "`mode: changelog`"),
        ({"../lake/orders": "../lake/orders\n    storage: ../elsewhere"}, "has no such mark", "correct `storage`"),
        ({"{k: int64, n: int64, ": "{k: int64, n: int64, m: int64, "}, "has no column m", "correct `schema`"),
        ({"{k: int64, n: int64, ": "{k: int64, n: string, "}, "has a column n of the type int64", "declare n"),
    ],
)
def test_a_table_that_cannot_be_landed_is_refused_with_the_way_out(
    tmp_path: Path, edit: dict[str, str], problem: str, way_out: str
) -> None:
    totals = {", total: sum(n)": ""} if "n: string" in str(edit) else {}
    jobs = ChainedJobs.create(tmp_path / "jobs", down={**edit, **totals})
    jobs.publish(1)
    failed = jobs.failed_landing()
    assert (failed.error, failed.may_pass) == ("InvalidRequest", False)
    assert problem in failed.message and way_out in failed.hint
    (probed,) = probe_landed_sources(jobs.context("sales"))
    assert not probed.ok and problem in probed.detail


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "problem", "way_out"),
    [
        ({"table_format": "delta", "mode": "append"}, "is of format delta", "`format: delta`"),
        ({"table_format": "iceberg", "mode": "append"}, "is of format iceberg", "`format: iceberg`"),
        (
            {"owner": {"job": "../x", "identity": "i", "sink": "s"}},
            "names an owner that cannot exist",
            "correct `path`",
        ),
        (
            {"owner": {"job": "x", "identity": "i", "sink": "../s"}},
            "names an owner that cannot exist",
            "correct `path`",
        ),
        ({"mode": 7}, "is damaged", "milepost fsck"),
    ],
)
def test_an_owner_that_is_no_append_table_of_parquet_is_refused(
    jobs: ChainedJobs, change: dict[str, Any], problem: str, way_out: str
) -> None:
    jobs.publish(1)
    owner = jobs.folder / "lake" / "orders" / "_milepost" / "owner.json"
    owner.write_text(json.dumps({**json.loads(owner.read_text()), **change}))
    failed = jobs.failed_landing()
    assert failed.error == "InvalidRequest"
    assert problem in failed.message and way_out in failed.hint


CATALOG = 'catalog: {type: sql, uri: "sqlite:///../catalog.db"}'


@pytest.mark.deep
@pytest.mark.parametrize(
    ("sink", "source"),
    [
        ("format: delta, path: ../lake/totals", "format: delta\n    path: ../lake/totals"),
        (
            f"format: iceberg, path: ../lake/totals, {CATALOG}, table: shop.totals",
            f"format: iceberg\n    {CATALOG}\n    table: shop.totals",
        ),
    ],
    ids=["delta", "iceberg"],
)
def test_a_table_that_a_job_upserts_into_is_refused_by_doctor_and_the_first_landing(
    tmp_path: Path, sink: str, source: str
) -> None:
    """Its changelog, as the hint says, can be read."""
    columns = {'{k: int64, n: int64, at: "timestamp[us, UTC]"}\n    event_time: at': "{k: int64, total: int64}"}
    jobs = ChainedJobs.create(
        tmp_path / "jobs",
        up={"format: parquet, path: ../lake/totals": sink},
        down={"format: milepost\n    path: ../lake/orders": source, **columns, "sum(n)": "sum(total)"},
    )
    jobs.publish(1)
    (probed,) = probe_landed_sources(jobs.context("sales"))
    assert not probed.ok and "has mode: upsert: job orders replaces and deletes its rows" in probed.detail
    failed = jobs.failed_landing()
    assert (failed.error, failed.may_pass) == ("InvalidRequest", False) and "`format: milepost`" in failed.hint
    spec = jobs.folder / "config" / "sales.yaml"
    spec.write_text(spec.read_text().replace(source, "format: milepost\n    path: ../lake/changes"))
    assert jobs.land().rows == 1
    assert all(probed.ok for probed in probe_landed_sources(jobs.context("sales")))


def test_a_table_that_was_deleted_and_made_anew_is_another_one(jobs: ChainedJobs) -> None:
    jobs.publish(1)
    jobs.land()
    for name in ("store/orders", "lake"):
        (jobs.folder / name).rename(jobs.folder / f"old-{name.replace('/', '-')}")
    jobs.publish(1)
    assert jobs.failed_landing().error == "SourceReplaced"


@pytest.mark.deep
def test_a_column_that_was_added_is_null_in_older_rows(jobs: ChainedJobs) -> None:
    jobs.publish(1)
    jobs.land()
    for name in ("orders", "sales"):
        spec = jobs.folder / "config" / f"{name}.yaml"
        text = spec.read_text().replace("schema: {k: int64,", "schema: {k: int64, m: int64,")
        spec.write_text(text.replace("settle: 0s", "settle: 0s\n    optional_columns: [m]"))
    (jobs.folder / "landing" / "000001.csv").write_text("k,n,m,at\n2,1,5,2026-03-01T01:00:00Z\n")
    jobs.epoch("orders")
    jobs.land()
    jobs.epoch("sales")
    rows = jobs.master("sales").reports.read("rows").sort_by("n").select(["k", "m"]).to_pylist()
    assert rows == [{"k": 1, "m": None}, {"k": 2, "m": 5}]


@pytest.mark.long
@pytest.mark.parametrize(("resume_from", "left"), [("earliest", [2]), ("latest", [])])
def test_a_log_goes_on_after_a_file_that_was_lost(tmp_path: Path, resume_from: str, left: list[int]) -> None:
    jobs = ChainedJobs.create(tmp_path / "jobs")
    jobs.publish(7)
    jobs.land()
    jobs.publish(1)
    jobs.publish(2)
    sink = jobs.context("orders").sink("rows")
    _, lost, _ = sink.files(sink.position().contents)
    (jobs.folder / "lake" / "orders" / lost.key).unlink()
    failed = jobs.failed_landing()
    assert failed.error == "PositionExpired" and "--resume-from earliest" in failed.hint
    assert "has lost the data file" in failed.message
    gaps = jobs.master("sales").gaps
    with pytest.raises(InvalidRequest, match="cannot be read from a time on"):
        gaps.plan("orders", "2026-03-01T00:00:00Z")
    gaps.approve(gaps.plan("orders", resume_from).approved, "ada")
    assert jobs.land().rows == len(left)
    jobs.epoch("sales")
    jobs.assert_tables([row for row in jobs.rows if row[0] in (7, *left)])


def test_a_file_that_was_joined_and_deleted_while_it_was_read_is_read_by_the_next_landing(jobs: ChainedJobs) -> None:
    jobs.publish(1)
    context = jobs.context("sales")
    source = open_source(context, "orders", context.spec.landed["orders"])
    pull = source.next_pull(source.initial_position())
    assert pull is not None
    jobs.publish(2)
    jobs.publish(3)
    (jobs.folder / "lake" / "orders" / pull.splits[0][0].key).unlink()
    with pytest.raises(SourceUnreachable, match="it was compacted while it was read"):
        list(source.read(pull.splits[0]))
    assert jobs.land().rows == 3


@pytest.mark.parametrize("store", ["lake/orders", "store/orders"])
def test_a_store_that_does_not_answer_is_named_and_the_next_landing_succeeds(
    jobs: ChainedJobs, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    jobs.publish(1)
    down = Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=100)

    def opener(config: StoreConfig) -> ObjectStore:
        return FaultyStore(open_store(config), [down]) if config.url.endswith(store) else open_store(config)

    with monkeypatch.context() as patched:
        for module in ("milepost.jobmaster.job.context", "milepost.jobmaster.landing.open_sources"):
            patched.setattr(f"{module}.open_store", opener)
        failed = jobs.failed_landing()
    assert (failed.error, failed.may_pass) == ("SourceUnreachable", True)
    assert "the Milepost table file://" in failed.message and "did not answer" in failed.message
    assert jobs.land().rows == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("times", "error", "text"),
    [(1, None, ""), (9, "SourceUnreachable", "moved on 3 times"), (0, "InvalidRequest", "is damaged")],
)
def test_contents_that_are_deleted_while_the_table_moves_on_are_read_again(
    jobs: ChainedJobs, monkeypatch: pytest.MonkeyPatch, times: int, error: str | None, text: str
) -> None:
    jobs.publish(1)
    left = times

    def delete(operation: str, key: str) -> None:
        nonlocal left
        if operation != "get" or not Path(key).name.startswith("rows-") or left < min(times, 1):
            return
        if left:
            left -= 1
            jobs.publish(2)
        (jobs.folder / "store" / "orders" / key).unlink(missing_ok=True)

    monkeypatch.setattr(
        "milepost.jobmaster.landing.open_sources.open_store",
        lambda config: HookedStore(open_store(config), before=delete),
    )
    if error is None:
        assert jobs.land().rows == len(jobs.rows) == 2
    else:
        failed = jobs.failed_landing()
        assert (failed.error, failed.may_pass) == (error, error == "SourceUnreachable") and text in failed.message


def test_doctor_status_and_lineage_name_the_table_and_how_far_the_log_is_behind(jobs: ChainedJobs) -> None:
    jobs.publish(1)
    (probed,) = probe_landed_sources(jobs.context("sales"))
    assert probed.detail.startswith("../lake/orders is opened; nothing was landed yet; not landed yet: 1 mark; ")
    assert not (jobs.folder / "store" / "sales").exists()
    jobs.land()
    jobs.publish(2)
    jobs.publish(3)
    (probed,) = probe_landed_sources(jobs.context("sales"))
    assert "sink rows of job orders shows mark " in probed.detail and "not landed yet: 2 marks" in probed.detail
    spec = jobs.folder / "config" / "sales.yaml"
    spec.write_text(spec.read_text().replace("operators:", "    land: {max_bytes: 1B}\noperators:"))
    log = jobs.context("sales").source_log("orders")
    newest = log.newest()
    assert newest is not None
    jobs.land()
    (health,) = (jobs.master("sales").reports.status().sources or {}).values()
    assert health.log is not None and health.log.backlog == SourceBacklog(0, "mark", 0)
    first = log.record(newest.record.sequence + 1).record
    assert first.backlog is not None and (first.backlog.count, first.backlog.unit) == (1, "mark")
    assert first.backlog.age_ms is not None and 0 <= first.backlog.age_ms < 600_000
    upstream, downstream = jobs.context("orders").job, jobs.context("sales").job
    assert source_name(downstream, "orders") == sink_name(upstream, "rows")


@pytest.mark.parametrize("path", ["../sales/rows", "../sales/../sales/rows/"])
def test_a_table_that_the_job_writes_cannot_be_its_source(tmp_path: Path, path: str) -> None:
    jobs = ChainedJobs.create(tmp_path / "jobs", down={"../lake/orders": path})
    with pytest.raises(InvalidRequest, match="this is the table of sink rows; read the sink's input"):
        jobs.context("sales")
        jobs.context("sales").job.graph()


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
def test_both_tables_are_right_after_each_step_of_two_jobs_that_run_roll_back_and_collect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(small_files, "GROWTH", 2)
    jobs = ChainedJobs.create(tmp_path / "jobs", up={"retained: {last: 2}": "retained: {last: 5}"})
    chance, landed, processed = random.Random(seed), list[tuple[int, int]](), list[tuple[int, int]]()
    downstream: dict[int, list[tuple[int, int]]] = {0: []}
    for _ in range(40):
        step = chance.choice(["publish"] * 4 + ["land", "epoch"] * 2 + ["killed", "back", "back here", "collect"])
        retained = (
            [0] if not jobs.shown else [one.checkpoint_id for one in jobs.context("orders").head().state.checkpoints]
        )
        if step == "publish":
            jobs.publish(*(chance.randrange(4) for _ in range(chance.randint(1, 3))))
        elif step == "land" and jobs.shown:
            if jobs.rows[: len(landed)] != landed:
                assert jobs.failed_landing().error == "SourceWentBack"
                jobs.void()
            jobs.land()
            landed = [*jobs.rows]
        elif step == "killed" and landed and jobs.rows[: len(landed)] == landed:
            context = jobs.context("sales")
            log = KilledLog(context.store, "orders")
            log.fate, log.appends = chance.choice([BEFORE, AFTER]), 1
            with suppress(Killed):
                Lander(log, open_source(context, "orders", context.spec.landed["orders"]), context.identity).land()
            landed = [*jobs.rows] if log.fate == AFTER else landed
        elif step == "epoch" and landed != processed:
            checkpoint = jobs.epoch_or_rollback("sales")
            processed = downstream.setdefault(checkpoint, [*landed])
            jobs.assert_tables(processed)
        elif step == "back" and jobs.shown:
            jobs.roll_back(chance.choice(retained))
        elif step == "back here" and len(downstream) > 2:
            to_here = chance.choice([*downstream][1:])
            roll_back(jobs.master("sales"), to_here)
            processed = downstream[to_here]
            jobs.assert_tables(processed)
        elif step == "collect" and jobs.shown:
            jobs.collect()
    jobs.publish(1)
    if jobs.rows[: len(landed)] != landed:
        jobs.void()
    jobs.land()
    while jobs.epoch_or_rollback("sales") in downstream:
        pass
    jobs.assert_tables(jobs.rows)


PAGE = (REPOSITORY / "docs" / "how-to" / "chain-two-jobs.md").read_text(encoding="utf-8")
ORDER = "customer,amount,at\na,1.50,2026-03-01T00:00:00Z\n"


def run_chain(upstream: Path, downstream: Path, landing: Path) -> None:
    """Run two jobs by turns, and compare the totals of the second one."""
    landing.mkdir(parents=True)
    upstream.write_text(upstream.read_text().replace("schema:", "settle: 0s\n    schema:"))
    for count in (1, 2):
        (landing / f"{count}.csv").write_text(ORDER)
        for spec in (upstream, downstream):
            master = JobMaster(load_job(str(spec)))
            assert not master.landings.land().failed
            result = master.epochs.run(Session.cli(), SparklessRunner())
            assert not isinstance(result, NothingToDo), result
        (total,) = JobMaster(load_job(str(downstream))).reports.read("totals").to_pylist()
        assert (total["orders"], total["total"]) == (count, count * Decimal("1.50"))


def test_the_examples_of_the_page_chain_two_jobs(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    specs = [tmp_path / "config" / f"{name}.yaml" for name in ("orders", "sales")]
    for path, spec in zip(specs, re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL), strict=True):
        path.write_text(spec)
    run_chain(*specs, tmp_path / "landing")


@pytest.mark.deep
def test_the_shipped_specs_chain_two_jobs(tmp_path: Path) -> None:
    examples = tmp_path / "config" / "examples"
    examples.mkdir(parents=True)
    specs = [examples / f"chained_{name}.yaml" for name in ("orders", "totals")]
    for spec in specs:
        shutil.copy(REPOSITORY / "config" / "examples" / spec.name, spec)
    run_chain(*specs, tmp_path / "landing" / "orders")

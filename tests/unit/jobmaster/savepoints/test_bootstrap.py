"""A first checkpoint from tables: the state as one job showed it is the state from which another one goes on."""

from __future__ import annotations

import io
import struct
from contextlib import nullcontext
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.cli.terminal.tables import write_file
from milepost.errors import CheckpointError, InvalidRequest, NotFound
from milepost.jobmaster.savepoints import bootstrap, csv_content, state_table
from milepost.spill.spilled_rows import SpilledRows
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.saved_job import OtherJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.held_rows import hold_few_rows
from milepost_testkit.stores.job_stores import break_store

PAIRS = '  - {uid: pairs, kind: process, inputs: [rows], key: [k], function: "pairs:Pairs"}\n'
PAIRS_SINK = "  - {name: pairs, input: pairs, format: parquet, path: ../lake/pairs, mode: append}\n"
PAIRS_CODE = """\
class Pairs:
    state = {"seen": "int64", "first": "string"}
    output = {"k": "int64", "seen": "int64", "first": "string"}

    def on_rows(self, key, rows, state, ctx):
        for value in rows.column("v").to_pylist():
            state["seen"] = (state["seen"] or 0) + 1
            state["first"] = state["first"] or value
        yield {"k": key, "seen": state["seen"], "first": state["first"]}
"""
WINDOW = (
    "  - {uid: hourly, kind: window, inputs: [rows], key: [k], window: {tumbling: 1h}, aggregates: {n: count(*)}}\n"
)
UIDS = ("latest", "unique", "pairs")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Three epochs of an aggregate, a deduplicate and a process function."""
    job = CountedJob.create(tmp_path_factory.mktemp("tables"))
    job.edit("  - {uid: unique,", f"{PAIRS}  - {{uid: unique,")
    job.edit("sinks:\n", f"sinks:\n{PAIRS_SINK}")
    (job.spec_path.parent / "pairs.py").write_text(PAIRS_CODE)
    job.land([1, 2, 3])
    job.run(3)
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def exported(job: CountedJob, folder: Path, suffix: str) -> dict[str, str]:
    """The state of each operator as `milepost state --output` writes it."""
    folder.mkdir()
    files = {uid: folder / f"{uid}.{suffix}" for uid in UIDS}
    for uid, file in files.items():
        write_file(job.master.reports.state_rows(uid, stored=True), suffix, file)
    return {uid: str(file) for uid, file in files.items()}


def beside(job: CountedJob) -> OtherJob:
    """The same job under another name and parallelism, which reads what lands in `later/`."""
    return OtherJob.beside(job, {"path: ../landing/*.csv": "path: ../later/*.csv"})


@pytest.mark.long
@pytest.mark.parametrize(
    ("suffix", "held"),
    [
        ("parquet", "in memory"),
        ("csv", "on the disk"),
        pytest.param("parquet", "on the disk", marks=pytest.mark.deep),
        pytest.param("csv", "in memory", marks=pytest.mark.deep),
    ],
)
def test_a_job_goes_on_from_the_exported_state_of_another(
    job: CountedJob, tmp_path: Path, suffix: str, held: str
) -> None:
    """What its later epochs leave and emit is what the original's leave and emit, row for row."""
    files = exported(job, tmp_path / "tables", suffix)
    other = beside(job)
    with pytest.MonkeyPatch.context() as patch:
        if held == "on the disk":
            hold_few_rows(patch)
            patch.setattr(bootstrap, "_SLICE_BYTES", 500)
        result = other.master.bootstraps.run(files)
    written = other.context.base_metadata(other.context.head().state, result.head)
    runs = [len(handle.runs) for table in written.state_tables.values() for handle in table.state.handles]
    assert (max(runs) > 1) is (held == "on the disk"), "of a subtask one run, or one of each slice"
    assert {uid: one.rows for uid, one in result.operators.items()} == {"latest": 7, "unique": 9, "pairs": 7}
    for uid in UIDS:
        assert_same_rows(other.master.reports.state(uid), job.master.reports.state(uid), uid)
    before = {name: job.master.reports.read(name).num_rows for name in ("seen", "pairs")}
    job.land([4, 2])  # 2 lands again, as a new version: its rows are known
    (job.small.folder / "later").mkdir()
    for name in ("0002.csv", "0004.csv"):
        text = (job.small.folder / "landing" / name).read_text()
        (job.small.folder / "later" / name).write_text(text)
    job.edit("limits_per_epoch: {max_files: 1}", "on_change: reprocess")
    other.spec_path.write_text(
        other.spec_path.read_text().replace("limits_per_epoch: {max_files: 1}", "on_change: fail")
    )
    job.run(1)
    other.run(1)
    for uid in UIDS:
        assert_same_rows(other.master.reports.state(uid), job.master.reports.state(uid), uid)
    for name, rows in before.items():
        assert_same_rows(other.master.reports.read(name), job.master.reports.read(name).slice(rows), name)
    assert_same_rows(other.master.reports.read("table"), job.master.reports.read("table"), "every key, from the state")
    assert (
        verified := other.master.reports.verify(deep=True)
    ).unasked == verified.discarded == () and other.master.reports.fsck().exit_code == 0


def test_an_ended_job_begins_anew_from_a_table(job: CountedJob, tmp_path: Path) -> None:
    """What it published is abandoned, as after a rollback, and can be rolled back to."""
    files = exported(job, tmp_path / "tables", "parquet")
    with wording.raises(InvalidRequest):
        job.master.bootstraps.run(files)
    job.master.savepoints.cancel()
    result = job.master.bootstraps.run({"latest": files["latest"]})
    assert (result.incarnation, result.status) == (2, "running")
    assert job.master.reports.read("table").num_rows == 0
    assert job.master.reports.state("latest").num_rows == 7
    job.rollback(3)
    assert job.master.reports.read("seen").num_rows == 9


def rewritten(files: dict[str, str], uid: str, table: pa.Table) -> dict[str, str]:
    pq.write_table(table, files[uid])
    return {uid: files[uid]}


def test_a_table_that_is_not_the_state_is_refused_and_nothing_is_written(job: CountedJob, tmp_path: Path) -> None:
    files = exported(job, tmp_path / "tables", "parquet")
    other = beside(job)
    state = pq.read_table(files["latest"])
    counts = state["count(*)"]
    cases = [
        state.drop_columns(["count(*)"]),
        state.append_column("extra", counts),
        state.set_column(1, "count(*)", counts.cast(pa.int32())),
        state.set_column(1, "count(*)", counts.cast(pa.string())),
        pa.concat_tables([state, state.slice(0, 2)]),
        state.slice(0, 0),
    ]
    for table in cases:
        with wording.raises(InvalidRequest):
            other.master.bootstraps.run(rewritten(files, "latest", table))
    Path(files["latest"]).write_bytes(b"PAR1 no")
    with wording.raises(InvalidRequest):
        other.master.bootstraps.run({"latest": files["latest"]})
    with wording.raises(InvalidRequest):
        other.master.bootstraps.run({"latest": __file__})
    with pytest.raises(NotFound):
        other.master.bootstraps.run({"latest": str(tmp_path / "none.parquet")})
    with wording.raises(NotFound):
        other.master.bootstraps.run({"nobody": files["unique"]})
    with wording.raises(InvalidRequest):
        other.master.bootstraps.run({})
    assert not (job.small.folder / "store" / "other" / "manifest").exists()


@pytest.mark.parametrize("held", ["in memory", "on the disk"])
def test_one_zero_and_one_nan_are_keys_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    """State has one zero and one NaN: of two rows with either, one would be lost without a word."""
    if held == "on the disk":
        hold_few_rows(monkeypatch, 20)
    job = CountedJob(SparklessJob.create(tmp_path / "job", {"k: int64": "k: float64"}))
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    keys = pa.array([0.0, -0.0, float("nan"), other_nan, 1.0, None, None])
    table = pa.table({"k": keys, "count(*)": pa.array(range(7), pa.int64())})
    file = tmp_path / "table.parquet"
    pq.write_table(table, file)
    with wording.raises(InvalidRequest):
        job.master.bootstraps.run({"latest": str(file)})
    pq.write_table(table.take([1, 3, 4, 6]), file)
    job.master.bootstraps.run({"latest": str(file)})
    assert sorted(job.master.reports.state("latest")["count(*)"].to_pylist()) == [1, 3, 4, 6]


def test_a_newline_in_a_quoted_value_begins_no_row_wherever_the_file_is_cut_to_be_read(
    job: CountedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows it looks like a row, and blocks end there."""
    values = ["a" * length + "\n9,9,b" for length in range(60)]
    file = tmp_path / "pairs.csv"
    file.write_text("k,seen,first,__timer\n" + "".join(f'{k},1,"{value}",\n' for k, value in enumerate(values, 100)))
    monkeypatch.setattr(state_table, "_CSV_BLOCK_BYTES", 128)
    other = beside(job)
    other.master.bootstraps.run({"pairs": str(file)})
    state = other.master.reports.state("pairs").sort_by("k")
    assert state["k"].to_pylist() == [*range(100, 160)]
    assert state["first"].to_pylist() == values


def test_a_quoted_line_end_is_read_unchanged_wherever_the_file_is_cut_to_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = ["a" * length + "\r\nb" for length in range(60)]
    text = "k,v\r\n" + "".join(f'1,"{value}"\r\n' for value in values)
    for size in range(128, 148):
        monkeypatch.setattr(state_table, "_CSV_BLOCK_BYTES", size)
        with state_table._opened("table.csv", io.BytesIO(text.encode()), None) as (_, pieces):
            assert pa.concat_tables(pieces)["v"].to_pylist() == values


BINARY = pa.schema([("k", pa.int64()), ("b", pa.binary())])


def test_binary_state_comes_back_from_the_csv_that_state_writes(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, 3], "b": pa.array([b"\xff\x00", b"text", None])})
    write_file(SpilledRows(rows.schema, [rows]), "csv", tmp_path / "b.csv")
    with (tmp_path / "b.csv").open("rb") as body, state_table._opened("b.csv", body, BINARY) as (columns, pieces):
        assert columns.equals(BINARY) and pa.concat_tables(pieces).equals(rows)
    with (
        state_table._opened("b.csv", io.BytesIO(b"k,b\n1,text!\n"), BINARY) as (_, pieces),
        wording.raises(pa.ArrowInvalid),
    ):
        list(pieces)


class ReadByTwo(io.BytesIO):
    """A file whose third block is delivered when another reader has begun to read it, or soon."""

    begun, reads = Event(), 0

    def seek(self, *to: int) -> int:
        place = super().seek(*to)
        self.begun.set()
        self.begun, self.reads = Event(), 0
        return place

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        if self.reads == 3:
            self.begun.wait(0.2)
        return super().read(size)


def test_a_table_in_csv_is_read_to_its_last_row_although_its_columns_were_looked_at_before(
    job: CountedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of CSV asks ahead in a thread of its own: one that had looked took blocks from the one behind it."""
    file = tmp_path / "pairs.csv"
    file.write_text("k,seen,first,__timer\n" + "".join(f"{k},1,a,\n" for k in range(500)))
    monkeypatch.setattr(state_table, "_CSV_BLOCK_BYTES", 512)
    monkeypatch.setattr(state_table, "stored_file", lambda store, key: nullcontext(ReadByTwo(store.get(key))))
    other = beside(job)
    other.master.bootstraps.run({"pairs": str(file)})
    assert sorted(other.master.reports.state("pairs")["k"].to_pylist()) == [*range(500)]


class Counted(io.BytesIO):
    """A file that counts the blocks that were read of it."""

    blocks = 0

    def read(self, size: int | None = -1) -> bytes:
        piece = super().read(size)
        self.blocks += bool(piece)
        return piece


def test_a_table_in_csv_is_read_a_few_blocks_ahead_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's reader would take 32 blocks, of 16 MB each, while what it has read is put in order."""
    monkeypatch.setattr(state_table, "_CSV_BLOCK_BYTES", 512)
    monkeypatch.setattr(csv_content, "PATIENCE_S", 300.0)  # nothing of it is late on a busy machine
    body, ahead, rows = Counted(b"k,v\n" + b"".join(b"%d,%s\n" % (k, b"a" * 100) for k in range(1000))), list[int](), 0
    with state_table._opened("table.csv", body, None) as (_, pieces):
        for taken, piece in enumerate(pieces, 1):
            rows += piece.num_rows
            ahead.append(body.blocks - taken)
    assert rows == 1000 and len(ahead) > 150
    assert 0 < max(ahead) <= csv_content.BLOCKS_AHEAD


@pytest.mark.parametrize("gap", [0, 20_000])
def test_blocks_without_a_row_do_not_delay_those_after_them(monkeypatch: pytest.MonkeyPatch, gap: int) -> None:
    monkeypatch.setattr(state_table, "_CSV_BLOCK_BYTES", 512)
    monkeypatch.setattr(csv_content, "PATIENCE_S", 0.01)
    body = io.BytesIO(b"k,v\n1,a\n" + b"\n" * gap + b"2,b\n" * 500)
    with state_table._opened("table.csv", body, None) as (_, pieces):
        assert sum(piece.num_rows for piece in pieces) == 501


def test_a_table_that_cannot_be_read_is_refused_while_its_reader_waits_to_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its first block or behind it: the reader that has failed waits for its thread, which waits for its turn."""
    monkeypatch.setattr(state_table, "_CSV_BLOCK_BYTES", 512)
    monkeypatch.setattr(csv_content, "PATIENCE_S", 0.01)
    for good in (0, 10_000):
        body = io.BytesIO(b"k,v\n" + b"1,a\n" * good + b"1,2,3\n" + b"1,a\n" * 10_000)
        with (
            pytest.raises(pa.ArrowInvalid, match="Expected 2 columns, got 3"),  # what pyarrow says
            state_table._opened("table.csv", body, None) as (_, pieces),
        ):
            list(pieces)


def test_a_table_that_was_cut_off_within_a_quoted_value_is_refused_by_name(job: CountedJob, tmp_path: Path) -> None:
    """Arrow takes the value as ended where the file ends, and all rows that it swallowed as a part of it."""
    file = tmp_path / "pairs.csv"
    file.write_text('k,seen,__timer,first\n1,1,,"a"\n2,1,,"b')
    other = beside(job)
    with wording.raises(InvalidRequest):
        other.master.bootstraps.run({"pairs": str(file)})
    file.write_text('k,seen,__timer,first\n1,1,,"a"\n2,1,,"b ""c"""\n')
    other.master.bootstraps.run({"pairs": str(file)})


def test_an_operator_that_cannot_be_bootstrapped_is_refused_by_name(job: CountedJob) -> None:
    job.edit(", v: string}", ', v: string, at: "timestamp[us, UTC]"}\n    event_time: at')
    job.edit("sinks:\n", WINDOW + "sinks:\n")
    job.edit("name: small", "name: windowed")
    with wording.raises(InvalidRequest):
        job.master.bootstraps.run({"hourly": "x.parquet"})


@pytest.mark.long
@pytest.mark.parametrize(("operation", "prefix"), [("put", "chk-"), ("create", "manifest/")])
@pytest.mark.parametrize("skip", [0, 2])
def test_a_fault_leaves_a_job_that_has_not_begun(
    job: CountedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, prefix: str, skip: int
) -> None:
    files = exported(job, tmp_path / "tables", "parquet")
    other = beside(job)
    with monkeypatch.context() as patch:
        fault = Fault(at(operation, prefix), Effect.UNAVAILABLE, skip=skip, times=9)
        break_store(patch, f"file://{job.small.folder}/store/other", fault)
        with pytest.raises(CheckpointError):
            other.master.bootstraps.run(files)
    other.master.bootstraps.run(files)
    state = other.context.head().state
    assert state.timeline().head == state.checkpoints[-1].checkpoint_id
    for uid in UIDS:
        assert_same_rows(other.master.reports.state(uid), job.master.reports.state(uid), uid)

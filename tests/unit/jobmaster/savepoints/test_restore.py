"""Starting from a savepoint: all of it or nothing, wherever it is stored, and all of it verified (DESIGN 9)."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from milepost.epoch.metadata import CheckpointMetadata, decode_metadata
from milepost.errors import (
    CheckpointError,
    CommitConflict,
    InvalidRequest,
    NotFound,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.jobmaster import Session
from milepost.protocol.exchange.watermarks import END_OF_TIME_US
from milepost.protocol.manifest.transaction.requests import AbortRequest
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.layout import METADATA_NAME, SAVEPOINT_DOCUMENT
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.ancestry import open_forks
from milepost.storage.copying import MAX_OBJECT_BYTES
from milepost.tables.records.table_heads import HEADS
from milepost.tables.records.table_keys import DATA
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob
from milepost_testkit.jobs.sparkless.counted_job import SEEN_SINK, CountedJob
from milepost_testkit.jobs.sparkless.saved_job import OtherJob, moved, stored, tampered
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.s3_servers import Ministack
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store


@dataclass(frozen=True)
class Saved:
    """A job of three epochs with two more files landed, and its savepoint `third`, copied elsewhere as well."""

    job: CountedJob
    location: str

    @property
    def folder(self) -> Path:
        return Path(self.location.removeprefix("file://"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("saved"), 3)
    job.master.savepoints.create("third")
    job.land([4, 5])
    return job


@pytest.fixture
def saved(prepared: CountedJob, tmp_path: Path) -> Saved:
    job = prepared.copy_to(tmp_path / "job")
    (listed,) = job.master.list_savepoints()
    return Saved(job, moved(listed, tmp_path / "elsewhere" / "copy"))


@pytest.mark.deep
def test_another_job_goes_on_from_a_moved_savepoint_as_the_first_one_does(saved: Saved) -> None:
    """Another name, another parallelism, another root: what both do from there on is the same, row for row."""
    other = OtherJob.beside(saved.job)
    before = stored(saved.folder)
    result = other.master.restores.start(saved.location)
    assert (result.outcome, result.status, result.claimed) == ("started", "running", None)
    assert result.savepoint.checkpoint_id == 3 and result.savepoint.sinks == {"table": 9, "seen": 9}
    assert result.head == 4, "above the id that it is a copy of: columns of its state may be stored by older ids"
    other.assert_equals(saved.job)
    other.run(2)
    saved.job.run(2)
    other.assert_equals(saved.job)
    saved.job.assert_tables_equal_the_oracle()
    assert stored(saved.folder) == before, "NO_CLAIM: it stays its owner's, untouched"
    for name in ("table", "seen"):
        assert (
            verified := other.master.reports.verify(deep=True)
        ).unasked == verified.discarded == () and other.context.sink(name).position().checkpoint_id
    report = other.master.reports.fsck()
    assert report.exit_code == 0 and not report.unreachable and not report.foreign
    shutil.rmtree(saved.folder)
    assert (verified := other.master.reports.verify(deep=True)).unasked == verified.discarded == (), (
        "it stands by itself"
    )


@pytest.mark.deep
def test_a_claimed_savepoint_is_deleted_only_when_all_is_there(saved: Saved) -> None:
    other = OtherJob.beside(saved.job)
    result = other.master.restores.start(saved.location, claim=True)
    assert result.claimed.deleted_objects == result.savepoint.objects + 1
    assert not stored(saved.folder)
    other.run(2)
    saved.job.run(2)
    other.assert_equals(saved.job)


@pytest.mark.deep
def test_a_savepoint_in_another_bucket_is_taken_listed_and_claimed(
    saved: Saved, ministack: Ministack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ministack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    saved.job.edit("storage: ../store", f'storage: ../store\nstore: {{endpoint_url: "{ministack.endpoint_url}"}}')
    bucket = ministack.new_bucket()
    made = saved.job.master.savepoints.create("far", target=f"s3://{bucket}/copies")
    assert made.location == f"s3://{bucket}/copies/far"
    with wording.raises(CommitConflict):
        saved.job.master.savepoints.export(3, made.location)
    other = OtherJob.beside(saved.job)
    result = other.master.restores.start(made.location, claim=True)
    assert result.claimed.deleted_objects == made.objects + 1
    other.assert_equals(saved.job)
    assert result.claimed.listed_by == "small", "whose list nobody has looked at"
    answer = saved.job.master.savepoints.dispose("far")
    assert answer.deleted_objects == 0
    wording.matches("savepoint", answer.left)


@pytest.mark.deep
def test_a_savepoint_of_the_job_itself_is_claimed_from_its_list_also_by_its_location(saved: Saved) -> None:
    job = saved.job
    job.run(2)
    job.master.savepoints.cancel()
    (listed,) = job.master.list_savepoints()
    result = job.master.restores.start(listed.location, claim=True)
    assert result.claimed.deleted_objects == result.savepoint.objects + 1
    assert job.master.list_savepoints() == [] and job.master.reports.fsck().exit_code == 0


def test_a_name_means_the_listed_savepoint_and_not_a_later_one_at_its_location(saved: Saved) -> None:
    """Another whole savepoint in its folder would be taken silently otherwise."""
    job = saved.job
    away = Path(job.master.savepoints.create("away", target="../others").location.removeprefix("file://"))
    job.run(1)
    newer = job.master.savepoints.export(4, "../newer")
    shutil.rmtree(away)
    shutil.copytree(newer.location.removeprefix("file://"), away)
    job.master.savepoints.cancel()
    before = job.small.context.head().version
    with wording.raises(StateCorrupt, replace=wording.SIZES) as refused:
        job.master.restores.start("away")
    assert "savepoint.json" in refused.value.message
    assert job.small.context.head().version == before
    assert job.master.restores.start(f"file://{away}").savepoint.checkpoint_id == 4, (
        "by its place it is what lies there"
    )


@pytest.mark.deep
def test_an_ended_job_starts_from_its_own_savepoint_by_name(saved: Saved) -> None:
    job = saved.job
    job.run(2)
    job.master.savepoints.cancel()
    result = job.master.restores.start("third", claim=True)
    assert (result.outcome, result.incarnation) == ("started", 2)
    assert job.master.list_savepoints() == [] and not list(job.small.folder.glob("store/small/savepoints/**/*.parquet"))
    assert job.master.reports.read("seen").num_rows == 9
    job.run(2)
    assert job.master.reports.read("seen").num_rows == 15
    assert not open_forks(job.small.context.head().state)


@pytest.mark.deep
def test_a_job_starts_from_the_end_of_a_drained_one(saved: Saved, tmp_path: Path) -> None:
    """What ended with the last epoch begins anew, as with `start`: the restored job is not taken for drained."""
    saved.job.run(2)
    saved.job.master.epochs.run(Session.cli(), SparklessRunner(), drain=True)
    made = saved.job.master.savepoints.export(
        saved.job.small.context.head().state.timeline().head, f"file://{tmp_path}/last"
    )
    other = OtherJob.beside(saved.job)
    other.master.restores.start(made.location)
    saved.job.land([6])
    other.run(1)
    assert sorted(other.master.reports.read("seen")["k"].to_pylist())[-1] == 6
    assert other.master.reports.status().job_status == "running"


def test_a_running_job_is_refused_with_what_to_type(saved: Saved) -> None:
    before = saved.job.small.context.head().version
    with wording.raises(InvalidRequest) as caught:
        saved.job.master.restores.start(saved.location)
    assert "milepost cancel small" in caught.value.hint and "milepost rollback small" in caught.value.hint
    assert saved.job.small.context.head().version == before


@pytest.mark.deep
def test_a_job_whose_first_epochs_failed_may_still_start_from_a_savepoint(saved: Saved) -> None:
    other = OtherJob.beside(saved.job, {"timeout: 10m}": "timeout: 10m, tolerable_failures: 1}"})
    session = Session.cli()
    pending = other.trigger(session)
    request = AbortRequest(session.session_id, pending.checkpoint_id, CheckpointFailureReason.IO_EXCEPTION, "x", 1)
    other.context.transact(request)
    other.master.restores.start(saved.location)
    other.assert_equals(saved.job)


def test_what_does_not_fit_is_refused_before_anything_is_written(saved: Saved) -> None:
    cases: list[dict[str, str]] = [
        {"timeout: 10m}": "timeout: 10m, max_parallelism: 64}"},
        {"aggregates: {rows: count(*)}": "aggregates: {rows: count(v)}"},
        {"inputs: [rows], key: [k, v]}": "inputs: [rows], key: [v]}"},
        {"input: latest, format: parquet, path: ../lake/other-table, mode: upsert": "input: unique, format: parquet, "
          "path: ../lake/other-table, mode: append"},
        {"path: ../landing/*.csv": "path: ../other/*.csv"},
    ]  # fmt: skip
    for edit in cases:
        other = OtherJob.beside(saved.job, edit)
        with wording.raises(InvalidRequest):
            other.master.restores.start(saved.location)
        assert not (saved.job.small.folder / "store" / "other").exists(), edit
        assert not list((saved.job.small.folder / "lake").glob("other-*/**/*.parquet")), edit


def test_state_that_the_spec_does_not_have_is_copied_and_left_to_the_first_run(saved: Saved) -> None:
    text = saved.job.spec_path.read_text()
    start = text.index("  - {uid: unique")
    line = text[start : text.index("\n", start) + 1]
    sink = "  - {name: seen, input: unique, format: parquet, path: ../lake/other-seen, mode: append}\n"
    other = OtherJob.beside(saved.job, {line: "", sink: ""})
    result = other.master.restores.start(saved.location)
    assert result.savepoint.not_restored == ("seen",)
    with wording.raises(InvalidRequest):
        other.run(1)


def test_a_table_of_another_job_is_never_taken(saved: Saved) -> None:
    other = OtherJob.beside(saved.job, {"../lake/other-table": "../lake/table"})
    before = stored(saved.job.small.folder / "lake")
    with wording.raises(InvalidRequest):
        other.master.restores.start(saved.location)
    assert stored(saved.job.small.folder / "lake") == before


def test_a_table_of_an_earlier_life_is_never_taken(saved: Saved) -> None:
    other = OtherJob.beside(saved.job)
    other.master.restores.start(saved.location)
    shutil.rmtree(saved.job.small.folder / "store" / "other")
    with wording.raises(InvalidRequest):
        other.master.restores.start(saved.location)


def test_there_is_no_savepoint_there(saved: Saved, tmp_path: Path) -> None:
    other = OtherJob.beside(saved.job)
    with wording.raises(NotFound):
        other.master.restores.start(f"file://{tmp_path}/nowhere")
    above, _, name = saved.location.rstrip("/").rpartition("/")
    with wording.raises(NotFound) as refused:
        other.master.restores.start(above)
    assert above in refused.value.hint and name in refused.value.hint
    with wording.raises(InvalidRequest):
        other.master.restores.start("third")
    saved.job.master.savepoints.cancel()
    with wording.raises(NotFound):
        saved.job.master.restores.start("second")
    with wording.raises(InvalidRequest):
        saved.job.master.restores.start(claim=True)


# -- hostile savepoints ----------------------------------------------------------------------------------------------


def first(document: dict[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["objects"] if one["key"].startswith(prefix))
    return found


def _listed(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    return lambda document: change(first(document, "chk-"))


HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "an absolute key": _listed(lambda one: one.update(key="/etc/passwd")),
    "a way out": _listed(lambda one: one.update(key="chk-" + "0" * 20 + "/../../x")),
    "another place": _listed(lambda one: one.update(key="manifest/00000000000000000001.json")),
    "a control character": _listed(lambda one: one.update(key="chk-\x00")),
    "a huge size": _listed(lambda one: one.update(size=MAX_OBJECT_BYTES + 1)),
    "a wrong size": _listed(lambda one: one.update(size=one["size"] + 1)),
    "a negative size": _listed(lambda one: one.update(size=-1)),
    "a size that is none": _listed(lambda one: one.update(size=True)),
    "a wrong checksum": _listed(lambda one: one.update(sha256="0" * 64)),
    "no checksum": _listed(lambda one: one.update(sha256="x")),
    "an extra field of an object": _listed(lambda one: one.update(owner="me")),
    "an extra field": lambda document: document.update(hook="os.system"),
    "a missing field": lambda document: document.pop("spec_text"),
    "another format": lambda document: document.update(format="milepost.savepoint/9"),
    "another job": lambda document: document.update(job="another"),
    "a name that is none": lambda document: document.update(job="../x"),
    "an id that cannot be": lambda document: document.update(checkpoint_id=10**18),
    "another checkpoint": lambda document: document.update(checkpoint_id=9),
    "another max_parallelism": lambda document: document.update(max_parallelism=64),
    "no metadata": lambda document: document["objects"].remove(first(document, METADATA_NAME)),
    "an object left out": lambda document: document["objects"].remove(first(document, "chk-")),
    "an object twice": lambda document: document["objects"].append(document["objects"][-1]),
    "an object too many": lambda document: document["objects"].append(
        {"key": "tables/x/00000000-" + "a" * 64 + ".parquet", "size": 0, "sha256": "a" * 64}
    ),
    "a table file elsewhere": lambda document: document["tables"]["table"]["files"][0].update(
        key="inputs/" + "a" * 64 + ".json"
    ),
    "a table of another mode": lambda document: document["tables"]["table"].update(mode="merge"),
    "a schema that is none": lambda document: document["tables"]["table"].update(schema="AAAA"),
}  # fmt: skip


def test_a_hostile_document_is_refused_and_nothing_is_written(saved: Saved) -> None:
    other, path = OtherJob.beside(saved.job), saved.folder / SAVEPOINT_DOCUMENT
    honest = path.read_bytes()
    for name, change in HOSTILE.items():
        path.write_bytes(honest)
        tampered(saved.folder, change)
        with wording.raises(StateCorrupt, name=name) as caught:
            other.master.restores.start(saved.location)
        assert caught.value.exit_code == 7
    assert not (saved.job.small.folder / "store" / "other" / "manifest").exists()
    path.write_bytes(honest)
    other.master.restores.start(saved.location)


def rewritten(folder: Path, change: Callable[[CheckpointMetadata], CheckpointMetadata | bytes]) -> None:
    """Replace a savepoint's metadata by what `change` makes of it; the document says that it is right."""
    made = change(decode_metadata((folder / METADATA_NAME).read_bytes(), METADATA_NAME))
    body = made if isinstance(made, bytes) else made.encode()
    (folder / METADATA_NAME).write_bytes(body)
    digest = hashlib.sha256(body).hexdigest()
    tampered(folder, lambda document: first(document, METADATA_NAME).update(size=len(body), sha256=digest))


def _with_operator(metadata: CheckpointMetadata, **changes: Any) -> CheckpointMetadata:
    return replace(
        metadata, operators={**metadata.operators, "latest": replace(metadata.operators["latest"], **changes)}
    )


def _with_table(metadata: CheckpointMetadata, changes: dict[str, Any], **others: Any) -> CheckpointMetadata:
    table = replace(metadata.operators["latest"].tables[""], **changes)
    return _with_operator(metadata, tables={"": table}, **others)


def _with_field(metadata: CheckpointMetadata) -> bytes:
    return json.dumps({**json.loads(metadata.encode()), "hook": 1}, sort_keys=True, separators=(",", ":")).encode()


HOSTILE_METADATA: dict[str, Callable[[CheckpointMetadata], CheckpointMetadata | bytes]] = {
    "a plan outside": lambda m: replace(m, plan=ObjectHandle("../../x", 1, "a")),
    "an extra field": _with_field,
    "no end": lambda m: b"[" * 10**6,
    "no JSON": lambda m: b"{",
    "a firing watermark that is text": lambda m: _with_operator(m, firing=("x", None)),
    "a key that is not in the state": lambda m: _with_table(m, {"key": ("nothing",)}),
    "missing key groups": lambda m: _with_table(
        m, {"handles": m.operators["latest"].handles[:1]}, firing=(None,), channels=(None,), processed_bytes=(0,)
    ),
    "an operator that leads elsewhere": lambda m: replace(m, operators={"../x": m.operators["latest"]}),
    "a count below zero": lambda m: _with_operator(m, rows_in=-1),
    "no max_parallelism": lambda m: replace(m, max_parallelism=0),
    "too large a max_parallelism": lambda m: replace(m, max_parallelism=10**6),
    "a spec that is none": lambda m: replace(m, spec_text=1),  # type: ignore[arg-type]
    "signatures that are none": lambda m: replace(m, signatures={"operators": 1}),
    "unaligned perhaps": lambda m: replace(m, unaligned="no"),  # type: ignore[arg-type]
}  # fmt: skip


def test_hostile_metadata_is_refused_and_nothing_is_written(saved: Saved) -> None:
    other = OtherJob.beside(saved.job)
    honest = {name: (saved.folder / name).read_bytes() for name in (SAVEPOINT_DOCUMENT, METADATA_NAME)}
    for name, change in HOSTILE_METADATA.items():
        for file, body in honest.items():
            (saved.folder / file).write_bytes(body)
        rewritten(saved.folder, change)
        with wording.raises(StateCorrupt, name=name):
            other.master.restores.start(saved.location)
    assert not (saved.job.small.folder / "store" / "other" / "manifest").exists()


@pytest.mark.parametrize("kind", ["chk-*/t*/state/*/*", "chk-*/t*/consumed/*", "inputs/*", "tables/*/*", METADATA_NAME])
def test_an_altered_object_is_refused_while_it_is_copied_and_the_job_is_as_it_was(saved: Saved, kind: str) -> None:
    victim = next(saved.folder.glob(kind))
    body = bytearray(victim.read_bytes())
    body[len(body) // 2] ^= 1
    victim.write_bytes(bytes(body))
    other = OtherJob.beside(saved.job)
    with pytest.raises(StateCorrupt):
        other.master.restores.start(saved.location)
    head = other.context.log.head()
    assert head is None or (head.state.timeline().head == 0 and not open_forks(head.state))
    assert not list((saved.job.small.folder / "lake").glob("other-*/**/*.parquet")), "staged files are discarded"


def test_a_document_too_large_is_not_read(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.jobmaster.savepoints.reader.MAX_DOCUMENT_BYTES", 100)
    with wording.raises(StateCorrupt, replace=wording.SIZES):
        OtherJob.beside(saved.job).master.restores.start(saved.location)


# -- faults ----------------------------------------------------------------------------------------------------------

EFFECTS = (Effect.UNAVAILABLE, Effect.LOST_REPLY)
FAULTS = [
    *(("source", "get", prefix, 0, Effect.UNAVAILABLE) for prefix in ("savepoint.json", "_metadata", "tables/")),
    *(("source", "stat", prefix, 0, Effect.UNAVAILABLE) for prefix in ("savepoint.json", "inputs/")),
    *(("job", "create", prefix, 0, effect) for prefix in ("inputs/", "chk-") for effect in EFFECTS),
    ("job", "put", "chk-", 0, Effect.UNAVAILABLE),
    ("job", "list", "manifest/", 3, Effect.UNAVAILABLE),
    *(("job", "create", "manifest/", skip, Effect.UNAVAILABLE) for skip in range(7)),
    *(("job", "create", "manifest/", skip, Effect.LOST_REPLY) for skip in (1, 3, 4)),
    *(("sink", "create", prefix, 0, effect) for prefix in (DATA, HEADS) for effect in EFFECTS),
    *(("sink", "list", HEADS, skip, Effect.UNAVAILABLE) for skip in (0, 2, 3)),
    ("sink", "list", "data/", 0, Effect.UNAVAILABLE),
]  # fmt: skip


IN_MAKE_TEST = {
    ("source", "get", "tables/"): 0,
    ("source", "stat", "inputs/"): 0,
    ("job", "create", "chk-"): 0,
    ("job", "create", "manifest/"): 4,
    ("sink", "create", HEADS): 0,
    ("sink", "list", HEADS): 2,
}
"""Operation of a store -> how often it succeeds before the fault. Each phase of a start meets one."""


@pytest.mark.parametrize(
    ("store", "operation", "prefix", "skip", "effect"),
    [
        pytest.param(*fault, marks=() if IN_MAKE_TEST.get(fault[:3]) == fault[3] else pytest.mark.deep)
        for fault in FAULTS
    ],
)
def test_a_fault_anywhere_leaves_the_old_job_or_the_new_one(
    saved: Saved,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
    operation: str,
    prefix: str,
    skip: int,
    effect: Effect,
) -> None:
    """No matter what was reported, a retry leads to the same job; with CLAIM the savepoint is there until then."""
    other = OtherJob.beside(saved.job)
    root = f"file://{saved.job.small.folder}"
    url = {"source": saved.location, "job": f"{root}/store/other", "sink": f"{root}/lake/other-table"}[store]
    with monkeypatch.context() as patch:
        break_store(patch, url, Fault(at(operation, prefix), effect, skip=skip))
        try:
            other.master.restores.start(saved.location, claim=True)
        except CheckpointError:
            assert (saved.folder / SAVEPOINT_DOCUMENT).exists(), "a failed start has claimed nothing"
    head = other.context.log.head()
    if head is None or head.state.timeline().head == 0:
        other.master.restores.start(saved.location)
    other.master.rollbacks.finish_reconciliation(Session.cli())
    other.assert_equals(saved.job)
    assert not open_forks(other.context.head().state)
    report = other.master.reports.fsck()
    assert report.exit_code == 0 and not report.foreign


def test_what_a_killed_installation_left_open_is_given_up_by_the_next_one(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = OtherJob.beside(saved.job)
    with monkeypatch.context() as patch:
        patch.setattr(
            "milepost.jobmaster.rollback.imported_checkpoint.abort_import", lambda *args: None
        )  # as if the process were gone
        break_store(patch, saved.location, Fault(at("get", "tables/"), Effect.UNAVAILABLE))
        with pytest.raises(StoreUnavailable):
            other.master.restores.start(saved.location)
    assert len(open_forks(other.context.head().state)) == 1
    monkeypatch.setattr("milepost.jobmaster.rollback.imported_checkpoint.is_provably_dead", lambda holder: True)
    other.master.restores.start(saved.location)
    assert not open_forks(other.context.head().state)
    other.assert_equals(saved.job)


@pytest.mark.deep
def test_a_living_installation_is_left_alone(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    other = OtherJob.beside(saved.job)
    with monkeypatch.context() as patch:
        patch.setattr("milepost.jobmaster.rollback.imported_checkpoint.abort_import", lambda *args: None)
        break_store(patch, saved.location, Fault(at("get", "tables/"), Effect.UNAVAILABLE))
        with pytest.raises(StoreUnavailable):
            other.master.restores.start(saved.location)
    other.master.restores.start(saved.location)
    assert len(open_forks(other.context.head().state)) == 1, "its process is this one, and alive"
    other.assert_equals(saved.job)


@pytest.mark.deep
def test_a_sink_that_is_down_follows_later_and_nothing_is_claimed(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = OtherJob.beside(saved.job)
    with monkeypatch.context() as patch:
        url = f"file://{saved.job.small.folder}/lake/other-table"
        break_store(patch, url, Fault(at("create", HEADS), Effect.UNAVAILABLE))
        with wording.raises(CheckpointError):
            other.master.restores.start(saved.location, claim=True)
    assert stored(saved.folder)
    other.run(2)
    saved.job.run(2)
    other.assert_equals(saved.job)


@pytest.mark.deep
def test_a_job_that_starts_from_a_drained_one_has_all_event_time_before_it(tmp_path: Path) -> None:
    """As with `start`: the end of time that the drained job has fired up to is not carried into the new one."""
    job = BackfillJob.create(tmp_path / "job", 2)
    job.master.epochs.run(Session.cli(), SparklessRunner(), drain=True)
    assert firing_of(job.small) == {"latest": (END_OF_TIME_US, END_OF_TIME_US)}
    made = job.master.savepoints.export(job.state.timeline().head, f"file://{tmp_path}/last")
    other = OtherJob(job.small.folder)
    text = (job.small.folder / "config" / "small.yaml").read_text()
    other.spec_path.write_text(text.replace("name: small", "name: other").replace("../lake/", "../lake/other-"))
    other.master.restores.start(made.location)
    assert firing_of(other) == {"latest": (None, None)}


def firing_of(job: SparklessJob) -> dict[str, tuple[int | None, ...]]:
    head = job.context.head().state.head()
    assert head is not None
    return {uid: item.firing for uid, item in job.context.metadata(head).operators.items()}


@pytest.mark.deep
def test_a_table_of_buckets_goes_along_and_other_cuts_take_its_rows(tmp_path: Path) -> None:
    """The other job has another parallelism, and its own Delta table below another path."""
    delta = {"format: parquet, path: ../lake/table": "format: delta, path: ../lake/table"}
    job = CountedJob.with_epochs(tmp_path / "job", 3, delta)
    job.land(range(4, 7))
    made = job.master.savepoints.create("before")
    other = OtherJob.beside(job)
    other.master.restores.start(made.location)
    for one in (job, other):
        one.run(3)
    other.assert_equals(job)
    job.assert_tables_equal_the_oracle()
    assert other.master.reports.fsck().exit_code == 0


@pytest.mark.deep
def test_a_changelog_goes_along(tmp_path: Path) -> None:
    changes = "  - {name: changes, input: latest, format: parquet, path: ../lake/changes, mode: changelog}\n"
    job = CountedJob.with_epochs(tmp_path / "job", 3, {SEEN_SINK: SEEN_SINK + changes})
    job.land([4])
    made = job.master.savepoints.create("before")
    other = OtherJob.beside(job)
    other.master.restores.start(made.location)
    saved = job.master.reports.read("changes")
    assert other.master.reports.read("changes").equals(saved) and saved.num_rows
    other.run(1)
    assert other.master.reports.read("changes").num_rows > saved.num_rows

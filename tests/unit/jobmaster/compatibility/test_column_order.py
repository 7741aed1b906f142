"""The column order breaks ties between rows. State written with another order is detected."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import CheckpointDetails, JobMaster, Session
from milepost.jobspec.graph.compatibility import NEW_UID
from milepost.jobspec.load.load import LoadedJob, hash_spec, load_job
from milepost.jobspec.load.spec_order import sorted_spec
from milepost_testkit import wording
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec, edited
from milepost_testkit.tasks.clocks import ticking

SPEC = """\
name: small
storage: ../store
sources:
  rows: {format: json, path: ../landing/rows/*, settle: 0s, schema: {k: int64, z: int64, a: int64, t: int64}}
operators:
  - OPERATOR
sinks:
  - {name: out, input: it, format: parquet, path: ../lake/out, mode: MODE}
checkpointing: {retained: {last: 20}}
spark: {parallelism: 1, buffer_size: 1KB}
"""
SWAPPED = {"z: int64, a: int64": "a: int64, z: int64"}
LATEST = {"OPERATOR": "{uid: it, kind: latest, inputs: [rows], key: [k], sequence_by: [t]}", "MODE": "upsert"}
TOP = {
    "OPERATOR": "{uid: it, kind: top, inputs: [rows], key: [k], order_by: [t], n: 1, rank: place}",
    "MODE": "upsert",
}
TOTALS = {
    "OPERATOR": "{uid: it, kind: aggregate, inputs: [rows], key: [k], aggregates: {n: count(*)}}",
    "MODE": "upsert",
}
TIMED = {"t: int64}": 't: "timestamp[us, UTC]"}, event_time: t'}
PAIR = "inputs: [rows, rows], key: [k], columns: {z2: right.z, a2: right.a, t2: right.t}"
ASOF = {**TIMED, "OPERATOR": f"{{uid: it, kind: asof, {PAIR}}}", "MODE": "append"}
JOIN = {**TIMED, "OPERATOR": f"{{uid: it, kind: join, {PAIR}, within: [0s, 1h]}}", "MODE": "append"}
LOOKUP = {
    "operators:": "  names: {format: json, path: ../landing/names/*, settle: 0s, static: true, "
    "schema: {k: int64, y: int64, b: int64}}\noperators:",
    "OPERATOR": "{uid: it, kind: lookup, inputs: [rows, names], key: [k], order_by: [k]}",
    "MODE": "append",
}
NOON = "2026-01-01T12:00:00Z"


@dataclass
class OrderedJob:
    """A job in a folder.

    Attributes:
        is_sorted: its spec reaches the job master as earlier versions loaded it in Airflow, with sorted columns.
    """

    folder: Path
    is_sorted: bool = False

    @classmethod
    def create(cls, folder: Path, edits: dict[str, str]) -> OrderedJob:
        for name in ("config", "landing/rows", "landing/names"):
            (folder / name).mkdir(parents=True)
        (folder / "config" / "small.yaml").write_text(edited(SPEC, edits))
        return cls(folder)

    @property
    def path(self) -> Path:
        return self.folder / "config" / "small.yaml"

    def loaded(self) -> LoadedJob:
        job = load_job(str(self.path))
        former = sorted_spec(job.spec)
        return replace(job, spec=former, spec_hash=hash_spec(former)) if self.is_sorted else job

    @property
    def master(self) -> JobMaster:
        return JobMaster(self.loaded())

    def epoch(self, *rows: dict[str, Any], source: str = "rows") -> CheckpointDetails:
        folder = self.folder / "landing" / source
        (folder / f"{len(list(folder.iterdir()))}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        report = self.master.epochs.run(Session.cli(), SparklessRunner(clock=ticking()))
        assert isinstance(report, CheckpointDetails), report
        return report

    def report(self) -> dict[str, dict[str, str]]:
        return {row["uid"]: row for row in self.master.reports.compatibility()}

    def rows(self) -> list[dict[str, Any]]:
        return self.master.reports.read("out").to_pylist()


def row(z: int, a: int, t: Any = 1) -> dict[str, Any]:
    return {"k": 1, "z": z, "a": a, "t": t}


tied = pytest.mark.parametrize(("edits", "t"), [(LATEST, 1), (TOP, 1), (ASOF, NOON)], ids=["latest", "top", "asof"])


@pytest.mark.long
@tied
def test_state_whose_ties_were_broken_by_another_column_order_is_refused(
    tmp_path: Path, edits: dict[str, str], t: Any
) -> None:
    """Only one of several tied rows is stored. It is unknown which one another order would have chosen."""
    job = OrderedJob.create(tmp_path, edits)
    job.epoch(row(2, 1, t), row(1, 2, t))
    edit_spec(job.path, SWAPPED)
    refused = job.report()["it"]
    assert (refused["outcome"], refused["verdict"]) == ("refused", NEW_UID)
    wording.matches("compatibility", refused["detail"])
    with wording.raises(InvalidRequest):
        job.epoch(row(3, 3, t))
    edit_spec(job.path, {new: old for old, new in SWAPPED.items()})
    assert job.epoch(row(3, 0, t)).checkpoint_id == 2


@pytest.mark.deep
@tied
def test_a_backfill_rebuilds_the_state_with_the_column_order_of_the_spec(
    tmp_path: Path, edits: dict[str, str], t: Any
) -> None:
    """This is the suggested recovery for a person who wants the current order of the spec."""
    job = OrderedJob.create(tmp_path, edits)
    job.epoch(row(2, 1, t), row(1, 2, t))
    edit_spec(job.path, SWAPPED)
    back_fill(job.master, SparklessRunner(clock=ticking()), from_checkpoint=0)
    assert job.report()["it"]["outcome"] == "restored"
    job.epoch(row(3, 1, t))
    (stored,) = job.master.reports.state_values("it.right" if edits is ASOF else "it").to_pylist()
    assert (stored["a"], stored["z"]) == ((1, 2) if edits is TOP else (2, 1)), "the first row of a key, or the last"


@pytest.mark.long
@tied
def test_state_that_an_earlier_version_wrote_in_airflow_is_recognized(
    tmp_path: Path, edits: dict[str, str], t: Any
) -> None:
    """`lint` states the recorded order. With that order in the spec, the state continues."""
    job = OrderedJob.create(tmp_path, edits)
    job.is_sorted = True
    job.epoch(row(2, 1, t), row(1, 2, t))
    job.is_sorted = False
    refused = job.report()["it"]
    assert refused["outcome"] == "refused"
    wording.matches("compatibility", refused["detail"])
    edit_spec(job.path, SWAPPED)
    assert job.report()["it"]["outcome"] == "restored"
    assert job.epoch(row(9, 1, t)).checkpoint_id == 2


@pytest.mark.deep
@pytest.mark.parametrize("turned", ["z: int64, a: int64, t: int64, k: int64", "t: int64, z: int64, k: int64, a: int64"])
def test_a_column_order_without_effect_continues_the_state(tmp_path: Path, turned: str) -> None:
    """Tied rows have equal keys and sequences, so the position of these columns does not matter."""
    job = OrderedJob.create(tmp_path, LATEST)
    job.epoch(row(2, 1), row(1, 2))
    edit_spec(job.path, {"k: int64, z: int64, a: int64, t: int64": turned})
    assert job.report()["it"]["outcome"] == "restored"
    job.epoch(row(1, 9), row(2, 0))
    assert job.rows() == [row(2, 1)]


@pytest.mark.deep
@pytest.mark.parametrize(("edits", "t"), [(TOTALS, 1), (JOIN, NOON)], ids=["aggregate", "join"])
def test_a_column_order_that_breaks_no_ties_continues_the_state_with_a_note(
    tmp_path: Path, edits: dict[str, str], t: Any
) -> None:
    job = OrderedJob.create(tmp_path, edits)
    job.epoch(row(2, 1, t))
    edit_spec(job.path, SWAPPED)
    assert job.report()["it"]["outcome"] == "restored"
    notices = [one for one in job.master.reports.compatibility() if one["outcome"] == "changed"]
    assert [one["uid"] for one in notices] == ["source rows"]
    wording.matches("compatibility", notices[0]["detail"])
    assert job.epoch(row(3, 3, t)).checkpoint_id == 2


@pytest.mark.deep
def test_a_row_is_retracted_under_another_column_order(tmp_path: Path) -> None:
    """Its identity is a hash of its values in the recorded column order."""
    sums = "{uid: sums, kind: aggregate, inputs: [rows], key: [k, z], aggregates: {n: count(*), s: sum(a)}}"
    top = "{uid: it, kind: top, inputs: [sums], key: [k], order_by: [{n: desc}, s], n: 1, rank: place}"
    job = OrderedJob.create(tmp_path, {**TOP, "OPERATOR": f"{sums}\n  - {top}"})
    job.epoch(row(1, 5), row(1, 5), row(2, 7))
    edit_spec(job.path, {"n: count(*), s: sum(a)": "s: sum(a), n: count(*)"})
    assert job.report()["it"]["outcome"] == "restored"
    job.epoch(row(2, 7), row(2, 7))
    assert job.rows() == [{"k": 1, "z": 2, "n": 3, "s": 21, "place": 1}]


def test_rows_in_flight_of_an_earlier_version_in_airflow_continue(tmp_path: Path) -> None:
    sums = "{uid: it, kind: aggregate, inputs: [rows], key: [k], aggregates: {z: sum(z), a: sum(a), n: count(*)}}"
    job = OrderedJob.create(tmp_path, {**TOTALS, "OPERATOR": sums, "last: 20}": "last: 20}, aligned_timeout: 1ms"})
    job.is_sorted = True
    assert job.epoch(*[row(2, 1)] * 200).in_flight_bytes
    job.is_sorted = False
    edit_spec(job.path, {"aligned_timeout: 1ms": "aligned_timeout: 9m"})
    assert job.report()["it"]["outcome"] == "restored"
    assert not job.epoch(row(100, 0)).in_flight_bytes
    assert job.rows() == [{"k": 1, "z": 500, "a": 200, "n": 201}]


def test_a_lookup_whose_ties_were_broken_by_another_column_order_is_reported(tmp_path: Path) -> None:
    """It has no state. Former rows stay, and `lint` reports that new rows may match others."""
    job = OrderedJob.create(tmp_path, LOOKUP)
    (tmp_path / "landing" / "names" / "0.json").write_text('{"k": 1, "y": 2, "b": 1}\n{"k": 1, "y": 1, "b": 2}\n')
    job.is_sorted = True
    job.epoch(row(0, 0))
    job.is_sorted = False
    notice = job.master.reports.compatibility()[-1]
    assert (notice["uid"], notice["outcome"]) == ("source names", "changed")
    wording.matches("compatibility", notice["detail"])
    job.epoch(row(1, 1))
    assert [(one["z"], one["y"], one["b"]) for one in job.rows()] == [(0, 2, 1), (1, 1, 2)]
    assert job.master.reports.compatibility()[-1]["outcome"] != "changed"

"""An operator that is new in a job, and reads updates, begins with all rows that the operator before it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

pytestmark = pytest.mark.long

SPEC = """\
name: stock
storage: ../store
sources:
  moves:
    {format: csv, path: ../landing/*.csv, event_time: t, settle: 0s,
     schema: {item: string, n: int64, t: "timestamp[us, UTC]"}}
operators:
BEFORE
sinks:
  - {name: kept, input: KEPT, format: parquet, path: ../lake/kept, mode: upsert}
spark: {parallelism: 2}
"""
STOCK = """\
class Stock:
    output = {"item": "string", "n": "int64"}

    def on_rows(self, key, rows, state, ctx):
        for n in rows.column("n").to_pylist():
            if n:
                yield {"item": key, "n": n}
            else:
                ctx.delete()
"""
AGGREGATE = "  - {uid: stock, kind: aggregate, inputs: [moves], key: [item], aggregates: {n: sum(n)}}"
LATEST = "  - {uid: stock, kind: latest, inputs: [moves], key: [item], sequence_by: [t], columns: [item, n]}"
TOP = "  - {uid: stock, kind: top, inputs: [moves], key: [item], order_by: [{t: desc}], n: 1, rank: place}"
PROCESS = '  - {uid: stock, kind: process, inputs: [moves], key: [item], function: "ops:Stock", output_key: [item]}'
AGAIN = "\n  - {uid: again, kind: aggregate, inputs: [stock], key: [item], aggregates: {n: sum(n)}}"
WINDOW = """\
  - {uid: stock, kind: window, inputs: [moves], key: [item], window: {tumbling: 1h}, allowed_lateness: 1h,
     emit: early, aggregates: {n: sum(n)}}"""
JOIN = """\
  - {uid: newest, kind: latest, inputs: [moves], key: [item], sequence_by: [t], columns: [item, n]}
  - {uid: counts, kind: aggregate, inputs: [moves], key: [item], aggregates: {moved: count(*)}}
  - {uid: stock, kind: join, inputs: [newest, counts], key: [item], how: HOW, condition: [n <> right.moved]}
  - {uid: again, kind: materialize, inputs: [stock], key: [item]}"""
OVER = """\
  - {uid: newest, kind: latest, inputs: [moves], key: [item], sequence_by: [t], columns: [item, n]}
  - {uid: stock, kind: over, inputs: [newest], key: [n], order_by: [item], row_key: [item],
     functions: {place: rank()}}"""
READER = "  - {uid: per_n, kind: aggregate, inputs: [INPUT], key: [n], aggregates: {items: count(*)}}\nsinks:\n"
TABLE = "  - {name: per_n, input: per_n, format: parquet, path: ../lake/per_n, mode: upsert}"


class Stocks(SparklessJob):
    """A job of stocks; its landing folder gets one object an epoch."""

    @classmethod
    def empty(cls, folder: Path, spec: str) -> Stocks:
        for name in ("config", "landing"):
            (folder / name).mkdir(parents=True)
        (folder / "config" / "ops.py").write_text(STOCK)
        (folder / "config" / "small.yaml").write_text(spec)
        return cls(folder)

    def edit(self, old: str, new: str) -> None:
        spec = self.folder / "config" / "small.yaml"
        edit_spec(spec, {old: new})

    def epoch(self, *moves: tuple[str, int, int]) -> None:
        lines = [f"{item},{n},2026-01-01T00:{minute:02}:00Z" for item, n, minute in moves]
        number = len(list((self.folder / "landing").iterdir()))
        self.land(f"{number}.csv", "\n".join(["item,n,t", *lines]) + "\n")
        self.master.epochs.run(Session.cli(), SparklessRunner())

    @property
    def per_n(self) -> dict[int, int]:
        return {row["n"]: row["items"] for row in self.master.reports.read("per_n").to_pylist()}


@pytest.mark.parametrize(
    ("before", "read", "becomes_2"),
    [(AGGREGATE, "stock", 1), (LATEST, "stock", 2), (TOP, "stock", 2), (AGGREGATE + AGAIN, "again", 1),
     (PROCESS + AGAIN, "stock", 2), (WINDOW + AGAIN, "stock", 1), (JOIN.replace("HOW", "left"), "stock", 2),
     (JOIN.replace("HOW", "left"), "again", 2), (OVER, "stock", 2)],
    ids=["aggregate", "latest", "top", "aggregate over updates", "process", "window", "join", "materialize", "over"],
)  # fmt: skip
def test_a_reader_that_is_new_has_all_rows_and_takes_them_back(
    tmp_path: Path, before: str, read: str, becomes_2: int
) -> None:
    """On another number of subtasks, and again after a rollback to before it was there.

    Args:
        becomes_2: what makes 2 of the 1 that an item has.
    """
    kept = "again" if "uid: again" in before else "stock"
    job = Stocks.empty(tmp_path / "job", SPEC.replace("BEFORE", before).replace("KEPT", kept))
    job.epoch(("a", 1, 1), ("b", 2, 1), ("c", 2, 1))
    job.edit("sinks:", READER.replace("INPUT", read) + TABLE)
    job.edit("parallelism: 2", "parallelism: 3")
    report = {row["uid"]: row["detail"] for row in job.master.reports.compatibility()}
    assert read in report["per_n"]
    wording.matches("compatibility", report["per_n"])
    job.epoch(("d", 7, 3))
    assert job.per_n == {1: 1, 2: 2, 7: 1}
    job.epoch(("a", becomes_2, 4))
    assert job.per_n == {2: 3, 7: 1}
    roll_back(job.master, 1)
    job.epoch(("e", 7, 5))
    assert job.per_n == {2: 3, 7: 2}, "all that was landed since is read in its first epoch"

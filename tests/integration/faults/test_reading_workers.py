"""What happens while a worker reads: it dies, or the object goes. The error says so, and no row is lost or doubled."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from milepost.protocol.records.object_store import ObjectStore
from milepost.sources.contract import ObjectPart, PartReader
from milepost.sources.formats import build_reader
from milepost.sources.kernel.streams import MAX_WHOLE_READ_BYTES
from milepost.spark.task.planning import levels
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SPEC = """\
name: dying
storage: store
sources:
  rows: {format: json, path: landing/*.json, schema: {k: int64}, on_missing: skip, settle: 0s}
operators:
  - {uid: counts, kind: aggregate, inputs: [rows], key: [k], aggregates: {n: count(*)}}
sinks:
  - {name: counts, input: counts, format: parquet, path: lake/counts, mode: upsert}
spark: {master: "local[2]", parallelism: 2}
"""


@dataclass
class Dying:
    """A reader that ends its process while it reads one object, as a fault in native code or the machine does."""

    inner: PartReader
    key: str
    signal: signal.Signals

    @property
    def schema(self) -> pa.Schema:
        return self.inner.schema

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        for batch in self.inner.read_part(store, part):
            if part.object.key == self.key:
                os.kill(os.getpid(), self.signal)
            yield batch


@dataclass
class Losing:
    """A reader whose object is deleted once its first rows are read."""

    inner: PartReader
    file: Path

    @property
    def schema(self) -> pa.Schema:
        return self.inner.schema

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        for batch in self.inner.read_part(store, part):
            if part.object.key == self.file.name:
                self.file.unlink(missing_ok=True)
            yield batch


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Of a job with four objects, which two subtasks read two each."""
    path = tmp_path / "dying.yaml"
    path.write_text(SPEC)
    (tmp_path / "landing").mkdir()
    for name in "abcd":
        (tmp_path / "landing" / f"{name}.json").write_text('{"k": 1}\n{"k": 2}\n')
    return path


def counted(spec: Path) -> dict[int, int]:
    rows: list[dict[str, Any]] = json.loads(milepost("read", spec, "counts", "--format", "json").stdout)
    return {row["k"]: row["n"] for row in rows}


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, pytest.param(signal.SIGSEGV, marks=pytest.mark.deep)])
def test_a_worker_that_dies_while_it_reads_is_reported_with_its_objects(
    spec: Path, monkeypatch: pytest.MonkeyPatch, ended_by: signal.Signals
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(levels, "build_reader", lambda name, of: Dying(build_reader(name, of), "c.json", ended_by))
        outcome = milepost("run", spec)
    assert_clear_error(outcome, 1, "c.json, d.json", "max_files: 1", "spark.executor.pyspark.memory")
    wording.matches("run", outcome.error[-1])
    assert "a.json" not in outcome.stderr
    (aborted,) = milepost("list", spec, "--json").document()["checkpoints"]
    assert (aborted["status"], aborted["failure_reason"]) == ("aborted", "TASK_FAILURE")
    assert milepost("resume", spec).exit_code == 0
    assert milepost("run", spec).exit_code == 0
    assert counted(spec) == {1: 4, 2: 4}


def test_a_worker_that_dies_on_a_part_of_an_object_is_reported_with_the_part(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec.write_text(SPEC.replace("on_missing: skip, ", ""))
    lines = (json.dumps({"k": 7, "ignored": "x" * 100_000}) + "\n") * 400
    assert len(lines) > MAX_WHOLE_READ_BYTES
    (spec.parent / "landing" / "c.json").write_text(lines)
    with monkeypatch.context() as patch:
        patch.setattr(levels, "build_reader", lambda name, of: Dying(build_reader(name, of), "c.json", signal.SIGKILL))
        outcome = milepost("run", spec)
    assert_clear_error(outcome, 1, "c.json (bytes ", f" of {len(lines):,})")
    assert milepost("resume", spec).exit_code == 0
    assert milepost("run", spec).exit_code == 0
    assert counted(spec) == {1: 3, 2: 3, 7: 400}


@pytest.mark.deep
@pytest.mark.parametrize("line", ["first", "last"])
def test_a_null_where_an_object_belongs_is_a_bad_record_of_a_worker_that_lives(spec: Path, line: str) -> None:
    broken = spec.parent / "landing" / "c.json"
    good = broken.read_text()
    broken.write_text(f"null\n{good}" if line == "first" else f"{good}null")
    number = 1 if line == "first" else 3
    outcome = milepost("run", spec)
    assert_clear_error(
        outcome, 1, "c.json", str(number), "'null'", "BAD_RECORD", golden="run", replace=wording.FIRST_DECLINE
    )
    broken.write_text(good)
    assert milepost("resume", spec).exit_code == 0
    assert milepost("run", spec).exit_code == 0
    assert counted(spec) == {1: 4, 2: 4}


@pytest.mark.deep
def test_an_object_that_goes_while_it_is_read_is_not_skipped_and_counts_once_when_it_is_back(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of it were handed on: skipped, it would be half in the table now, and whole as well when it is back."""
    large = spec.parent / "landing" / "c.json"
    lines = (json.dumps({"k": 7, "ignored": "x" * 100_000}) + "\n") * 400
    assert len(lines) > MAX_WHOLE_READ_BYTES, "it is read in parts"
    large.write_text(lines)
    with monkeypatch.context() as patch:
        patch.setattr(levels, "build_reader", lambda name, of: Losing(build_reader(name, of), large))
        outcome = milepost("run", spec)
    assert_clear_error(
        outcome, 1, "SOURCE_OBJECT_MISSING", "c.json", "milepost resume", golden="run", replace=wording.FIRST_DECLINE
    )
    large.write_text(lines)
    assert milepost("resume", spec).exit_code == 0
    assert milepost("run", spec, "--until-caught-up").exit_code == 0
    assert counted(spec) == {1: 3, 2: 3, 7: 400}

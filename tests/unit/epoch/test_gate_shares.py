"""Shares of the gate: tasks judge staged files, and a file that differs from its record is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.epoch.gate_shares import GateRowKind, gate_shares_of, judge_share, judged_here, partition_count
from milepost.errors import StateCorrupt
from milepost.jobspec.job.spec import QualitySpec
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.quality.gate import evaluate
from milepost.quality.merged_verdict import decide_verdict
from milepost.quality.verdict import Verdict, VerdictStatus
from milepost.sinks.contract import SinkMode
from milepost.sinks.staging.table_staging import TableStaging
from milepost.storage.open import open_store
from milepost.tables.records.committables import Committable, decode_schema
from milepost_testkit import wording
from milepost_testkit.tasks.staging import stage_each

UNIQUE = {"type": "expect_column_values_to_be_unique", "column": "v"}
MEDIAN = {"type": "expect_column_median_to_be_between", "column": "v", "min_value": 400, "max_value": 600}
COUNTED = {"type": "expect_table_row_count_to_equal", "value": 1_000}


def suite(*expectations: dict[str, Any], **keys: Any) -> QualitySpec:
    return QualitySpec.model_validate({"sink": "table", **keys, "expectations": list(expectations)})


class Staged:
    """A table of 1,000 rows that two subtasks staged, `k` its key, `v` the number of each."""

    def __init__(self, folder: Path, *tables: pa.Table) -> None:
        self.config = StoreConfig(file_url(folder))
        self.sink = TableStaging("table", mode=SinkMode.UPSERT, key=("k",), store=open_store(self.config))
        halves = tables or (rows(0, 300), rows(300, 1_000))
        self.committable: Committable = stage_each(self.sink, 1, 1, *halves, schema=halves[0].schema)

    def judged(self, spec: QualitySpec) -> Verdict:
        shares = gate_shares_of(spec, self.committable, ("k",), self.config)
        part = judged_here(shares, open_store)["table"]
        return decide_verdict(spec, part, decode_schema(self.committable.schema), ("k",))[0]


def rows(begin: int, end: int) -> pa.Table:
    return pa.table({"k": range(begin, end), "v": range(begin, end)})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 90 rows, and tasks of the second stage with about 100."""
    monkeypatch.setattr("milepost.epoch.gate_shares._ASKED_ROWS", 90)
    monkeypatch.setattr("milepost.epoch.gate_shares._PARTITION_ROWS", 100)


def test_the_verdict_from_shares_is_that_on_all_rows(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    in_range = {"type": "expect_column_values_to_be_between", "column": "v", "max_value": 989}
    spec = suite(in_range, {**in_range, "mostly": 0.99}, UNIQUE, COUNTED)
    assert staged.judged(spec) == evaluate(spec, staged.sink.staged_table(staged.committable))


@pytest.mark.long
def test_rows_that_delete_are_not_judged(tmp_path: Path) -> None:
    """Nor an epoch of deletes alone."""
    mark = pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)
    of_keys = [rows(0, 300), rows(300, 1_000)]
    marked = [one.append_column(mark, pa.array([k % 2 == 1 for k in one["k"].to_pylist()])) for one in of_keys]
    staged = Staged(tmp_path / "some", *marked)
    spec = suite({**COUNTED, "value": 500}, UNIQUE)
    found = staged.judged(spec)
    assert found == evaluate(spec, staged.sink.staged_table(staged.committable))
    assert (found.status, found.rows) == (VerdictStatus.PASSED, 500)
    gone = [one.append_column(mark, pa.array([True] * one.num_rows)) for one in of_keys]
    assert Staged(tmp_path / "all", *gone).judged(spec).status is VerdictStatus.SKIPPED


@pytest.mark.long
def test_a_sample_is_judged_where_the_spec_says_so_and_the_verdict_says_of_how_many(tmp_path: Path) -> None:
    spec = suite(MEDIAN, {**MEDIAN, "max_value": 450}, COUNTED, sample=100)
    found = Staged(tmp_path).judged(spec)
    assert [one.success for one in found.expectations] == [True, False, True]
    assert [one.observed.get("sampled_rows") for one in found.expectations] == [100, 100, None]
    wording.matches("verdicts", found.expectations[1].describe())


@pytest.mark.deep
def test_only_rows_that_are_compared_with_each_other_go_to_a_second_stage(tmp_path: Path) -> None:
    """And of those only the identifying columns and the key."""
    wide = [one.append_column("text", pa.array(["x" * 100] * one.num_rows)) for one in (rows(0, 300), rows(300, 1_000))]
    staged = Staged(tmp_path, *wide)
    alone = gate_shares_of(suite(COUNTED), staged.committable, ("k",), staged.config)
    assert partition_count(alone) == 0 and sent_by(alone) == [0, 0]
    compared = gate_shares_of(suite(COUNTED, UNIQUE), staged.committable, ("k",), staged.config)
    assert partition_count(compared) == 10
    assert sum(sent_by(compared)) < 100 * 1_000, "the text of each row has that"


def sent_by(shares: Any) -> list[int]:
    """Bytes that each share sends to the second stage."""
    partitions = partition_count(shares)
    sent = [list(judge_share(share, index, partitions, open_store)) for index, share in enumerate(shares)]
    return [sum(len(row.payload) for row in one if row.kind is GateRowKind.ROWS) for one in sent]


def test_equal_attempts_send_equal_rows(tmp_path: Path) -> None:
    """I12: Spark repeats a task that was lost."""
    staged = Staged(tmp_path)
    (first, _) = gate_shares_of(suite(COUNTED, UNIQUE, MEDIAN, sample=50), staged.committable, ("k",), staged.config)
    assert list(judge_share(first, 0, 4, open_store)) == list(judge_share(first, 0, 4, open_store))


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_staged_file_with_changed_content_is_not_judged(tmp_path: Path, damage: str) -> None:
    staged = Staged(tmp_path)
    file = tmp_path / staged.committable.files[1].key
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes().replace(b"PAR1", b"PAR2", 1))
    with wording.raises(StateCorrupt):
        staged.judged(suite(COUNTED))

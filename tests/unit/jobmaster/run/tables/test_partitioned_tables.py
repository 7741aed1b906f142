"""A job whose table is partitioned: each file has one value, and engines read it at every checkpoint."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from milepost.errors import InvalidRequest
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows

pytestmark = pytest.mark.deep

PLAIN = {"format: parquet, path: ../lake/seen": "format: delta, path: ../lake/seen"}
BY_KEY = {"format: parquet, path: ../lake/seen": "format: delta, partition_by: [k], path: ../lake/seen"}


def values_of_files(job: CountedJob) -> list[dict[str, int | None]]:
    added = pa.table(DeltaTable(str(job.small.folder / "lake" / "seen")).get_add_actions()).to_pylist()
    return [one.get("partition") or {} for one in added]


def test_a_partitioned_table_has_a_file_for_each_value_and_equals_the_oracle_back_and_forth(
    tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    plain, job = (CountedJob.with_epochs(tmp_path / name, 3, edit) for name, edit in (("a", PLAIN), ("b", BY_KEY)))
    assert not any(values_of_files(plain))
    assert sorted(one["k"] for one in values_of_files(job)) == [-3, -2, -1, 0, 0, 0, 1, 2, 3]
    for back in (None, 1):
        if back is not None:
            job.rollback(back)
        job.assert_tables_equal_the_oracle()
        for engine in ENGINES:
            found = reading_engines.read(engine, job.small.folder / "lake" / "seen")
            assert_same_rows(found, job.expected()["seen"], engine)
    job.run()
    job.assert_tables_equal_the_oracle()
    assert job.master.reports.fsck().exit_code == 0


def test_another_partition_by_is_refused_before_the_commit_point_and_the_old_one_goes_on(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2, BY_KEY)
    job.land([3])
    job.edit("partition_by: [k]", "partition_by: [v]")
    with wording.raises(InvalidRequest):
        job.run()
    job.edit("partition_by: [v]", "partition_by: [k]")
    job.master.lifecycle.resume()
    job.run()
    job.assert_tables_equal_the_oracle()

"""Which small files are joined: few are left, no row is written often, and it is known whose rows stay."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.sinks.staging import small_files
from milepost.sinks.staging.small_files import (
    GROWTH,
    MAX_JOINED_FILES,
    TARGET_BYTES,
    JoinPlan,
    Run,
    plan_joins,
    same_rows,
)
from milepost.tables.records.committables import StagedFile
from milepost.tables.records.row_digests import rows_identity
from milepost.tables.records.table_keys import staged_prefix
from tests.conformance.sinks.contract.case import SCHEMA, rows
from tests.conformance.sinks.formats.local_cases import LocalParquet

PER_ROW = 100


def file(number: int, rows: int = 1, *, token: int = 1) -> StagedFile:
    """The only file that this checkpoint staged."""
    sha256 = hashlib.sha256(f"{number} {token}".encode()).hexdigest()
    return StagedFile(f"{staged_prefix(number, token)}0-{sha256}.parquet", rows, rows * PER_ROW, sha256)


def joined(run: Run) -> StagedFile:
    """What a subtask makes of a run."""
    sha256 = hashlib.sha256("".join(each.key for each in run).encode()).hexdigest()
    rows, size = (sum(getattr(each, name) for each in run) for name in ("rows", "size"))
    return StagedFile(f"{staged_prefix(1, 7)}j0-{sha256}.parquet", rows, size, sha256, rows_of=rows_identity(run))


def after(files: list[StagedFile], runs: tuple[Run, ...]) -> list[StagedFile]:
    """The table's files once these runs are joined in their places."""
    first = {run[0].key: joined(run) for run in runs}
    gone = {each.key for run in runs for each in run}
    found = [first.get(each.key) if each.key in gone else each for each in files]
    return [each for each in found if each is not None]


@pytest.mark.deep
def test_of_many_epochs_a_few_files_are_left_and_each_row_is_written_a_few_times() -> None:
    """TABLES 1.14: as the logarithm of the epochs."""
    files, written = list[StagedFile](), 0
    for number in range(1, 2001):
        plan = JoinPlan(plan_joins(files), SCHEMA)
        runs = plan.share(0, 2).runs + plan.share(1, 2).runs
        written += sum(each.rows for run in runs for each in run) + 2000
        files = [*after(files, runs), file(2 * number, 1000), file(2 * number + 1, 1000)]
        assert len(files) <= (GROWTH - 1) * math.ceil(math.log(2 * number + 1, GROWTH)) + GROWTH + 2
    assert written <= (2 + math.log(4000, GROWTH)) * 2000 * 2000


@given(st.lists(st.integers(0, 14).map(lambda power: 2**power), max_size=60))
def test_joined_files_are_adjacent_and_every_row_moves_to_a_much_larger_file(rows: list[int]) -> None:
    files = [file(number, count) for number, count in enumerate(rows, 1)]
    runs = plan_joins(files)
    keys = [each.key for run in runs for each in run]
    assert len(set(keys)) == len(keys)
    for run in runs:
        start = files.index(run[0])
        assert files[start : start + len(run)] == list(run) and len(run) > 1
        assert sum(each.rows for each in run) >= GROWTH * max(each.rows for each in run)
    assert bool(runs) == any(
        sum(rows[start:stop]) >= GROWTH * max(rows[start:stop])
        for start in range(len(rows))
        for stop in range(start + 2, len(rows) + 1)
    )


@given(st.lists(st.integers(1, TARGET_BYTES), max_size=30))
def test_no_file_is_made_larger_than_wanted_and_half_full_ones_stay(sizes: list[int]) -> None:
    files = [replace(file(number, 10), size=size) for number, size in enumerate(sizes, 1)]
    for run in plan_joins(files):
        assert sum(each.size for each in run) <= TARGET_BYTES
        assert all(2 * each.size < TARGET_BYTES for each in run)


def test_small_files_between_full_ones_are_joined_immediately() -> None:
    """It no longer grows, so a few would stay permanently."""
    full = [replace(file(number, 10), size=TARGET_BYTES) for number in (1, 5)]
    small = [file(2), file(3), file(4), file(6), file(7)]
    assert plan_joins([full[0], *small[:3], full[1], *small[3:]]) == (tuple(small[:3]),)


def test_files_of_others_and_of_one_row_of_which_nothing_is_known_stay() -> None:
    """What an engine made of ours is left to it."""
    files = [file(number) for number in range(1, 40)]
    theirs = [replace(files[9], key="part-1.parquet"), replace(files[19], sha256="")]
    mixed = [*files[:9], theirs[0], *files[10:19], theirs[1], *files[20:]]
    assert not {each.key for run in plan_joins(mixed) for each in run} & {each.key for each in theirs}


def test_a_subtask_joins_about_one_full_file_and_an_epoch_so_many_small_ones_at_most() -> None:
    """An epoch never becomes slow, however many small files there are."""
    files = [replace(file(number, 10), size=TARGET_BYTES // 10) for number in range(1, 5001)]
    runs = plan_joins(files)
    assert 0 < sum(map(len, runs)) <= MAX_JOINED_FILES
    plan = JoinPlan(runs, SCHEMA)
    shares = [plan.share(subtask, 3).runs for subtask in range(3)]
    assert all(0 < sum(each.size for run in runs for each in run) <= TARGET_BYTES for runs in shares)
    every = [each.key for runs in shares for run in runs for each in run]
    assert len(set(every)) == len(every)


def test_more_files_that_are_alike_than_one_epoch_joins_are_joined_by_several() -> None:
    """As a backfill leaves them, whose epochs join nothing: they were one run, which no epoch ever took."""
    files = [file(number) for number in range(1, 2 * MAX_JOINED_FILES + 100)]
    epochs = 0
    while runs := plan_joins(files):
        assert sum(map(len, runs)) <= MAX_JOINED_FILES
        files, epochs = after(files, runs), epochs + 1
    assert epochs <= 4 and len(files) < GROWTH
    assert sum(each.rows for each in files) == 2 * MAX_JOINED_FILES + 99


def test_two_runs_that_have_the_same_rows_become_a_file_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by its content alone, one file would take the place of both."""
    monkeypatch.setattr(small_files, "GROWTH", 100)
    job = LocalParquet().begin(tmp_path)
    one, three = rows((1, "a")), rows((1, "a"), (1, "b"), (1, "c"))
    for table in (one, one, three, one, one):
        job.publish(table)
    monkeypatch.setattr(small_files, "GROWTH", 2)
    done = job.publish(one)
    assert [file.rows for file in job.sink.files(done.contents)] == [2, 3, 2, 1]
    assert job.sink.read(done.contents, verify=True).num_rows == 8


def test_rows_that_stay_are_distinguished_from_rows_that_come_and_go() -> None:
    a, b, c, d, new = (file(number, number) for number in range(1, 6))
    j, k = joined((a, b, c)), joined((a, b))
    every = joined((k, c))
    assert rows_identity([every]) == rows_identity([j]) == rows_identity([a, b, c]) != rows_identity([a, b])

    def kept(removed: list[StagedFile], added: list[StagedFile]) -> set[StagedFile]:
        same = same_rows(removed, added)
        return {each for each in (*removed, *added) if each.key in same}

    assert kept([a, b, c], [j, new]) == {a, b, c, j}
    assert kept([j], [a, b, c]) == {a, b, c, j}
    assert kept([j, d], [k, c]) == {j, k, c}
    assert kept([j, new], [k]) == set()
    assert kept([a, b], [j]) == set()
    assert kept([b], [file(9, b.rows)]) == set()
    assert kept([], [new]) == kept([a], []) == set()
    unknown = replace(a, sha256="")
    assert kept([unknown, b, c], [j]) == set()

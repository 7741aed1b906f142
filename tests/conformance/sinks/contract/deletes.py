"""A delete takes the row of its key out of a table of the latest rows, whatever its format; engines see just the rest.

What an engine reads is compared with the model after every checkpoint, forward and back.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.sinks.contract import SinkMode
from milepost.sinks.staging import compaction
from milepost_testkit.formats.played_manifest import Completed
from tests.conformance.sinks.contract.case import SCHEMA, Pairs, SinkCase, Story, deleting, format_decides, pairs, rows

STRICT = pa.schema([("k", pa.int64()), pa.field("v", pa.string(), nullable=False)])


class SinkDeleteTests(SinkCase):
    mode = SinkMode.UPSERT

    def seen(self, root: Path) -> Pairs:
        """Return the rows as an engine that knows nothing of Milepost reads them; without one as we do."""
        return self.published(root)

    def shown(self, root: Path) -> Pairs:
        """Return what our own reader and an engine see."""
        found = self.published(root)
        assert self.seen(root) == found
        return found

    def deleting(self, job: Story, *keys: int, kept: Sequence[tuple[int, str]] = ()) -> Completed:
        """Publish deletes of these keys, and other rows."""
        table = rows(*((key, "") for key in keys), *kept)
        return job.publish(marked := deleting(table, keys), schema=marked.schema)

    @format_decides
    def test_a_delete_takes_the_row_away_and_a_later_row_brings_it_back(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        job.publish(rows((1, "a"), (2, "b")))
        self.deleting(job, 1, kept=[(3, "c")])
        assert self.shown(tmp_path) == [(2, "b"), (3, "c")]
        job.publish(rows((1, "again")))
        assert self.shown(tmp_path) == [(1, "again"), (2, "b"), (3, "c")]

    def test_a_delete_of_a_key_that_never_was_is_harmless(self, tmp_path: Path) -> None:
        """Also as the table's first notification."""
        job = self.begin(tmp_path)
        empty = self.deleting(job, 7)
        assert self.shown(tmp_path) == []
        assert job.sink.read(empty.contents).schema.equals(SCHEMA)
        assert job.sink.compare(empty.contents).rows_then == 0
        job.publish(rows((1, "a")))
        last = self.deleting(job, 7)
        assert self.shown(tmp_path) == [(1, "a")]
        assert job.sink.verify(last.contents, deep=True) == [] and job.sink.fault(last.contents) is None

    @format_decides
    def test_a_table_whose_rows_are_all_deleted_is_empty_and_goes_on(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        full = job.publish(rows(*((key, "a") for key in range(9))))
        empty = self.deleting(job, *range(9))
        assert self.shown(tmp_path) == []
        change = job.sink.compare(full.contents)
        assert (change.rows_now, change.rows_then) == (0, 9)
        job.publish(rows((4, "b")))
        assert self.shown(tmp_path) == [(4, "b")]
        job.back_to(full)
        assert self.shown(tmp_path) == [(key, "a") for key in range(9)]
        job.back_to(empty)
        assert self.shown(tmp_path) == []

    def test_the_last_of_several_rows_of_a_key_counts(self, tmp_path: Path) -> None:
        """In one epoch a key may come, go and come back."""
        job = self.begin(tmp_path)
        values = [(1, "a", False), (2, "b", False), (1, None, True), (2, None, True), (2, "c", False)]
        marked = deleting(rows((1, "")), []).schema
        job.publish(rows(*values, schema=marked), schema=marked)
        assert self.shown(tmp_path) == [(2, "c")]

    def test_the_table_has_the_columns_of_the_rows_and_deletes_need_no_values(self, tmp_path: Path) -> None:
        """A delete has its key alone, also where each row has a value."""
        job = self.begin(tmp_path)
        first = job.publish(rows((1, "a"), (2, "b"), schema=STRICT), schema=STRICT)
        marked = deleting(rows((2, ""), (3, "c"), schema=STRICT), [2])
        assert not marked.schema.field("v").nullable
        done = job.publish(marked, schema=marked.schema)
        for contents in (first.contents, done.contents):
            assert job.sink.read(contents).schema.equals(SCHEMA)
        assert self.shown(tmp_path) == [(1, "a"), (3, "c")]

    def test_the_gate_sees_the_rows_that_stay_and_the_epoch_counts_its_deletes(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        job.publish(rows((1, "a"), (2, "b")))
        marked = deleting(rows((1, ""), (3, "c")), [1])
        committable = job.staged(marked, schema=marked.schema)
        judged = job.sink.staged_table(committable)
        assert judged.column_names == ["k", "v"] and pairs(judged) == [(3, "c")]
        assert committable.rows == 2
        nothing_stays = job.staged(gone := deleting(rows((1, "")), [1]), schema=gone.schema)
        assert job.sink.staged_table(nothing_stays).num_rows == 0

    def test_a_fork_that_deletes_shows_it_once_it_is_live_and_not_before(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        base = job.publish(rows((1, "a"), (2, "b"), (3, "c")))
        main = job.publish(rows((4, "main")))
        marked = deleting(rows((1, ""), (5, "fork")), [1])
        staged = job.manifest.staged(job.sink, marked, schema=marked.schema, forked=True, on=base)
        fork = job.manifest.completed_on_fork(job.sink, staged, base, "fork")
        assert self.shown(tmp_path) == [(1, "a"), (2, "b"), (3, "c"), (4, "main")]
        job.sink.check(fork.contents)
        assert job.sink.move(job.manifest.switched(fork, "fork")) is True
        assert self.shown(tmp_path) == [(2, "b"), (3, "c"), (5, "fork")]
        job.back_to(main)
        assert self.shown(tmp_path) == [(1, "a"), (2, "b"), (3, "c"), (4, "main")]

    @format_decides
    def test_after_every_checkpoint_engines_see_exactly_the_rows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of epochs of rows, deletes, and both, with files of changes that are compacted; then back to some."""
        monkeypatch.setattr(compaction, "COMPACT_FILES", 5)
        job, draw = self.begin(tmp_path), random.Random(18)
        model: dict[int, str] = {}
        history: list[tuple[Completed, Pairs]] = []
        for epoch in range(24):
            keys = draw.sample(range(12), draw.randint(0, 6))
            gone = draw.sample(keys, draw.choice([0, len(keys) // 2, len(keys)]))
            table = rows(*((key, f"{epoch}") for key in keys)) if keys else SCHEMA.empty_table()
            if gone or draw.random() < 0.5:
                table = deleting(table, gone)
            model |= dict.fromkeys(keys, f"{epoch}")
            model = {key: value for key, value in model.items() if key not in gone}
            history.append((job.publish(table, schema=table.schema), sorted(model.items())))
            assert self.shown(tmp_path) == history[-1][1]
        for done, expected in draw.sample(history, 6):
            job.back_to(done)
            assert self.shown(tmp_path) == expected
            assert job.sink.verify(done.contents, deep=True) == []

    def test_no_bucket_has_what_marks_a_delete(self, tmp_path: Path) -> None:
        """Nor has any file of an epoch whose rows cannot be deletes."""
        job = self.begin(tmp_path)
        job.publish(rows((1, "a"), (2, "b")))
        done = self.deleting(job, 1)
        store = self.table_store(tmp_path)
        marked = [
            DELETED_COLUMN in pa.parquet.ParquetFile(pa.BufferReader(store.get(file.key))).schema_arrow.names
            for file in job.sink.files(done.contents)
        ]
        assert marked == ([False] if job.sink.by_buckets else [False, True])

"""A job that starts from a savepoint takes the table over where it is; the old job's commits are refused then (I14)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from milepost.errors import CheckpointError, CommitOutcomeUnknown, InvalidRequest
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.sinks.contract import Sink, TableTarget
from milepost.storage.layout import contents_prefix
from milepost.tables.records.contents import ContentsChange, ContentsRecords, TableContents
from milepost.tables.records.marks import TableView
from milepost.tables.records.reservation import read_reservation
from milepost_testkit import wording
from milepost_testkit.formats.played_manifest import Completed, PlayedManifest
from tests.conformance.sinks.contract.case import LIFE, Hook, Pairs, SinkCase, Story, format_decides, nothing
from tests.conformance.sinks.contract.faults import Killed

NEW_LIFE = "2" * 32
TOKEN = 3


@dataclass(frozen=True)
class SavedByOther:
    """A table of a job as its savepoint has it."""

    shown: TableView
    contents: TableContents
    rows: Pairs


class SinkTakeoverTests(SinkCase):
    """What is taken over is the table itself; readers see no change."""

    def saved(self, root: Path, job: Story, done: Completed) -> SavedByOther:
        shown = job.sink.table_view(done.contents)
        assert shown is not None
        return SavedByOther(shown, done.contents, self.published(root))

    def heir(self, root: Path, *, before: Hook = nothing, after: Hook = nothing) -> Sink:
        return self.open_sink(root, job="heir", storage="copy", life=NEW_LIFE, before=before, after=after)

    def target(self, root: Path, job: Story, saved: SavedByOther, number: int = TOKEN) -> TableTarget:
        """Contents of the heir's new checkpoint: the same files at the same locations, in records of its own."""
        change = ContentsChange(job.sink.files(saved.contents), whole=True)
        records = ContentsRecords(self.job_store(root, "copy")).extend(
            (), change, contents_prefix(CheckpointId(9), FencingToken(TOKEN)), "table"
        )
        contents = replace(saved.contents, checkpoint_id=9, records=records)
        return TableTarget(number, "fork", contents)

    def taken(self, root: Path, job: Story, saved: SavedByOther) -> Story:
        """The heir takes the table over, and switches to its checkpoint."""
        sink, target = self.heir(root), self.target(root, job, saved)
        sink.take_over(NEW_LIFE, "job", saved.shown, target)
        return self.switched(root, sink, target)

    def switched(self, root: Path, sink: Sink, target: TableTarget) -> Story:
        assert target.contents is not None
        manifest = PlayedManifest(self.job_store(root, "copy"))
        manifest.version, manifest.next_id = TOKEN + 2, 10
        assert sink.move(TableTarget(TOKEN + 2, "main", target.contents)) is True
        manifest.head = Completed(TOKEN + 2, "main", target.contents, None)
        return Story(sink, manifest)

    @format_decides
    def test_the_heir_goes_on_with_the_table_and_may_go_back(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        done = job.go_on(3)[-1]
        saved = self.saved(tmp_path, job, done)
        heir = self.taken(tmp_path, job, saved)
        assert self.shown_by(heir.sink) == saved.rows
        head = heir.manifest.head
        heir.go_on(2)
        assert self.shown_by(heir.sink) == sorted([*saved.rows, (10, "main"), (11, "main")])
        heir.back_to(head)
        assert self.shown_by(heir.sink) == saved.rows
        assert heir.sink.owner() is not None and heir.sink.owner().job == "heir"

    @format_decides
    def test_from_then_on_the_old_job_is_refused_everywhere(self, tmp_path: Path) -> None:
        """Its reservation, its epochs, its late commits, and its realignment."""
        job = self.begin(tmp_path)
        first, second = job.go_on(2)
        saved = self.saved(tmp_path, job, second)
        late = job.complete(job.row())
        staged = job.staged(job.row())
        self.taken(tmp_path, job, saved)
        with wording.raises(InvalidRequest):
            self.open_sink(tmp_path).reserve(LIFE)
        for waits in (False, True):
            with pytest.raises(InvalidRequest):
                job.manifest.completed(job.sink, staged, waits=waits)
        for target in (late.target, job.manifest.switched(first), job.manifest.realigned()):
            with wording.raises(InvalidRequest):
                job.sink.move(target)
        assert self.shown_by(self.heir(tmp_path)) == saved.rows
        assert job.sink.belongs_to_other(LIFE)

    @format_decides
    def test_a_commit_of_the_old_job_that_was_held_up_never_lands(self, tmp_path: Path) -> None:
        """It has looked at the table before it was taken over."""
        job = self.begin(tmp_path)
        done = job.go_on(2)[-1]
        saved = self.saved(tmp_path, job, done)
        late = job.complete(job.row())

        def between(operation: str, subject: str) -> None:
            if operation == "format.commit":
                self.taken(tmp_path, job, saved)

        with wording.raises(InvalidRequest):
            self.open_sink(tmp_path, before=between).move(late.target)
        assert self.shown_by(self.heir(tmp_path)) == saved.rows

    def test_a_table_that_has_moved_on_is_not_taken(self, tmp_path: Path) -> None:
        """What the savepoint has not would be lost to its readers: a person ends the old job first."""
        job = self.begin(tmp_path)
        done = job.go_on(2)[-1]
        saved = self.saved(tmp_path, job, done)
        job.go_on(1)
        before = self.published(tmp_path)
        for act in (
            lambda: self.heir(tmp_path).check_takeover(NEW_LIFE, "job", saved.shown),
            lambda: self.taken(tmp_path, job, saved),
        ):
            with wording.raises(InvalidRequest) as refused:
                act()
            assert "milepost cancel job --savepoint" in refused.value.hint
        assert self.published(tmp_path) == before
        job.go_on(1)

    def test_a_commit_of_the_old_job_that_comes_between_is_found(self, tmp_path: Path) -> None:
        """Compare-and-set: the heir looks again, and is refused."""
        job = self.begin(tmp_path)
        done = job.go_on(2)[-1]
        saved = self.saved(tmp_path, job, done)
        late = job.complete(job.row())
        moved: list[bool] = []

        def between(operation: str, subject: str) -> None:
            if operation == "format.claim" and not moved:
                moved.append(job.sink.move(late.target))

        target = self.target(tmp_path, job, saved)
        with wording.raises(InvalidRequest):
            self.heir(tmp_path, before=between).take_over(NEW_LIFE, "job", saved.shown, target)
        assert moved == [True] and read_reservation(self.table_store(tmp_path)).owner.job == "job"
        job.go_on(1)

    def test_after_a_rollback_to_the_savepoints_checkpoint_it_is_taken(self, tmp_path: Path) -> None:
        """Another mark, the same contents; the savepoint is taken after it."""
        job = self.begin(tmp_path)
        first, _ = job.go_on(2)
        job.back_to(first)
        saved = self.saved(tmp_path, job, first)
        assert len(saved.shown.marks) == 2
        heir = self.taken(tmp_path, job, saved)
        heir.go_on(1)
        assert self.shown_by(heir.sink) == [(1, "main"), (10, "main")]

    def test_a_table_of_a_third_job_is_never_taken(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        done = job.go_on(1)[-1]
        saved = self.saved(tmp_path, job, done)
        with wording.raises(InvalidRequest):
            self.heir(tmp_path).check_takeover(NEW_LIFE, "third", saved.shown)

    def test_it_may_be_taken_over_again_from_the_heir(self, tmp_path: Path) -> None:
        """A succession of owners: the newest counts."""
        job = self.begin(tmp_path)
        done = job.go_on(1)[-1]
        heir = self.taken(tmp_path, job, self.saved(tmp_path, job, done))
        done = heir.go_on(1)[-1]
        shown = heir.sink.table_view(done.contents)
        assert shown is not None
        third = self.open_sink(tmp_path, job="third", storage="third", life="3" * 32)
        change = ContentsChange(heir.sink.files(done.contents), whole=True)
        store = self.job_store(tmp_path, "third")
        records = ContentsRecords(store).extend(
            (), change, contents_prefix(CheckpointId(11), FencingToken(TOKEN)), "table"
        )
        target = TableTarget(TOKEN, "fork", replace(done.contents, checkpoint_id=11, records=records))
        third.take_over("3" * 32, "heir", shown, target)
        assert third.owner() is not None and third.owner().job == "third"
        with pytest.raises(InvalidRequest):
            heir.complete(heir.row())
        assert self.shown_by(third) == [(1, "main"), (10, "main")]

    @pytest.mark.parametrize("lost", [False, True], ids=["before it is done", "after it was done"])
    @pytest.mark.parametrize("error", [Killed, CommitOutcomeUnknown], ids=["killed", "no answer"])
    @pytest.mark.parametrize("at", ["job.create", "format.claim", "table.create"])
    def test_stopped_at_any_write_it_is_done_again_and_the_old_job_never_commits_after_it(
        self, tmp_path: Path, at: str, error: type[BaseException], lost: bool
    ) -> None:
        job = self.begin(tmp_path)
        done = job.go_on(2)[-1]
        saved, target = self.saved(tmp_path, job, done), None
        target = self.target(tmp_path, job, saved)
        struck: list[str] = []

        def strike(operation: str, subject: str) -> None:
            if operation == at and not struck and not subject.startswith("_milepost/heads"):
                struck.append(operation)
                raise error("no answer")

        hooks = {"after": strike} if lost else {"before": strike}
        with suppress(Killed, CheckpointError):
            self.heir(tmp_path, **hooks).take_over(NEW_LIFE, "job", saved.shown, target)
        assert struck
        table = self.table_format(self.table_store(tmp_path)).open()
        assert table is not None and table.owner is not None
        if table.owner.job == "heir":
            with pytest.raises(InvalidRequest):
                job.complete(job.row())
        again = self.target(tmp_path, job, saved, number=TOKEN + 1)
        self.heir(tmp_path).take_over(NEW_LIFE, "job", saved.shown, again)
        heir = self.switched(tmp_path, self.heir(tmp_path), again)
        heir.go_on(1)
        assert self.shown_by(heir.sink) == sorted([*saved.rows, (10, "main")])
        with pytest.raises(InvalidRequest):
            job.complete(job.row())

    def shown_by(self, sink: Sink) -> Pairs:
        position = sink.position()
        assert position.is_known and position.contents is not None
        table = sink.read(position.contents, verify=True)
        return sorted(zip(table.column("k").to_pylist(), table.column("v").to_pylist(), strict=True))

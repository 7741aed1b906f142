"""A job adopts an existing table if the spec says so. Its rows are foreign, and stay (I14)."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.errors import CheckpointError, CommitOutcomeUnknown, InvalidRequest
from milepost.sinks.contract import SinkMode
from milepost.tables.records.reservation import RESERVATION
from milepost_testkit import wording
from milepost_testkit.formats.played_manifest import PlayedManifest
from tests.conformance.sinks.contract.case import LIFE, Hook, Pairs, SinkCase, Story, format_decides, nothing, rows
from tests.conformance.sinks.contract.faults import Killed

OTHER_LIFE = "1" * 32
THEIRS = (90, "theirs")


class SinkAdoptionBase(SinkCase):
    """For formats whose tables others make. Subclasses say how those do it, and read as any engine does."""

    @abstractmethod
    def make_foreign(self, root: Path, table: pa.Table) -> None:
        """Somebody else makes the table, with these rows; none: without a file."""

    @abstractmethod
    def append_foreign(self, root: Path, table: pa.Table) -> None:
        """Somebody else adds rows."""

    @abstractmethod
    def engine_rows(self, root: Path) -> Pairs:
        """Return the live rows, sorted, as an engine reads them that knows nothing of us."""

    def adopting(self, root: Path, *, before: Hook = nothing, after: Hook = nothing) -> Story:
        sink = self.open_sink(root, before=before, after=after, adopts=True)
        sink.reserve(LIFE)
        return Story(sink, PlayedManifest(self.job_store(root)))


class SinkAdoptionTests(SinkAdoptionBase):
    """Rows that are added one by one."""

    @format_decides
    def test_without_adopt_a_table_of_others_is_refused_and_nothing_is_reserved(self, tmp_path: Path) -> None:
        self.make_foreign(tmp_path, rows(THEIRS))
        with wording.raises(InvalidRequest):
            self.open_sink(tmp_path).reserve(LIFE)
        assert self.open_sink(tmp_path).owner() is None
        assert self.engine_rows(tmp_path) == [THEIRS]

    @format_decides
    def test_a_table_that_came_after_the_reservation_is_refused_before_the_commit_point(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        staged = job.staged(rows((1, "a")))
        self.make_foreign(tmp_path, rows(THEIRS))
        with wording.raises(InvalidRequest):
            job.manifest.completed(job.sink, staged)
        assert self.engine_rows(tmp_path) == [THEIRS]

    @format_decides
    def test_with_adopt_its_rows_stay_forward_and_back(self, tmp_path: Path) -> None:
        """They are foreign rows, in no contents of ours."""
        self.make_foreign(tmp_path, rows(THEIRS, (91, "theirs")))
        job = self.adopting(tmp_path)
        theirs = self.engine_rows(tmp_path)
        first, second = job.go_on(2)
        assert second.contents.files == 2
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), *theirs]
        job.back_to(first)
        self.append_foreign(tmp_path, rows((92, "later")))
        job.back_to(None)
        assert self.engine_rows(tmp_path) == [*theirs, (92, "later")]
        job.back_to(second)
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), *theirs, (92, "later")]
        again = Story(self.open_sink(tmp_path), job.manifest)
        again.go_on(1)  # once it is the job's, the key may go from the spec

    def test_with_adopt_and_nothing_there_a_table_is_made(self, tmp_path: Path) -> None:
        self.adopting(tmp_path).go_on(1)
        assert self.engine_rows(tmp_path) == [(1, "main")]

    @format_decides
    def test_a_column_that_theirs_has_and_ours_not_is_null(self, tmp_path: Path) -> None:
        wide = pa.schema([("k", pa.int64()), ("v", pa.string()), ("w", pa.int64())])
        self.make_foreign(tmp_path, rows((90, "theirs", 7), schema=wide))
        self.adopting(tmp_path).go_on(1)
        assert self.engine_rows(tmp_path) == [(1, "main"), THEIRS]

    @format_decides
    def test_a_column_of_ours_is_added_to_theirs(self, tmp_path: Path) -> None:
        self.make_foreign(tmp_path, rows(THEIRS))
        job = self.adopting(tmp_path)
        wide = pa.schema([("k", pa.int64()), ("v", pa.string()), ("w", pa.int64())])
        job.publish(rows((1, "a", 7), schema=wide), schema=wide)
        assert self.engine_rows(tmp_path) == [(1, "a"), THEIRS]

    @format_decides
    def test_a_column_of_another_type_is_refused_and_the_table_stays_nobodys(self, tmp_path: Path) -> None:
        self.make_foreign(tmp_path, rows((90, 7), schema=pa.schema([("k", pa.int64()), ("v", pa.int64())])))
        job = self.adopting(tmp_path)
        with wording.raises(InvalidRequest):
            job.complete(rows((1, "a")))
        opened = self.table_format(self.table_store(tmp_path)).open()
        assert opened is not None and opened.owner is None

    def test_another_job_that_adopts_the_same_table_is_refused(self, tmp_path: Path) -> None:
        """Also while the first has but its reservation; and by the table itself when that is lost."""
        self.make_foreign(tmp_path, rows(THEIRS))
        job = self.adopting(tmp_path)
        other = self.open_sink(tmp_path, job="other", adopts=True)
        with wording.raises(InvalidRequest):
            other.reserve(OTHER_LIFE)
        job.go_on(1)
        self.table_store(tmp_path).delete([RESERVATION])
        with wording.raises(InvalidRequest):
            other.reserve(OTHER_LIFE)
        job.sink.reserve(LIFE)
        job.go_on(1)

    @format_decides
    def test_of_two_that_adopt_at_once_one_wins_also_where_a_hand_deletes_the_reservation(self, tmp_path: Path) -> None:
        """The commit that sets the owner is a compare-and-set of the format."""
        self.make_foreign(tmp_path, rows(THEIRS))

        def other_is_faster(operation: str, subject: str) -> None:
            if operation == "format.claim":
                store = self.table_store(tmp_path)
                store.delete([RESERVATION])
                other = self.open_sink(tmp_path, job="other", storage="copy", adopts=True, life=OTHER_LIFE)
                other.reserve(OTHER_LIFE)
                Story(other, PlayedManifest(self.job_store(tmp_path, "copy"))).go_on(1)

        slow = self.adopting(tmp_path, before=other_is_faster)
        with pytest.raises(InvalidRequest):
            slow.complete(rows((5, "slow")))
        opened = self.table_format(self.table_store(tmp_path)).open()
        assert opened is not None and opened.owner is not None and opened.owner.job == "other"
        assert self.engine_rows(tmp_path) == [(1, "main"), THEIRS]

    @pytest.mark.parametrize("lost", [False, True], ids=["before it is done", "after it was done"])
    @pytest.mark.parametrize("error", [Killed, CommitOutcomeUnknown], ids=["killed", "no answer"])
    @pytest.mark.parametrize("at", ["table.create", "format.claim", "format.commit"])
    def test_stopped_at_any_write_it_is_done_again_and_ends_the_same(
        self, tmp_path: Path, at: str, error: type[BaseException], lost: bool
    ) -> None:
        self.make_foreign(tmp_path, rows(THEIRS))
        struck: list[str] = []

        def strike(operation: str, subject: str) -> None:
            if operation == at and not struck:
                struck.append(operation)
                raise error("no answer")

        with suppress(Killed, CheckpointError):
            hooks = {"after": strike} if lost else {"before": strike}
            self.adopting(tmp_path, **hooks).go_on(1)
        assert struck
        shown = self.engine_rows(tmp_path)
        assert shown in ([THEIRS], [(1, "main"), THEIRS])
        if shown == [THEIRS]:
            self.adopting(tmp_path).go_on(1)
        assert self.engine_rows(tmp_path) == [(1, "main"), THEIRS]

    @format_decides
    def test_rows_that_others_append_while_it_is_adopted_stay(self, tmp_path: Path) -> None:
        self.make_foreign(tmp_path, rows(THEIRS))
        came: list[bool] = []

        def between(operation: str, subject: str) -> None:
            if operation == "format.claim" and not came:
                came.append(True)
                self.append_foreign(tmp_path, rows((91, "theirs")))

        self.adopting(tmp_path, before=between).go_on(1)
        assert came and self.engine_rows(tmp_path) == [(1, "main"), THEIRS, (91, "theirs")]

    def test_a_table_that_took_the_place_of_ours_is_not_adopted_by_an_epoch(self, tmp_path: Path) -> None:
        """Somebody dropped it and made another: a person decides."""
        job = self.adopting(tmp_path)
        job.go_on(2)
        store = self.table_store(tmp_path)
        kept = store.get(RESERVATION)
        self.drop(tmp_path)
        store.put(RESERVATION, kept)
        self.make_foreign(tmp_path, rows(THEIRS))
        with pytest.raises(InvalidRequest):
            job.complete(job.row())
        assert self.engine_rows(tmp_path) == [THEIRS]
        assert job.sink.move(job.manifest.realigned()) is True
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), THEIRS]


class UpsertAdoptionTests(SinkAdoptionBase):
    """The latest row of each key: only an empty table."""

    mode = SinkMode.UPSERT

    @format_decides
    def test_a_table_with_rows_is_refused(self, tmp_path: Path) -> None:
        self.make_foreign(tmp_path, rows(THEIRS))
        with wording.raises(InvalidRequest):
            self.adopting(tmp_path)
        assert self.open_sink(tmp_path).owner() is None

    @format_decides
    def test_a_table_with_rows_is_refused_without_the_advice_to_adopt_it(self, tmp_path: Path) -> None:
        self.make_foreign(tmp_path, rows(THEIRS))
        with wording.raises(InvalidRequest) as refused:
            self.open_sink(tmp_path).reserve(LIFE)
        assert "adopt: true" not in refused.value.hint

    @format_decides
    def test_an_empty_table_is_adopted(self, tmp_path: Path) -> None:
        self.make_foreign(tmp_path, rows(THEIRS).slice(1))
        job = self.adopting(tmp_path)
        first, _ = job.publish(rows((1, "a"), (2, "b"))), job.publish(rows((1, "c")))
        assert self.engine_rows(tmp_path) == [(1, "c"), (2, "b")]
        job.back_to(first)
        assert self.engine_rows(tmp_path) == [(1, "a"), (2, "b")]

    @format_decides
    def test_rows_that_come_while_it_is_adopted_make_it_refused(self, tmp_path: Path) -> None:
        self.make_foreign(tmp_path, rows(THEIRS).slice(1))

        def between(operation: str, subject: str) -> None:
            if operation == "format.claim":
                self.append_foreign(tmp_path, rows(THEIRS))

        job = self.adopting(tmp_path, before=between)
        with wording.raises(InvalidRequest):
            job.complete(rows((1, "a")))
        assert self.engine_rows(tmp_path) == [THEIRS]

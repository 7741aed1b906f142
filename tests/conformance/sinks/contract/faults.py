"""A move that is stopped at any call shows the old table or the new one; done again, it ends the same (I14)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.errors import (
    CheckpointError,
    CommitOutcomeUnknown,
    StoreUnavailable,
    Superseded,
)
from milepost.sinks.contract import TableTarget
from milepost.sinks.table.table_mover import MAX_LOST_RACES
from milepost_testkit import wording
from tests.conformance.sinks.contract.case import (
    SCHEMA,
    Hook,
    Pairs,
    SinkCase,
    Story,
    at_commit,
    deleting,
    format_decides,
    nothing,
    rows,
)

WRITES = ("put", "create", "delete", "commit", "widen", "claim")


class Killed(BaseException):
    """The process died here; nothing of it runs on."""


@dataclass(frozen=True)
class Act:
    """A move that is to be stopped, what the table shows before and after it, and the moves that wait for it."""

    target: TableTarget
    before: Pairs
    after: Pairs
    waiting: tuple[TableTarget, ...] = ()
    schema: pa.Schema = SCHEMA


def committed(job: Story) -> Act:
    """The next checkpoint."""
    job.go_on(2)
    return Act(job.complete(job.row()).target, shown(1, 2), shown(1, 2, 3))


def caught_up(job: Story) -> Act:
    """The first of two that wait."""
    job.go_on(1)
    first = job.complete(job.row())
    second = job.complete(job.row(), waits=True)
    return Act(first.target, shown(1), shown(1, 2), (second.target,))


def widened(job: Story) -> Act:
    """A checkpoint with a new column."""
    job.go_on(1)
    wider = SCHEMA.append(pa.field("w", pa.int64()))
    done = job.complete(rows((2, "main", 7), schema=wider), schema=wider)
    return Act(done.target, shown(1), shown(1, 2), schema=wider)


def gone_back(job: Story) -> Act:
    main = job.go_on(4)
    return Act(job.manifest.switched(main[1]), shown(1, 2, 3, 4), shown(1, 2))


def gone_back_to_nothing(job: Story) -> Act:
    job.go_on(2)
    return Act(job.manifest.switched(None), shown(1, 2), [])


def gone_forward_again(job: Story) -> Act:
    main = job.go_on(4)
    job.back_to(main[1])
    return Act(job.manifest.switched(main[3]), shown(1, 2), shown(1, 2, 3, 4))


def switched_to_a_fork(job: Story) -> Act:
    """Whose checkpoints the table has never seen."""
    main = job.go_on(3)
    forked = job.fork(job.fork(main[0], rows((4, "fork"))), rows((5, "fork")))
    return Act(job.manifest.switched(forked, "fork"), shown(1, 2, 3), [(1, "main"), (4, "fork"), (5, "fork")])


def realigned(job: Story) -> Act:
    job.go_on(2)
    return Act(job.manifest.realigned(), shown(1, 2), shown(1, 2))


def deleted(job: Story) -> Act:
    """The next checkpoint, of a table of the latest rows, takes one of two rows away."""
    job.go_on(2)
    gone = deleting(rows((1, ""), (3, "main")), [1])
    return Act(job.complete(gone, schema=gone.schema).target, shown(1, 2), shown(2, 3))


def emptied(job: Story) -> Act:
    """It takes all rows away."""
    job.go_on(2)
    gone = deleting(rows((1, ""), (2, "")), [1, 2])
    return Act(job.complete(gone, schema=gone.schema).target, shown(1, 2), [])


def brought_back(job: Story) -> Act:
    """The table goes back to before a delete."""
    main = job.go_on(2)
    gone = deleting(rows((1, "")), [1])
    job.publish(gone, schema=gone.schema)
    return Act(job.manifest.switched(main[1]), [(2, "main")], shown(1, 2))


def shown(*checkpoint_ids: int) -> Pairs:
    return [(one, "main") for one in checkpoint_ids]


def striking_at(nth: int, killed: bool) -> Hook:
    """Return a hook that fails the n-th call, from 0, as the store or the death of the process would."""
    passed = 0

    def strike(operation: str, subject: str) -> None:
        nonlocal passed
        passed += 1
        if passed == nth + 1:
            is_write = operation.split(".")[1] in WRITES
            raise Killed if killed else (CommitOutcomeUnknown if is_write else StoreUnavailable)("no answer")

    return strike


ACTS = [
    committed,
    caught_up,
    widened,
    gone_back,
    gone_back_to_nothing,
    gone_forward_again,
    switched_to_a_fork,
    realigned,
]


STRIKES = {
    "killed after it was done": (True, True),
    "killed before it is done": (True, False),
    "no answer before it is done": (False, False),
    "no answer after it was done": (False, True),
}
"""How a call is struck."""


def strikes(*acts: Callable[[Story], Act]) -> pytest.MarkDecorator:
    """Strike the calls of each act: in `make test` by a death after each call, and those of the first act by any error.

    The death before a call leaves what the death after the call before it does.
    """
    return pytest.mark.parametrize(
        ("act", "killed", "after"),
        [
            pytest.param(act, killed, after, id=f"{act.__name__}-{how}", marks=_ring(act is acts[0], killed, after))
            for act in acts
            for how, (killed, after) in STRIKES.items()
        ],
    )


def _ring(is_first: bool, killed: bool, after: bool) -> list[pytest.MarkDecorator]:
    return [] if (after if killed else is_first) else [pytest.mark.deep]


class StoppedMoves(SinkCase):
    """Faults come through the stores of the job and of the table, and around the format's log.

    Attributes:
        every_call: also at each look; else at what is written alone, where a look takes long.
    """

    every_call = True

    def stop_at_any_call(self, tmp_path: Path, act: Callable[[Story], Act], killed: bool, after: bool) -> None:
        """Stop a move at one call after another, each in a table of its own, and do it again."""
        calls: list[tuple[str, str]] = []
        counted = self.begin(tmp_path / "counted")
        self._move(
            tmp_path / "counted", act(counted), before=lambda operation, subject: calls.append((operation, subject))
        )
        asked = [operation for operation, _ in calls]
        assert asked.index("job.create") < asked.index("format.commit") and asked.count("format.commit") == 1
        struck = [nth for nth, operation in enumerate(asked) if self.every_call or operation.split(".")[1] in WRITES]
        for nth in struck:
            root = tmp_path / str(nth)
            job = self.begin(root)
            todo = act(job)
            strike = striking_at(nth, killed)
            with suppress(Killed, CheckpointError):
                self.open_sink(root, **{"after" if after else "before": strike}).move(todo.target)
            landed = job.sink.position().number == todo.target.number
            assert self.published(root) == (todo.after if landed else todo.before), calls[nth]
            assert self._move(root, todo) is not landed, calls[nth]
            assert self.published(root) == todo.after
            assert self._move(root, todo) is False
            for waiting in todo.waiting:
                assert job.sink.move(waiting) is True
            last = job.publish(schema=todo.schema)
            assert job.sink.position().number == last.version
            contents = job.sink.position().contents
            assert contents is not None and job.sink.verify(contents, deep=True) == []

    def _move(self, root: Path, act: Act, before: Hook = nothing) -> bool:
        return self.open_sink(root, before=before).move(act.target)


class SinkFaultTests(StoppedMoves):
    """Moves of any table."""

    @strikes(*ACTS)
    def test_a_move_that_stops_at_any_call_is_done_again_and_ends_the_same(
        self, tmp_path: Path, act: Callable[[Story], Act], killed: bool, after: bool
    ) -> None:
        """Order of writes: the mark's record, then the one commit, which is all that a reader sees."""
        self.stop_at_any_call(tmp_path, act, killed, after)

    def test_a_record_without_a_commit_is_harmless(self, tmp_path: Path) -> None:
        """Whoever left it is dead, and the job went another way: readers and later moves do not notice."""
        job = self.begin(tmp_path)
        main = job.go_on(2)

        def die() -> None:
            raise Killed

        never = job.complete(job.row())
        with pytest.raises(Killed):
            self.open_sink(tmp_path, before=at_commit(die)).move(never.target)
        assert [mark.number for mark in job.sink.marks(above=main[1].version)] == [never.version]
        assert self.published(tmp_path) == shown(1, 2)
        job.back_to(main[0])
        job.go_on(1)
        assert self.published(tmp_path) == [(1, "main"), (4, job.manifest.live)]

    def test_marks_forgotten_below_the_tables_number_do_no_harm(self, tmp_path: Path) -> None:
        """The table goes on, back and is found done; what was forgotten never lands again."""
        job = self.begin(tmp_path)
        main = job.go_on(4)
        job.sink.delete_marks(below=main[3].version)
        assert [mark.number for mark in job.sink.marks(above=0)] == [main[3].version]
        assert self.published(tmp_path) == shown(1, 2, 3, 4)
        assert self.open_sink(tmp_path).move(main[3].target) is False
        with pytest.raises(Superseded):
            job.sink.move(main[2].target)
        job.go_on(1)
        job.back_to(main[1])
        job.go_on(1)
        assert self.published(tmp_path) == [*shown(1, 2), (6, job.manifest.live)]

    @format_decides
    def test_a_table_that_another_writer_keeps_moving_is_abandoned(self, tmp_path: Path) -> None:
        """A race that is lost each time ends with an error that says so; nothing of it is visible."""
        job = self.begin(tmp_path)
        main = job.go_on(2)
        rivals = [job.manifest.switched(main[n % 2]) for n in range(MAX_LOST_RACES)]
        target = job.manifest.switched(None)

        def lose() -> None:
            assert job.sink.move(rivals.pop(0)) is True

        with wording.raises(CommitOutcomeUnknown):
            self.open_sink(tmp_path, before=at_commit(lose)).move(target)
        assert self.published(tmp_path) == shown(1, 2)
        assert job.sink.move(target) is True


class SinkDeleteFaultTests(StoppedMoves):
    """Moves with deletes, of a table of the latest rows."""

    @strikes(deleted, emptied, brought_back)
    def test_a_move_that_deletes_and_stops_at_any_call_is_done_again_and_ends_the_same(
        self, tmp_path: Path, act: Callable[[Story], Act], killed: bool, after: bool
    ) -> None:
        """Of each move the rows go together, or none of them."""
        self.stop_at_any_call(tmp_path, act, killed, after)

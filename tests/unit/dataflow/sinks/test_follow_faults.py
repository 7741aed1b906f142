"""A follow that is stopped at any call to the store, or whose write arrives late: repeated, it ends the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from milepost.dataflow.sinks.parquet import ParquetSink
from milepost.dataflow.sinks.sink_head import head_key

from milepost.dataflow.sinks import sink_chain
from milepost.dataflow.sinks.committables import Committable
from milepost.dataflow.sinks.contract import SinkMode
from milepost.protocol.records.errors import CheckpointError, CommitOutcomeUnknown, StoreUnavailable, Superseded
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from tests.conformance.sink import mark
from tests.conformance.sink_timelines import publish, staged, switch
from tests.harness.stores.faulty_store import Effect, Fault, FaultyStore, at
from tests.harness.stores.hooked_store import HookedStore

BEFORE = [38, 39, 44, 45]
AFTER = [38, 39, 40, 42, 43]


class Killed(BaseException):
    """The process died here; nothing of it runs on."""


@pytest.fixture(autouse=True)
def short_chains_have_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_chain, "SNAPSHOT_EVERY", 3)


def open_sink(store: ObjectStore) -> ParquetSink:
    return ParquetSink("table", job="job", mode=SinkMode.APPEND, key=(), store=store)


class History:
    """main 38..40; back to 39 on t50, with 44 and 45; then back to 40, with 42 and 43 that were never published."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.open()
        for checkpoint_id in (38, 39, 40):
            publish(self.sink, checkpoint_id, checkpoint_id - 1 if checkpoint_id > 38 else None)
        switch(self.sink, self.sink.find(39), "t50", 50)
        publish(self.sink, 44, 39, "t50")
        publish(self.sink, 45, 44, "t50")
        self.never: list[tuple[int, Committable]] = [(i, staged(self.sink, i)) for i in (42, 43)]
        self.to = self.sink.find(40)

    def open(self) -> None:
        self.store = open_store(StoreConfig(file_url(self.root)))
        self.sink = open_sink(self.store)

    def copied_to(self, root: Path) -> History:
        copy = History.__new__(History)
        copy.root, copy.never, copy.to = shutil.copytree(self.root, root), self.never, self.to
        copy.open()
        return copy

    def follow(self, store: ObjectStore) -> bool:
        return switch(open_sink(store), self.to, "t60", 60, *self.never)[0]

    def ids(self) -> list[int]:
        ids: list[int] = self.sink.read().column("k").to_pylist()
        return ids


def calls_of_a_follow(history: History) -> int:
    calls: list[str] = []
    assert history.follow(HookedStore(history.store, before=lambda operation, key: calls.append(operation)))
    assert history.ids() == AFTER
    assert calls[-1] == "create"
    return len(calls)


@pytest.mark.parametrize("after", [False, True], ids=["before the store does it", "after it did"])
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "no answer"])
def test_a_follow_that_stops_at_any_call_shows_the_old_table_or_the_new_one_and_is_repeated(
    tmp_path: Path, killed: bool, after: bool
) -> None:
    """Order of writes: the snapshot first, then the head, the only thing that a reader sees."""
    begun = History(tmp_path / "begun")
    calls = calls_of_a_follow(begun.copied_to(tmp_path / "counted"))
    for nth in range(calls):
        history = begun.copied_to(tmp_path / str(nth))
        left = nth

        def strike(operation: str, key: str) -> None:
            nonlocal left
            left -= 1
            if left == -1 and killed:
                raise Killed
            if left == -1:
                raise (CommitOutcomeUnknown if operation in ("put", "create") else StoreUnavailable)("no answer")

        faulty = HookedStore(history.store, after=strike) if after else HookedStore(history.store, before=strike)
        landed = after and nth == calls - 1
        if landed and not killed:
            assert history.follow(faulty) is True  # it reads its own write id back
        else:
            with pytest.raises((Killed, CheckpointError)):
                history.follow(faulty)
        assert history.ids() == (AFTER if landed else BEFORE)
        assert history.follow(history.store) is not landed
        assert history.ids() == AFTER
        publish(history.sink, 46, 43, "t60")
        assert history.follow(history.store) is False
        assert history.ids() == [*AFTER, 46]
        assert history.sink.verify(deep=True) == [] and history.sink.verify(45, deep=True) == []
        assert history.sink.walk().problems == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the late put's own conflict
@pytest.mark.parametrize("meanwhile", ["nothing", "repeated", "repeated and gone on", "a newer decision"])
def test_a_follow_whose_head_arrives_late_lands_once_or_not_at_all(tmp_path: Path, meanwhile: str) -> None:
    """I1: the create is on its way when its writer gives up."""
    history = History(tmp_path)
    fault = Fault(at("create", "_heads/"), Effect.LATE)
    faulty = FaultyStore(history.store, [fault])
    with pytest.raises(CommitOutcomeUnknown):
        history.follow(faulty)
    expected = AFTER
    if meanwhile.startswith("repeated"):
        assert history.follow(history.store) is True
    if meanwhile == "repeated and gone on":
        publish(history.sink, 46, 43, "t60")
        expected = [*AFTER, 46]
    if meanwhile == "a newer decision":
        assert switch(history.sink, history.sink.find(38), "t70", 70)[0] is True
        expected = [38]
    fault.release.set()
    faulty.late[0].join(240)
    assert history.ids() == expected
    if meanwhile == "a newer decision":
        with pytest.raises(Superseded):
            history.follow(history.store)
        assert history.sink.head() == mark(38, None, "t70")
    else:
        assert history.follow(history.store) is False
    assert history.ids() == expected


def test_a_follow_refuses_a_base_whose_files_are_gone(tmp_path: Path) -> None:
    """A damaged table would else be published as whole; nothing is changed, another decision can be taken."""
    history = History(tmp_path)
    history.store.delete([stat.key for stat in history.store.list("data/chk-00000000000000000040/")])
    with pytest.raises(CheckpointError, match=r"published file .* is missing"):
        history.follow(history.store)
    with pytest.raises(CheckpointError, match=r"published file .* is missing"):
        history.sink.compare(history.to, [])
    assert history.ids() == BEFORE
    assert switch(history.sink, history.sink.find(39), "t70", 70)[0] is True


def test_a_gap_before_the_head_of_a_follow_is_found_and_nothing_is_deleted(tmp_path: Path) -> None:
    """What was left behind is part of the table: its end is read through the head before the follow."""
    history = History(tmp_path)
    history.store.delete([head_key(3)])
    assert any(head_key(3) in problem for problem in history.sink.walk().problems)
    with pytest.raises(CheckpointError, match="missing from the chain"):
        history.sink.abort(checkpoint_id=42, token=1)
    assert len(list(history.store.list("data/chk-00000000000000000042/"))) == 1
    assert history.ids() == BEFORE

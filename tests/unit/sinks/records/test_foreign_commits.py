"""A foreign rewrite of our files is a fault if rows that we left are gone, changed, mixed with theirs, or twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.sinks.table.foreign_commits import follow_foreign_commits
from milepost.sinks.table_format import ForeignCommit
from milepost.tables.records.committables import StagedFile
from milepost.tables.records.table_keys import staged_prefix
from milepost_testkit import profiles

OURS = ("a", "b", "c")


def file(name: str) -> StagedFile:
    key = f"{staged_prefix(1, 1)}0-{name * 64}.parquet" if name in OURS else f"{name}.parquet"
    return StagedFile(key, 1, 1, "")


def commit(version: int, removed: str, added: str, *, keeps_rows: bool) -> ForeignCommit:
    gone = frozenset(file(name).key for name in removed)
    return ForeignCommit(version, "WORK", gone, tuple(map(file, added)), keeps_rows)


@pytest.mark.parametrize(
    ("story", "fault", "is_mixed"),
    [
        ("", None, False),
        ("+x", None, False),
        ("ab=d", None, False),
        ("ab=d d-", "1", False),
        ("ab=d d-ab", None, False),
        ("a-", "0", False),
        ("a- -a", None, False),
        ("a-d d-a", None, False),
        ("a-d d=e e-a", None, False),
        ("+x ax=d", "1", True),
        ("+x ax=d d-ax", None, False),
        ("+x ax=d +y dy=e e-ax", None, False),
        ("+x ax=d d-x", "1", True),
        ("ab=d -a", "1", False),
        ("ab=de", None, False),
        ("ab=de d-", "1", False),
    ],
)
def test_a_story(story: str, fault: str | None, is_mixed: bool) -> None:
    """`ab=d`: d was made of a and b; `a-d`: a was taken out and d put in, and rows changed."""
    commits = []
    for version, step in enumerate(story.split()):
        sign = next(one for one in step if one in "+-=")
        removed, _, added = step.partition(sign)
        commits.append(commit(version, removed, added, keeps_rows=sign == "="))
    found = follow_foreign_commits([*map(file, OURS)], commits)
    assert (None if found.fault is None else found.fault.split()[2], found.is_mixed) == (fault, is_mixed)
    assert not found.resurrected


@dataclass
class Table:
    """A table's files, each with its rows: a name of ours, as we left it, or a number of others.

    Attributes:
        live: now. past: before each change. log: what each took out, put in, and whether it kept the rows.
        known: every file that there ever was.
    """

    live: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter([name]) for name in OURS})
    past: list[dict[str, Counter[str]]] = field(default_factory=list)
    log: list[tuple[str, str, bool]] = field(default_factory=list)
    known: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter([name]) for name in OURS})

    def new(self, rows: Counter[str]) -> str:
        """Write a file, and return its name."""
        name = chr(ord("A") + len(self.known))
        self.known[name] = rows
        return name

    def change(self, removed: str, added: str, *, keeps_rows: bool) -> None:
        """Commit."""
        self.past.append(self.live)
        self.live = {name: rows for name, rows in self.live.items() if name not in removed}
        self.live |= {name: self.known[name] for name in added}
        self.log.append((removed, added, keeps_rows))

    def ours(self) -> Counter[str]:
        return Counter({row: n for one in self.live.values() for row, n in one.items() if row in OURS})


@pytest.mark.deep
@profiles.examples(share=4)
@given(st.data())
def test_without_a_fault_each_row_that_we_left_is_there_once_in_the_named_files(data: st.DataObject) -> None:
    """Random appends, compactions, deletions of rows and restores, against a model of the rows of each file."""
    table = Table()
    for _ in range(data.draw(st.integers(0, 7))):
        live = sorted(table.live)
        match data.draw(st.sampled_from(["append", "compact", "delete", "restore"])):
            case "append":
                table.change("", table.new(Counter([str(len(table.known))])), keeps_rows=False)
            case "compact" if live:
                some = data.draw(st.lists(st.sampled_from(live), min_size=1, max_size=3, unique=True))
                rows = sum((table.live[name] for name in some), Counter[str]())
                table.change("".join(some), table.new(rows), keeps_rows=True)
            case "delete" if live:
                name = data.draw(st.sampled_from(live))
                rest = table.live[name] - Counter([data.draw(st.sampled_from(sorted(table.live[name])))])
                table.change(name, table.new(rest) if rest else "", keeps_rows=False)
            case "restore" if table.past:
                then = data.draw(st.sampled_from(table.past))
                removed = "".join(sorted(table.live.keys() - then.keys()))
                added = "".join(sorted(then.keys() - table.live.keys()))
                if removed or added:
                    table.change(removed, added, keeps_rows=False)
    commits = [commit(at, *changed[:2], keeps_rows=changed[2]) for at, changed in enumerate(table.log)]
    found = follow_foreign_commits([*map(file, OURS)], commits)
    if found.fault is None and not found.resurrected:
        named = Counter[str]()
        for name, rows in table.live.items():
            if file(name).key in found.files:
                named += rows
            else:
                assert not {*rows} & {*OURS}, "a file with rows of ours is not named"
        assert named == Counter(OURS), "and those have no row of others"
    if all(name in table.live for name in OURS) and table.ours() == Counter(OURS):
        assert found.fault is None, "all is as we left it"

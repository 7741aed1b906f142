"""Two tables whose first files have the same numbers show the same rows, whatever was joined or compacted of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from milepost.tables.records.committables import StagedFile
from milepost.tables.records.content_digests import combined_digest, common_prefix, with_replacement_digests
from milepost_testkit import profiles


@dataclass(frozen=True)
class Told:
    """A file, and what it says of keys: a value, or None of one that is deleted."""

    file: StagedFile
    rows: tuple[tuple[int, int | None], ...]


Table = tuple[Told, ...]


def told(name: str, rows: dict[int, int | None]) -> Told:
    return Told(StagedFile(name, len(rows), 1, "a" * 64), tuple(rows.items()))


def shown(table: Table) -> dict[int, int]:
    latest = dict(row for one in table for row in one.rows)
    return {key: value for key, value in latest.items() if value is not None}


def changed(table: Table, name: str, number: int, keys: set[int], deleted: set[int]) -> Table:
    return (*table, told(name, {key: None if key in deleted else number for key in keys}))


def joined(table: Table, name: str, start: int, count: int) -> Table:
    """Neighbours become one file, with what they say of a key last."""
    run = table[start : start + count]
    if len(run) < 2 or any(one.file.groups for one in run):
        return table
    made = told(name, dict(row for one in run for row in one.rows))
    made = replace(made, file=replace(made.file, rows_of=combined_digest([one.file for one in run])))
    return (*table[:start], made, *table[start + count :])


def compacted(table: Table, name: str, cuts: int) -> Table:
    """All changes go, and so do the buckets of which they have keys; a bucket is the keys of one remainder."""
    changes = [one for one in table if one.file.groups is None]
    dirty = {key % cuts for one in changes for key, _ in one.rows}
    gone = [one for one in table if one.file.groups is None or one.file.groups.start in dirty]
    buckets = []
    for at in sorted(dirty):
        rows: dict[int, int | None] = {key: value for key, value in shown(table).items() if key % cuts == at}
        if rows:
            made = told(f"{name}-{at}", rows)
            buckets.append(replace(made, file=replace(made.file, groups=range(at, at + 1))))
    files = with_replacement_digests([one.file for one in buckets], [one.file for one in gone])
    made_files = [replace(one, file=file) for one, file in zip(buckets, files, strict=True)]
    return (*(one for one in table if one not in gone), *made_files)


STEP = st.one_of(
    st.tuples(st.just("changes"), st.sets(st.integers(0, 7), min_size=1), st.sets(st.integers(0, 7))),
    st.tuples(st.just("joined"), st.integers(0, 4), st.integers(2, 4)),
    st.tuples(st.just("compacted")),
    st.tuples(st.just("back"), st.integers(0, 20)),
)


@profiles.examples(share=3)
@given(st.lists(STEP, min_size=2, max_size=14), st.integers(1, 4), st.data())
def test_the_files_up_to_where_two_tables_are_the_same_show_the_same_rows(
    steps: list[tuple[str, ...]], cuts: int, data: st.DataObject
) -> None:
    """Forth, back, and along timelines that went different ways."""
    history: list[Table] = [()]
    for number, (what, *of) in enumerate(steps, 1):
        table = history[-1]
        if what == "changes":
            table = changed(table, f"c{number}", number, *of)  # type: ignore[arg-type]
        elif what == "joined":
            table = joined(table, f"j{number}", *of)  # type: ignore[arg-type]
        elif what == "compacted":
            table = compacted(table, f"b{number}", cuts)
        else:
            table = history[int(of[0]) % len(history)]
        history.append(table)
    before, after = data.draw(st.sampled_from(history)), data.draw(st.sampled_from(history))
    start, stop = common_prefix([one.file for one in before], [one.file for one in after])
    assert shown(before[:start]) == shown(after[:stop])
    for one in before[:start]:
        if one in after:
            assert one in after[:stop]


def test_what_an_epoch_adds_to_what_it_compacts_is_all_that_differs() -> None:
    table: Table = ()
    for number in range(4):
        table = changed(table, f"c{number}", number, {number, number + 1}, set())
    small = joined(table, "j", 1, 2)
    buckets = compacted(small, "b", 3)
    after = changed(compacted(changed(buckets, "d", 9, {0}, set()), "e", 3), "f", 10, {1}, set())
    for before in (table, small, buckets):
        expected = len(before), len(before)
        assert common_prefix([one.file for one in before], [one.file for one in before]) == expected
    assert common_prefix([one.file for one in table], [one.file for one in buckets]) == (4, len(buckets))
    assert common_prefix([one.file for one in changed(buckets, "d", 9, {0}, set())], [one.file for one in after]) == (
        len(buckets) + 1,
        len(after) - 1,
    )

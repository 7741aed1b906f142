"""Tables fit the terminal: columns are left out, then rows become blocks; colours are for terminals alone."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from milepost.cli.terminal.layout import Grid, lay_out, wrapped
from milepost.cli.terminal.output import Output, terminal_width
from milepost.epoch.quantities import counted
from milepost.jobmaster import Session
from milepost.views.text import show_bytes, show_time
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

GRID = Grid(["id", "status", "place"], [["1", "completed", "here"], ["22", "aborted", "there"]], [True, False, False])


class Screen(io.StringIO):
    """A stdout that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def plain(word: str, text: str) -> str:
    return text


def test_a_table_that_fits_has_all_its_columns() -> None:
    assert list(lay_out(GRID, 80, plain)) == [
        "id  status     place",
        "--  ---------  -----",
        " 1  completed  here",
        "22  aborted    there",
    ]


def test_columns_stand_below_each_other_whatever_their_letters() -> None:
    """A terminal shows a letter of East Asia two characters wide, and an accent of its own in no place."""
    grid = Grid(["place", "n"], [["東京", "1"], ["Zu\u0308rich", "2"]], [False, True])
    assert [*lay_out(grid, 80, lambda _, cell: cell)] == ["place   n", "------  -", "東京    1", "Zu\u0308rich  2"]


def test_columns_that_may_go_are_left_out_last_one_first() -> None:
    grid = Grid(GRID.columns, GRID.rows, GRID.right, optional=("place", "id"), notes=["", "because of the rest of it"])
    assert next(iter(lay_out(grid, 16, plain))) == "status     place"
    narrow = list(lay_out(grid, 10, plain))
    assert narrow[:3] == ["status", "---------", "completed"]
    assert narrow[3:] == ["aborted", "    because of the rest", "    of it"]


def test_one_long_cell_is_wrapped_in_its_column_and_the_table_stays_one() -> None:
    why = "delay is 9, which is more than 5; and 東京 is no airport"
    grid = Grid(["id", "why", "rows"], [["1", why, "12"], ["2", "-", "3"]], [True, False, True])
    assert list(lay_out(grid, 34, plain)) == [
        "id  why                       rows",
        "--  ------------------------  ----",
        " 1  delay is 9, which is        12",
        "    more than 5; and 東京 is",
        "    no airport",
        " 2  -                            3",
    ]


def test_a_long_word_stands_out_of_the_last_column_only() -> None:
    place = "s3://bucket/" + "x" * 40
    last = Grid(["id", "place"], [["1", f"it is {place}"], ["2", "here"]], [True, False])
    assert [*lay_out(last, 30, plain)][2:] == [" 1  it is", f"    {place}", " 2  here"]
    inner = Grid(["place", "id"], [[place, "1"]], [False, True])
    assert [*lay_out(inner, 30, plain)] == [f"place  {place}", "id     1"]


def test_a_long_value_of_data_is_broken() -> None:
    grid = Grid(["raw", "n"], [["x" * 50, "1"]], [False, True], breakable=True)
    assert [*lay_out(grid, 33, plain)][2:] == ["x" * 30 + "  1", "x" * 20]


def test_a_row_that_does_not_fit_becomes_a_block() -> None:
    assert list(lay_out(GRID, 12, plain)) == [
        "id      1", "status  completed", "place   here", "",
        "id      22", "status  aborted", "place   there",
    ]  # fmt: skip


def test_a_word_that_may_be_a_command_or_a_place_is_never_broken() -> None:
    place = "s3://bucket/" + "x" * 60
    assert wrapped(f"it lies at {place}", 40, "  ") == ["  it lies at", f"  {place}"]


def test_a_state_has_its_colour_on_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    assert Output().paint("aborted") == "aborted"
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    Output().table(["status", "other"], [["aborted", "so"]])
    assert "\x1b[31maborted\x1b[0m  so" in screen.getvalue()
    assert Output().paint("of no state") == "of no state"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Output().paint("aborted") == "aborted"


def test_the_width_is_what_columns_says_else_80_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "132")
    assert terminal_width() == 132
    monkeypatch.setenv("COLUMNS", "wide")
    assert terminal_width() == 80


def test_numbers_and_times_are_formatted_for_people() -> None:
    assert [counted(number, "object") for number in (0, 1, 2_000)] == ["0 objects", "1 object", "2,000 objects"]
    assert [show_bytes(size) for size in (999, 1_000, 2_500_000, None)] == ["999 B", "1.0 kB", "2.5 MB", "-"]
    assert [show_time(text) for text in ("2026-01-01T09:00:00.5+01:00", "end", None)] == [
        "2026-01-01 08:00:00Z", "end", "-",
    ]  # fmt: skip


def test_what_commands_print_of_a_job_is_at_most_80_wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words and all, after a failure whose reason is long, with a savepoint; a wider terminal shows more."""
    monkeypatch.setenv("COLUMNS", "80")
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    spec = job.folder / "config" / "small.yaml"
    job.master.epochs.run(Session.cli(), SparklessRunner())
    job.land("b.csv", "k,v\n" + "1,x\n" * 20)
    pending = job.trigger(Session.cli())
    job.master.lifecycle.abort_running()
    assert pending.checkpoint_id == 2
    job.master.savepoints.create("before-the-change", at=1)
    for words in (["list"], ["history"], ["show", "1"], ["show", "1", "--tasks"], ["show", "2"], ["state"], ["diff"]):
        verb, *rest = words
        more = {"state": ["latest"], "diff": ["0", "1"]}.get(verb, rest)
        outcome = milepost(verb, spec, *more)
        assert outcome.exit_code == 0, outcome.stderr
        assert max(map(len, outcome.stdout.splitlines())) <= 80, outcome.stdout
    monkeypatch.setenv("COLUMNS", "160")
    wording.matches("list", " ".join(milepost("list", spec).stdout.splitlines()[0].split()))
    listed = milepost("savepoint", "list", spec).stdout
    assert listed.splitlines()[3].strip() == job.master.find_savepoint("before-the-change").location


def test_show_without_an_id_is_of_the_head(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    spec = job.folder / "config" / "small.yaml"
    job.land("a.csv")
    job.trigger(Session.cli())
    job.master.lifecycle.abort_running()
    none = milepost("show", spec)
    assert_clear_error(none, 3, golden="show")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    told = milepost("show", spec)
    assert "{" not in told.stdout
    wording.matches("show", told.stdout.splitlines()[0])
    assert milepost("show", spec, "--json").document() == milepost("show", spec, "2", "--json").document()

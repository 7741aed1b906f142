"""The runner of the documentation's pages: what it runs, what it compares, and what it writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milepost_testkit import wording
from scripts.transcripts import FOLDER, PORT, blocks, commands, is_shown, page_environ, run_page


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return page_environ(tmp_path / "programs", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "page").mkdir()
    return tmp_path / "page"


def console(*lines: str, title: str = "") -> str:
    return "".join(f"{line}\n" for line in (f"```console{title}", *lines, "```"))


def test_unprintable_characters_are_replaced_by_printable_ones(folder: Path, environ: dict[str, str]) -> None:
    page = "# A page\n\n" + console("$ echo one", "one", "$ echo two", "three") + "\nits end\n"
    assert run_page(page, folder, environ) == page.replace("three", "two")


def test_one_shell_runs_all_blocks_of_a_page(folder: Path, environ: dict[str, str]) -> None:
    page = console("$ name=ada; mkdir sub; cd sub", "$ false") + console("$ echo $? $name; pwd", f"1 ada\n{FOLDER}/sub")
    assert run_page(page, folder, environ) == page


def test_output_without_a_last_newline_and_of_stderr_is_shown(folder: Path, environ: dict[str, str]) -> None:
    page = console("$ printf half", "half", "$ echo wrong >&2", "wrong", "$ cat", "$ true")
    assert run_page(page, folder, environ) == page


def test_a_command_may_have_more_lines(folder: Path, environ: dict[str, str]) -> None:
    page = console("$ cat > a.csv <<END", "> k,v", "> 1,2", "> END", "$ cat a.csv", "k,v", "1,2")
    assert run_page(page, folder, environ) == page


def test_files_are_written_and_changed_as_shown(folder: Path, environ: dict[str, str]) -> None:
    written = '```yaml title="config/a.yaml"\nname: a\nmode: append\nend: 1\n```\n'
    changed = '```diff title="config/a.yaml"\n name: a\n-mode: append\n+mode: upsert\n+more: 2\n```\n'
    page = written + changed + console("$ cat config/a.yaml", "name: a", "mode: upsert", "more: 2", "end: 1")
    assert run_page(page, folder, environ) == page
    with wording.raises(ValueError):
        run_page(changed, folder, environ)


def test_a_file_is_older_than_the_command_that_wrote_it(folder: Path, environ: dict[str, str]) -> None:
    """The next command follows immediately, and a source would wait for a file that was just written."""
    run_page(console("$ touch landed", "$ mkdir .milepost; touch .milepost/kept"), folder, environ)
    written = (folder / "landed").stat().st_mtime
    assert written < (folder / ".milepost" / "kept").stat().st_mtime - 5
    run_page(console("$ true"), folder, environ)
    assert (folder / "landed").stat().st_mtime == written


def test_another_terminal_runs_on_until_the_page_ends(folder: Path, environ: dict[str, str]) -> None:
    command = f"$ sh -c 'echo $$ > pid; echo at {PORT}; sleep 1000'"
    serving = console(command, f"at {PORT}", title=' title="another terminal"')
    page = serving + console("$ kill -0 $(cat pid) && echo serving", "serving")
    assert run_page(page, folder, environ) == page
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)


def test_a_command_that_ends_the_shell_is_an_error_with_what_it_printed(folder: Path, environ: dict[str, str]) -> None:
    with pytest.raises(TimeoutError, match="ended the shell; it printed:\nlast words"):
        run_page(console("$ echo last words; exit 3"), folder, environ)


def test_a_block_without_a_command_is_refused() -> None:
    with wording.raises(ValueError):
        commands("lost\n$ echo\n")


def test_only_marked_blocks_are_run() -> None:
    page = "```sh\nrm -rf /\n```\n```\n$ plain\n```\n" + console("$ echo a", "a")
    assert [(one.language, one.body) for one in blocks(page)] == [("sh", "rm -rf /\n"), ("console", "$ echo a\na\n")]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("3 rows in 2.4 s\n", "3 rows in 17.0 s\n", True),
        ("3 rows in 2.4 s\n", "4 rows in 2.4 s\n", False),
        ("at 2026-11-23 21:31:13Z\n", "at 2027-01-02T01:02:03.456+00:00\n", True),
        ("at 2026-01-03 10:00:00Z\n", "at 2026-01-03 11:00:00Z\n", False),
        ("state  3.3 kB\n", "state  12.1 kB\n", True),
        ("id  took\n--  -----\n 1  2.4 s\n", "id    took\n--  ------\n 1  12.4 s\n", True),
        ("fresh  331 d old (usually 331 d 22\n         h)\n", "fresh  331 d 22 h old (usually 1 d)\n", True),
        ("it waits for\n         3 rows\n", "it waits\n         for 3 rows\n", True),
        ("it waits for\n         3 rows\n", "it waits\n         for 4 rows\n", False),
        ("code 44d28a708b4d\n", "code 0dd28a70ffff\n", True),
        ("on timeline t12\n", "on timeline t14\n", True),
        ("sink: 3 -> 3 rows, 4 -> 2 objects\n", "sink: 3 -> 3 rows, 3 -> 1 objects\n", True),
        ("sink: 3 -> 3 rows, 4 -> 2 objects\n", "sink: 3 -> 4 rows, 4 -> 2 objects\n", False),
        ("a\nb\n", "a\ndata plane: 2 objects, 255 bytes (5 s)\nb\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("...\n", "", True),
        ("", "a warning\n", False),
    ],
)
def test_what_differs_each_time_is_not_compared_and_all_else_is(shown: str, printed: str, same: bool) -> None:
    assert is_shown(shown, printed) is same

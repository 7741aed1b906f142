"""Run the pages of the documentation, so that they show the real output of commands.

`make transcripts` runs the pages and replaces outputs that differ. A test runs them and compares. A page is run from
its top in one empty folder and one shell, by its fenced blocks:

* `console`: lines that begin with `$ ` are commands, `> ` continues them, and the other lines are their output. A line
  `...` stands for lines that the page omits. With `title="another terminal"`, its one command runs until the page ends,
  and its output is the first lines that it prints.
* any other language with `title="FILE"`: the file is written as it is shown.
* `diff` with `title="FILE"`: its lines with a blank or `-` are in the file once; those with a blank or `+` replace
  them.

Nothing else is run. Outputs are compared without their variable parts: see `comparable`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from milepost.language.spark_remote import TOKEN_VARIABLE
from scripts import duckdb_cli
from scripts.processes import PYTHON_PATH, ROOT, clean_environ, end, free_port, python
from scripts.stack import REMOTE_VARIABLE, Stack

FOLDER = "/home/ada/jobs"
"""Working directory in the text of a page."""

PORT = "15010"
"""Port of a server in the text of a page. It runs with a free port."""

ELISION = "..."
ANOTHER_TERMINAL = "another terminal"
COMMAND_S = 240.0
STOP_S = 30.0
DATA_DAYS = "2026-01-0"
"""Prefix of times in the data of pages, which are compared. All other times come from the clock."""

TYPED_IN_S = 10.0
"""Age of a file when the next command runs: typing takes longer than the `settle` of a source."""

_FENCE = re.compile(r'^```(\w+)(?: title="([^"\n]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_PROGRESS = re.compile(r"^[^\n]+ \(\d+ s(?:, \d+%, [^)\n]+)?\)\n", re.MULTILINE)
_CLOCK = re.compile(r"\b(20\d\d-\d\d-\d\d)[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?")
_CHANGING = (
    (re.compile(r"\n {8,}(?=\S)"), " "),  # where a long line is wrapped depends on the lengths of ages and times
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,64}\b"), "<hex>"),
    (re.compile(r"\b[\d,.]+ (?:bytes|[kMG]B)\b"), "<size>"),
    (re.compile(r",\s+since\s+checkpoint\s+(\d+),\s+\d\d:\d\d\s+UTC\s+\([^)]+\)"), r", since checkpoint \1"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?"), "<duration>"),
    (re.compile(r"\bon +\S+, process \d+"), "on <machine>"),
    (re.compile(r"\bt[1-9]\d*\b"), "<timeline>"),
    # The number of objects depends on the hash of the keys of each job.
    (re.compile(r"(?:\d+ -> )?\b\d+ objects\b"), "<objects>"),
    (re.compile(r"\brows in \d+ files?\b"), "rows in <files>"),
    (re.compile(r"\b\d+ +<size>(?= +committed\b)"), "<files>"),
    (re.compile(r" {2,}"), " "),
    (re.compile(r"-{2,}"), "--"),
    (re.compile(r" +$", re.MULTILINE), ""),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        start, end: of its body, in the text of the page.
    """

    language: str
    title: str
    body: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page.

    Attributes:
        text: input of bash. shown: as on the page. output: as on the page.
    """

    text: str
    shown: str
    output: str


def pages() -> list[Path]:
    """Return the pages to run: the README, and the tutorials and how-tos with a command."""
    guides = [path for folder in ("tutorial", "how-to") for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
    found = [ROOT / "README.md", *guides]
    return [page for page in found if any(one.language == "console" for one in blocks(page.read_text("utf-8")))]


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [Block(one[1], one[2] or "", one[3], one.start(3), one.end(3)) for one in _FENCE.finditer(text)]


def commands(body: str) -> list[Command]:
    """Return the commands of a `console` block, each with its output. Raises ValueError: it does not begin with one."""
    found: list[Command] = []
    for part in re.split(r"^(?=\$ )", body, flags=re.MULTILINE):
        if not part.strip():
            continue
        typed = re.match(r"\$ .*\n(?:>(?: .*)?\n)*", part)
        if typed is None:
            raise ValueError(f"no command before {part!r}")
        lines = [line[2:] for line in typed[0].splitlines()]
        found.append(Command("\n".join(lines) + "\n", typed[0], part[typed.end() :]))
    return found


def comparable(output: str) -> str:
    """Return an output without parts that vary between machines and runs: clocks, sizes, random names."""
    text = _PROGRESS.sub("", output)
    text = _CLOCK.sub(lambda found: found[0] if found[1].startswith(DATA_DAYS) else "<time>", text)
    for pattern, instead in _CHANGING:
        text = pattern.sub(instead, text)
    return text


def is_shown(shown: str, printed: str) -> bool:
    """Return whether a page shows the printed output. `...` on the page stands for any lines."""
    parts = re.split(rf"^{re.escape(ELISION)}\n", shown, flags=re.MULTILINE)
    pattern = r"(?:.*\n)*".join(re.escape(comparable(part)) for part in parts)
    return re.fullmatch(pattern, comparable(printed)) is not None


def run_page(text: str, folder: Path, environ: Mapping[str, str]) -> str:
    """Run a page. Returns its text, in which outputs that differ are replaced by the printed ones.

    Args:
        folder: an empty folder for this page. environ: of its shell.
    Raises:
        ValueError: a block cannot be run as it is written.
        TimeoutError: a command did not end.
    """
    made, last = [], 0
    with ExitStack() as running, Shell(folder, environ) as shell:
        for block in blocks(text):
            new = block.body
            if block.language == "console" and block.title == ANOTHER_TERMINAL:
                new = running.enter_context(left_running(block, shell))
            elif block.language == "console":
                new = "".join(shell.outcome(command) for command in commands(block.body))
            elif block.title:
                write(folder / block.title, block)
                shell.let_time_pass()
            made += [text[last : block.start], new]
            last = block.end
    return "".join([*made, text[last:]])


def write(path: Path, block: Block) -> None:
    """Write the file of a block, or apply its `diff`. Raises ValueError: the old lines are not there exactly once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = block.body
    if block.language == "diff":
        before, after = (_lines(text, kept) for kept in (" -", " +"))
        there = path.read_text("utf-8")
        if there.count(before) != 1:
            raise ValueError(f"{there.count(before)} times in {path.name}:\n{before}")
        text = there.replace(before, after)
    path.write_text(text, "utf-8")


def _lines(diff: str, kept: str) -> str:
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[:1] in kept)


class Shell:
    """A bash in the folder of a page."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.environ = environ
        self._port = str(free_port())
        self._bash = self.begin("bash --norc")

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *error: object) -> None:
        stop(self._bash)

    def begin(self, command: str) -> psutil.Popen:
        """Start a program with pipes for input and output. `stop` ends it with its whole process tree."""
        return psutil.Popen(
            ["bash", "-c", f"exec {self._as_run(command)}"], cwd=self.folder, env=dict(self.environ), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def outcome(self, command: Command) -> str:
        """Run a command. Returns its lines for the page."""
        printed = self._run(command.text)
        self.let_time_pass()
        return command.shown + (command.output if is_shown(command.output, printed) else printed)

    def let_time_pass(self) -> None:
        """Make files that were just written older, except those of Milepost's storage."""
        for path in self.folder.rglob("*"):
            if ".milepost" not in path.relative_to(self.folder).parts and path.is_file() and not path.is_symlink():
                about = path.stat()
                if about.st_mtime > time.time() - TYPED_IN_S / 2:
                    os.utime(path, (about.st_atime, about.st_mtime - TYPED_IN_S))

    def as_shown(self, printed: str) -> str:
        """Return an output for the page: without progress, and with the folder and port of the page."""
        shown = printed.replace(str(self.folder), FOLDER).replace(self._port, PORT)
        return _PROGRESS.sub("", shown)

    def _as_run(self, text: str) -> str:
        return text.replace(FOLDER, str(self.folder)).replace(PORT, self._port)

    def _run(self, text: str) -> str:
        assert self._bash.stdin is not None and self._bash.stdout is not None
        mark = "-- the command has ended --"
        print(f"$ {text}", end="", file=sys.stderr, flush=True)
        then = f"code=$?; printf '\\n{mark}\\n'; (exit $code)"
        self._bash.stdin.write(f"{{\n{self._as_run(text)}}} < /dev/null\n{then}\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        with limited(self._bash):
            for line in self._bash.stdout:
                if line == f"{mark}\n":
                    printed = "".join(lines).removesuffix("\n")
                    return self.as_shown(printed if printed.endswith("\n") or not printed else f"{printed}\n")
                lines.append(line)
        printed = "".join(lines)
        raise TimeoutError(f"{text}did not end within {COMMAND_S:.0f} s, or ended the shell; it printed:\n{printed}")


@contextmanager
def left_running(block: Block, shell: Shell) -> Iterator[str]:
    """Run the command of a block in the background. Begins once it has printed as many lines as the block shows."""
    (command,) = commands(block.body)
    process = shell.begin(command.text)
    try:
        with limited(process):
            assert process.stdout is not None
            printed = "".join(process.stdout.readline() for _ in command.output.splitlines())
        printed = shell.as_shown(printed)
        yield command.shown + (command.output if is_shown(command.output, printed) else printed)
    finally:
        stop(process)


@contextmanager
def limited(process: psutil.Popen) -> Iterator[None]:
    """End a process if the block does not finish in time. A reader of its output then reaches the end."""
    timer = threading.Timer(COMMAND_S, end_tree, [process])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_tree(process: psutil.Popen) -> None:
    """End a process with all of its children."""
    tree = [process]
    with suppress(psutil.NoSuchProcess):
        tree += process.children(recursive=True)
    end(tree, STOP_S)


def stop(process: psutil.Popen) -> None:
    """End a process with its tree, and close its pipes."""
    end_tree(process)
    for stream in (process.stdin, process.stdout):
        stream.close()


def page_environ(folder: Path, server: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a page's shell, with `milepost` from this tree and `duckdb` from `.venv-readers`.

    Args:
        folder: for its programs and its home. server: address and token of a Spark Connect server.
    """
    for name in ("bin", "home"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    command = folder / "bin" / "milepost"
    command.write_text(f'#!/bin/sh\nexec "{python()}" -m milepost "$@"\n', "utf-8")
    command.chmod(0o700)
    (folder / "bin" / duckdb_cli.PROGRAM.name).symlink_to(duckdb_cli.PROGRAM)
    paths = (str(command.parent), str(Path(python()).parent), os.environ.get("PATH", os.defpath))
    environ = clean_environ(
        {
            "PATH": os.pathsep.join(paths),
            "HOME": str(folder / "home"),
            "PYTHONPATH": PYTHON_PATH,
            "PYSPARK_PYTHON": python(),
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "NO_COLOR": "1",
            "COLUMNS": "80",
            **server,
        }
    )
    duckdb_cli.install_extensions(folder / "home", environ)
    return environ


def main(names: list[str]) -> int:
    """Run all pages, or the named ones, and replace their outputs. Returns the exit code."""
    folder = ROOT / ".milepost" / "transcripts"
    Stack(folder).stop()
    shutil.rmtree(folder)
    stack = Stack(folder, environ={"PYTHONPATH": PYTHON_PATH})
    try:
        stack.start_spark()
        stack.wait_for_spark()
        environ = page_environ(folder, {REMOTE_VARIABLE: stack.spark_url, TOKEN_VARIABLE: stack.spark_token})
        for page in [Path(name).absolute() for name in names] or pages():
            print(f"== {page.relative_to(ROOT)}", file=sys.stderr)
            page_folder = folder / "pages" / page.stem
            page_folder.mkdir(parents=True)
            text = page.read_text("utf-8")
            made = run_page(text, page_folder, environ)
            print("   written" if made != text else "   unchanged", file=sys.stderr)
            page.write_text(made, "utf-8")
    finally:
        stack.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The `milepost` command as a person uses it: in this process, which keeps one Spark session, or in one of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from milepost.cli.main import app_for
from milepost_testkit import wording

ERROR_LINES = 24
_NOISE = re.compile(
    r"[a-z][\w ]*(: [\w, ]+)? \(\d+ s(, \d+%, .*)?\)|checkpoint \d+: .* has given it no executor for \d+ s: .*"
)
_PREFLIGHT = re.compile(r"spec or code differ from the head's; what is continued:\n(?:  .*\n)*")


@dataclass(frozen=True)
class Outcome:
    """How one call ended.

    Attributes:
        error: stderr without the lines that tell progress, or on what a slow machine waits, and the pre-flight report.
    """

    exit_code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> list[str]:
        return [line for line in _PREFLIGHT.sub("", self.stderr).splitlines() if not _NOISE.fullmatch(line)]

    def document(self) -> dict[str, Any]:
        """The data of the one JSON document that the call printed."""
        (line,) = self.stdout.splitlines()
        data: dict[str, Any] = json.loads(line)["data"]
        return data


def milepost(*words: str | Path) -> Outcome:
    """Run the command in this process, which logs as a new one would, whatever other tests have imported."""
    logger = logging.getLogger("milepost")
    before = logger.level
    logger.setLevel(logging.INFO if "-v" in words else logging.WARNING)
    try:
        texts = [str(word) for word in words]
        result = CliRunner().invoke(app_for(texts), texts)
    finally:
        logger.setLevel(before)
    return Outcome(result.exit_code, result.stdout, result.stderr)


def milepost_process(*words: str | Path, environment: Mapping[str, str] | None = None, seconds: float = 480) -> Outcome:
    """Run the command in a process of its own, with the JVM and the workers that it starts."""
    env = {**os.environ, **(environment or {})}
    command = [sys.executable, "-m", "milepost", *map(str, words)]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    return Outcome(result.returncode, result.stdout, result.stderr)


def milepost_on_terminal(*words: str | Path, answer: str) -> tuple[int, str]:
    """Run the command on a terminal and answer its one question.

    Returns: its exit code, and all its output.
    """
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "milepost", *map(str, words)]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        terminal = b""
        with contextlib.suppress(OSError):  # Linux answers EIO once nobody holds the other end
            while part := os.read(ours, 4096):
                asked = b"[y/N]" in terminal
                terminal += part
                if b"[y/N]" in terminal and not asked:
                    os.write(ours, f"{answer}\n".encode())
        os.close(ours)
        assert process.stdout is not None
        told = process.stdout.read() + terminal.decode()
        return process.wait(240), told


def assert_clear_error(
    outcome: Outcome, exit_code: int, *mentions: str, golden: str = "", replace: Mapping[str, str] | None = None
) -> None:
    """Fail unless the call ended with this code and one short error that says all of `mentions`, and no stack trace.

    Args:
        golden: the file of wording that has this test's error, `rollback`; without one the wording is not compared.
        replace: regular expressions of what differs between runs, with placeholders, as of `wording.matches`.
    """
    assert outcome.exit_code == exit_code, f"exit {outcome.exit_code}, expected {exit_code}: {outcome.stderr}"
    text = "\n".join(outcome.error)
    print(text)
    assert outcome.error and outcome.error[0].startswith("Error: "), text
    assert len(outcome.error) <= ERROR_LINES, f"{len(outcome.error)} lines: {text}"
    for trace in ("Traceback", '  File "', "\tat ", "Exception:", "unexpected "):
        assert trace not in text, f"the error holds {trace!r}: {text}"
    for words in mentions:
        assert words in text, f"the error does not say {words!r}: {text}"
    if golden:
        wording.matches(golden, text, replace=replace)

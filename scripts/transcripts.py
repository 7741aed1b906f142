"""`make transcripts`: runs the README's commands on the demo's flights, and writes there what they printed.

On servers of its own, below `.milepost/transcripts/`, which are stopped at the end. A block of the README stands
between a line `<!-- transcript: NAME -->` and the end of the fenced text that follows it.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from scripts.demo import DAYS_PER_EPOCH, LANDER
from scripts.processes import python
from scripts.stack import ROOT, Stack

README = ROOT / "README.md"
EPOCHS = 7
_BLOCK = re.compile(r"(<!-- transcript: (\w+) -->\n```\n)(.*?)(\n```\n)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a block.

    Attributes:
        text: what is typed; `{place}` is where the savepoint lies that the command before it made.
        remark: shown behind the command.
        killed_after: so many epochs on a fork are completed when it is killed with SIGKILL; 0: it is left alone.
    """

    text: str
    remark: str = ""
    killed_after: int = 0


BACKFILL = "milepost backfill flights --from 2013-01-15T05:00Z"
BLOCKS: dict[str, tuple[Command, ...]] = {
    "rollback": (
        Command("milepost rollback flights --to 5 --dry-run"),
        Command("milepost rollback flights --to 5 --yes"),
        Command("milepost run flights"),
        Command("milepost rollback flights --to 7 --yes"),
    ),
    "savepoint": (
        Command("milepost savepoint create flights --name middle"),
        Command("milepost start second --from {place}"),
    ),
    "backfill": (
        Command(f"{BACKFILL} --dry-run"),
        Command(f"{BACKFILL} --yes", "killed with SIGKILL after two epochs", killed_after=2),
        Command("milepost run flights", "the schedule goes on, on main"),
        Command(f"{BACKFILL} --yes", "the same command goes on with its fork"),
    ),
}
"""Each is run on a job of its own, after seven epochs of the demo."""


def blocks_of(text: str) -> dict[str, list[str]]:
    """Return the lines of each marked block of a README, by name."""
    return {match[2]: match[3].splitlines() for match in _BLOCK.finditer(text)}


def typed(line: str) -> str:
    """Return the command in a line of a block, without prompt and remark."""
    return line.removeprefix("$ ").split("  #")[0].rstrip()


def main() -> int:
    """Run every command and rewrite the README. Returns the exit code."""
    folder = ROOT / ".milepost" / "transcripts"
    Stack(folder).stop()
    shutil.rmtree(folder)
    stack = Stack(folder)
    made = {}
    try:
        _write_specs(folder / "config")
        for name, commands in BLOCKS.items():
            stack.stop()
            shutil.rmtree(folder / "s3", ignore_errors=True)
            stack.start_s3()
            stack.start_spark()
            stack.wait_for_spark()
            shell = _Shell(stack)
            for epoch in range(EPOCHS):
                shell.land(epoch)
                shell.run(Command("milepost run flights"))
            shell.land(EPOCHS)
            made[name] = "\n".join(line for command in commands for line in shell.run(command))
    finally:
        stack.stop()
    text = _BLOCK.sub(lambda match: match[1] + made[match[2]] + match[4], README.read_text(encoding="utf-8"))
    README.write_text(text, encoding="utf-8")
    return 0


def _write_specs(config: Path) -> None:
    """Write the demo's job, and a second one with tables of its own."""
    config.mkdir()
    text = (ROOT / "config" / "flights.yaml").read_text(encoding="utf-8")
    (config / "flights.yaml").write_text(text, encoding="utf-8")
    second = text.replace("name: flights\n", "name: second\n").replace("s3://lake/", "s3://lake/second/")
    (config / "second.yaml").write_text(second, encoding="utf-8")


class _Shell:
    """Runs commands as a person would, one after another, and keeps what they print."""

    def __init__(self, stack: Stack) -> None:
        self._folder = stack.folder
        self._environ = stack.process_environ() | {"NO_COLOR": "1"}
        self._s3_url = stack.s3_url
        self._place = ""

    def land(self, epoch: int) -> None:
        """Land the days of one epoch, from 0."""
        days = f"{epoch * DAYS_PER_EPOCH + 1}-{(epoch + 1) * DAYS_PER_EPOCH}"
        lander = [python(), str(LANDER), "--root", "s3://landing", "--endpoint", self._s3_url, "--days", days]
        subprocess.run(lander, check=True, env=self._environ, cwd=ROOT, stdout=subprocess.DEVNULL)

    def run(self, command: Command) -> list[str]:
        """Return the command's line and what it printed. Raises CalledProcessError: it failed."""
        text = command.text.format(place=self._place)
        line = f"$ {text}" + (f"     # {command.remark}" if command.remark else "")
        print(line, flush=True)
        with self._begin(text) as process:
            while command.killed_after and self._forked() < command.killed_after and process.poll() is None:
                time.sleep(0.2)
            if command.killed_after:
                process.kill()
            assert process.stdout is not None
            lines = [line, *process.stdout.read().splitlines()]
        if process.returncode != (-signal.SIGKILL if command.killed_after else 0):
            raise subprocess.CalledProcessError(process.returncode, text)
        self._place = next((line.removeprefix("at ") for line in lines if line.startswith("at s3://")), self._place)
        return lines

    def _begin(self, text: str) -> subprocess.Popen[str]:
        words = [python(), "-m", "milepost", *shlex.split(text)[1:]]
        return subprocess.Popen(words, env=self._environ, cwd=self._folder, stdout=subprocess.PIPE, text=True)

    def _forked(self) -> int:
        """Return how many checkpoints are completed beside the live timeline."""
        with self._begin("milepost list flights --limit 50 --json") as process:
            assert process.stdout is not None
            listed = json.loads(process.stdout.read())["data"]["checkpoints"]
        return sum(item["timeline"] != "main" and item["status"] == "completed" for item in listed)


if __name__ == "__main__":
    sys.exit(main())

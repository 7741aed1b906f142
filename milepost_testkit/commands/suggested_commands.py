"""Find the commands that pages and messages suggest, and type them literally."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from milepost.cli.main import app
from milepost_testkit.commands.milepost_cli import Outcome, milepost

CLI: Any = typer.main.get_command(app)
_USAGE: Any = typer.BadParameter.__bases__[0]
"""The error of a command line that does not parse."""

READING = frozenset(
    ("status", "show", "list", "history", "lint", "verify", "fsck", "doctor", "plot", "read", "jobs", "savepoint")
)
"""Commands that change nothing."""

_STEPS = 8
"""A chain of more suggested steps than this is taken as endless."""


def suggested_commands(text: str) -> list[str]:
    """Return the commands that a message names, each as far as it can be typed: prose may follow without a mark."""
    found = []
    for rest in re.split(r"\bmilepost (?=[a-z])", " ".join(text.split()))[1:]:
        words = _words(rest)
        longest = next((words[:count] for count in range(len(words), 0, -1) if _can_be_typed(words[:count])), None)
        if longest is not None and longest[0] != "runbook":
            found.append(shlex.join(["milepost", *longest]))
    return list(dict.fromkeys(found))


def _words(text: str) -> list[str]:
    """Return the words up to the end of the command's clause."""
    words = []
    for word in text.split():
        plain = word.rstrip("`,;:).")
        words.append(plain.strip("'\""))
        if plain != word:
            break
    return words


def _can_be_typed(words: list[str]) -> bool:
    """Return whether the command line takes these words."""
    command: Any = CLI
    left = list(words)
    while isinstance(command, TyperGroup):
        if not left or left[0] not in command.commands:
            return False
        command = command.commands[left.pop(0)]
    with suppress(_USAGE):
        command.make_context("milepost", left)
        return True
    return False


@dataclass
class Typist:
    """A person at a shell who types each suggested command literally.

    Attributes:
        spec: of the job. values: of the placeholders in capitals that pages have. typed: the commands so far, in order.
    """

    spec: Path
    values: Mapping[str, str] = field(default_factory=dict)
    typed: list[str] = field(default_factory=list)

    def type(self, command: str) -> Outcome:
        """Type a command; a question is answered with yes. It ends with success or with an error that says why."""
        values = {"JOB": str(self.spec), **self.values}
        words = [values.get(word, word) for word in shlex.split(command)[1:]]
        self.typed.append(" ".join(["milepost", *words]))
        outcome = milepost(*words)
        if outcome.exit_code == 2 and "Add --yes" in outcome.stderr:
            outcome = milepost(*words, "--yes")
        assert "unexpected" not in outcome.stderr and "Usage:" not in outcome.stderr, self._story(outcome)
        assert outcome.stdout or outcome.stderr, self._story(outcome)
        return outcome

    def carry_out(self, command: str) -> None:
        """Type a command. After a plan also type the act, and after a refusal the step that it suggests."""
        for _ in range(_STEPS):
            outcome = self.type(command)
            if outcome.exit_code == 0 and "--dry-run" not in command:
                return
            command = self._next(outcome) if outcome.exit_code else f"{command.replace(' --dry-run', '')} --yes"
        raise AssertionError(self._story(outcome))

    def until_healthy(self) -> None:
        """Follow the next steps of `status` until it exits with 0."""
        for _ in range(_STEPS):
            outcome = self.type("milepost status JOB")
            if outcome.exit_code == 0:
                return
            self.carry_out(self._next(outcome))
        raise AssertionError(self._story(self.type("milepost status JOB")))

    def _next(self, outcome: Outcome) -> str:
        """Return the command to type next: the last one that acts, since repairs are named before the next epoch."""
        commands = suggested_commands(outcome.stderr + outcome.stdout)
        acting = [one for one in commands if one.split()[1] not in READING]
        fresh = [one for one in acting if one != self.typed[-1]]
        assert acting, f"no further step is suggested: {self._story(outcome)}"
        return (fresh or acting)[-1]

    def _story(self, outcome: Outcome) -> str:
        typed = "\n".join(self.typed)
        return f"{typed}\nexit {outcome.exit_code}\n{outcome.stdout}\n{outcome.stderr}"

"""Print data or one `--json` document to stdout, and everything else to stderr."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from milepost.cli.terminal.layout import Grid, lay_out, wrapped
from milepost.codec import DOCUMENT_SCHEMA, to_json
from milepost.protocol.records import cached_property
from milepost.views import STATES, Meaning, printable

WIDTH = 80
"""Characters per line without a terminal."""

_STYLES: dict[str, dict[str, Any]] = {
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "busy": {"fg": "yellow"},
    "warn": {"fg": "yellow"},
    "calm": {"dim": True},
}
"""What a state means -> its terminal style."""

T = TypeVar("T")

_STREAMED = "\0rows"
"""Placeholder for streamed rows in the JSON of a document."""


@dataclass(frozen=True, slots=True)
class StreamedRows:
    """A list in a document. Each row is printed as JSON as soon as it is read."""

    rows: Iterable[str]


@dataclass
class Output:
    """How one invocation prints.

    Attributes:
        json: `--json`: one versioned document per result instead of text.
        verbose: `-v`: a stack trace with errors.
        typed: the JOB argument as the user typed it; None if the command has none.
    """

    json: bool = False
    verbose: bool = False
    typed: str | None = None

    def as_typed(self, value: T) -> T:
        """Return a text, record or document, with the job in commands named as the user typed it.

        The job's name alone may not resolve to a spec file here.
        """
        return cast("T", _each_text(value, self._text_as_typed))

    def _text_as_typed(self, text: str) -> str:
        if self.typed is None or "milepost " not in text or self._own_command is None:
            return text
        typed = shlex.quote(self.typed)
        return self._own_command.sub(lambda match: match[1] + typed, text)

    @cached_property
    def _own_command(self) -> re.Pattern[str] | None:
        """The pattern of a command that names this job by its name; None if the spec cannot be read."""
        from milepost.errors import CheckpointError
        from milepost.jobspec.load import load_job

        try:
            name = load_job(str(self.typed)).spec.name
        except CheckpointError:
            return None
        return re.compile(rf"(\bmilepost (?!runbook )(?:[a-z-]+ ){{1,2}}){re.escape(name)}(?![\w/-]|\.\w)")

    def document(self, data: object, *, ok: bool = True, error: Mapping[str, object] | None = None) -> None:
        """Print a record, or a mapping, as one versioned document, on one line.

        Args:
            error: what failed apart from it, as in `failure`; None: nothing did.
        """
        lists: list[StreamedRows] = []

        def stored(value: object) -> object:
            if not isinstance(value, StreamedRows):
                return _json(value)
            lists.append(value)
            return _STREAMED

        failed = {} if error is None else {"error": error}
        document = {"schema": DOCUMENT_SCHEMA, "ok": ok, "data": data, **failed}
        text = json.dumps(document, ensure_ascii=False, default=stored)
        for streamed in lists:
            before, _, text = text.partition(json.dumps(_STREAMED))
            sys.stdout.write(f"{before}[")
            for number, row in enumerate(streamed.rows):
                sys.stdout.write(f", {row}" if number else row)
            sys.stdout.write("]")
        self._write_line(text)

    def failure(self, error: Mapping[str, Any]) -> None:
        """Print an error as one versioned document, on one line."""
        document = {"schema": DOCUMENT_SCHEMA, "ok": False, "error": error}
        self._write_line(json.dumps(document, ensure_ascii=False, default=str))

    def text(self, line: str = "") -> None:
        """Print a line of data, unless `--json` prints documents instead."""
        if not self.json:
            self._write_line(line)

    def note(self, line: str) -> None:
        """Print a line to stderr."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        optional: Sequence[str] = (),
        notes: Sequence[str] = (),
        figures: Collection[str] = (),
        breakable: bool = False,
    ) -> None:
        """Print aligned columns that fit the terminal. Numbers are right-aligned, states are coloured.

        Control characters in values are escaped.

        Args:
            optional, notes, breakable: as in `Grid`. figures: columns with numbers as text.
        """
        if self.json:
            return
        right = [
            bool(rows) and (name in figures or all(_is_number(row[at]) for row in rows))
            for at, name in enumerate(columns)
        ]
        cells = [[printable(value) for value in row] for row in rows]
        names = [printable(name) for name in columns]
        grid = Grid(names, cells, right, optional, [printable(note) for note in notes], breakable)
        for line in lay_out(grid, terminal_width(), self.paint):
            self._write_line(line)

    def clear(self) -> None:
        """Clear the terminal, if stdout is one that supports it."""
        if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            sys.stdout.write("\x1b[2J\x1b[H")

    def paragraph(self, text: str, indent: str, first: str, meaning: Meaning | None = None) -> None:
        """Print a text in lines that fit the terminal; see `wrapped`. meaning: as of `style`."""
        for line in wrapped(printable(text), terminal_width(), indent, first):
            self.text(self.style(line, meaning))

    def paint(self, word: str, text: str | None = None) -> str:
        """Return a text in the colour of the state `word`; unchanged for other words or without a terminal."""
        return self.style(word if text is None else text, STATES.get(word))

    def style(self, text: str, meaning: Meaning | None) -> str:
        """Return a text in the style of a meaning; unchanged for None or without a terminal."""
        if meaning is None or not use_color(sys.stdout):
            return text
        import typer

        return typer.style(text, **_STYLES[meaning])

    def _write_line(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _each_text(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _each_text(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_each_text(item, change) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _each_text(getattr(value, one.name), change) for one in fields(value)})
    return value


def _json(value: object) -> object:
    """Return the JSON of a record. A value without a JSON type becomes text."""
    return to_json(value) if is_dataclass(value) else str(value)


def terminal_width() -> int:
    """Return the width of a line in characters: COLUMNS, else the terminal's width, else 80."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return (os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH) if sys.stdout.isatty() else WIDTH


def use_color(stream: Any) -> bool:
    """Return whether `stream` is a terminal that supports colours. NO_COLOR and TERM=dumb disable them."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))

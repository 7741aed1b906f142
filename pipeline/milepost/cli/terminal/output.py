"""Output goes to stdout as data or one `--json` document; everything else goes to stderr."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar, cast

from milepost.protocol.codec.records import to_json

SCHEMA = "milepost/v1"

T = TypeVar("T")


@dataclass
class Output:
    """How one invocation prints.

    Attributes:
        json: `--json`: one versioned document per result instead of text.
        verbose: `-v`: a stack trace with errors.
        typed: the JOB of this invocation, as its user wrote it; None: the command has none.
    """

    json: bool = False
    verbose: bool = False
    typed: str | None = None

    def as_typed(self, told: T) -> T:
        """Return a text, or a record or document of them, whose commands for this job name it as its user did.

        Its name alone may mean no file here.
        """
        return cast("T", _each_text(told, self._text_as_typed))

    def _text_as_typed(self, text: str) -> str:
        if self.typed is None or "milepost " not in text or self._own_command is None:
            return text
        typed = shlex.quote(self.typed)
        return self._own_command.sub(lambda match: match[1] + typed, text)

    @cached_property
    def _own_command(self) -> re.Pattern[str] | None:
        """What a command for this job looks like that names it by its name; None when its spec cannot be read."""
        from milepost.protocol.records.errors import CheckpointError
        from milepost.spec.load.load import load_job

        try:
            name = load_job(str(self.typed)).spec.name
        except CheckpointError:
            return None
        return re.compile(rf"(\bmilepost (?:[a-z-]+ ){{1,2}}){re.escape(name)}(?![\w/-]|\.\w)")

    def document(self, data: object, *, ok: bool = True) -> None:
        """Print a record, or a mapping, as one versioned document, on one line."""
        self._write_line(json.dumps({"schema": SCHEMA, "ok": ok, "data": data}, ensure_ascii=False, default=_json))

    def failure(self, error: Mapping[str, Any]) -> None:
        """Print an error as one versioned document, on one line."""
        self._write_line(json.dumps({"schema": SCHEMA, "ok": False, "error": error}, ensure_ascii=False, default=str))

    def text(self, line: str = "") -> None:
        """Print a line of data, unless `--json` prints documents instead."""
        if not self.json:
            self._write_line(line)

    def note(self, line: str) -> None:
        """Print a line that is no data."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print aligned columns; numbers to the right. Control characters of values are shown, not sent."""
        if self.json:
            return
        cells = [[printable(value) for value in row] for row in rows]
        widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
        right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
        self._write_line(_align(list(columns), widths, right))
        self._write_line("  ".join("-" * width for width in widths))
        for row in cells:
            self._write_line(_align(row, widths, right))

    def _write_line(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _each_text(told: object, change: Callable[[str], str]) -> object:
    if isinstance(told, str):
        return change(told)
    if isinstance(told, Mapping):
        return {key: _each_text(value, change) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return type(told)(_each_text(value, change) for value in told)
    if is_dataclass(told) and not isinstance(told, type):
        return replace(told, **{one.name: _each_text(getattr(told, one.name), change) for one in fields(told)})
    return told


def _json(value: object) -> object:
    """Return the JSON of a record; of what JSON does not have, its text."""
    return to_json(value) if is_dataclass(value) else str(value)


def printable(value: object) -> str:
    """Return a value on one line; text from data cannot move the cursor or colour the terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (dict, list, tuple)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in str(value))


def show_time(ms: object) -> str:
    """Return milliseconds since the epoch (or ISO text) as a UTC time; "-" for None."""
    if isinstance(ms, (int, float)) and not isinstance(ms, bool):
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return printable(ms)


def show_count(value: object) -> str:
    """Return an integer with thousands separators; anything else as `printable`."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(value)


def use_color(stream: Any) -> bool:
    """Return whether `stream` is a terminal that may get colours: NO_COLOR and TERM=dumb say no."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _align(cells: list[str], widths: list[int], right: list[bool]) -> str:
    aligned = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(cells, widths, right, strict=True)]
    return "  ".join(aligned).rstrip()

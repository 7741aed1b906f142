"""The records of a document: sections of facts, lines and tables.

Texts are raw: a renderer escapes them. Labels and columns are in lower case: the stylesheet of the pages capitalizes
them, except columns of data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Meaning(StrEnum):
    """Severity of a state, worst first. The value is its CSS class."""

    BAD = "bad"
    WARN = "warn"
    BUSY = "busy"
    GOOD = "good"
    CALM = "calm"


class Fold(StrEnum):
    """What pages fold away, and the terminal shows on request."""

    CODE = "code"
    OBJECTS = "objects"
    RESULTS = "results"
    SPEC = "spec"
    SUBTASKS = "subtasks"


class LinkTarget(StrEnum):
    """Pages that a document refers to."""

    JOB = "job"
    AIRFLOW_RUN = "run"
    RUNBOOK = "runbook"
    TIMELINE = "timeline"
    LOG_ENTRY = "entry"


@dataclass(frozen=True, slots=True)
class Link:
    """A reference. parts: path below the job's page, or DAG id and run id, or a name."""

    target: LinkTarget
    parts: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A text with a color, a link or a bar. share: length of the bar, 0 to 1."""

    text: str
    meaning: Meaning | None = None
    link: Link | None = None
    share: float | None = None


class Figure(str):
    """A formatted number. Columns of figures are right-aligned."""

    __slots__ = ()


Value = str | Text

UNKNOWN = Figure("-")


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and its value. note: a remark on the value."""

    label: str
    value: Value
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table. note: a line below it. folds: tables with details. muted: deemphasized (dead, or a summary)."""

    cells: tuple[Value, ...]
    note: str = ""
    folds: tuple[Table, ...] = ()
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        optional: columns that a narrow terminal omits, the last one first. fold: None if it is not folded.
        has_data_columns: whether the columns are those of a user's rows, whose names are shown as they are.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    title: str = ""
    optional: tuple[str, ...] = ()
    fold: Fold | None = None
    has_data_columns: bool = False

    @property
    def right(self) -> tuple[bool, ...]:
        """Whether each column is right-aligned."""
        texts = [[cell if isinstance(cell, str) else cell.text for cell in row.cells] for row in self.rows]
        return tuple(all(isinstance(row[at], Figure) for row in texts) for at in range(len(self.columns)))


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document. A section without content is not shown.

    Attributes:
        about: subtitle. meaning: severity of a notice, which pages show as a banner; None: not a notice.
        source: verbatim text, such as a spec. link: to further information.
    """

    title: str = ""
    about: str = ""
    facts: tuple[Fact, ...] = ()
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    meaning: Meaning | None = None
    source: str = ""
    link: Link | None = None
    fold: Fold | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A document. states: states of its subject, shown next to the title."""

    title: str
    states: tuple[Text, ...]
    sections: tuple[Section, ...]

"""Tours of a browser and their reports, as plain data for both processes.

Imports only the standard library: the process in `.venv-browser` has no Milepost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tour:
    """The pages of one Airflow to open.

    Attributes:
        url: of Airflow. login, password: for its login form. chromium: path of the program.
        prefix: of the addresses of our pages. roots: the first pages; links of a page lead to others.
        framed: pages of Airflow that show one of ours in a frame. entries: names of links on Airflow's start page.
        follow: whether links are followed.
        most: maximum number of pages of one shape: addresses that differ only in numbers or names.
        themes, widths: each page is opened in each combination.
        pictures: file -> address or framed page, taken at width 1280 and in `picture_theme`.
        walks: name -> theme, address where a walk begins, and its steps (`walking.py`).
    """

    url: str
    login: str
    password: str
    chromium: str
    prefix: str
    roots: tuple[str, ...]
    framed: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    follow: bool = True
    most: int = 1
    themes: tuple[str, ...] = ("light", "dark")
    widths: tuple[int, ...] = (1280, 900, 1920)
    pictures: dict[str, str] = field(default_factory=dict)
    picture_theme: str = "light"
    walks: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of axe-core that a page breaks; nodes: where, and what is wrong there."""

    rule: str
    impact: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """A page in one theme and width.

    Attributes:
        address: below Airflow's. theme, width: as requested. dark: whether the page itself uses a dark theme.
        overflow: number of pixels by which it is wider than the window. cut: tables and pictures that scroll sideways.
        complaints: errors of the console, of scripts and of requests.
        fields: form fields, name -> value.
    """

    address: str
    theme: str
    width: int
    status: int
    heading: str
    dark: bool
    overflow: int
    cut: tuple[str, ...]
    complaints: tuple[str, ...]
    violations: tuple[Violation, ...]
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """All problems of the page, one line each."""
        where = f"{self.address} ({self.theme}, {self.width})"
        found = [f"{where}: status {self.status}"] if self.status != 200 else []
        found += [f"{where}: {self.overflow} px wider than the window"] if self.overflow > 0 else []
        found += [f"{where}: is {'dark' if self.dark else 'light'}"] if self.dark != (self.theme == "dark") else []
        found += [f"{where}: {complaint}" for complaint in self.complaints]
        return found + [f"{where}: {one.rule} ({one.impact}): {node}" for one in self.violations for node in one.nodes]


@dataclass(frozen=True, slots=True)
class Walked:
    """A walk. clicks: their number. seconds: from the loaded first page to the last step. complaints: as in `Seen`."""

    name: str
    clicks: int
    seconds: float
    complaints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a tour.

    Attributes:
        logged_in: title of Airflow's page after the login. missing: entries that were not found.
    """

    logged_in: str
    missing: tuple[str, ...]
    pages: tuple[Seen, ...]
    framed: tuple[Seen, ...]
    walks: tuple[Walked, ...] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Report:
        """Return the report from its JSON values."""
        return cls(
            values["logged_in"],
            tuple(values["missing"]),
            *(tuple(_seen(one) for one in values[part]) for part in ("pages", "framed")),
            tuple(Walked(**{**one, "complaints": tuple(one["complaints"])}) for one in values["walks"]),
        )


def _seen(values: dict[str, Any]) -> Seen:
    violations = tuple(Violation(one["rule"], one["impact"], tuple(one["nodes"])) for one in values["violations"])
    plain = {name: tuple(values[name]) for name in ("cut", "complaints")}
    return Seen(**{**values, **plain, "violations": violations})

"""Visits: what a browser is to look at, and what it saw, as plain data for both processes.

Imports nothing but the standard library: the process in `.venv-browser` has no Milepost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tour:
    """What to look at in one Airflow.

    Attributes:
        url: of Airflow. login, password: typed into its form. chromium: the program.
        prefix: what the addresses of our pages begin with. roots: the first ones; the others are found by their links.
        framed: pages of Airflow that show one of ours in a frame. entries: names of links of Airflow's start page.
        follow: False: only the roots themselves.
        most: at most so many pages of one shape, that is with other numbers or names in the same places.
        themes, widths: each page is looked at in each pair.
        pictures: file -> address or framed page, taken at 1280 and in `picture_theme`.
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
    """A page as it was seen once.

    Attributes:
        address: below Airflow's. theme, width: as requested. dark: whether the page itself uses a dark theme.
        overflow: by how many pixels it is wider than the window. cut: tables and pictures that scroll sideways.
        complaints: errors of the console, of scripts and of requests.
        fields: of each form field its name and value.
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
        """Everything that is wrong with it, a line each."""
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
    """All that a tour saw. Attributes: logged_in: Airflow's page behind the login form. missing: entries not found."""

    logged_in: str
    missing: tuple[str, ...]
    pages: tuple[Seen, ...]
    framed: tuple[Seen, ...]
    walks: tuple[Walked, ...] = ()

    @classmethod
    def of(cls, told: dict[str, Any]) -> Report:
        """Return the report of its JSON."""
        return cls(
            told["logged_in"],
            tuple(told["missing"]),
            *(tuple(_seen(one) for one in told[part]) for part in ("pages", "framed")),
            tuple(Walked(**{**one, "complaints": tuple(one["complaints"])}) for one in told["walks"]),
        )


def _seen(told: dict[str, Any]) -> Seen:
    violations = tuple(Violation(one["rule"], one["impact"], tuple(one["nodes"])) for one in told["violations"])
    plain = {name: tuple(told[name]) for name in ("cut", "complaints")}
    return Seen(**{**told, **plain, "violations": violations})

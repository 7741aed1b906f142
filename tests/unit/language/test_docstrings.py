"""Parsing docstrings into a summary and attribute descriptions."""

from __future__ import annotations

from milepost.language.docstrings import parse_docstring


class Window:
    """Rows of one hour, aligned
    to the epoch.

    Attributes:
        size: how long, such as: 1h.
        lateness: how long a row
            may come late: 0s, never.
    """


class Silent:
    """Says nothing: of what it has."""


def test_each_description_is_one_line() -> None:
    assert parse_docstring(Window.__doc__ or "") == (
        "Rows of one hour, aligned to the epoch.",
        {"size": "how long, such as: 1h.", "lateness": "how long a row may come late: 0s, never."},
    )


def test_without_the_section_no_attribute_is_described() -> None:
    assert parse_docstring(Silent.__doc__ or "") == ("Says nothing: of what it has.", {})

"""Milepost: stateful, exactly-once data pipelines as scheduled micro-batch epochs."""

import sys

__version__ = "0.1.0"

FIRST_PYTHON, LAST_PYTHON = (3, 11), (3, 13)
"""As in pyproject.toml. Libraries have 3.14; it is declared once the tests have run on it."""

if __name__ != "milepost":
    # Two names would be two sets of classes: what one raises, no `except` of the other would catch.
    raise ImportError(f"Milepost is imported as `milepost`, not as `{__name__}`; put its folder's parent on the path")


def python_problem() -> str | None:
    """Return why Milepost does not run in this Python, in one sentence; None: it does."""
    if FIRST_PYTHON <= sys.version_info[:2] <= LAST_PYTHON:
        return None
    first, last, found = (".".join(map(str, part)) for part in (FIRST_PYTHON, LAST_PYTHON, sys.version_info[:3]))
    return f"Milepost needs Python {first} to {last}, and {sys.executable} is {found}: install it in a supported one."

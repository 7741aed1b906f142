"""The supported versions of Python. Imports nothing of Milepost, which another version might not compile."""

import sys

FIRST, LAST = (3, 11), (3, 13)
"""As in pyproject.toml. 3.14 is not declared until the tests have run on it; its libraries have it."""


def python_problem() -> str | None:
    """Return why Milepost does not run in this Python, in one sentence; None: it does."""
    if FIRST <= sys.version_info[:2] <= LAST:
        return None
    first, last, found = (".".join(map(str, version)) for version in (FIRST, LAST, sys.version_info[:3]))
    return f"Milepost needs Python {first} to {last}, and {sys.executable} is {found}: install it in a supported one."

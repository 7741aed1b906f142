"""Runbook addresses lead from an error, or from a state of a job, to the page that says what to do.

A page's name is stable: an error's is its class in kebab case, a state's is the value of its `Condition`.
"""

from __future__ import annotations

import os
import re

from milepost.errors import CheckpointError
from milepost.protocol.records import CheckpointFailureReason

VARIABLE = "MILEPOST_RUNBOOK_URL"
"""Names where a team has put the pages, as a site: the folder of ``<name>.html``."""

UNEXPECTED = "unexpected-error"
"""The page of what Milepost does not raise on purpose."""

SPEC_REFUSED = "spec-refused"
"""The page of the state in which the next epoch would be refused for the spec."""

_INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def page_of(error: BaseException) -> str:
    """Return the name of an error's page: of its class, or of the nearest one above that callers know.

    A spec that is refused is a state of the job as well, which has the page that says what to do.
    """
    if isinstance(error, CheckpointError) and error.details.get("reason") == CheckpointFailureReason.SPEC_REFUSED.value:
        return SPEC_REFUSED
    known = (kind for kind in type(error).__mro__ if kind.__module__ == CheckpointError.__module__)
    nearest = next((kind for kind in known if kind is not CheckpointError), None)
    return UNEXPECTED if nearest is None else name_of(nearest)


def name_of(kind: type[BaseException]) -> str:
    """Return the name of the page of a class of errors."""
    return _INNER_CAPITAL.sub("-", kind.__name__).lower()


def address(name: str) -> str:
    """Return where a person finds a page: below `MILEPOST_RUNBOOK_URL` if that is set, else the command to type."""
    base = os.environ.get(VARIABLE, "").strip().rstrip("/")
    return f"{base}/{name}.html" if base else f"milepost runbook {name}"

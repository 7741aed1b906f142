"""Check the names in a spec, and suggest known names for unknown ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from milepost.language.suggestions import nearest
from milepost.protocol.records import CONTROL, JOB_NAME_PATTERN

_NODE = re.compile(r"[a-z](?:[a-z0-9]|_(?!_)){0,62}")
_STEP = re.compile(r"[a-z][a-z0-9_]{0,199}")
_SINK = re.compile(r"[a-z](?:[a-z0-9-]|_(?!_)){0,62}")


def check_job_name(name: str) -> str:
    """Return `name` if it is a valid job name, which names a storage prefix and DAGs. Raises ValueError."""
    if not JOB_NAME_PATTERN.fullmatch(name):
        raise ValueError(f'{name!r} is not a job name: use [a-z][a-z0-9_-]{{0,62}} without "__"')
    return name


def check_node_name(name: str) -> str:
    """Return `name` if it is a valid source or operator name, which SQL and state paths use. Raises ValueError."""
    if not _NODE.fullmatch(name):
        raise ValueError(f'{name!r} is not a valid name: use [a-z][a-z0-9_]{{0,62}} without "__"')
    return name


def check_step_name(name: str) -> str:
    """Return `name` if it is a valid operator name, with "__" if it is a step of SQL. Raises ValueError."""
    return name if "__" in name and _STEP.fullmatch(name) else check_node_name(name)


def check_query_name(name: str) -> str:
    """Return `name` if it names a SQL statement, or `statement.name` a common table expression. Raises ValueError."""
    for part in name.split(".", 1):
        check_node_name(part)
    return name


def check_sink_name(name: str) -> str:
    """Return `name` if it is a valid sink name. Raises ValueError."""
    if not _SINK.fullmatch(name):
        raise ValueError(f'{name!r} is not a valid name: use [a-z][a-z0-9_-]{{0,62}} without "__"')
    return name


def check_column_name(name: str) -> str:
    """Return `name` if it is a valid column name. Names beginning with "__" are reserved. Raises ValueError."""
    if not name or len(name) > 255 or CONTROL.search(name) or "`" in name or name.startswith("__"):
        raise ValueError(f'{name!r} is not a column name: use 1 to 255 characters, no "`", and no "__" at the start')
    return name


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: `did you mean "x"? Known: …`, or only the known names.

    At most 20 names are listed.
    """
    known = list(known)
    candidate = nearest(name, known)
    listed = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
    return f'did you mean "{candidate}"? Known: {listed}' if candidate else f"known: {listed or 'none'}"

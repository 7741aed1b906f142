"""Add links to pre-filled forms to the commands in hints, for users without a shell."""

from __future__ import annotations

import re
from collections.abc import Iterable

from milepost.acts import ACTS
from milepost.airflow.compat import conf
from milepost.airflow.page_urls import form_url

FIELDS = {
    act.name: tuple(field.name for field in act.fields if field.title and not field.is_argument)
    for act in ACTS.values()
    if "_" not in act.name  # a command of two words
}
"""Act that is also a command -> its fields that are also options, by their names in the form."""

SWITCHES = {field.name for act in ACTS.values() for field in act.fields if field.title and field.kind.type is bool}
"""Fields with options that take no value."""


def _one_of(fields: Iterable[str]) -> str:
    return "|".join(sorted(name.replace("_", "-") for name in fields))


_VALUED = {name for fields in FIELDS.values() for name in fields} - SWITCHES
_COMMAND = re.compile(
    rf"\bmilepost ({'|'.join(FIELDS)}) ([a-z][a-z0-9_-]*)"
    rf"((?: --(?:{_one_of(_VALUED)}) [^\s;:,]+| --(?:{_one_of(SWITCHES)})\b)*)"
)
"""A command in a hint that the form of a job's DAG can also run. Groups: act, job, options.

"milepost rollback sensors --to 41 --take-over" -> ("rollback", "sensors", " --to 41 --take-over")
"""

_OPTION = re.compile(r"--([a-z-]+)(?: ([^\s-]\S*))?")
_PLACEHOLDERS = ("ID", "TIME")


def for_airflow(hint: str) -> str:
    """Return a hint in which each command is preceded by the equivalent form, with its URL if that is known."""
    return _COMMAND.sub(_in_the_form, hint)


def airflow_address(path: str) -> str:
    """Return the absolute URL of a path on this Airflow; "" if `[api] base_url` is not set."""
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{base}{path}" if base else ""


def _in_the_form(match: re.Match[str]) -> str:
    act, job, options = match[1], match[2], match[3]
    fields = {name.replace("-", "_"): value or True for name, value in _OPTION.findall(options)}
    own = {name: value for name, value in fields.items() if name in FIELDS[act] and value not in _PLACEHOLDERS}
    address = airflow_address(form_url(job, act, **own))
    return f"trigger {job}__operate: {act} ({address}{'; ' if address else ''}in a shell: {match[0]})"

"""Form links lead from a hint to the form of the same act, filled in: not everybody has a shell there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow.sdk.configuration import conf

from milepost.airflow.page_urls import form_url

FIELDS = {
    "rollback": ("to", "take_over"),
    "backfill": ("from", "to", "from_checkpoint"),
    "resume": (),
    "cancel": ("savepoint",),
    "start": ("from",),
    "abort": (),
    "realign": (),
    "verify": ("deep",),
    "fsck": (),
    "gc": (),
}
"""Acts that are commands too, and their fields that are options there, as the form names them."""

SWITCHES = ("take_over", "savepoint", "deep")
"""Of these fields those whose options take no value."""


def _one_of(fields: Iterable[str]) -> str:
    return "|".join(sorted(name.replace("_", "-") for name in fields))


_VALUED = {name for fields in FIELDS.values() for name in fields} - set(SWITCHES)
_COMMAND = re.compile(
    rf"\bmilepost ({'|'.join(FIELDS)}) ([a-z][a-z0-9_-]*)"
    rf"((?: --(?:{_one_of(_VALUED)}) [^\s;:,]+| --(?:{_one_of(SWITCHES)})\b)*)"
)
"""A command that the form of a job's DAG has too, its job and its options, as hints name it."""

_OPTION = re.compile(r"--([a-z-]+)(?: ([^\s-]\S*))?")
_PLACEHOLDERS = ("ID", "TIME")


def for_airflow(hint: str) -> str:
    """Return a hint that names the form beside the command of the same effect, with its address where that is known."""
    return _COMMAND.sub(_in_the_form, hint)


def airflow_address(path: str) -> str:
    """Return an address of this Airflow as a mail can hold it; "" where `[api] base_url` does not say it."""
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{base}{path}" if base else ""


def _in_the_form(match: re.Match[str]) -> str:
    act, job, options = match[1], match[2], match[3]
    fields = {name.replace("-", "_"): value or True for name, value in _OPTION.findall(options)}
    own = {name: value for name, value in fields.items() if name in FIELDS[act] and value not in _PLACEHOLDERS}
    address = airflow_address(form_url(job, act, **own))
    return f"trigger {job}__operate: {act} ({address}{'; ' if address else ''}on a shell: {match[0]})"

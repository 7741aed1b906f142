"""Airflow notifiers that a job spec configures for failed runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from milepost.language import SpecModel

_CLASS = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"
_NAMES_A_SECRET = re.compile(
    r"(^|_)(password|passwd|secret|token|credential|credentials|api_?key|auth_?key)($|_)", re.I
)
_IN_A_URL = re.compile(r"://[^/@\s:]*:[^/@\s]+@|hooks\.slack\.com/|webhook\.office\.com/", re.I)
"""A password in a URL, or a webhook address, which is itself a secret."""


def _without_secrets(arguments: dict[str, Any]) -> dict[str, Any]:
    for name, value in _texts("", arguments):
        last = name.rpartition(".")[2]
        if _NAMES_A_SECRET.search(last) or (isinstance(value, str) and _IN_A_URL.search(value)):
            raise ValueError(
                f"`{name}` holds a secret, which a spec must not contain: pass the notifier the id of an Airflow "
                "Connection instead, under the argument that its provider documents"
            )
        if isinstance(value, str) and "${env:" in value:
            raise ValueError(f"`{name}`: ${{env:…}} is not resolved in notifier arguments; use Airflow's templates")
    return arguments


def _texts(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every key below a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        name = f"{prefix}.{key}" if prefix else str(key)
        yield name, item
        yield from _texts(name, item)


class NotifierSpec(SpecModel):
    """An Airflow notifier.

    Attributes:
        notifier: import path of its class, such as `airflow.providers.smtp.notifications.smtp.SmtpNotifier`.
        arguments: its keyword arguments. Arguments that the notifier renders as templates can use the failed run as
            `milepost`: `{{ milepost.job }}`, and `what`, `checkpoint_id`, `reason`, `detail`, `step`, `runbook`,
            `line`, `dag_id`, `run_id`, `run_url`, `page_url`, `form_url`. Secrets are refused: pass the id of an
            Airflow Connection instead.
    """

    notifier: Annotated[str, Field(pattern=_CLASS)]
    arguments: Annotated[dict[str, Any], AfterValidator(_without_secrets)] = Field(default_factory=dict)

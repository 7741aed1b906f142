"""The notifiers of a job spec: whom Airflow tells of a failed run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from milepost.spec.values.fields import SpecModel

_CLASS = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"
_NAMES_A_SECRET = re.compile(
    r"(^|_)(password|passwd|secret|token|credential|credentials|api_?key|auth_?key)($|_)", re.I
)
_IN_A_URL = re.compile(r"://[^/@\s:]*:[^/@\s]+@|hooks\.slack\.com/|webhook\.office\.com/", re.I)
"""A password in a URL, or the address of a webhook, which is one by itself."""


def _without_secrets(arguments: dict[str, Any]) -> dict[str, Any]:
    for name, value in _texts("", arguments):
        last = name.rpartition(".")[2]
        if _NAMES_A_SECRET.search(last) or (isinstance(value, str) and _IN_A_URL.search(value)):
            raise ValueError(
                f"`{name}` holds a secret, and none stands in a spec: give the notifier the id of a Connection of "
                "Airflow, as its provider's documentation calls it"
            )
        if isinstance(value, str) and "${env:" in value:
            raise ValueError(f"`{name}`: ${{env:…}} stands in no argument of a notifier; Airflow's templates do")
    return arguments


def _texts(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each key below a value, with what it holds."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in items:
        name = f"{where}.{key}" if where else str(key)
        yield name, held
        yield from _texts(name, held)


class NotifierSpec(SpecModel):
    """One of Airflow's notifiers.

    Attributes:
        notifier: import path of its class, such as `airflow.providers.smtp.notifications.smtp.SmtpNotifier`.
        arguments: its keyword arguments. Texts that are templates there read the failed run as `milepost`:
            `{{ milepost.job }}`, and `what`, `checkpoint_id`, `reason`, `detail`, `step`, `runbook`, `line`, `dag_id`,
            `run_id`, `run_url`, `page_url`, `form_url`. No secret stands here: a Connection of Airflow is named by its
            id.
    """

    notifier: Annotated[str, Field(pattern=_CLASS)]
    arguments: Annotated[dict[str, Any], AfterValidator(_without_secrets)] = Field(default_factory=dict)

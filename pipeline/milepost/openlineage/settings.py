"""Settings of lineage events: whether they are sent, how, and under which parent run.

Reading them only checks environment variables and files. The sending modules are imported only if events are sent.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from milepost.errors import CheckpointError

_LOG = logging.getLogger(__name__)

PARENT_VARIABLE = "OPENLINEAGE_PARENT_ID"
"""Variable with `namespace/job/run id` of this process's parent run. Other OpenLineage integrations use it as well."""


@dataclass(frozen=True, slots=True)
class ParentRun:
    """Parent run of epochs, identified as in OpenLineage.

    Attributes:
        dag_run: DAG id and run id of the Airflow run. It is the parent of epochs of that DAG run only. None: it is the
            parent of all epochs of this process.
    """

    namespace: str
    job: str
    run_id: str
    dag_run: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class LineageSettings:
    """Transport and parent of events.

    Attributes:
        config: configuration of OpenLineage's client, in addition to its own files and variables.
        parent: called once, for the first event. Returns None if there is no parent.
    """

    config: Mapping[str, Any] | None = None
    parent: Callable[[], ParentRun | None] = lambda: None


def nowhere() -> LineageSettings | None:
    """Return None: no events are sent, whatever is configured."""
    return None


def settings_of_environment() -> LineageSettings | None:
    """Return the settings in OpenLineage's variables and files. None: nothing is configured, or it is disabled."""
    return None if is_switched_off() or not is_configured() else LineageSettings(parent=_parent)


def settings_or_none(settings: Callable[[], LineageSettings | None]) -> LineageSettings | None:
    """Return the configured settings. If they cannot be read, log a warning and return None: no job fails for it."""
    try:
        return settings()
    except Exception as error:  # noqa: BLE001 - a broken lineage configuration must not fail the job
        # Errors of other types may quote secrets.
        reason = error.message if isinstance(error, CheckpointError) else type(error).__name__
        _LOG.warning("no lineage is sent: its configuration cannot be read: %s", reason)
        return None


def is_switched_off() -> bool:
    """Return whether `OPENLINEAGE_DISABLED` is true. It overrides all other settings."""
    return os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true"


def is_configured() -> bool:
    """Return whether one of OpenLineage's files or variables configures a transport."""
    if os.environ.get("OPENLINEAGE_URL") or any(
        name.startswith("OPENLINEAGE__TRANSPORT") and text for name, text in os.environ.items()
    ):
        return True
    named = os.environ.get("OPENLINEAGE_CONFIG")
    return any(path.is_file() for path in (*([Path(named)] if named else []), *_usual_files()))


def _usual_files() -> list[Path]:
    home = os.environ.get("HOME")
    usual = [Path("openlineage.yml")]
    return [*usual, Path(home) / ".openlineage" / "openlineage.yml"] if home else usual


def _parent() -> ParentRun | None:
    text = os.environ.get(PARENT_VARIABLE, "")
    if not text:
        return None
    try:
        namespace, job, run_id = text.rsplit("/", 2)
        return ParentRun(namespace, job, str(UUID(run_id)))
    except ValueError:
        _LOG.warning("%s is not namespace/job/run id: epochs are sent without a parent", PARENT_VARIABLE)
        return None

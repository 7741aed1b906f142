"""Differences between the supported versions of Airflow.

Each is declared as the first version without it. Servers and tasks of one Airflow have the same version.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from airflow import __version__

from milepost.errors import InvalidRequest
from milepost.extras import release_of, require_supported

require_supported("airflow", "Milepost")

Release = tuple[int, int]

TASK_SDK: Release = (3, 2)
"""First version whose Task SDK has everything that tasks use. Before, the SDK itself takes this from the core."""

NOTES_OF_TRIGGERED_RUNS: Release = (3, 2)
"""First version in which a task can give a note to the run that it triggers."""

TEAMS_OF_DAGS: Release = (3, 2)
"""First version with a function that reads the teams of many DAGs in one query."""

AWAITING_INPUT: Release = (3, 3)
"""First version with a task state for waiting for a person. Before, the task is deferred to the triggerer."""

SHARED_STREAMS: Release = (3, 3)
"""First version whose triggerer deletes messages of a queue only after their events are stored."""

_RELEASE = release_of(__version__)

if _RELEASE >= TASK_SDK:
    from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable, DeltaTriggerTimetable
    from airflow.sdk.configuration import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        AirflowTaskTerminated,
        AirflowTaskTimeout,
        DagRunTriggerException,
        DownstreamTasksSkipped,
        ParamValidationError,
    )
else:
    from airflow.configuration import conf
    from airflow.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        AirflowTaskTerminated,
        AirflowTaskTimeout,
        DagRunTriggerException,
        DownstreamTasksSkipped,
        ParamValidationError,
    )
    from airflow.timetables.assets import AssetOrTimeSchedule
    from airflow.timetables.trigger import CronTriggerTimetable, DeltaTriggerTimetable

if _RELEASE >= AWAITING_INPUT:
    from airflow.sdk.exceptions import TaskAwaitingInput as TaskParked
elif _RELEASE >= TASK_SDK:
    from airflow.sdk.exceptions import TaskDeferred as TaskParked
else:
    from airflow.exceptions import TaskDeferred as TaskParked

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "AirflowTaskTerminated",
    "AirflowTaskTimeout",
    "AssetOrTimeSchedule",
    "CronTriggerTimetable",
    "DagRunTriggerException",
    "DeltaTriggerTimetable",
    "DownstreamTasksSkipped",
    "ParamValidationError",
    "TaskParked",
    "conf",
]


def load_listeners() -> None:
    """Make Airflow load plugins and their listeners, for which it searches every installed package."""
    if _RELEASE >= TASK_SDK:
        from airflow.sdk.listener import get_listener_manager
    else:
        from airflow.listeners.listener import get_listener_manager

    get_listener_manager()


def metrics() -> Any:
    """Return Airflow's own metrics: an object with `incr` and `gauge`."""
    if _RELEASE >= TASK_SDK:
        from airflow.sdk.observability.stats import Stats
    else:
        from airflow.stats import Stats

    return Stats


def trigger_run(**arguments: Any) -> DagRunTriggerException:
    """Return the exception that triggers a run without a logical date. In an older version the run has no note."""
    if _RELEASE < NOTES_OF_TRIGGERED_RUNS:
        del arguments["note"]
    return DagRunTriggerException(logical_date=None, **arguments)  # 3.1 has no default


def states_of_waiting_tasks() -> tuple[str, ...]:
    """Return the states of a task that waits for a person's answer. After an upgrade, a deferred one stays deferred."""
    return ("deferred",) if _RELEASE < AWAITING_INPUT else ("awaiting_input", "deferred")


def teams_of_dags(dag_ids: Collection[str]) -> dict[str, str | None]:
    """Return the team of each DAG that has one."""
    from airflow.models.dag import DagModel

    if _RELEASE >= TEAMS_OF_DAGS:
        teams: dict[str, str | None] = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))
        return teams
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.team import Team
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = (
        select(DagModel.dag_id, Team.name)
        .join(DagBundleModel, DagModel.bundle_name == DagBundleModel.name)
        .join(DagBundleModel.teams)
        .where(DagModel.dag_id.in_(dag_ids))
    )
    with create_session() as session:
        return dict(session.execute(query).all())


def require_shared_streams(queue_url: str) -> None:
    """Refuse a schedule by messages of a queue. Raises InvalidRequest: this version of Airflow has no shared streams.

    Without them, a message is deleted before its event is stored, so a triggerer that dies loses it.
    """
    if _RELEASE < SHARED_STREAMS:
        raise InvalidRequest(
            f"`schedule.sqs` needs Airflow {'.'.join(map(str, SHARED_STREAMS))}, and {__version__} is installed: "
            f"no DAG of this job watches {queue_url}.",
            hint="install a newer Airflow, or give the job a `cron` instead",
        )

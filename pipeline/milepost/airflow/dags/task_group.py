"""The task group of an epoch, for users' own DAGs with tasks before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, TaskGroup

from milepost.airflow.dags.dag_settings import task_defaults
from milepost.airflow.dags.epoch_tasks import epoch_tasks
from milepost.airflow.spec_cache import parsed_spec
from milepost.errors import InvalidRequest
from milepost.jobspec.job import JobSpec
from milepost.jobspec.load import find_spec


class MilepostTaskGroup(TaskGroup):
    """One epoch of a job, as a group of tasks in the current DAG.

    Tasks downstream of the group run after the epoch is published, or if there was nothing to do. They are skipped if
    another session held the job, and do not run if the epoch was aborted.

    Args:
        job: the spec file; a relative path is relative to the folder of the DAG file.
        group_id: default: the name of the spec file, without its extension.
        **settings: arguments of Airflow's task group. `default_args` override the spec's `airflow` section, and keys
            that are present in that section override those of the DAG.
    Raises:
        NotFound: the file does not exist.
        InvalidRequest: the spec is not valid, or has a schedule or notifiers, which only the DAG may have.
    """

    def __init__(self, job: str | Path, group_id: str | None = None, **settings: Any) -> None:
        super().__init__(group_id=Path(job).stem if group_id is None else group_id, **settings)
        loaded = parsed_spec(find_spec(str(Path(self.dag.fileloc).parent / job), Path()))
        if loaded.spec.schedule is not None:
            raise InvalidRequest(
                f"{loaded.path}: the spec has a `schedule`, expected none: DAG {self.dag.dag_id} of the task group has "
                "its own. The DAG was not created.",
                hint="Remove `schedule` from the spec, or create the job's own DAGs with `load_jobs`.",
            )
        if loaded.spec.land_schedules:
            source = next(iter(loaded.spec.land_schedules.values()))[0]
            raise InvalidRequest(
                f"{loaded.path}: source {source} has `land.every`, expected none: a task group does not land on a "
                "schedule. The DAG was not created.",
                hint="Remove `land.every`: the group's task `land_input` then lands the source before each epoch. Or "
                "create the job's own DAGs with `load_jobs`.",
            )
        if loaded.spec.airflow.on_failure:
            raise InvalidRequest(
                f"{loaded.path}: the spec has `airflow.on_failure`, expected none: DAG {self.dag.dag_id} of the task "
                "group has its own callbacks. The DAG was not created.",
                hint="Give the DAG an `on_failure_callback`, or create the job's own DAGs with `load_jobs`.",
            )
        self.dag.tags |= set(loaded.spec.airflow.tags)
        self.default_args = self._defaults(loaded.spec) | dict(settings.get("default_args") or {})
        with self:
            self._last = epoch_tasks(loaded)

    def _defaults(self, spec: JobSpec) -> dict[str, Any]:
        """Return the task settings of the spec, without those that only the DAG sets explicitly."""
        stated = spec.airflow.model_fields_set
        own = task_defaults(spec)
        return {name: own[name] for name in own if name in stated or name not in self.dag.default_args}

    def get_leaves(self) -> Iterator[BaseOperator]:
        """Yield the task that downstream tasks wait for: not `abort_checkpoint`, which a successful run skips."""
        yield self._last

"""The task group of an epoch, for a DAG of a team's own: their tasks before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, TaskGroup

from milepost.airflow.dags.dag_settings import task_defaults
from milepost.airflow.dags.epoch_tasks import epoch_tasks
from milepost.airflow.spec_cache import parsed_spec
from milepost.errors import InvalidRequest
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.load import find_spec


class MilepostTaskGroup(TaskGroup):
    """One epoch of a job, as a group of tasks in the DAG that is being made.

    What follows the group runs once the epoch is published, or had nothing to do; it is skipped when another session
    held the job, and not run when the epoch was aborted.

    Args:
        job: the spec file; a relative path begins at the folder of the DAG file.
        group_id: None = the name of the spec file.
        **settings: what Airflow's own task group takes; `default_args` go over the spec's `airflow` section, which goes
            over those of the DAG as far as it is written down.
    Raises:
        NotFound, InvalidRequest: no such file, or a spec that is not valid, or one with a schedule or notifiers: the
            DAG has those.
    """

    def __init__(self, job: str | Path, group_id: str | None = None, **settings: Any) -> None:
        super().__init__(group_id=Path(job).stem if group_id is None else group_id, **settings)
        loaded = parsed_spec(find_spec(str(Path(self.dag.fileloc).parent / job), Path()))
        if loaded.spec.schedule is not None:
            raise InvalidRequest(
                f"{loaded.path}: expected no `schedule` in the spec of a task group, for DAG {self.dag.dag_id} has its "
                f"own; got one. The DAG was not made.",
                hint="Take `schedule` out of the spec, or make the job's own DAGs with `load_jobs`.",
            )
        if loaded.spec.airflow.on_failure:
            raise InvalidRequest(
                f"{loaded.path}: expected no `airflow.on_failure` in the spec of a task group, for a run of DAG "
                f"{self.dag.dag_id} has callbacks of its own; got one. The DAG was not made.",
                hint="Give the DAG an `on_failure_callback`, or make the job's own DAGs with `load_jobs`.",
            )
        self.dag.tags |= set(loaded.spec.airflow.tags)
        self.default_args = self._defaults(loaded.spec) | dict(settings.get("default_args") or {})
        with self:
            self._last = epoch_tasks(loaded)

    def _defaults(self, spec: JobSpec) -> dict[str, Any]:
        """Return the spec's settings of tasks, but the DAG's where the spec does not state one of its own."""
        stated = spec.airflow.model_fields_set
        own = task_defaults(spec)
        return {name: own[name] for name in own if name in stated or name not in self.dag.default_args}

    def get_leaves(self) -> Iterator[BaseOperator]:
        """Yield what the following tasks wait for: not the task that aborts, which is skipped when all is well."""
        yield self._last

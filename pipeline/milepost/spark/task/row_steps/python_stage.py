"""The row-wise operators of a task that run in Python: lookups, and selections of columns.

The stage follows whatever produces the rows: the operator stage, or SQL. Rows keep their order and their stamps, and
nothing is buffered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from milepost.errors import CheckpointError, EnvironmentUnusable
from milepost.operators import OperatorFailed
from milepost.protocol.exchange import Decline, SubtaskIdentity
from milepost.protocol.records import CheckpointFailureReason, CheckpointId, FencingToken, StoreConfig
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.row_steps.column_selection import ColumnSelection
from milepost.spark.task.row_steps.lookup_index import LookupIndex
from milepost.spark.task.row_steps.lookup_plan import LookupPlan
from milepost.spark.wire.task_output import Declined, Rows, TaskOutput
from milepost.spark.worker.task_memory import explain_out_of_memory


@dataclass(frozen=True, slots=True)
class PythonStage:
    """The row-wise operators at one depth of a level that run in Python, in topological order. Picklable."""

    checkpoint_id: CheckpointId
    token: FencingToken
    level: int
    job_store: StoreConfig
    plans: tuple[LookupPlan | ColumnSelection, ...]

    def run(self, attempt: Attempt, items: Iterable[TaskOutput]) -> Iterable[TaskOutput]:
        """Return the items. Rows that an operator reads are followed by the rows that it emits."""
        return self._run(attempt, iter(items)) if self.plans else items

    def _run(self, attempt: Attempt, items: Iterator[TaskOutput]) -> Iterator[TaskOutput]:
        identity = SubtaskIdentity(self.checkpoint_id, self.token, self.level, attempt.subtask)
        uids = " and ".join(dict.fromkeys(plan.uid for plan in self._lookups or self.plans))  # only lookups may fail
        who = f"operator {uids} (level {self.level}, subtask {attempt.subtask})"
        decline: Decline | None = None
        try:
            with explain_out_of_memory(who, attempt.memory.budget):
                indexes = self._open(attempt)
                for item in items:
                    yield item
                    if isinstance(item, Rows):
                        yield from self._derived_rows(item, indexes)
        except OperatorFailed as failed:
            decline = identity.decline(CheckpointFailureReason.OPERATOR_ERROR, str(failed))
        except EnvironmentUnusable as error:
            decline = identity.decline_for(error, who, CheckpointFailureReason.ENVIRONMENT_UNUSABLE)
        except CheckpointError as error:
            decline = identity.decline_for_stored(error, "lookup")
        if decline is not None:
            for _ in items:  # always drain the input
                pass
            yield Declined(decline)

    def _open(self, attempt: Attempt) -> Mapping[str, LookupIndex]:
        if not self._lookups:
            return {}
        store = attempt.open_store(self.job_store)
        return {plan.uid: plan.open(store) for plan in self._lookups}

    @property
    def _lookups(self) -> list[LookupPlan]:
        return [plan for plan in self.plans if isinstance(plan, LookupPlan)]

    def _derived_rows(self, item: Rows, indexes: Mapping[str, LookupIndex]) -> Iterator[Rows]:
        """Yield the rows that the operators emit for an item, and those of operators that read these rows."""
        for plan in self.plans:
            if plan.input == item.node and item.rows.num_rows:
                rows = indexes[plan.uid].find(item.rows) if isinstance(plan, LookupPlan) else plan.select(item.rows)
                made = Rows(plan.output, rows, item.lateness_us, object=item.object)
                if rows.num_rows:
                    yield made
                    yield from self._derived_rows(made, indexes)

"""The law of each kind of operator that has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from milepost.jobspec.job.spec import StatefulSpec
from milepost.operators.aggregate.spec import AggregateOperator
from milepost.operators.asof.spec import AsofOperator
from milepost.operators.deduplicate.spec import DeduplicateOperator
from milepost.operators.history.spec import HistoryOperator
from milepost.operators.join.spec import JoinOperator
from milepost.operators.latest.spec import LatestOperator
from milepost.operators.materialize.spec import MaterializeOperator
from milepost.operators.over import OverOperator
from milepost.operators.process.spec import ProcessOperator
from milepost.operators.top.spec import TopOperator
from milepost.operators.window.spec import WindowOperator
from milepost_testkit.models.data.batch import AggregateLaw, DeduplicateLaw, Law
from milepost_testkit.models.data.kinds.asof_law import AsofLaw
from milepost_testkit.models.data.kinds.history_law import HistoryLaw
from milepost_testkit.models.data.kinds.join_law import JoinLaw
from milepost_testkit.models.data.kinds.join_over_updates_law import JoinOverUpdatesLaw
from milepost_testkit.models.data.kinds.latest_law import LatestLaw
from milepost_testkit.models.data.kinds.materialize_law import MaterializeLaw
from milepost_testkit.models.data.kinds.over_law import OverLaw
from milepost_testkit.models.data.kinds.process_law import ProcessLaw
from milepost_testkit.models.data.kinds.top_law import TopLaw
from milepost_testkit.models.data.kinds.window_law import window_law


def _join_law(spec: JoinOperator) -> Law:
    return JoinOverUpdatesLaw(spec) if spec.within is None else JoinLaw(spec)


LAWS: Mapping[type[StatefulSpec], Callable[[Any], Law]] = {
    AggregateOperator: AggregateLaw,
    WindowOperator: window_law,
    DeduplicateOperator: DeduplicateLaw,
    JoinOperator: _join_law,
    AsofOperator: AsofLaw,
    TopOperator: TopLaw,
    LatestOperator: LatestLaw,
    HistoryOperator: HistoryLaw,
    MaterializeOperator: MaterializeLaw,
    OverOperator: OverLaw,
    ProcessOperator: ProcessLaw,
}


def law_of(operator: StatefulSpec) -> Law:
    """Return the law of an operator. A process function has the law in `process_law.py`."""
    return LAWS[type(operator)](operator)

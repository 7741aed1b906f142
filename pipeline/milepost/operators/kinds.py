"""Registry of the kinds of operators. A new kind is a folder with `spec.py` and `run.py`, and two lines here."""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from milepost.operators.aggregate.spec import AggregateOperator
from milepost.operators.asof.spec import AsofOperator
from milepost.operators.base.operator_spec import OperatorSpec, StatefulSpec
from milepost.operators.deduplicate.spec import DeduplicateOperator
from milepost.operators.history.spec import HistoryOperator
from milepost.operators.join.spec import JoinOperator
from milepost.operators.latest.spec import LatestOperator
from milepost.operators.lookup.spec import LookupOperator
from milepost.operators.materialize.spec import MaterializeOperator
from milepost.operators.over.spec import OverOperator
from milepost.operators.process.spec import ProcessOperator
from milepost.operators.sql.spec import SqlOperator
from milepost.operators.top.spec import TopOperator
from milepost.operators.window.spec import WindowOperator

AnyOperator = Annotated[
    SqlOperator
    | AggregateOperator
    | WindowOperator
    | DeduplicateOperator
    | ProcessOperator
    | JoinOperator
    | AsofOperator
    | TopOperator
    | LookupOperator
    | LatestOperator
    | HistoryOperator
    | MaterializeOperator
    | OverOperator,
    Field(discriminator="kind"),
]

_SPECS: tuple[type[OperatorSpec], ...] = get_args(get_args(AnyOperator)[0])

KINDS = {get_args(spec.model_fields["kind"].annotation)[0]: spec for spec in _SPECS}
"""Kind -> its spec. The folder of a kind has its name."""

STATEFUL_KINDS = {kind: spec for kind, spec in KINDS.items() if issubclass(spec, StatefulSpec)}

"""Stateful operators, which implement the contract in `contract.py`. `build.py` creates them from the spec."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.build import build_operator as build_operator
    from milepost.operators.build import window_bounds as window_bounds
    from milepost.operators.contract import ONLY_TABLE as ONLY_TABLE
    from milepost.operators.contract import TOTAL_COLUMN as TOTAL_COLUMN
    from milepost.operators.contract import TYPE_OF as TYPE_OF
    from milepost.operators.contract import Bools as Bools
    from milepost.operators.contract import Combiner as Combiner
    from milepost.operators.contract import OperatorFailed as OperatorFailed
    from milepost.operators.contract import OperatorInput as OperatorInput
    from milepost.operators.contract import OperatorRun as OperatorRun
    from milepost.operators.contract import OutputKind as OutputKind
    from milepost.operators.contract import RetractingRun as RetractingRun
    from milepost.operators.contract import StatefulOperator as StatefulOperator
    from milepost.operators.contract import UpdatedRun as UpdatedRun
    from milepost.operators.latest import LatestByKey as LatestByKey
    from milepost.operators.materialized import MaterializedOperator as MaterializedOperator
    from milepost.operators.top import TopByKey as TopByKey
else:
    __getattr__, __dir__ = lazy_exports(__name__)

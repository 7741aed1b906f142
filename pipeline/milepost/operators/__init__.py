"""The kinds of operators: what each declares in a spec, and how it runs.

A kind is a folder with `spec.py` (keys and their meaning, without Arrow) and `run.py` (`build`). `base` has what specs
share; `rows`, `aggregation`, `pairs` and `materialized.py` have what runs share. `kinds.py` lists the kinds.
"""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.abilities import ChangesRun as ChangesRun
    from milepost.operators.abilities import PublishesChanges as PublishesChanges
    from milepost.operators.abilities import PublishesState as PublishesState
    from milepost.operators.abilities import RetractingRun as RetractingRun
    from milepost.operators.abilities import RetractInputRun as RetractInputRun
    from milepost.operators.abilities import UniqueKeysRun as UniqueKeysRun
    from milepost.operators.build import build_operator as build_operator
    from milepost.operators.contract import ONLY_TABLE as ONLY_TABLE
    from milepost.operators.contract import TOTAL_COLUMN as TOTAL_COLUMN
    from milepost.operators.contract import TYPE_OF as TYPE_OF
    from milepost.operators.contract import Bools as Bools
    from milepost.operators.contract import BuildOptions as BuildOptions
    from milepost.operators.contract import Combiner as Combiner
    from milepost.operators.contract import OperatorFailed as OperatorFailed
    from milepost.operators.contract import OperatorInput as OperatorInput
    from milepost.operators.contract import OperatorRun as OperatorRun
    from milepost.operators.contract import OutputKind as OutputKind
    from milepost.operators.contract import StatefulOperator as StatefulOperator
    from milepost.operators.kinds import KINDS as KINDS
    from milepost.operators.kinds import STATEFUL_KINDS as STATEFUL_KINDS
    from milepost.operators.kinds import AnyOperator as AnyOperator
    from milepost.operators.materialized import MaterializedOperator as MaterializedOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)

"""What the specs of all kinds of operators share: base classes, output rows, checks, lineage, state bounds."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.base.edges import BAD as BAD
    from milepost.operators.base.edges import DELETED_COLUMN as DELETED_COLUMN
    from milepost.operators.base.edges import LATE as LATE
    from milepost.operators.base.edges import OBJECT_COLUMN as OBJECT_COLUMN
    from milepost.operators.base.edges import REJECTED as REJECTED
    from milepost.operators.base.edges import REJECTED_COLUMNS as REJECTED_COLUMNS
    from milepost.operators.base.edges import RETRACT as RETRACT
    from milepost.operators.base.edges import RULE_COLUMN as RULE_COLUMN
    from milepost.operators.base.edges import WINDOW_COLUMNS as WINDOW_COLUMNS
    from milepost.operators.base.edges import WINDOW_END as WINDOW_END
    from milepost.operators.base.edges import WINDOW_START as WINDOW_START
    from milepost.operators.base.edges import conditions_output as conditions_output
    from milepost.operators.base.edges import edge_names as edge_names
    from milepost.operators.base.edges import late_output as late_output
    from milepost.operators.base.edges import user_columns as user_columns
    from milepost.operators.base.key_types import key_family as key_family
    from milepost.operators.base.operator_spec import FOR_EVER as FOR_EVER
    from milepost.operators.base.operator_spec import REMEMBERS as REMEMBERS
    from milepost.operators.base.operator_spec import EventTimeRule as EventTimeRule
    from milepost.operators.base.operator_spec import OperatorSpec as OperatorSpec
    from milepost.operators.base.operator_spec import RowWiseSpec as RowWiseSpec
    from milepost.operators.base.operator_spec import StatefulSpec as StatefulSpec
    from milepost.operators.base.operator_spec import distinct as distinct
    from milepost.operators.base.origins import FILTERED as FILTERED
    from milepost.operators.base.origins import IDENTITY as IDENTITY
    from milepost.operators.base.origins import Origins as Origins
    from milepost.operators.base.origins import RowsLineage as RowsLineage
    from milepost.operators.base.origins import SourceColumn as SourceColumn
    from milepost.operators.base.output_rows import APPEND as APPEND
    from milepost.operators.base.output_rows import RETRACTIONS as RETRACTIONS
    from milepost.operators.base.output_rows import UPDATES as UPDATES
    from milepost.operators.base.output_rows import Columns as Columns
    from milepost.operators.base.output_rows import OutputRows as OutputRows
    from milepost.operators.base.row_trace import RowTrace as RowTrace
    from milepost.operators.base.row_trace import TimeSpan as TimeSpan
    from milepost.operators.base.state_bounds import OUTPUT_TABLE as OUTPUT_TABLE
    from milepost.operators.base.state_bounds import InputMode as InputMode
    from milepost.operators.base.state_bounds import StateBound as StateBound
    from milepost.operators.base.two_inputs import SIDES as SIDES
    from milepost.operators.base.two_inputs import PairedOperator as PairedOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)

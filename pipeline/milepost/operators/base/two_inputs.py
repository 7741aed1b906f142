"""What the specs of operators with a left and a right input share: keys, output columns, checks, lineage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from milepost.language import ColumnName, ColumnType, KeyPair, Many, Path, Problem, RightColumn, StepName, did_you_mean
from milepost.operators.base.key_types import key_family
from milepost.operators.base.operator_spec import OperatorSpec, StatefulSpec, distinct
from milepost.operators.base.origins import JOINED, Origins, RowsLineage, union
from milepost.operators.base.output_rows import Columns, OutputRows, append_problems, event_time_problems, key_problems
from milepost.operators.base.row_trace import RowTrace, same_names

SIDES = ("left", "right")
"""Names of the inputs by position, as in state tables and in `columns`."""


def _distinct_pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    for side in range(2):
        distinct(tuple(pair[side] for pair in pairs))
    return pairs


KeyPairs = Annotated[Many[KeyPair], AfterValidator(_distinct_pairs)]


class TwoInputs(OperatorSpec):
    """Operators that emit the columns of two inputs.

    Attributes:
        uid: name of the operator: `[a-z][a-z0-9_]{0,62}` without `__`.
        inputs: names of two sources or operators, the left one first.
        key: columns that are equal in both inputs, each once; `{left: right}` if their names differ.
        columns: new names for columns of the right input, needed where both inputs have a column of the same name:
            `{paid_at: right.at}`.
    """

    inputs: Annotated[Many[StepName], Field(min_length=2, max_length=2)]
    key: Annotated[KeyPairs, Field(min_length=1)]
    columns: dict[ColumnName, RightColumn] = Field(default_factory=dict)

    @property
    def key_texts(self) -> list[str]:
        """Each column pair of the key as text: ``left = right``, or the name if both are the same."""
        return [left if left == right else f"{left} = {right}" for left, right in self.key]

    @property
    def renamed(self) -> dict[str, str]:
        """New name -> column of the right input."""
        return {name: column.removeprefix("right.") for name, column in self.columns.items()}


class PairedOperator(TwoInputs, StatefulSpec):
    """Stateful operators that match rows of two inputs.

    Attributes:
        uid: name of the operator, under which its state is stored: `[a-z][a-z0-9_]{0,62}` without `__`.
        inputs: names of two sources or operators, the left one first. Both must be append and have an event time. The
            same name twice is a self-join.
    """

    spreads_null_keys: ClassVar[bool] = True

    @property
    def has_late_rows(self) -> bool:
        return True

    def state_columns(self) -> list[tuple[str, list[str]]]:
        return [(side, [pair[index] for pair in self.key]) for index, side in enumerate(SIDES)]


def paired_problems(operator: PairedOperator, what: str, inputs: Sequence[OutputRows], path: Path) -> list[Problem]:
    """Return why rows of two inputs cannot be matched by key and event time.

    Args:
        what: the operator in messages, such as "a join".
    """
    left, right = inputs
    problems: list[Problem] = []
    for position, (name, rows) in enumerate(zip(operator.inputs, inputs, strict=True)):
        problems += append_problems(operator.kind, name, rows, path, position)
        problems += event_time_problems(f"the {SIDES[position]} input of {what}", name, rows, path, position)
        problems += key_problems(tuple(pair[position] for pair in operator.key), name, rows, path)
    return [*problems, *key_type_problems(operator, left, right, path)]


def joined_columns(operator: TwoInputs, left: OutputRows, right: OutputRows) -> Columns:
    """Return the left columns, then the right ones without the key; {} if not all are known."""
    if not (left.columns_known and right.columns_known):
        return {}
    new = {column: name for name, column in operator.renamed.items()}
    return left.columns | {new.get(name, name): type_ for name, type_ in _right_columns(operator, right)}


def _right_columns(operator: TwoInputs, right: OutputRows) -> Iterator[tuple[str, ColumnType | None]]:
    keys = {pair[1] for pair in operator.key}
    return ((name, type_) for name, type_ in right.columns.items() if name not in keys)


def pair_column_problems(operator: TwoInputs, left: OutputRows, right: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield problems of output column names that occur twice, and of renamed columns that do not exist."""
    right_columns = [name for name, _ in _right_columns(operator, right)]
    for name, column in operator.renamed.items():
        if column not in right_columns:
            message = f"{operator.inputs[1]} has no column {column} outside the key; "
            yield Problem((*path, "columns", name), message + did_you_mean(column, right_columns))
    new = {column: name for name, column in operator.renamed.items()}
    taken = {name.casefold(): f"{operator.inputs[0]}.{name}" for name in left.columns}
    for column in right_columns:
        name = new.get(column, column)
        other = taken.setdefault(name.casefold(), f"{operator.inputs[1]}.{column}")
        if other != f"{operator.inputs[1]}.{column}":
            message = f"{name} would be both {other} and {operator.inputs[1]}.{column}; rename the right column"
            yield Problem((*path, "columns"), f"{message}: columns: {{right_{column}: right.{column}}}")


def key_type_problems(operator: TwoInputs, left: OutputRows, right: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield problems of key column pairs whose types cannot be compared."""
    for index, (left_name, right_name) in enumerate(operator.key):
        types = left.type_of(left_name), right.type_of(right_name)
        if types[0] is None or types[1] is None or types[0].is_nested or types[1].is_nested:
            continue
        if key_family(types[0]) != key_family(types[1]):
            message = f"{left_name} is {types[0]}, but {right_name} is {types[1]}: their values cannot be compared"
            yield Problem(
                (*path, "key", index), f"{message}; CAST one of them in a `sql` operator before the {operator.kind}"
            )


def joined_lineage(
    operator: TwoInputs, inputs: Sequence[RowsLineage], pairs: Iterable[tuple[str | None, str | None]]
) -> RowsLineage:
    """Return the left columns, then the right ones without the key; `pairs` of columns decide which rows match."""
    left, right = inputs
    keyed = [*pairs]
    deciding = (left.by(JOINED, (name for name, _ in keyed)), right.by(JOINED, (name for _, name in keyed)))
    rows = union(left.rows, right.rows, *deciding)
    if not (left.columns and right.columns):
        return RowsLineage({}, rows, union(left.whole, right.whole))
    keys, new = {name for _, name in operator.key}, {column: name for name, column in operator.renamed.items()}
    columns: dict[str, Origins] = dict(left.columns)
    columns |= {new.get(name, name): origins for name, origins in right.columns.items() if name not in keys}
    return RowsLineage(columns, rows)


def left_trace(left: Sequence[str]) -> RowTrace:
    """Return the trace to the left rows, if each output row has the columns of one."""
    return RowTrace(0, same_names(left))


def right_trace(operator: TwoInputs, right: Sequence[str]) -> RowTrace:
    """Return the trace to the right rows: those of the key, of which the output row has the columns of one."""
    keys = {name: left for left, name in operator.key}
    new = {column: name for name, column in operator.renamed.items()}
    return RowTrace(1, keys, {name: new.get(name, name) for name in right if name not in keys})

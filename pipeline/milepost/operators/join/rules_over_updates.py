"""Output and refusals of a join without `within`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milepost.language import Path, Problem
from milepost.operators.base.key_types import key_family
from milepost.operators.base.output_rows import APPEND, RETRACTIONS, OutputRows, key_problems, scalar_problems
from milepost.operators.base.two_inputs import TwoInputs, joined_columns, key_type_problems, pair_column_problems
from milepost.operators.join.condition import Comparison
from milepost.operators.join.unmatched import LEFT_ALONE, RIGHT_UNMATCHED, unmatched_right_problems


def output_over_updates(
    operator: TwoInputs, how: str, condition: Sequence[Comparison], inputs: Sequence[OutputRows], path: Path
) -> OutputRows | list[Problem]:
    """Return the rows of the join of what both inputs have now.

    Append if no row is ever retracted: both inputs are append, and a row that was emitted stays. A pair stays, and a
    row with a match keeps it; a row without a match may get one.

        inputs              inner, semi     left, right, full, anti
        append, append      append          retract
        append, updates     retract         retract
    """
    left, right = inputs
    is_existence = how in LEFT_ALONE
    problems = [*_problems(operator, how, condition, inputs, path)]
    if is_existence and operator.columns:
        message = f"`how: {how}` emits only the columns of the left input: there is nothing to rename"
        problems.append(Problem((*path, "columns"), message))
    elif not is_existence and left.columns_known and right.columns_known:
        problems += pair_column_problems(operator, left, right, path)
    if problems:
        return problems
    only_adds = left.kind == right.kind == APPEND and how in ("inner", "semi")
    return OutputRows(
        left.columns if is_existence else joined_columns(operator, left, right),
        None,
        APPEND if only_adds else RETRACTIONS,
        (),
        columns_known=left.columns_known and (right.columns_known or is_existence),
        deletes=not only_adds,
    )


def _problems(
    operator: TwoInputs, how: str, condition: Sequence[Comparison], inputs: Sequence[OutputRows], path: Path
) -> Iterator[Problem]:
    left, right = inputs
    for position, (name, rows) in enumerate(zip(operator.inputs, inputs, strict=True)):
        yield from key_problems(tuple(pair[position] for pair in operator.key), name, rows, path)
        compared = [(one.left, one.right)[position] for one in condition]
        yield from scalar_problems("a comparison", compared, name, rows, (*path, "condition"))
    mismatched = [*key_type_problems(operator, left, right, path)]
    yield from mismatched
    if how in RIGHT_UNMATCHED and not mismatched:
        yield from unmatched_right_problems(operator, how, operator.key, inputs, path)
    for index, one in enumerate(condition):
        types = left.type_of(one.left), right.type_of(one.right)
        if types[0] is None or types[1] is None or types[0].is_nested or types[1].is_nested:
            continue
        if key_family(types[0]) != key_family(types[1]):
            message = f"{one.left} is {types[0]}, but {one.right} is {types[1]}: their values cannot be compared"
            hint = "CAST one of them in a `sql` operator before the join"
            yield Problem((*path, "condition", index), f"{message}; {hint}")

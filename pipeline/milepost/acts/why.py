"""The act `why`: trace a row of a table back to its input rows, in a worker of Airflow.

Its result has the places of the input rows, never their values: every reader of the DAG's runs sees it in Airflow.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, subject
from milepost.acts.fields import SINK, TRACED_ROW, Field, checkpoint_from
from milepost.epoch import counted
from milepost.errors import InvalidRequest

if TYPE_CHECKING:
    from milepost.jobmaster import JobMaster, RowOrigin

TABLE, ROW, AT = "sink", "row", "at"


def row_values(words: Sequence[str]) -> dict[str, str]:
    """Return column -> value of `COLUMN=VALUE` words. Raises InvalidRequest."""
    values = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidRequest(
                f"expected COLUMN=VALUE, got {word!r}. Nothing was read.",
                hint="Name values of one row, such as those of its key: city=Bergen",
            )
        if name in values:
            raise InvalidRequest(f"column {name} was given twice. Nothing was read.")
        values[name] = value
    return values


def _plan(master: JobMaster, form: Form) -> ActPlan:
    row_values(shlex.split(form[ROW]))
    text = ("the recorded input is read again, in a task of this run", "nothing is changed")
    return subject(master, WHY.name, form[AT]).plan(f"trace a row of {form[TABLE]} to its input", text, {})


def _trace(context: ActContext) -> RowOrigin:
    from milepost.spark.local import LocalTracer

    form = context.form
    values = row_values(shlex.split(form[ROW]))
    return context.master.tracing.origin(form[TABLE], values, LocalTracer(), form[AT], progress=context.progress)


def _traced(context: ActContext, done: RowOrigin) -> ActResult:
    return ActResult("proven" if done.is_proven else "not_proven", done.remarks, listed=tuple(_places(done)))


def _places(done: RowOrigin) -> Iterator[str]:
    for item in done.inputs:
        more = f", the first {len(item.places)}" if item.count > len(item.places) else ""
        yield f"{counted(item.count, 'input row')} of {item.source}{more}"
        yield from (str(place) for place in item.places)


WHY = Act(
    "why",
    "Trace a row to its input",
    "Show which input rows made a row of a table: their objects and lines, or their messages.\n\n"
    "It reads the recorded input again and changes nothing. The command `milepost why` also shows the values of these "
    "rows. Every reader of this DAG's runs sees the values that the form names.",
    (
        Field(TABLE, SINK, "Sink whose table has the row.", "Sink", required=True),
        Field(ROW, TRACED_ROW, "Values of one row, such as those of its key.", "Row", required=True),
        Field(AT, checkpoint_from(1), "A retained checkpoint. Default: the newest.", "Checkpoint"),
    ),
    _plan,
    _trace,
    _traced,
    needs_approval=False,
)

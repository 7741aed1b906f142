"""The act `why`: trace a row of a table back to its input rows, in a worker of Airflow.

Its result has the places of the input rows, never their values: every reader of the DAG's runs sees it in Airflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, subject
from milepost.acts.fields import SINK, TRACED_ROW, Field, checkpoint_from
from milepost.acts.named_rows import row_of_text
from milepost.epoch import counted

if TYPE_CHECKING:
    from milepost.jobmaster import JobMaster, RowOrigin

TRACED_SINK, TRACED_VALUES, TRACED_AT = "sink", "row", "at"
"""Names of the fields."""

PROVEN, NOT_PROVEN = "proven", "not_proven"
"""Outcomes."""


def _plan(master: JobMaster, form: Form) -> ActPlan:
    row_of_text(form[TRACED_VALUES])
    text = ("the recorded input is read again, in a task of this run", "nothing is changed")
    return subject(master, WHY.name, form[TRACED_AT]).plan(f"trace a row of {form[TRACED_SINK]} to its input", text, {})


def _trace(context: ActContext) -> RowOrigin:
    from milepost.spark.local import LocalTracer

    form = context.form
    values = row_of_text(form[TRACED_VALUES])
    tracing = context.master.tracing
    return tracing.origin(form[TRACED_SINK], values, LocalTracer(), form[TRACED_AT], progress=context.progress)


def traced(context: ActContext, done: RowOrigin) -> ActResult:
    """Return the result of a trace: what it proves, where its list begins, and the places."""
    cut = () if done.cut is None else (done.cut.sentence,)
    text = (done.verdict, *cut, *done.notes)
    return ActResult(PROVEN if done.is_proven else NOT_PROVEN, text, listed=tuple(_places(done)))


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
    "rows, and takes a limit of time.",
    (
        Field(TRACED_SINK, SINK, "Sink whose table has the row.", "Sink", required=True),
        Field(
            TRACED_VALUES,
            TRACED_ROW,
            "Values of one row, such as those of its key. Every user who may read the runs of this DAG sees them.",
            "Row",
            required=True,
        ),
        Field(TRACED_AT, checkpoint_from(1), "A retained checkpoint. Default: the newest.", "Checkpoint"),
    ),
    _plan,
    _trace,
    traced,
    needs_approval=False,
)

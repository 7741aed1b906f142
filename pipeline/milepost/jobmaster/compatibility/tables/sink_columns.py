"""Refuse columns that a sink's format cannot hold, before the job runs.

Types that only Spark or a process class can resolve are checked in each epoch before its commit point, with the same
messages.
"""

from __future__ import annotations

from milepost.errors import EnvironmentUnusable
from milepost.jobmaster.job.context import JobContext
from milepost.language import SINK_FORMATS, arrow_schema


def check_sink_columns(context: JobContext) -> tuple[str, ...]:
    """Check that each sink's format can hold the columns that have types in the spec. Contacts no store.

    Returns: one line per sink that could not be checked because the format's library is not installed.
    Raises: InvalidRequest: a format cannot hold a column.
    """
    unchecked = []
    if all(SINK_FORMATS[sink.format].is_managed for sink in context.spec.sinks):
        return ()  # such a table can have every type, so Arrow need not be imported

    for name, rows in context.graph.sink_inputs.items():
        typed_columns = {column: type_ for column, type_ in rows.columns.items() if type_ is not None}
        if not typed_columns or not set(rows.key) <= typed_columns.keys():
            continue
        schema = arrow_schema(typed_columns)
        try:
            context.sink(name).check_columns(schema)
        except EnvironmentUnusable as error:
            unchecked.append(error.message.splitlines()[0])
    return tuple(unchecked)

"""Columns that a sink's format cannot hold are refused before a job has run, as far as their types are known.

Types that only Spark or a process class knows are looked at in each epoch, before its commit point, in these words.
"""

from __future__ import annotations

from milepost.errors import EnvironmentUnusable
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.values.types import to_arrow


def check_sink_columns(context: JobContext) -> tuple[str, ...]:
    """Ask each sink's format whether it can hold the columns whose types the spec says. Nothing is contacted.

    Returns: of the sinks that could not be asked, why, one line each: the format's library is not installed.
    Raises: InvalidRequest: it cannot, in the words of an epoch that is refused for that.
    """
    unasked = []
    if all(sink.format == "parquet" for sink in context.spec.sinks):
        return ()  # it holds whatever there is, and nothing is loaded for that
    import pyarrow as pa

    for name, rows in context.graph.sink_inputs.items():
        known = {column: type_ for column, type_ in rows.columns.items() if type_ is not None}
        if not known or not set(rows.key) <= known.keys():
            continue
        schema = pa.schema([(column, to_arrow(type_)) for column, type_ in known.items()])
        try:
            context.sink(name).check_columns(schema)
        except EnvironmentUnusable as error:
            unasked.append(error.message.splitlines()[0])
    return tuple(unasked)

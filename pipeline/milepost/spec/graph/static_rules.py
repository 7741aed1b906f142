"""Static rules: what a source whose rows are looked up may say, and who may read it."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.spec.job.operators.lookup import LookupOperator
from milepost.spec.job.spec import JobSpec
from milepost.spec.values.names import did_you_mean
from milepost.spec.values.problems import Problem

_STATIC_KEYS = frozenset(
    {
        "format",
        "path",
        "options",
        "partitions",
        "columns",
        "optional_columns",
        "static",
        "dimension_limit",
        "on_bad_name",
        "settle",
    }
)
"""By their names in the model."""


def static_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield what is wrong between static sources and those that read them, or would."""
    yield from _keys(spec)
    yield from _readers(spec)
    if not spec.streams:
        message = "every source is static: nothing ever comes that could be looked up"
        yield Problem(("sources",), message)


def _keys(spec: JobSpec) -> Iterator[Problem]:
    for name, source in spec.sources.items():
        if not source.static and "dimension_limit" in source.model_fields_set:
            yield Problem(("sources", name, "dimension_limit"), "`dimension_limit` needs `static: true`")
        for key in sorted(source.model_fields_set - _STATIC_KEYS) if source.static else ():
            message = f"`{key}` is of a stream; what a static source holds is read anew when it changes: remove it"
            yield Problem(("sources", name, key), message)


def _readers(spec: JobSpec) -> Iterator[Problem]:
    for index, operator in enumerate(spec.operators):
        is_lookup = isinstance(operator, LookupOperator)
        for position, name in enumerate(operator.inputs):
            second = is_lookup and position == 1
            path = ("operators", index, "inputs", position)
            if name in spec.dimensions and not second:
                message = f"{name} is a static source, which is no stream: it may be the second input of a lookup alone"
                yield Problem(path, message)
            elif second and name in spec.streams:
                message = f"{name} is a stream; a lookup reads a static source: sources.{name} needs `static: true`"
                yield Problem(path, message)
            elif second and name not in spec.dimensions:
                known = [*spec.dimensions]
                hint = f"; {did_you_mean(name, known)}" if known else ""
                yield Problem(path, f"{name} is no source; a lookup reads a source with `static: true`{hint}")
    for index, sink in enumerate(spec.sinks):
        if sink.input in spec.dimensions:
            message = f"{sink.input} is a static source, which is no stream: it may feed lookups alone"
            yield Problem(("sinks", index, "input"), message)


def unread_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield static sources that no lookup reads: each epoch would read them for nothing."""
    read = {name for operator in spec.operators if isinstance(operator, LookupOperator) for name in operator.inputs}
    for name in spec.dimensions:
        if name not in read:
            yield Problem(("sources", name), f"no lookup reads {name}; a static source may feed lookups alone")

"""Which keys a static source may have, and which operators may read it."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.jobspec.job.spec import JobSpec
from milepost.language import Problem, did_you_mean

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
"""Keys of a static source, by their names in the model."""


def static_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield the problems of static sources and of the operators that read them."""
    yield from _keys(spec)
    yield from _readers(spec)
    if not spec.streams:
        message = "every source is static, so there are no rows to process"
        yield Problem(("sources",), message)


def _keys(spec: JobSpec) -> Iterator[Problem]:
    for name, source in spec.files.items():
        if not source.static and "dimension_limit" in source.model_fields_set:
            yield Problem(("sources", name, "dimension_limit"), "`dimension_limit` needs `static: true`")
        for key in sorted(source.model_fields_set - _STATIC_KEYS) if source.static else ():
            message = f"`{key}` does not apply to a static source, which is read again when it changes; remove it"
            yield Problem(("sources", name, key), message)


def _readers(spec: JobSpec) -> Iterator[Problem]:
    for index, operator in enumerate(spec.operators):
        for position, name in enumerate(operator.inputs):
            is_dimension = operator.dimension is not None and position == 1
            path = ("operators", index, "inputs", position)
            if name in spec.dimensions and not is_dimension:
                message = f"{name} is a static source; it can only be the second input of a lookup"
                yield Problem(path, message)
            elif is_dimension and name in spec.streams:
                message = f"{name} is a stream; a lookup reads a static source: {_static_hint(spec, name)}"
                yield Problem(path, message)
            elif is_dimension and name not in spec.dimensions:
                static = [*spec.dimensions]
                hint = f"; {did_you_mean(name, static)}" if static else ""
                yield Problem(path, f"{name} is not a source; a lookup reads a source with `static: true`{hint}")
    for index, sink in enumerate(spec.sinks):
        if sink.input in spec.dimensions:
            message = f"{sink.input} is a static source; only lookups can read it"
            yield Problem(("sinks", index, "input"), message)


def _static_hint(spec: JobSpec, name: str) -> str:
    if name in spec.files:
        return f"sources.{name} needs `static: true`"
    return f"only files can be static, and sources.{name} has format: {spec.sources[name].format}"


def unread_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each static source that no lookup reads, because every epoch would read it in vain."""
    read = {operator.dimension for operator in spec.operators}
    for name in spec.dimensions:
        if name not in read:
            yield Problem(("sources", name), f"no lookup reads the static source {name}; remove it")

"""Compile the SQL statements of a job into operators and sinks."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.sql.emitter import shown_text as shown_text
    from milepost.jobspec.sql.job import CompiledJob as CompiledJob
    from milepost.jobspec.sql.job import CompiledStatement as CompiledStatement
    from milepost.jobspec.sql.job import compile_sql as compile_sql
else:
    __getattr__, __dir__ = lazy_exports(__name__)

"""Compile the SQL statements of a job into operators and sinks."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.sql.emit.emitter import for_statements as for_statements
    from milepost.jobspec.sql.emit.emitter import shown_text as shown_text
    from milepost.jobspec.sql.emit.types import shown_type as shown_type
    from milepost.jobspec.sql.job import CompiledJob as CompiledJob
    from milepost.jobspec.sql.job import CompiledStatement as CompiledStatement
    from milepost.jobspec.sql.job import compile_sql as compile_sql
    from milepost.jobspec.sql.renames import add_former_uids as add_former_uids
    from milepost.jobspec.sql.renames import first_name as first_name
    from milepost.jobspec.sql.renames import former_uid as former_uid
    from milepost.jobspec.sql.renames import former_uids as former_uids
    from milepost.jobspec.sql.renames import rename_problems as rename_problems
    from milepost.jobspec.sql.text.expressions import parsed_expression as parsed_expression
else:
    __getattr__, __dir__ = lazy_exports(__name__)

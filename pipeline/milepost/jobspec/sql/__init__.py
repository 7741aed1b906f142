"""The SQL of a `sql` operator: row-wise and deterministic."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.sql.condition import condition_sql as condition_sql
    from milepost.jobspec.sql.plan import ITEM as ITEM
    from milepost.jobspec.sql.sql import quote as quote
    from milepost.jobspec.sql.sql_parse import SqlProblem as SqlProblem
    from milepost.jobspec.sql.sql_parse import parse_statements as parse_statements
    from milepost.jobspec.sql.sql_parse import sql_tokens as sql_tokens
    from milepost.jobspec.sql.union import Branch as Branch
    from milepost.jobspec.sql.union import branches as branches
else:
    __getattr__, __dir__ = lazy_exports(__name__)

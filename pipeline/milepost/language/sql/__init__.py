"""The SQL of a `sql` operator: row-wise and deterministic."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.language.sql.comparisons import Comparisons as Comparisons
    from milepost.language.sql.comparisons import compile_comparisons as compile_comparisons
    from milepost.language.sql.condition import check_condition as check_condition
    from milepost.language.sql.condition import condition_sql as condition_sql
    from milepost.language.sql.plan import ITEM as ITEM
    from milepost.language.sql.plan import SqlPlan as SqlPlan
    from milepost.language.sql.row_wise import SPARK_AGGREGATES as SPARK_AGGREGATES
    from milepost.language.sql.row_wise import WINDOW_FUNCTIONS as WINDOW_FUNCTIONS
    from milepost.language.sql.semantics import check_semantics as check_semantics
    from milepost.language.sql.sql import check_row_wise as check_row_wise
    from milepost.language.sql.sql import quote as quote
    from milepost.language.sql.sql import read_columns as read_columns
    from milepost.language.sql.sql_parse import SqlProblem as SqlProblem
    from milepost.language.sql.sql_parse import normalized_tokens as normalized_tokens
    from milepost.language.sql.sql_parse import parse_select as parse_select
    from milepost.language.sql.sql_parse import parse_statements as parse_statements
    from milepost.language.sql.sql_parse import problem_from as problem_from
    from milepost.language.sql.sql_parse import relation_starts as relation_starts
    from milepost.language.sql.sql_parse import sql_tokens as sql_tokens
    from milepost.language.sql.union import Branch as Branch
    from milepost.language.sql.union import branches as branches
else:
    __getattr__, __dir__ = lazy_exports(__name__)

"""SQL as text: tokens, the expressions and clauses in them, and where they start."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.sql.text.clauses import VALUE as VALUE
    from milepost.jobspec.sql.text.clauses import FromItem as FromItem
    from milepost.jobspec.sql.text.clauses import Item as Item
    from milepost.jobspec.sql.text.clauses import Query as Query
    from milepost.jobspec.sql.text.clauses import Scalar as Scalar
    from milepost.jobspec.sql.text.clauses import Select as Select
    from milepost.jobspec.sql.text.clauses import column_list as column_list
    from milepost.jobspec.sql.text.clauses import read_query as read_query
    from milepost.jobspec.sql.text.clauses import read_relations as read_relations
    from milepost.jobspec.sql.text.expressions import AGGREGATES as AGGREGATES
    from milepost.jobspec.sql.text.expressions import Call as Call
    from milepost.jobspec.sql.text.expressions import Expression as Expression
    from milepost.jobspec.sql.text.expressions import aggregate_calls as aggregate_calls
    from milepost.jobspec.sql.text.expressions import check_aggregates as check_aggregates
    from milepost.jobspec.sql.text.expressions import conjuncts as conjuncts
    from milepost.jobspec.sql.text.expressions import duration_ms as duration_ms
    from milepost.jobspec.sql.text.expressions import duration_text as duration_text
    from milepost.jobspec.sql.text.expressions import is_null_with as is_null_with
    from milepost.jobspec.sql.text.expressions import parsed_expression as parsed_expression
    from milepost.jobspec.sql.text.expressions import shared_conjuncts as shared_conjuncts
    from milepost.jobspec.sql.text.expressions import window_calls as window_calls
    from milepost.jobspec.sql.text.over_calls import OVER as OVER
    from milepost.jobspec.sql.text.over_calls import SPLIT_QUERY as SPLIT_QUERY
    from milepost.jobspec.sql.text.over_calls import Over as Over
    from milepost.jobspec.sql.text.over_calls import read_order as read_order
    from milepost.jobspec.sql.text.over_calls import read_over as read_over
    from milepost.jobspec.sql.text.refused import REFUSED_CLAUSES as REFUSED_CLAUSES
    from milepost.jobspec.sql.text.refused import REFUSED_PHRASES as REFUSED_PHRASES
    from milepost.jobspec.sql.text.refused import check_phrases as check_phrases
    from milepost.jobspec.sql.text.refused import named as named
    from milepost.jobspec.sql.text.subqueries import subqueries_joined as subqueries_joined
    from milepost.jobspec.sql.text.tokens import Fragment as Fragment
    from milepost.jobspec.sql.text.tokens import Substitute as Substitute
    from milepost.jobspec.sql.text.tokens import Tokens as Tokens
    from milepost.jobspec.sql.text.tokens import digest as digest
    from milepost.jobspec.sql.text.tokens import edited as edited
else:
    __getattr__, __dir__ = lazy_exports(__name__)

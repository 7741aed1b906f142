"""Compile the clauses of a SELECT after FROM, and set operations."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.sql.selects.grouping import ALL_ROWS as ALL_ROWS
    from milepost.jobspec.sql.selects.grouping import GroupCompiler as GroupCompiler
    from milepost.jobspec.sql.selects.grouping import read_grouping as read_grouping
    from milepost.jobspec.sql.selects.over import OverCompiler as OverCompiler
    from milepost.jobspec.sql.selects.over import check_over as check_over
    from milepost.jobspec.sql.selects.over import check_over_clauses as check_over_clauses
    from milepost.jobspec.sql.selects.ranking import RankCompiler as RankCompiler
    from milepost.jobspec.sql.selects.ranking import ranked_subquery as ranked_subquery
    from milepost.jobspec.sql.selects.ranking import read_ranking as read_ranking
    from milepost.jobspec.sql.selects.resolution import columns_outside as columns_outside
    from milepost.jobspec.sql.selects.resolution import resolve_all as resolve_all
    from milepost.jobspec.sql.selects.scalars import GROUPED as GROUPED
    from milepost.jobspec.sql.selects.scalars import scalars_joined as scalars_joined
    from milepost.jobspec.sql.selects.set_operations import compared as compared
else:
    __getattr__, __dir__ = lazy_exports(__name__)

"""How databases are reached, and what their errors mean: shared by sinks and sources."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.databases.postgres_problems import PostgresProblem as PostgresProblem
    from milepost.databases.postgres_problems import describe as describe
    from milepost.databases.postgres_problems import problem_of as problem_of
    from milepost.databases.postgres_target import OLDEST_VERSION as OLDEST_VERSION
    from milepost.databases.postgres_target import PostgresTarget as PostgresTarget
    from milepost.databases.postgres_target import find_target as find_target
else:
    __getattr__, __dir__ = lazy_exports(__name__)

"""Output rows of each kind of operator, derived from its inputs."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.graph.rules.join import LEFT_ALONE as LEFT_ALONE
    from milepost.jobspec.graph.rules.join import SIDES as SIDES
    from milepost.jobspec.graph.rules.node import APPEND as APPEND
    from milepost.jobspec.graph.rules.node import BAD_COLUMNS as BAD_COLUMNS
else:
    __getattr__, __dir__ = lazy_exports(__name__)

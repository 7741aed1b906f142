"""Origins are the columns of sources that a column, or the presence of a row, depends on, and how it does.

The words are OpenLineage's: DIRECT, what is in a column comes from the origin; INDIRECT, the origin decides about it. A
subtype says more: of DIRECT, IDENTITY, TRANSFORMATION and AGGREGATION; of INDIRECT, JOIN, GROUP_BY, FILTER, SORT,
WINDOW and CONDITIONAL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

DIRECT, INDIRECT = "DIRECT", "INDIRECT"


@dataclass(frozen=True, slots=True, order=True)
class Transformation:
    """How something depends on a column of a source.

    Attributes:
        type: DIRECT or INDIRECT. subtype: as above.
        masking: what was in the column cannot be read off any more: a hash of it is left.
    """

    type: str
    subtype: str
    masking: bool = False

    def then(self, step: Transformation) -> Transformation:
        """Return what this and then a further step are together: what decides stays, of values the greater change."""
        masking = self.masking or step.masking
        if self.type == INDIRECT or (step.type == DIRECT and _CHANGE[self.subtype] >= _CHANGE[step.subtype]):
            return replace(self, masking=masking)
        return replace(step, masking=masking)


_CHANGE = {"IDENTITY": 0, "TRANSFORMATION": 1, "AGGREGATION": 2}

IDENTITY = Transformation(DIRECT, "IDENTITY")
MADE_OF = Transformation(DIRECT, "TRANSFORMATION")
AGGREGATED = Transformation(DIRECT, "AGGREGATION")
JOINED = Transformation(INDIRECT, "JOIN")
GROUPED = Transformation(INDIRECT, "GROUP_BY")
FILTERED = Transformation(INDIRECT, "FILTER")
SORTED = Transformation(INDIRECT, "SORT")
WINDOWED = Transformation(INDIRECT, "WINDOW")
CONDITIONAL = Transformation(INDIRECT, "CONDITIONAL")


@dataclass(frozen=True, slots=True, order=True)
class SourceColumn:
    """One column of one source."""

    source: str
    column: str


Origins = Mapping[SourceColumn, frozenset[Transformation]]


@dataclass(frozen=True, slots=True)
class RowsLineage:
    """What the rows of a node depend on.

    Attributes:
        columns: of each column its origins.
        rows: what decides which rows there are, beside what is in them.
        any_column: origins of a column that `columns` does not name: below a process operator names are not known.
    """

    columns: Mapping[str, Origins]
    rows: Origins = field(default_factory=dict)
    any_column: Origins = field(default_factory=dict)

    def of(self, column: str | None) -> Origins:
        """Return the origins of a column; none of None, or of one that the product adds."""
        return {} if column is None else self.columns.get(column, self.any_column)

    @property
    def whole(self) -> Origins:
        """The origins of all columns together."""
        return together(self.any_column, *self.columns.values())

    def by(self, step: Transformation, columns: Iterable[str | None]) -> Origins:
        """Return the origins of some columns after one step."""
        return after(step, together(*map(self.of, columns)))


def after(step: Transformation, origins: Origins) -> Origins:
    """Return origins after one more step."""
    return {one: frozenset(before.then(step) for before in ways) for one, ways in origins.items()}


def together(*parts: Origins) -> Origins:
    """Return the union of origins."""
    found: dict[SourceColumn, frozenset[Transformation]] = {}
    for part in parts:
        for one, ways in part.items():
            found[one] = found.get(one, frozenset()) | ways
    return found

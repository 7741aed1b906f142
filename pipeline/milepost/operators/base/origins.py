"""Origins: the source columns that a column or a row depends on.

The terms are OpenLineage's. DIRECT: values are derived from the origin (IDENTITY, TRANSFORMATION, AGGREGATION).
INDIRECT: the origin influences the result (JOIN, GROUP_BY, FILTER, SORT, WINDOW, CONDITIONAL).

    SELECT city, minutes / 60 AS hours FROM visits WHERE paid
    city    visits.city     DIRECT IDENTITY
    hours   visits.minutes  DIRECT TRANSFORMATION
    rows    visits.paid     INDIRECT FILTER
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

DIRECT, INDIRECT = "DIRECT", "INDIRECT"


@dataclass(frozen=True, slots=True, order=True)
class Transformation:
    """How a result depends on a source column.

    Attributes:
        type: DIRECT or INDIRECT. subtype: see the module's docstring.
        masking: whether the original value cannot be recovered, because it was hashed.
    """

    type: str
    subtype: str
    masking: bool = False

    def then(self, step: Transformation) -> Transformation:
        """Return the composition of this and a further step.

        INDIRECT stays INDIRECT. Of two DIRECT steps the stronger one counts: IDENTITY, TRANSFORMATION, AGGREGATION.
        """
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
        columns: column -> its origins.
        rows: origins that decide which rows exist.
        any_column: origins of columns not in `columns`. Downstream of a process operator, names are not known.
    """

    columns: Mapping[str, Origins]
    rows: Origins = field(default_factory=dict)
    any_column: Origins = field(default_factory=dict)

    def of(self, column: str | None) -> Origins:
        """Return the origins of a column; {} for None."""
        return {} if column is None else self.columns.get(column, self.any_column)

    @property
    def whole(self) -> Origins:
        """The union of the origins of all columns."""
        return union(self.any_column, *self.columns.values())

    def decided_by(self, deciding: Origins) -> RowsLineage:
        """Return the same columns of fewer rows: `deciding` are the origins that decide which rows are left."""
        return RowsLineage(self.columns, union(self.rows, deciding), self.any_column)

    def by(self, step: Transformation, columns: Iterable[str | None]) -> Origins:
        """Return the union of the columns' origins, after one more step."""
        return after_step(step, union(*map(self.of, columns)))


def after_step(step: Transformation, origins: Origins) -> Origins:
    """Return origins after one more step."""
    return {
        origin: frozenset(earlier.then(step) for earlier in transformations)
        for origin, transformations in origins.items()
    }


def union(*parts: Origins) -> Origins:
    """Return the union of origins."""
    merged: dict[SourceColumn, frozenset[Transformation]] = {}
    for part in parts:
        for origin, transformations in part.items():
            merged[origin] = merged.get(origin, frozenset()) | transformations
    return merged

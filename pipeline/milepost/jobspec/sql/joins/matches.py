"""Read what the matching rows of a join have in common from its conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from milepost.jobspec.sql.emit import Emitter
from milepost.jobspec.sql.joins.join_times import Within, read_within, reversed_bound
from milepost.jobspec.sql.joins.sides import RIGHT_UNMATCHED, Frame
from milepost.jobspec.sql.names import Reference, Scope, comparison, equality
from milepost.jobspec.sql.text import Tokens

Pair = tuple[Tokens | Reference, Tokens | Reference]


@dataclass(frozen=True, slots=True)
class Match:
    """The conditions of a join, by the step that takes them.

    Attributes:
        pairs: equal expressions of both sides. compared: (left expression, symbol, right expression).
        within: time bounds. of_left: conditions over the left side of a right join.
        of_right: conditions over the right side, which its own step takes. of_rows: filters of an inner join's rows.
    """

    pairs: list[Pair]
    within: Within | None
    compared: list[tuple[Tokens, str, Tokens]] = field(default_factory=list)
    of_left: list[Tokens] = field(default_factory=list)
    of_right: list[Tokens] = field(default_factory=list)
    of_rows: list[Tokens] = field(default_factory=list)

    @property
    def sides(self) -> list[Pair]:
        return [(left, right) for left, _, right in self.compared]

    @property
    def symbols(self) -> list[str]:
        return [symbol for _, symbol, _ in self.compared]


@dataclass(frozen=True, slots=True)
class MatchReader:
    """Reads the conditions of the join of relation `index` with the `joined` ones.

    Attributes:
        how: kind of the join. warnings: (tokens, text), for `lint`.
    """

    emitter: Emitter
    scope: Scope
    frame: Frame
    joined: set[int]
    index: int
    how: str
    warnings: list[tuple[Tokens, str]]

    def read(self, conditions: Sequence[Tokens], pairs: list[Pair]) -> Match:
        """Return the conditions and pairs of a join. Raises SqlProblem: a condition that is not available."""
        relation = self.scope.relations[self.index]
        match = Match(pairs, self._within(conditions, has_pairs=bool(pairs)))
        for run in conditions:
            owners = self._owners(run)
            pair = equality(self.scope, run, self.joined, self.index)
            if match.within is not None and run.start in match.within.runs:
                match.pairs.extend([pair] if pair is not None and len(conditions) == 1 else [])
            elif pair is not None:
                match.pairs.append(pair)
            elif owners <= {self.index} and not relation.is_static and self.how not in RIGHT_UNMATCHED:
                match.of_right.append(run)
            elif self.how == "right" and owners <= self.joined:
                match.of_left.append(run)
            elif self.how == "inner":
                match.of_rows.append(run)
            elif match.within is None and (sides := comparison(self.scope, run, self.joined, self.index)) is not None:
                match.compared.append(sides)
            else:
                over = {"full": "", "right": ", and conditions over the left relations"}
                raise run.problem(f"this condition of the {self.how} join is not available in this version: expected "
                                  "comparisons of both sides, time bounds"
                                  f"{over.get(self.how, ', and conditions over the right relation')}")  # fmt: skip
        return match

    def _within(self, conditions: Sequence[Tokens], *, has_pairs: bool) -> Within | None:
        """Return the time bounds of a join, or None. A warning names the order of relations that would have some.

        A left column bounds only joins that the operator can have: with an equality, and without other comparisons.
        """
        if self.how.startswith("asof"):
            return None
        read = self.emitter, self.scope, self.frame, self.index, conditions
        within, relation = read_within(*read, self.how), self.scope.relations[self.index]
        if self.how == "inner" and within is None and (bound := reversed_bound(*read)) is not None:
            message = f"this join stores all rows; name {relation.alias} first, so that {bound} bounds them"
            self.warnings.append((relation.item.keyword, message))
        if within is None or not within.is_of_row:
            return within
        others = [run for run in conditions if run.start not in within.runs]
        is_keyed = has_pairs or any(equality(self.scope, run, self.joined, self.index) for run in others)
        return within if is_keyed and all(map(self._takes, others)) else None

    def _takes(self, run: Tokens) -> bool:
        """Return whether a join with time bounds can have a condition."""
        owners = self._owners(run)
        of_one_side = owners <= self.joined if self.how == "right" else owners <= {self.index} and self.how != "full"
        is_equality = equality(self.scope, run, self.joined, self.index) is not None
        return self.how == "inner" or of_one_side or is_equality

    def _owners(self, run: Tokens) -> set[int]:
        return {number for number, _ in self.scope.references(run)}

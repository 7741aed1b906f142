"""Compile FROM into a frame: a step per relation, then left-deep joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from milepost.jobspec.sql.emit import Column, Emitter, described
from milepost.jobspec.sql.joins.join_times import check_match
from milepost.jobspec.sql.joins.joined_keys import unique_columns
from milepost.jobspec.sql.joins.matches import Match, MatchReader, Pair
from milepost.jobspec.sql.joins.scalar_filters import scalar_filters
from milepost.jobspec.sql.joins.sides import (
    RIGHT_UNMATCHED,
    Frame,
    UnmatchedRight,
    both_sides,
    check_not_in,
    left_side,
    own_name,
)
from milepost.jobspec.sql.names import Reference, Scope, equality, merged_name
from milepost.jobspec.sql.text import (
    AGGREGATES,
    VALUE,
    Fragment,
    Scalar,
    Tokens,
    conjuncts,
    edited,
    shared_conjuncts,
)
from milepost.language.sql import quote
from milepost.operators.base import APPEND

_INNER = ("comma", "inner")
_PADDED = ("left", "asof left", "explode", "scalar")


@dataclass
class FrameCompiler:
    """Compiles the FROM clause of one SELECT to steps with names that begin with `prefix`.

    Attributes:
        outside: the columns of a relation that are read elsewhere than in the equalities of its own join.
        warnings: (tokens, text), for `lint`. computed: the columns with left expressions of joins so far.
    """

    emitter: Emitter
    scope: Scope
    prefix: str
    where: list[Tokens]
    outside: set[Reference]
    warnings: list[tuple[Tokens, str]] = field(default_factory=list)
    computed: set[str] = field(default_factory=set)

    def compile(self) -> Frame:
        """Return the joined rows. Raises SqlProblem: a join that is not available."""
        relations, pool = self.scope.relations, list(self.where)
        padded = {index for index, one in enumerate(relations) if one.item.join in (*_PADDED, "full")}
        for index, relation in enumerate(relations):
            if relation.item.join in RIGHT_UNMATCHED:
                padded |= {*range(index)}
                if any(one.item.join in _INNER for one in relations[1:index]):
                    message = f"a {relation.item.join} join after an inner join: put the joins before it into a common "
                    raise relation.item.keyword.problem(f"{message}table expression")
            if relation.item.join in _INNER:
                pool += conjuncts(relation.item.on)
        pool += [shared for run in pool for shared in shared_conjuncts(run)]
        if relations[0].is_static:
            message = f"{relations[0].alias} is a static source, which only joins read; begin FROM with a stream"
            raise relations[0].item.tokens.problem(message)
        if len(relations) == 1:  # the step that follows filters its rows and chooses its columns
            return Frame(relations[0].node, {(0, column): column for column in relations[0].columns}, pool)
        pushed: dict[int, list[Tokens]] = {index: [] for index in range(len(relations))}
        for run in list(pool):
            owners = {index for index, _ in self.scope.references(run)}
            if len(owners) == 1 and not owners & padded and not relations[min(owners)].is_static:
                pushed[min(owners)].append(run)
                pool.remove(run)
        first = relations[0]
        names = {(0, column): column for column in self._columns(0)}
        node = self._step(0, [Column.plain(name, first.item.tokens.start) for name in names.values()], pushed[0])
        frame, joined, remaining = Frame(node, names, pool), {0}, list(range(1, len(relations)))
        while remaining:
            index = self._next(frame, joined, remaining)
            remaining.remove(index)
            if relations[index].item.join == "explode":
                self._explode(frame, index)
            else:
                self._join(frame, joined, index, pushed[index])
            joined.add(index)
        return frame

    def _next(self, frame: Frame, joined: set[int], remaining: Sequence[int]) -> int:
        """Return the next relation: of a run of inner joins the first that an equality connects."""
        relations = self.scope.relations
        for index in remaining:
            if relations[index].item.join not in _INNER:
                break
            if any(equality(self.scope, run, joined, index) for run in frame.where):
                return index
        return remaining[0]

    def _columns(self, index: int) -> list[str]:
        """Return the columns that a step reads: those in use, the event time and the key of updates, in order."""
        relation = self.scope.relations[index]
        rows = self.emitter.read(relation.node)
        needed = {column for number, column in self.scope.used if number == index}
        needed |= {rows.event_time} if rows.event_time else set()
        needed |= set(rows.key) if rows.kind != APPEND else set()
        return [column for column in relation.columns if column in needed] or relation.columns[:1]

    def _step(self, index: int, columns: list[Column], where: Sequence[Tokens]) -> str:
        relation = self.scope.relations[index]
        conditions = [self.scope.rewritten(run, own_name) for run in where]
        uid = f"{self.prefix}__{relation.label}"
        return self.emitter.sql(uid, relation.node, columns, conditions, relation.item.tokens)

    def _join(self, frame: Frame, joined: set[int], index: int, pushed: list[Tokens]) -> None:
        relation = self.scope.relations[index]
        item = relation.item
        self.scope.shown = index if item.equals is None and item.scalar is None else None
        how = {"comma": "inner"}.get(item.join, item.join)
        conditions = [*conjuncts(item.on), *item.conditions] if item.join not in _INNER else []
        if item.scalar is not None:
            conditions = scalar_filters(self.emitter, self.scope, frame, joined, index)
            how = "semi" if conditions else "left"
            frame.where = [run for run in frame.where if run not in conditions]
        elif item.join in _INNER:
            conditions = [run for run in frame.where if self._applies(run, joined, index)]
            frame.where = [run for run in frame.where if run not in conditions]
        pairs: list[Pair] = []
        for column in item.using:
            name = column.name().casefold()
            pairs.append((relation.using[name], (index, relation.folded[name])))
        if item.equals is not None:
            pairs.append((item.equals, (index, relation.columns[0])))
        pairs += [(run, (index, column)) for run, column in relation.pairs]
        match = MatchReader(self.emitter, self.scope, frame, joined, index, how, self.warnings).read(conditions, pairs)
        frame.where += match.of_rows
        if relation.is_static:
            self._lookup(frame, index, how, match.pairs)
        else:
            self._stateful(frame, index, how, match, [*pushed, *match.of_right])
        self.scope.shown = None
        if item.scalar is not None and not item.scalar.is_null_if_empty:
            self._value(item.scalar, frame, index)

    def _value(self, scalar: Scalar, frame: Frame, index: int) -> None:
        """Add the step that computes a query's value from its aggregates. Those of no rows are null, and counts 0."""
        relation = self.scope.relations[index]
        edits = []
        for column, call in scalar.calls.items():
            text = quote(frame.name((index, column)))
            is_count = AGGREGATES[call.word(0).lower()] == "count"
            edits.append((call.start, int(call.items[-1].end), f"coalesce({text}, 0)" if is_count else text))
        at = scalar.run
        columns = [Column.plain(name, at.start) for name in self.emitter.rows[frame.node].columns]
        name = f"{relation.prefix}__{VALUE}"
        uid = f"{self.prefix}__value_{relation.label}"
        frame.node = self.emitter.sql(uid, frame.node, [*columns, Column(name, edited(at, edits))], [], at)
        frame.physical[index, VALUE] = name

    def _applies(self, run: Tokens, joined: set[int], index: int) -> bool:
        owners = {number for number, _ in self.scope.references(run)}
        return index in owners and len(owners) > 1 and owners <= joined | {index}

    def _left_step(
        self, frame: Frame, index: int, sides: Sequence[Column], where: Sequence[Tokens] = ()
    ) -> list[str]:  # fmt: skip
        """Return the names of expressions over the left side, which a step of its own computes."""
        computed: list[Column] = []
        for side in sides:
            if not side.is_plain and side.name not in self.computed:
                self.computed.add(side.name)
                computed.append(side)
        if computed or where:
            relation = self.scope.relations[index]
            at = relation.item.keyword
            columns = [Column.plain(name, at.start) for name in self.emitter.rows[frame.node].columns]
            uid = f"{self.prefix}__left_{relation.label}"
            conditions = [self.scope.rewritten(run, frame.name) for run in where]
            frame.node = self.emitter.sql(uid, frame.node, [*columns, *computed], conditions, at)
        return [side.name for side in sides]

    def _lookup(self, frame: Frame, index: int, how: str, pairs: Sequence[Pair]) -> None:
        relation = self.scope.relations[index]
        keyword = relation.item.keyword
        if how not in ("inner", "left"):
            raise keyword.problem(f"a {how} join with a static source is not available in this version")
        rows = self.emitter.read(frame.node)
        if rows.kind != APPEND:
            message = f"the rows before this join are {described(rows)}, and a static source joins append rows only"
            instead = (
                "join it in a common table expression that reads sources, or remove `static: true` from the source"
            )
            raise keyword.problem(f"{message}: {instead}")
        keys = self._left_step(
            frame, index, [left_side(self.emitter, self.scope, frame, left, keyword) for left, _ in pairs]
        )
        if not keys:
            raise keyword.problem(
                f"the join with {relation.alias} needs an equality, such as {relation.alias}.id = other.id"
            )
        right = []
        for _, side in pairs:
            reference = self.scope.column(side) if isinstance(side, Tokens) else side
            if reference is None:
                assert isinstance(side, Tokens)
                raise side.problem(f"the key of the static source {relation.alias} must be a column, not an expression")
            right.append(reference[1])
        for name, column in zip(keys, right, strict=True):
            if how == "left" and (index, column) in self._read_elsewhere(index):
                message = f"{relation.alias}.{column} is a key of a left join with a static source, which is not "
                raise keyword.problem(message + "emitted; select another column of it")
            frame.physical[index, column] = name
        self._add(frame, index, "lookup", how, keys, right, relation.node, {})

    def _read_elsewhere(self, index: int) -> set[Reference]:
        """Return the columns of a relation that are read outside of its join."""
        return {reference for reference in self.outside if reference[0] == index}

    def _stateful(self, frame: Frame, index: int, how: str, match: Match, pushed: Sequence[Tokens]) -> None:
        relation = self.scope.relations[index]
        at, keyword = relation.item.tokens, relation.item.keyword
        left_rows, right_rows = self.emitter.read(frame.node), self.emitter.read(relation.node)
        kind, options = "join", dict[str, object]()
        if how.startswith("asof"):
            check_match(self.emitter, self.scope, frame, index)
            kind, how = "asof", "left" if how == "asof left" else "inner"
            for name, rows in (("left", left_rows), ("right", right_rows)):
                if rows.kind != APPEND:
                    message = f"the {name} side of this join is {described(rows)}, and ASOF joins append rows only"
                    raise keyword.problem(message)
        elif match.within is not None:
            options["within"] = list(match.within.bounds)
        elif not match.pairs:
            self.warnings.append((keyword, "this join has no equality, so it runs in one task"))
        sides = [both_sides(self.emitter, self.scope, frame, index, pair, how) for pair in (*match.pairs, *match.sides)]
        count = len(match.pairs)
        shown = UnmatchedRight.of(relation.prefix, left_rows, how, has_bounds=match.within is not None)
        sides = [replace(side, left=shown.key(side.left)) for side in sides[:count]] + sides[count:]
        bounds = () if match.within is None else match.within.computed
        computed = [*(side.left for side in sides), *shown.times, *bounds]
        keys = self._left_step(frame, index, computed, match.of_left)
        if not match.pairs and (kind == "asof" or match.within is not None):
            raise keyword.problem(f"the join with {relation.alias} needs an equality, such as {relation.alias}.id = "
                                  "other.id")  # fmt: skip
        columns = {name: Column.plain(name, at.start) for name in self._columns(index)}
        columns |= {side.right.name: side.right for side in sides}
        right = [side.right.name for side in sides]
        unique = {*(self.emitter.unique_of(relation.node) or ())} if how in RIGHT_UNMATCHED else set()
        for left_name, name in zip(keys[:count], right[:count], strict=True):
            types = self.emitter.rows[frame.node].type_of(left_name), right_rows.type_of(name)
            if how == "inner" and types[0] == types[1] and types[0] is not None:
                frame.physical[index, name] = left_name
            elif (index, name) in self.outside or name in unique:
                copy = f"copy_of_{name}"
                columns[copy] = Column.plain(copy, at.start, name)
                frame.physical[index, name] = self._shown(index, f"{relation.prefix}__{copy}", name)
        if match.sides:
            triples = zip(keys[count : len(sides)], match.symbols, right[count:], strict=True)
            options["condition"] = sorted({f"{one} {symbol} right.{two}" for one, symbol, two in triples})
        before = frame.node
        node = self._step(index, list(columns.values()), pushed)
        if relation.item.equals is not None and how == "anti":
            check_not_in(self.emitter, before, node, relation.item, sides[0])
        self._add(frame, index, kind, how, keys[:count], right[:count], node, options)
        for (_, reference), name in zip(match.pairs, keys[:count], strict=True):
            if how == "full" and not isinstance(reference, Tokens):
                frame.physical[index, merged_name(reference[1])] = name
        for reference, name in frame.physical.items():
            if shown.times and name == left_rows.event_time:
                frame.physical[reference] = shown.times[0].name
        pairs = [pair for side in sides[:count] for pair in ((side.left.name, side.right.name), side.names)]
        unique_of = unique_columns(self.emitter, self.scope, frame, index, (before, node), pairs, how)
        if unique_of is not None:
            self.emitter.unique[frame.node] = unique_of

    def _add(
        self, frame: Frame, index: int, kind: str, how: str, left: Sequence[str], right: Sequence[str], node: str,
        options: dict[str, object],
    ) -> None:  # fmt: skip
        """Add the operator. Key pairs are in the order of their names, so that their order in ON has no effect."""
        relation = self.scope.relations[index]
        pairs = sorted(set(zip(left, right, strict=True)))
        operator = {
            "uid": f"{self.prefix}__join_{relation.label}",
            "kind": kind,
            "inputs": [frame.node, node],
            "key": [{one: other} if one != other else one for one, other in pairs],
            "how": how,
            **options,
        }
        if how not in ("semi", "anti"):
            others = [name for name in self.emitter.rows[node].columns if name not in right]
            operator["columns"] = {f"{relation.prefix}__{name}": f"right.{name}" for name in others}
            for name in others:
                frame.physical.setdefault((index, name), self._shown(index, f"{relation.prefix}__{name}", name))
        frame.node = self.emitter.add(operator, relation.item.keyword)

    def _shown(self, index: int, column: str, name: str) -> str:
        """Note how the query states a column of a right relation, for messages; return the column."""
        self.emitter.labels[column] = f"{self.scope.relations[index].alias}.{name}"
        return column

    def _explode(self, frame: Frame, index: int) -> None:
        relation = self.scope.relations[index]
        item = relation.item
        columns = [Column.plain(name, item.tokens.start) for name in self.emitter.rows[frame.node].columns]
        name = f"{relation.alias}__{item.columns[0]}"
        lists = edited(item.tokens, [])
        rewritten = self.scope.rewritten(item.tokens, frame.name)
        text = Fragment((("explode(", lists.start), *rewritten.pieces, (")", lists.start)))
        uid = f"{self.prefix}__{relation.label}"
        frame.node = self.emitter.sql(uid, frame.node, [*columns, Column(name, text)], [], item.keyword)
        frame.physical[index, item.columns[0]] = name

"""Compile one statement: its common table expressions, subqueries and SELECTs into steps with fixed names.

The steps with state, and the steps that they read, have the same names in every SELECT, and no edit renames them::

    <s>__<relation>        filter and columns of one relation of a join; its alias only where FROM reads it twice
    <s>__left_<relation>   expressions over the relations before it, for its conditions
    <s>__value_<relation>  value of a query in an expression, whose rows are the relation
    <s>__join_<relation>   join with the relations before it
    <s>__explode_<alias>   rows of LATERAL VIEW explode
    <s>__rows              input of __agg, __top, __over or __distinct
    <s>__agg               GROUP BY
    <s>__grouped           output of __agg, before joins with queries of HAVING and SELECT
    <s>__top_in            input of __top after __agg
    <s>__top               QUALIFY, or ORDER BY … LIMIT
    <s>__over              functions with OVER
    <s>__distinct          DISTINCT
    <s>__union_<relation>  one SELECT of a UNION, INTERSECT or EXCEPT
    <s>__times             rows of INTERSECT ALL and EXCEPT ALL, as often as they occur
    <s>__unkeyed, __keyed  the rows of a view without a key, and the operator that gives them one
    <s>                    the output columns

`<s>` is the statement, or `<statement>__<name>` for a common table expression or a subquery. A query in FROM is
`query_<relation>`, after what it reads first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from milepost.jobspec.sql.emit import Column, Emitter
from milepost.jobspec.sql.joins import Frame, FrameCompiler
from milepost.jobspec.sql.names import (
    Correlation,
    Output,
    Relation,
    Scope,
    by_name_or_position,
    select_outputs,
)
from milepost.jobspec.sql.renames import first_name, first_step_name
from milepost.jobspec.sql.selects import (
    ALL_ROWS,
    GROUPED,
    GroupCompiler,
    OverCompiler,
    RankCompiler,
    check_over,
    check_over_clauses,
    columns_outside,
    compared,
    ranked_subquery,
    read_grouping,
    read_ranking,
    resolve_all,
    scalars_joined,
)
from milepost.jobspec.sql.statements import SKELETON, VIEW, Statement
from milepost.jobspec.sql.text import (
    VALUE,
    Fragment,
    FromItem,
    Query,
    Select,
    Tokens,
    read_order,
    read_query,
    subqueries_joined,
)
from milepost.language import check_node_name, did_you_mean
from milepost.operators.base import APPEND, RETRACTIONS


@dataclass(frozen=True, slots=True)
class Table:
    """The node that a name after FROM refers to, and whether it is a static source."""

    node: str
    is_static: bool = False


Names = Mapping[str, Callable[[], Table]]
"""Name of a common table expression -> compiles it on its first use."""


@dataclass
class QueryCompiler:
    """Compiles the query of one statement.

    Attributes:
        find: returns a source, a statement or an operator of the spec by name, or None.
        known: names for `did you mean`. warnings: (token, text), for `lint`. renamed: as in the spec.
    """

    statement: Statement
    emitter: Emitter
    find: Callable[[str], Table | None]
    known: Sequence[str]
    renamed: Mapping[str, str]
    options: set[str] = field(default_factory=set)
    warnings: list[tuple[Tokens, str]] = field(default_factory=list)

    def compile(self) -> str:
        """Add the steps of the statement; return the last. Raises SqlProblem."""
        query = read_query(self.statement.query, self.statement.columns)
        node = self._query(self.statement.name, query, {})
        if self.statement.kind == VIEW and self.emitter.rows[node].kind == RETRACTIONS:
            self._materialize(node, query.tokens)
        for option, (_, entry) in self.statement.properties.items():
            if option not in self.options:
                raise entry.problem(f"{option} has no effect: no step of this statement takes it")
        return node

    def _materialize(self, name: str, at: Tokens) -> None:
        """Give the rows of a view, which are inserted and retracted, the key of its table."""
        unique = self.emitter.unique_of(name)
        if not unique:
            return
        operator, rows = self.emitter.remove_last()
        before = self.emitter.add({**operator, "uid": f"{name}__unkeyed"}, at)
        uid = f"{name}__keyed"
        self.emitter.add({"uid": uid, "kind": "materialize", "inputs": [before], "key": sorted(unique)}, at)
        self.emitter.sql(name, uid, [Column.plain(column, at.start) for column in rows.columns], [], at)

    def _duration(self, option: str) -> str | None:
        """Return an option of the statement as a spec writes it, or None."""
        if option in self.statement.properties:
            self.options.add(option)
        return self.statement.duration(option)

    def _query(self, name: str, query: Query, outer: Names, correlation: Correlation | None = None) -> str:
        names, used = dict(outer), set[str]()
        for cte, at, body, columns in query.ctes:
            self._check_cte(cte, at, [other for other, *_ in query.ctes])
            names[cte] = self._lazy(f"{self.statement.name}__{cte}", cte, (body, columns), dict(names), used)
        node = self._selects(name, query, names, correlation)
        for cte, at, *_ in query.ctes:
            if cte not in used:
                raise at.problem(f"nothing reads {cte}; remove it")
        return node

    def _lazy(
        self, uid: str, cte: str, body: tuple[Tokens, Sequence[str]], names: Names, used: set[str]
    ) -> Callable[[], Table]:
        compiled: list[str] = []

        def table() -> Table:
            used.add(cte)
            if not compiled:
                compiled.append(self._query(uid, read_query(*body), names))
            return Table(compiled[0])

        return table

    def _check_cte(self, name: str, at: Tokens, all_names: Sequence[str]) -> None:
        try:
            check_node_name(name)
        except ValueError as problem:
            raise at.problem(str(problem)) from None
        if name in SKELETON:
            raise at.problem(f"{name} is the name of a step; choose another name")
        if all_names.count(name) > 1:
            raise at.problem(f"the name {name} occurs twice")

    def _selects(self, name: str, query: Query, names: Names, correlation: Correlation | None) -> str:
        if len(query.selects) == 1:
            return self._select(name, query.selects[0], names, correlation=correlation)
        taken: list[str] = []
        branches: list[tuple[str, list[Column], list[Fragment]]] = []
        columns: list[str] = []
        for select in query.selects:
            label = select.relations[0].reads
            taken.append(label)
            number = f"_{taken.count(label)}" if taken.count(label) > 1 else ""
            node = self._select(f"{name}__union_{label}{number}", select, names, columns)
            own = list(self.emitter.rows[node].columns)
            columns = columns or own
            if len(own) != len(columns):
                raise select.tokens.problem(f"this SELECT has {len(own)} columns, the first one has {len(columns)}")
            at = select.tokens.start
            named = [replace(Column.plain(new, at, old), name=new) for new, old in zip(columns, own, strict=True)]
            branches.append((node, named, []))
        if query.operation != "UNION":
            return compared(self.emitter, name, query, branches)
        if not query.distinct:
            return self.emitter.select_all(name, branches, query.tokens)
        rows = self.emitter.select_all(f"{name}__rows", branches, query.tokens)
        return self._distinct(name, rows, query.tokens)

    def _select(
        self, name: str, select: Select, names: Names, columns_of_first: Sequence[str] = (), prefix: str = "",
        correlation: Correlation | None = None,
    ) -> str:  # fmt: skip
        """Add the steps of a SELECT, with names that begin with `prefix` or `name`; return the last, `name`."""
        select = scalars_joined(subqueries_joined(ranked_subquery(select)))
        check_over_clauses(select)
        prefix = prefix or name
        scope = self._scope(prefix, select, names)
        if correlation is not None:
            select = correlation.without(select, scope)
        outputs = select_outputs(select, scope, columns_of_first)
        grouping = read_grouping(select, outputs, scope)
        ranking = read_ranking(select, outputs)
        check_over(outputs, ranking, is_grouped=grouping is not None)
        order = [] if select.order is None else read_order(select.order)
        for run, _ in order:
            if by_name_or_position(run, outputs, scope, prefers_input=False) is None and grouping is None:
                scope.references(run)
        resolve_all(select, scope, outputs, ranking, is_grouped=grouping is not None)
        frames = FrameCompiler(self.emitter, scope, prefix, select.where, columns_outside(scope), self.warnings)
        frame = frames.compile()
        if any(output.from_star for output in outputs) and (ranking is not None or select.distinct):
            self.warnings.append((select.tokens, "* decides which columns the state holds"))
        group = None
        if grouping is not None:
            lateness = self._duration("milepost.allowed_lateness") if grouping.window is not None else None
            group = GroupCompiler(self.emitter, scope, prefix, frame, grouping, select.tokens, lateness)
            ranked = [] if ranking is None else ranking.expressions(outputs, scope)
            node = group.compile(outputs, select.having, ranked)
            where = [] if select.having is None else [group.rewritten(select.having)]
        else:
            node = frame.node
            where = [scope.rewritten(run, frame.name) for run in frame.where]

        def expression(run: Tokens) -> Fragment:
            return group.rewritten(run) if group is not None else scope.rewritten(run, frame.name)

        if ranking is None and any(output.has_over for output in outputs):
            functions = OverCompiler(self.emitter, scope, frame, select.tokens, self.warnings)
            node, columns = functions.compile(f"{prefix}__over", f"{prefix}__rows", outputs, where)
            where = []
        else:
            columns = [self._column(output, group, frame, expression) for output in outputs if not output.is_rank]
        if ranking is None and not select.distinct:
            return self.emitter.sql(name, node, columns, where, select.tokens)
        if ranking is not None:
            step = self._step_before(prefix) if group is None else f"{prefix}__top_in"
            ranks = RankCompiler(self.emitter, scope, outputs, expression, ranking, columns)
            node = ranks.compile(f"{prefix}__top", step, node, where)
            at = select.tokens.start
            columns, where = [Column.plain(output.name, at) for output in outputs], []
            if ranks.ranks_are_one:
                one = Fragment((("1", at),))
                ranks_of = {output.name for output in outputs if output.is_rank}
                columns = [Column(column.name, one) if column.name in ranks_of else column for column in columns]
            if not select.distinct:
                return self.emitter.sql(name, node, columns, where, select.tokens)
        node = self.emitter.sql(self._step_before(prefix), node, columns, where, select.tokens)
        return self._distinct(name, node, select.tokens)

    def _step_before(self, prefix: str) -> str:
        """Return the name of the step before __top or __distinct: __rows, unless a GROUP BY has it."""
        return f"{prefix}__rows" if f"{prefix}__rows" not in self.emitter.rows else f"{prefix}__top_in"

    def _column(
        self, output: Output, group: GroupCompiler | None, frame: Frame, expression: Callable[[Tokens], Fragment]
    ) -> Column:
        if output.reference is None:
            return Column(output.name, expression(output.run))
        if group is None:
            return Column.plain(output.name, output.run.start, frame.name(output.reference))
        if output.from_star:
            raise output.run.problem("* is not available with GROUP BY; name the columns")
        return Column(output.name, expression(output.run))

    def _scope(self, prefix: str, select: Select, names: Names) -> Scope:
        scope = Scope()
        read = [item.reads for item in select.relations]
        aliases = [GROUPED if item.grouped is not None else item.alias or item.name for item in select.relations]
        for index, item in enumerate(select.relations):
            if aliases[index] in aliases[:index]:
                raise item.tokens.problem(f"two relations have the name {aliases[index]}; give one an alias with AS")
            if item.join == "explode":
                label = f"explode_{item.alias}"
                relation = Relation(item, str(item.alias), label, "", list(item.columns))
            else:
                relation = self._relation(prefix, item, names, read, scope)
            relation.is_hidden = item.join in ("semi", "anti", "scalar")
            scope.relations.append(relation)
            if item.scalar is not None:
                scope.scalars[item.scalar.name] = (index, VALUE)
            for column in item.using:
                scope.merge(index, column)
        return scope

    def _relation(self, prefix: str, item: FromItem, names: Names, read: Sequence[str], scope: Scope) -> Relation:
        """Return a relation, and compile it first if it is a query. Aliases name its steps only if they must.

        Args:
            read: what all relations of FROM read.
        """
        pairs: list[tuple[Tokens, str]] = []
        is_only = read.count(item.reads) == 1 and not (item.is_query and item.reads in names)
        named = item.reads if is_only else item.alias or item.name
        if item.grouped is not None:
            table, alias = Table(self._select(f"{prefix}__{GROUPED}", item.grouped, names, prefix=prefix)), GROUPED
            label = f"from_{alias}"
        elif item.is_query:
            self._check_cte(item.name, item.tokens, [])
            query = read_query(item.tokens, item.columns)
            if item.qualify is not None:
                query = replace(query, selects=[replace(query.selects[0], qualify=item.qualify)])
            correlation = None
            if item.scalar is not None or item.equals is not None:
                correlation = Correlation(scope, item.scalar is not None)
                pairs = correlation.pairs
            if item.scalar is not None:
                query = replace(query, selects=[replace(query.selects[0], items=item.scalar.items, order=None)])
            table, alias = Table(self._query(f"{prefix}__{named}", query, names, correlation)), item.name
            label = f"from_{named}"
        else:
            alias, is_cte = item.alias or item.name, item.name in names
            found = names[item.name]() if is_cte else self.find(item.name)
            if found is None:
                known = [*names, *self.known]
                raise item.tokens.problem(
                    f"there is no source or statement {item.name}; {did_you_mean(item.name, known)}"
                )
            table, label = found, f"from_{named}" if is_cte or named in SKELETON else named
        rows = self.emitter.rows[table.node]
        if not rows.columns_known:
            message = f"the columns of {alias} are not known before its class is loaded"
            raise item.tokens.problem(f"{message}; select them in a `sql` operator of the spec first")
        is_own = item.is_query or item.name in names
        step = first_step_name(named, self.statement.name, self.renamed) if item.is_query and is_only else named
        full = f"{self.statement.name}.{step}" if is_own else named
        begin = first_name(full, self.renamed).rpartition(".")[2] if is_own or is_only else named
        return Relation(item, alias, label, table.node, list(rows.columns), table.is_static, pairs=pairs, prefix=begin)

    def _distinct(self, name: str, node: str, at: Tokens) -> str:
        """Add the step that compares whole rows, and the last one."""
        rows = self.emitter.read(node)
        columns = list(rows.columns)
        uid = f"{name}__distinct"
        if rows.kind == APPEND:
            ttl = self._duration("milepost.ttl")
            options = {} if ttl is None else {"ttl": ttl}
            self.emitter.add({"uid": uid, "kind": "deduplicate", "inputs": [node], "key": columns, **options}, at)
        else:
            count = "count" if "count" not in {one.casefold() for one in columns} else f"count_{ALL_ROWS}"
            operator = {"uid": uid, "kind": "aggregate", "inputs": [node], "key": columns}
            self.emitter.add(operator | {"aggregates": {count: "count(*)"}}, at)
        return self.emitter.sql(name, uid, [Column.plain(one, at.start) for one in columns], [], at)

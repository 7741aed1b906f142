"""Compile GROUP BY, aggregates and HAVING into an `aggregate` or `window` operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from milepost.jobspec.sql.emit import Column, Emitter
from milepost.jobspec.sql.joins import Frame
from milepost.jobspec.sql.names import (
    TIME_WINDOWS,
    Output,
    Reference,
    Scope,
    by_name_or_position,
    shown_name,
    window_field,
)
from milepost.jobspec.sql.text import (
    AGGREGATES,
    Call,
    Fragment,
    Select,
    Tokens,
    aggregate_calls,
    digest,
    duration_ms,
    duration_text,
)
from milepost.language import ColumnType, did_you_mean
from milepost.language.sql import quote
from milepost.operators.base import APPEND

ALL_ROWS = "all_rows"
"""Constant key column of windows over all rows."""


@dataclass(frozen=True, slots=True)
class Key:
    """One grouping expression."""

    run: Tokens
    reference: Reference | None


@dataclass
class Grouping:
    """The grouping of a SELECT.

    Attributes:
        keys: in the order of GROUP BY. window: the call of window() or session_window(); None: there is none.
    """

    keys: list[Key] = field(default_factory=list)
    window: Tokens | None = None


def read_grouping(select: Select, outputs: Sequence[Output], scope: Scope) -> Grouping | None:
    """Return the grouping of a SELECT, or None if it neither groups nor aggregates."""
    grouping = Grouping()
    runs: list[tuple[Tokens, Reference | None]] = []
    for run in select.group:
        if run.word(0) == "ALL" and len(run) == 1:
            runs += [(one.run, one.reference) for one in outputs if not one.has_aggregate]
            continue
        output = by_name_or_position(run, outputs, scope, prefers_input=True)
        if output is not None and output.has_aggregate:
            raise run.problem(f"{output.name} is an aggregate; GROUP BY takes columns and expressions of the input")
        if output is None and window_field(run, scope) is None and _window_of(run, scope) is None:
            runs.append((run, scope.column(run)))
        else:
            runs.append((run, None) if output is None else (output.run, output.reference))
    for run, reference in runs:
        window = _window_of(run, scope)
        if window is not None:
            if grouping.window is not None and grouping.window.normalized != window.normalized:
                raise run.problem("a query can have only one window")
            grouping.window = window
        elif window_field(run, scope) is None:
            grouping.keys.append(Key(run, reference))
    is_aggregate = bool(select.group) or select.having is not None or any(one.has_aggregate for one in outputs)
    return grouping if is_aggregate else None


def _window_of(run: Tokens, scope: Scope) -> Tokens | None:
    """Return the call of window() or session_window() that a grouping expression is or takes a field of."""
    name = run.word(0).lower()
    if name not in TIME_WINDOWS or scope.has(name) or run.kind(1) != "L_PAREN":
        return None
    return run.part(0, run.closing(1) + 1)


def _is_session(call: Tokens) -> bool:
    return call.word(0).lower() == "session_window"


@dataclass
class GroupCompiler:
    """Compiles one grouped SELECT to steps with names that begin with `prefix`.

    Attributes:
        lateness: the option milepost.allowed_lateness, or None.
    """

    emitter: Emitter
    scope: Scope
    prefix: str
    frame: Frame
    grouping: Grouping
    at: Tokens
    lateness: str | None = None
    columns: dict[str, Column] = field(default_factory=dict)
    calls: dict[tuple[str, ...], str] = field(default_factory=dict)
    aggregates: dict[str, str] = field(default_factory=dict)
    averages: dict[str, str] = field(default_factory=dict)
    casts: dict[str, str] = field(default_factory=dict)

    def compile(self, outputs: Sequence[Output], having: Tokens | None, order: Sequence[Tokens]) -> str:
        """Add the steps before the projection and the operator with the state; return its uid.

        Args:
            order: expressions of ORDER BY that are no outputs.
        """
        time = self.emitter.read(self.frame.node).event_time
        if time is not None:
            self._add(Column.plain(time, self.at.start))
        keys = sorted({self._key_column(key) for key in self.grouping.keys})
        runs = [one.run for one in outputs if one.has_aggregate]
        for run in (*runs, *([having] if having is not None else []), *order):
            for call in aggregate_calls(run):
                self._aggregate(call, keys)
        if not self.aggregates:
            self.aggregates[_free("count", keys)] = "count(*)"
        operator: dict[str, object] = {"uid": f"{self.prefix}__agg", "inputs": [f"{self.prefix}__rows"]}
        if self.grouping.window is not None:
            operator |= {"kind": "window", "window": self._window(self.grouping.window, time)}
            if self.lateness is not None:
                operator["allowed_lateness"] = self.lateness
            if not keys:
                self._add(Column(ALL_ROWS, Fragment((("1", self.at.start),))))
                keys = [ALL_ROWS]
        else:
            operator["kind"] = "aggregate"
        rows = self.emitter.read(self.frame.node)
        for name in rows.key if rows.kind != APPEND else ():
            self._add(Column.plain(name, self.at.start))
        if not self.columns:
            self._add(Column(ALL_ROWS, Fragment((("1", self.at.start),))))
        columns = [self.columns[name] for name in sorted(self.columns)]
        where = [self.scope.rewritten(run, self.frame.name) for run in self.frame.where]
        self.emitter.sql(f"{self.prefix}__rows", self.frame.node, columns, where, self.at)
        aggregates = {name: self.aggregates[name] for name in sorted(self.aggregates)}
        uid = self.emitter.add({**operator, "key": keys, "aggregates": aggregates}, self.at)
        if keys == [ALL_ROWS]:
            self.emitter.unique[uid] = tuple(column for column in self.emitter.rows[uid].key if column != ALL_ROWS)
        return uid

    def _add(self, column: Column) -> str:
        self.columns.setdefault(column.name, column)
        return column.name

    def _key_column(self, key: Key) -> str:
        if key.reference is not None:
            name = self.frame.name(key.reference)
            return self._add(Column.plain(name, key.run.start))
        if aggregate_calls(key.run):
            raise key.run.problem("GROUP BY cannot contain an aggregate")
        name = self.emitter.label(self.key_name(key), key.run)
        return self._add(Column(name, self.scope.rewritten(key.run, self.frame.name)))

    def key_name(self, key: Key) -> str:
        """Return the column that holds a grouping expression."""
        if key.reference is not None:
            return self.frame.name(key.reference)
        return f"key_{self.scope.rewritten(key.run, self.frame.name).digest}"

    def _argument(self, run: Tokens, prefix: str, condition: Tokens | None = None) -> str:
        """Return the column of an argument. It is computed only where the condition of FILTER holds."""
        # sum(1 / x) FILTER (WHERE x <> 0)  ->  CASE WHEN x <> 0 THEN 1 / x END
        reference = self.scope.column(run)
        if reference is not None:
            return self._add(Column.plain(self.frame.name(reference), run.start))
        text = self.scope.rewritten(run, self.frame.name)
        if condition is None:
            return self._add(Column(self.emitter.label(f"{prefix}_{text.digest}", run), text))
        where = self.scope.rewritten(condition, self.frame.name)
        pieces = [
            ("CASE WHEN ", where.start),
            *where.pieces,
            (" THEN ", text.start),
            *text.pieces,
            (" END", text.start),
        ]
        value = Fragment(tuple(pieces))
        return self._add(Column(self.emitter.label(f"{prefix}_{value.digest}", run), value))

    def _aggregate(self, call: Call, keys: Sequence[str]) -> None:
        if call.tokens.normalized in self.calls:
            return
        function, arguments = AGGREGATES[call.name], list(call.arguments)
        conditions = [call.where] if call.where is not None else []
        if call.name == "count_if":
            self._check_arguments(call, 1)
            conditions, arguments = [*conditions, arguments[0]], []
            if len(conditions) > 1:
                raise call.tokens.problem("count_if with FILTER: write count(*) FILTER (WHERE … AND …)")
        elif function == "count" and len(arguments) == 1 and arguments[0].kind(0) == "NUMBER" and not call.distinct:
            arguments = []
        elif function != "count" or arguments:
            self._check_arguments(call, 2 if function in ("arg_min", "arg_max") else 1)
        if call.distinct and function != "count":
            message = f"{call.name}(DISTINCT …) is not available in this version; aggregate over SELECT DISTINCT"
            raise call.tokens.problem(message)
        names = [self._argument(run, "arg", call.where) for run in arguments]
        where = [self._argument(run, "where") for run in conditions]
        distinct = "distinct " if call.distinct else ""
        text = f"{function}({distinct}{', '.join(map(quote, names)) or '*'})"
        if where:
            text += f" filter (where {quote(where[0])})"
        parts = [function, *(["distinct"] if call.distinct else []), *names, *where]
        name = _free("_".join(parts), keys)
        self.calls[call.tokens.normalized] = self._typed(name, function, names, text, keys)

    def _typed(self, name: str, function: str, arguments: Sequence[str], text: str, keys: Sequence[str]) -> str:
        """Add an aggregate; return the expression of its value with Spark's type."""
        # sum(decimal(12,2))  CAST(`sum_amount` AS DECIMAL(22, 2))
        # avg(decimal(12,2))  CAST(CAST(`sum_amount` AS DECIMAL(22, 2)) / NULLIF(`count_amount`, 0) AS DECIMAL(16, 6))
        # The sum is cast before the division: the quotient of a decimal(38,s) has only 6 digits after the point.
        type_ = self._type_of(arguments[0]) if arguments and function in ("sum", "avg") else None
        if type_ is None or type_.kind != "decimal":
            return quote(self._call(name, text))
        if function == "sum":
            wide = f"DECIMAL({min(38, type_.precision + 10)}, {type_.scale})"
            return f"CAST({quote(self._call(name, text))} AS {wide})"
        total, count = (
            self._call(_free(name.replace("avg", other, 1), keys), text.replace("avg", other, 1))
            for other in ("sum", "count")
        )
        total = f"CAST({quote(total)} AS DECIMAL({min(38, type_.precision + 10)}, {type_.scale}))"
        wide = f"DECIMAL({min(38, type_.precision + 4)}, {min(38, type_.scale + 4)})"
        return f"CAST({total} / NULLIF({quote(count)}, 0) AS {wide})"

    def _call(self, name: str, text: str) -> str:
        """Add an aggregate; return its column, which has another name if a different aggregate has this one."""
        if self.aggregates.get(name, text) != text:
            name = f"{name}_{digest([text])}"
        self.aggregates[name] = text
        return name

    def _type_of(self, column: str) -> ColumnType | None:
        """Return Spark's type of an argument, or None if it is not derived."""
        return self.emitter.derived.type_at(self.frame.node, str(self.columns[column].text))

    def _check_arguments(self, call: Call, count: int) -> None:
        if len(call.arguments) != count:
            raise call.tokens.problem(f"{call.name} takes {count} arguments, got {len(call.arguments)}")

    def _window(self, call: Tokens, time: str | None) -> dict[str, object]:
        arguments = call.part(2, len(call) - 1).split("COMMA")
        reference = self.scope.column(arguments[0])
        if time is None or reference is None or self.frame.name(reference) != time:
            expected = "its input has no event time" if time is None else f"expected the event time {time}"
            message = f"a window is over the event time: {expected}, got {arguments[0].text}"
            raise arguments[0].problem(message if time else f"{message}; set `event_time` in the source")
        if self.emitter.read(self.frame.node).shift_us:
            message = f"the event time of the rows of a window is the moment before {time}, but this SQL means {time}"
            raise arguments[0].problem(
                f"{message}; group by the columns of the window, or group the rows of the source"
            )
        milliseconds = []
        for run in arguments[1:]:
            length = duration_ms(run.name()) if len(run) == 1 and run.kind(0) == "STRING" else None
            if length is None:
                raise run.problem("expected a constant duration such as '10 minutes'")
            milliseconds.append(length)
        if _is_session(call):
            if len(milliseconds) != 1 or milliseconds[0] < 1:
                raise call.problem("expected session_window(time, gap), with a gap above 0")
            return {"session": {"gap": f"{milliseconds[0] * 1000 + 1}us"}}
        lengths = [duration_text(length) for length in milliseconds]
        if not 1 <= len(lengths) <= 3:
            raise call.problem("expected window(time, size), window(time, size, slide) or window(time, size, slide, "
                               "start)")  # fmt: skip
        is_sliding = len(lengths) > 1 and lengths[1] != lengths[0]
        window: dict[str, object] = (
            {"sliding": {"size": lengths[0], "slide": lengths[1]}} if is_sliding else {"tumbling": lengths[0]}
        )
        return window | ({"offset": lengths[2]} if len(lengths) == 3 and lengths[2] != "0s" else {})

    def rewritten(self, run: Tokens) -> Fragment:
        """Return an expression over the aggregated rows. Raises SqlProblem: it reads a column that is not grouped."""
        if (window := window_field(run, self.scope)) is not None:
            return Fragment(((self._field(window), run.start),))
        edits: list[tuple[int, int, str]] = []
        for call in aggregate_calls(run):
            items = call.tokens.items
            edits.append((items[0].start, items[-1].end, self.calls[call.tokens.normalized]))
        words = run.normalized
        for key in sorted(self.grouping.keys, key=lambda key: -len(key.run)):  # (a + b) * 2 before a + b
            wanted = key.run.normalized
            for at in range(len(words) - len(wanted) + 1):
                first, last = run.items[at].start, run.items[at + len(wanted) - 1].end
                inside = any(start <= first <= end for start, end, _ in edits)
                found = key.reference is None and words[at : at + len(wanted)] == wanted
                if found and not inside and is_whole(run, at, len(wanted)):
                    edits.append((first, last, quote(self.key_name(key))))
        if self.grouping.window is not None:
            edits += self._window_edits(run)
        grouped = {key.reference: self.key_name(key) for key in self.grouping.keys if key.reference is not None}

        def name(reference: Reference) -> str:
            if reference not in grouped:
                shown = shown_name(reference)
                called = run.name() if run.kind(0) == "VAR" and run.kind(1) == "L_PAREN" else ""
                among = f" ({called} is not one; {did_you_mean(called.lower(), AGGREGATES)})" if called else ""
                raise run.problem(f"{shown} is neither in GROUP BY nor in an aggregate{among}; add it to GROUP BY, or "
                                  f"write max({shown})")  # fmt: skip
            return grouped[reference]

        return self.scope.rewritten(run, name, edits)

    def _field(self, column: str) -> str:
        """Return the expression of a border of the window, with Spark's value."""
        # session_window(t, '10 minutes')  ->  gap: 600000001us; Spark's end is a microsecond less (decision 112)
        is_longer = column == "window_end" and self.grouping.window is not None and _is_session(self.grouping.window)
        return f"({quote(column)} - INTERVAL 1 MICROSECOND)" if is_longer else quote(column)

    def _window_edits(self, run: Tokens) -> list[tuple[int, int, str]]:
        """Return the edits of window.start, window.end and window itself in a longer expression."""
        edits = []
        for at in range(len(run)):
            if run.word(at).lower() not in TIME_WINDOWS or run.kind(at - 1) == "DOT":
                continue
            end = run.closing(at + 1) if run.kind(at + 1) == "L_PAREN" else at
            text = f"named_struct('start', `window_start`, 'end', {self._field('window_end')})"
            if run.kind(end + 1) == "DOT":
                text, end = self._field(f"window_{str(run.items[end + 2].text).lower()}"), end + 2
            edits.append((run.items[at].start, run.items[end].end, text))
        return edits


def is_whole(run: Tokens, at: int, length: int) -> bool:
    """Return whether tokens are an operand of their own, so that no operator around them binds tighter.

    With GROUP BY a + b, the first tokens of `a + b * 2` are not the sum.
    """
    before, after = run.kind(at - 1), run.kind(at + length)
    if before in ("", "L_PAREN", "COMMA") and after in ("", "R_PAREN", "COMMA"):
        return True
    part = run.part(at, at + length)
    is_call = part.kind(1) == "L_PAREN" and part.closing(1) == length - 1
    is_bracketed = part.kind(0) == "L_PAREN" and part.closing(0) == length - 1
    is_path = all(part.kind(index) in ("VAR", "IDENTIFIER", "DOT") for index in range(length))
    is_case = part.kind(0) == "CASE" and part.kind(length - 1) == "END"
    opens = ("DOT", "L_PAREN", "L_BRACKET", "COLON", "DCOLON")
    return (is_call or is_bracketed or is_path or is_case) and before != "DOT" and after not in opens


def _free(name: str, taken: Sequence[str]) -> str:
    """Return a name for an aggregate that no key column has."""
    return (
        f"agg_{name}" if name.casefold() in {one.casefold() for one in taken} | {"window_start", "window_end"} else name
    )

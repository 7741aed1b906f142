"""The law of each kind of operator: a batch query over its actual input, and its late rows.

A law consists of claims: DuckDB queries that return counterexamples, so their results must be empty. They cover all
checkpoints of a history together. Laws import nothing of `milepost.operators` or `milepost.state`, only spec and rules.

A new kind of operator needs one class, here or in its own module, and a line in `laws.py`. Laws can read these tables:

- each node's rows and late rows by name (`"u"`, `"u.late"`), with `__epoch`, `__stamp` and `__order`;
- `lineage (upto, __epoch)`: the epochs that led to each checkpoint with nothing in flight;
- `began (node, __epoch, stamp_us, input_us, fired_us)`: when an epoch began, the watermark of the node's inputs, the
  time up to which it had fired, and as `stamp_us` the later of the two, by which rows of sources are late;
- `mark (node, upto, watermark_us)`: the watermark at a checkpoint.

Spark's batch results define scalars and types. `differences.py` lists where DuckDB differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from milepost.jobspec.graph.graph import JobGraph
from milepost.language.aggregates import AggregateCall
from milepost.operators.aggregate.spec import AggregateOperator
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.deduplicate.spec import DeduplicateOperator
from milepost.operators.window.spec import WindowOperator
from milepost_testkit.models.data.aggregate_calls import FLOATS, said, shown

UNITS = {"d": "day", "w": "week", "mo": "month"}


@dataclass(frozen=True)
class Claim:
    """A statement about a node, and the query for its counterexamples."""

    says: str
    query: str


@dataclass(frozen=True)
class Place:
    """One input of an operator in its graph.

    Attributes:
        columns: DuckDB types of the input's columns. position: index of the input.
    """

    graph: JobGraph
    uid: str
    columns: Mapping[str, str]
    position: int = 0

    @property
    def input(self) -> str:
        return self.graph.nodes[self.uid].inputs[self.position]

    @property
    def time_us(self) -> str:
        """The event time of an input row. For a window's row it is the last microsecond of the window."""
        node = self.graph.nodes[self.input]
        return f'(epoch_us("{node.event_time}") + {node.shift_us})'

    @property
    def rows(self) -> str:
        """Its input rows with the stamp that permanently decides their lateness.

        Rows of a source have the watermark at the start of the epoch. Rows of an operator have their own stamp minus
        its holdback. If there are other inputs too, it is at most the watermark of the inputs, and at least the time up
        to which the node had fired.
        """
        node = self.graph.nodes[self.input]
        assert node.output_kind == "append", "of updates the newest rows are its input: `present`"
        own = f"__stamp - {self._holdback_us(self.input)}"
        if node.level > 0 and len({*self.graph.nodes[self.uid].inputs}) == 1:
            return f'SELECT * REPLACE ({own} AS __stamp) FROM "{self.input}"'
        least = f"CASE WHEN __stamp IS NOT NULL AND b.input_us IS NOT NULL THEN least({own}, b.input_us) END"
        stamp = "b.stamp_us" if node.level == 0 else f"greatest({least}, b.fired_us)"
        return (
            f'SELECT i.* REPLACE ({stamp} AS __stamp) FROM "{self.input}" i JOIN began b '
            f"ON b.node = '{self.uid}' AND b.__epoch = i.__epoch"
        )

    def _holdback_us(self, name: str) -> int:
        """Return a node's holdback. A row-wise node has the largest holdback of its inputs."""
        node = self.graph.nodes[name]
        return max(map(self._holdback_us, node.inputs)) if node.is_row_wise else node.holdback_us

    @property
    def present(self) -> str:
        """The input's rows at each checkpoint: all so far, or the newest row per key for updates."""
        node = self.graph.nodes[self.input]
        if node.output_kind == "append":
            return self.at_each(self.rows)
        return there(self, self.input)

    def at_each(self, rows: str) -> str:
        """Return the rows once per checkpoint that they led to, with the checkpoint in `upto`."""
        return f"SELECT lineage.upto, r.* FROM ({rows}) r JOIN lineage USING (__epoch)"

    def on_time(self, late: str | None) -> str:
        return self.rows if late is None else f"SELECT * FROM ({self.rows}) WHERE NOT coalesce({late}, false)"

    def late(self, late: str | None) -> str:
        return f"SELECT * FROM ({self.rows}) WHERE {'false' if late is None else f'coalesce({late}, false)'}"

    def newest(self, key: Sequence[str], columns: str) -> str:
        """Return the newest row per key at each checkpoint."""
        return (
            f'SELECT upto, {columns} FROM ({self.at_each(f"""SELECT * FROM "{self.uid}" """)}) '
            f"QUALIFY row_number() OVER (PARTITION BY {names(('upto', *key))} ORDER BY __order DESC) = 1"
        )

    def shown(self, key: Sequence[str], columns: str) -> str:
        """Return the rows that a table shows: the newest row per key, without deletes."""
        if not self.graph.nodes[self.uid].deletes:
            return self.newest(key, columns)
        newest = self.newest(key, "* EXCLUDE (upto)")
        return f'SELECT upto, {columns} FROM ({newest}) WHERE NOT "{DELETED_COLUMN}"'

    def appended(self, columns: str) -> str:
        return f'SELECT upto, {columns} FROM ({self.at_each(f"""SELECT * FROM "{self.uid}" """)})'

    def keyed(self, key: Sequence[str]) -> str:
        """Return key columns as grouping keys: -0.0 becomes 0.0, and all NaN are equal."""
        types = [self.columns[name] for name in key]
        values = [
            f'("{name}" + 0.0)::{type_} AS "{name}"' if type_ in FLOATS else f'"{name}" AS "{name}"'
            for name, type_ in zip(key, types, strict=True)
        ]
        return ", ".join(values)

    def with_plain_key(self, key: Sequence[str], rows: str) -> str:
        """Return rows with their key columns as in `keyed`."""
        return f"SELECT * REPLACE ({self.keyed(key)}) FROM ({rows})" if key else f"SELECT * FROM ({rows})"

    def calls(self, aggregates: Mapping[str, AggregateCall]) -> str:
        event_time = self.graph.nodes[self.input].event_time
        return ", ".join(
            f'{said(call.timed(event_time), self.columns)} AS "{name}"' for name, call in aggregates.items()
        )


def there(place: Place, uid: str) -> str:
    """Return the live rows of a node at each checkpoint, with their multiplicity."""
    node = place.graph.nodes[uid]
    columns = names(tuple(node.columns))
    if node.output_kind == "append":
        return place.at_each(f'SELECT * FROM "{uid}"')
    if node.output_kind != "retract" and not (node.is_select and node.retracts):
        return replace(place, uid=uid).shown(node.key, columns)
    read = place.at_each(f'SELECT * FROM "{node.read}"')
    weighted = f"SELECT upto, {columns}, sum(__weight)::BIGINT AS weight FROM ({read}) GROUP BY ALL"
    return f"SELECT upto, {columns} FROM ({weighted}) CROSS JOIN LATERAL (SELECT unnest(range(weight)))"


class Law(Protocol):
    """The law of one operator's output, for all checkpoints together."""

    def late(self, place: Place) -> str | None:
        """Return the SQL condition of a late input row, where null means on time; None if no row is ever late."""

    def batch(self, place: Place) -> str:
        """Return the batch query over its on-time rows, with the checkpoint in `upto`."""

    def claims(self, place: Place) -> Iterator[Claim]:
        """Yield the claims at each checkpoint without rows in flight, except those about late rows."""


@dataclass(frozen=True)
class AggregateLaw:
    """The newest row of each key is the aggregate over all its rows; nothing is late."""

    spec: AggregateOperator

    def late(self, place: Place) -> str | None:
        return None

    def batch(self, place: Place) -> str:
        if not self.spec.key:
            return self._totals(place)
        keys = names(self.spec.key)
        rows = f"SELECT * REPLACE ({place.keyed(self.spec.key)}) FROM ({place.present})"
        return f"SELECT upto, {keys}, {place.calls(self.spec.aggregates)} FROM ({rows}) GROUP BY upto, {keys}"

    def _totals(self, place: Place) -> str:
        """Return the query without a key: one row per checkpoint, even over no rows."""
        calls = place.calls(self.spec.aggregates)
        of_rows = f"SELECT upto, {calls} FROM ({place.present}) GROUP BY upto"
        of_none = f"SELECT {calls} FROM ({place.present}) WHERE false"
        without = f"SELECT DISTINCT upto FROM lineage WHERE upto NOT IN (SELECT upto FROM ({place.present}))"
        return f"{of_rows} UNION ALL SELECT * FROM ({without}), ({of_none})"

    def claims(self, place: Place) -> Iterator[Claim]:
        columns = [*(names((one,)) for one in self.spec.key), shown(self.spec.aggregates, place.columns)]
        newest = place.shown(self.spec.key, ", ".join(columns))
        yield Claim("the newest rows are the batch aggregate", differing(newest, self.batch(place)))


@dataclass(frozen=True)
class WindowLaw:
    """A window has all of its rows except late ones. It is emitted when the watermark reaches its end, or early."""

    spec: WindowOperator

    @property
    def _lateness_us(self) -> int:
        return microseconds(self.spec.allowed_lateness)

    def _bounds_us(self, place: Place) -> tuple[str, str]:
        windows = self.spec.window
        offset = microseconds(windows.offset or timedelta(0))
        if windows.calendar is None:
            assert isinstance(windows.tumbling, timedelta)
            size, time = microseconds(windows.tumbling), f"({place.time_us} - {offset})"
            end = f"({place.time_us} - ({time} % {size} + {size}) % {size} + {size})"
            return f"({end} - {size})", end
        assert windows.calendar.count == 1, "periods of several days, weeks or months have a test of their own"
        unit, zone = UNITS[windows.calendar.unit], windows.timezone or "UTC"
        after = f"to_microseconds({offset})"
        first = f"date_trunc('{unit}', (make_timestamptz({place.time_us}) AT TIME ZONE '{zone}') - {after})"
        bounds = (f"({first} + {after})", f"({first} + INTERVAL 1 {unit} + {after})")
        start, end = (f"epoch_us({bound} AT TIME ZONE '{zone}')" for bound in bounds)
        return start, end

    def late(self, place: Place) -> str | None:
        return f"{self._bounds_us(place)[1]} + {self._lateness_us} <= __stamp"

    def batch(self, place: Place) -> str:
        keys, (start, end) = names(("upto", *self.spec.key)), self._bounds_us(place)
        on_time = place.on_time(self.late(place))
        rows = place.at_each(f"SELECT *, {start} AS __start, {end} AS __end FROM ({on_time})")
        done = "true" if self.spec.emit == "early" else "__end <= watermark_us"
        return (
            f"SELECT {keys}, make_timestamptz(__start) AS window_start, "
            f"make_timestamptz(__end) AS window_end, {place.calls(self.spec.aggregates)} "
            f"FROM ({place.with_plain_key(self.spec.key, rows)}) JOIN mark USING (upto) "
            f"WHERE node = '{place.uid}' AND {done} GROUP BY {keys}, __start, __end"
        )

    def claims(self, place: Place) -> Iterator[Claim]:
        key = (*self.spec.key, "window_start", "window_end")
        every = f"{names(key)}, {shown(self.spec.aggregates, place.columns)}"
        rows = place.newest(key, every) if self.spec.updates else place.appended(every)
        yield Claim("windows are the batch aggregate of those that are done", differing(rows, self.batch(place)))
        yield from again_claims(self.spec, place)
        if not self.spec.updates:
            early = f'SELECT * FROM "{place.uid}" WHERE epoch_us(window_end) - 1 < __stamp'
            yield Claim("a window's row is on time for its consumers", early)


def again_claims(spec: WindowOperator, place: Place) -> Iterator[Claim]:
    """Yield the claims that no window is emitted unchanged, except a final one after an early one, or deleted twice.

    They only hold for windows that count their rows, since other results may not change with a new row.
    """
    counts = any(str(call) == "count(*)" for call in spec.aggregates.values())
    if not spec.updates or not counts:
        return
    node = place.graph.nodes[place.uid]
    before = f"OVER (PARTITION BY {names(('upto', *node.key))} ORDER BY __order)"
    gone = f'"{DELETED_COLUMN}"' if node.deletes else "false"
    alike = [f'"{name}" IS NOT DISTINCT FROM lag("{name}") {before}' for name in node.columns]
    same = f"NOT {gone} AND NOT coalesce(lag({gone}) {before}, true) AND {' AND '.join(alike)}"
    each = f"""SELECT *, {same} AS __same, {gone} AND coalesce(lag({gone}) {before}, true) AS __gone_again
        FROM ({place.at_each(f'SELECT * FROM "{place.uid}"')})"""
    again = f"SELECT * FROM ({each}) QUALIFY __same AND ({spec.emit != 'early'} OR lag(__same) {before})"
    yield Claim("a window comes out again when it is another one", again)
    yield Claim("a window that is gone, or never was there, does not go", f"SELECT * FROM ({each}) WHERE __gone_again")


@dataclass(frozen=True)
class DeduplicateLaw:
    """One complete input row per key, with its stamp. The law does not determine which one.

    With a ttl, a key may be emitted again once its row would have been late. Its next row then has a later stamp.
    """

    spec: DeduplicateOperator

    @property
    def _ttl_us(self) -> int | None:
        return None if self.spec.ttl is None else microseconds(self.spec.ttl)

    def late(self, place: Place) -> str | None:
        return None if self._ttl_us is None else f"{place.time_us} < __stamp - {self._ttl_us}"

    def batch(self, place: Place) -> str:
        """Return the first row of each key, as if no key returned after its ttl."""
        rows = place.at_each(place.on_time(self.late(place)))
        first = f"row_number() OVER (PARTITION BY upto, {names(self.spec.key)} ORDER BY __order) = 1"
        return f"SELECT * FROM ({rows}) QUALIFY {first}"

    def claims(self, place: Place) -> Iterator[Claim]:
        rows, own = place.at_each(place.on_time(self.late(place))), place.at_each(f'SELECT * FROM "{place.uid}"')
        whole = f"{names(tuple(place.columns))}, __stamp"
        one_too_many = f"SELECT upto, {whole} FROM ({own}) EXCEPT ALL SELECT upto, {whole} FROM ({rows})"
        yield Claim("rows are whole input rows", one_too_many)
        keys = place.keyed(self.spec.key)
        occurring, emitted = f"SELECT DISTINCT upto, {keys} FROM ({rows})", f"SELECT upto, {keys} FROM ({own})"
        if self._ttl_us is None:
            yield Claim("each key that came is there once", differing(emitted, occurring))
            return
        yield Claim("each key that came is there", differing(f"SELECT DISTINCT * FROM ({emitted})", occurring))
        until = f"{place.time_us} + {self._ttl_us}"
        each = f"SELECT upto, __order, __stamp AS stamp_us, {until} AS until_us, {keys} FROM ({own})"
        same = " AND ".join(f'x."{name}" IS NOT DISTINCT FROM y."{name}"' for name in self.spec.key)
        again = (
            f"SELECT x.* FROM ({each}) x JOIN ({each}) y ON x.upto = y.upto AND x.__order < y.__order AND {same} "
            "WHERE NOT (coalesce(x.stamp_us > y.until_us, false) OR coalesce(y.stamp_us > x.until_us, false))"
        )
        yield Claim("a key comes again only when it may be forgotten", again)


def retraction_claims(place: Place) -> Iterator[Claim]:
    """Yield the claims about rows that a node retracts and inserts, if operators read them."""
    node = place.graph.nodes[place.uid]
    columns = names(tuple(node.columns))
    read = place.at_each(f'SELECT * FROM "{node.read}"')
    left = f"SELECT upto, {columns}, sum(__weight) AS weight FROM ({read}) GROUP BY ALL HAVING weight <> 0"
    if node.output_kind != "retract":  # which emits nothing else
        shown = place.shown(node.key, columns)
        yield Claim("what is left of retractions is the newest rows", differing(left, f"SELECT *, 1 FROM ({shown})"))
    bits = ", ".join(f'"{column}"::VARCHAR AS "{column}"' for column in node.columns)  # -0.0 is not 0.0
    unread = f"SELECT upto, __epoch, {bits} FROM ({read}) GROUP BY ALL HAVING sum(__weight) = 0 OR count(*) > 1"
    yield Claim("a row that is as it was is not read again", unread)


def late_claims(law: Law, place: Place, output: str, late_columns: Sequence[str]) -> Iterator[Claim]:
    """Yield the claims about the late rows of an input.

    Args:
        output: the node with the late rows. late_columns: its columns, those that the operator consumes.
    """
    late = law.late(place)
    if late is not None:
        columns = names(late_columns)
        put_out = f'SELECT upto, {columns} FROM ({place.at_each(f"""SELECT * FROM "{output}" """)})'
        expected = f"SELECT upto, {columns} FROM ({place.at_each(place.late(late))})"
        yield Claim("late are the rows that the rule calls late", differing(put_out, expected))


def declared_order(place: Place, name: str, *, descends: bool) -> str:
    """Return the SQL order of a column by the spec's rules: 0.0 equals -0.0, and nulls come before all values."""
    value = f'("{name}" + 0.0)' if place.columns[name] in FLOATS else f'"{name}"'
    return f"{value} {'DESC NULLS LAST' if descends else 'ASC NULLS FIRST'}"


def whole_order(place: Place, name: str, *, descends: bool) -> Iterator[str]:
    """Yield the total SQL order of a column, which also orders -0.0 and 0.0."""
    yield f'"{name}" {"DESC NULLS LAST" if descends else "ASC NULLS FIRST"}'
    if place.columns[name] in FLOATS:
        yield f"CASE WHEN \"{name}\"::VARCHAR = '-0.0' THEN 0 ELSE 1 END{' DESC' if descends else ''}"


def names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def differing(actual: str, expected: str) -> str:
    """Return the difference of two multisets: rows with their surplus, negative if rows are missing."""
    both = f"SELECT *, 1 AS more FROM ({actual}) UNION ALL SELECT *, -1 FROM ({expected})"
    return f"SELECT sum(more) AS more, * EXCLUDE (more) FROM ({both}) GROUP BY ALL HAVING sum(more) <> 0"


def microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)

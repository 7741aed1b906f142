"""Walk from an output row back to the sources, operator by operator.

The first walk knows only the output row, and narrows the rows to read from each source. After a replay, a second walk
selects, of the rows that each node emitted, those that the output row depends on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from milepost.epoch import is_stamp
from milepost.jobmaster.tracing.selection import KnownValues, Values, matching, newest, selected, value_tuples
from milepost.jobspec.graph import JobGraph, Node, late_outputs
from milepost.jobspec.job import JobSpec
from milepost.operators.base import DELETED_COLUMN, LATE, UPDATES, RowTrace, edge_names, late_output
from milepost.protocol.records import WEIGHT_COLUMN

Alternatives = dict[str, list[KnownValues]]
"""Node -> known values of its rows. Rows that match one of them are needed."""


class Follow(Enum):
    """Which rows a walk follows, from the fewest on.

    LIVE: of the picked rows those that no later row has replaced or deleted. PICKED: those that operators picked among
    the rows of a key, whatever replaced them since. ALL: all rows of the key.
    """

    LIVE = "live"
    PICKED = "picked"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class NodeRows:
    """The rows of one node that an output row depends on.

    Attributes:
        by: columns whose values selected them; (): none could be used, so all rows are needed.
    """

    uid: str
    rows: pa.Table
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LateRows:
    """The known values of the late rows of one input of an operator.

    Attributes:
        uid: of the operator. output: name of its late rows. input: node that emitted them.
    """

    uid: str
    output: str
    input: str
    alternatives: list[KnownValues]

    def among(self, emitted: Mapping[str, Sequence[pa.Table]]) -> pa.Table:
        """Return the late rows of a replay."""
        tables = emitted.get(self.output, ())
        return selected(pa.concat_tables(tables), self.alternatives) if tables else pa.table({})


@dataclass(frozen=True, slots=True)
class _Needed:
    """The known values of the rows that an operator needs from one of its inputs.

    Attributes:
        late: output with the late rows of the input, which the operator ignored; None: it has none.
        trace: how the operator reads them, if only the newest of those it picked is needed; None: all.
    """

    known: KnownValues
    late: str | None = None
    trace: RowTrace | None = None

    def places(self, rows: pa.Table, emitted: Mapping[str, Sequence[pa.Table]]) -> list[int]:
        """Return the positions of these rows."""
        places = self._on_time(rows, emitted)
        if self.trace is None or not self.trace.newest_by or not places:
            return places
        return newest(rows, places, [*self.trace.equal], self.trace.newest_by)

    def _on_time(self, rows: pa.Table, emitted: Mapping[str, Sequence[pa.Table]]) -> list[int]:
        """Return the positions of these rows, without those that were late.

        Of equal rows, the last ones were late, because the watermark never goes back.
        """
        places = matching(rows, self.known)
        tables = [table for table in emitted.get(self.late, ()) if table.num_rows] if self.late else []
        if not tables or not places:  # without places, `rows` may have no columns
            return places
        late = pa.concat_tables(tables)
        names = [name for name in late.column_names if not is_stamp(name)]
        left_out = Counter(value_tuples(late, names))
        on_time = []
        found = value_tuples(rows.take(pa.array(places, pa.int64())), names)
        for place, values in reversed([*zip(places, found, strict=True)]):
            if left_out[values]:
                left_out[values] -= 1
            else:
                on_time.append(place)
        return on_time


@dataclass(frozen=True, slots=True)
class Walk:
    """The path from one sink back to the sources of its job."""

    spec: JobSpec
    graph: JobGraph
    sink: str

    def start(self, row: KnownValues) -> Alternatives:
        """Return the known values of the rows of the node that the sink publishes: for late rows, its input."""
        sink = self.graph.sink_inputs[self.sink]
        if not sink.part.startswith(LATE):
            return {sink.uid: [row]}
        uid, position = late_outputs(self.spec)[sink.output]
        return {self.graph.nodes[uid].inputs[position]: [row]}

    def narrowed(self, row: KnownValues) -> Alternatives:
        """Return the known values of the rows of each node that the output row may depend on."""
        needed = self.start(row)
        for node in self._upstream():
            for known in needed.get(node.uid, ()):
                for trace, of_input in self._known(node, known, picked=False):
                    needed.setdefault(node.inputs[trace.position], []).append(of_input)
        return needed

    def late(self, needed: Alternatives) -> Iterator[LateRows]:
        """Yield the known values of the late rows that the output row would depend on.

        Args:
            needed: as `narrowed` returns it.
        """
        for output, (uid, position) in late_outputs(self.spec).items():
            node = self.graph.nodes[uid]
            traces = [trace for trace in self._traces(node) if trace.position == position]
            alternatives = [
                known.through(trace, uid, picked=False) for known in needed.get(uid, ()) for trace in traces
            ]
            if alternatives:
                yield LateRows(uid, output, node.inputs[position], alternatives)

    def traced(self, start: Alternatives, emitted: Mapping[str, Sequence[pa.Table]], follow: Follow) -> list[NodeRows]:
        """Return the rows of each node that some rows depend on, back to the sources.

        Args:
            start: known values of the rows. emitted: output name -> rows that a replay emitted.
        """
        found = []
        needed = {uid: [_Needed(known) for known in alternatives] for uid, alternatives in start.items()}
        for node in self._upstream():
            if node.uid not in needed or node.kind == "static":
                continue
            every = _emitted(node, emitted, is_live=follow is Follow.LIVE)
            places = set[int]().union(*(one.places(every, emitted) for one in needed[node.uid]))
            rows = every.take(pa.array(sorted(places), pa.int64()))
            names = dict.fromkeys(name for one in needed[node.uid] for name in one.known.names if not is_stamp(name))
            found.append(NodeRows(node.uid, rows, tuple(name for name in names if name in every.column_names)))
            if rows.num_rows:
                for trace, known in self._known(node, KnownValues.of(rows), picked=follow is not Follow.ALL):
                    late = self._late_output(node, trace.position)
                    of_input = _Needed(known, late, trace if follow is Follow.LIVE else None)
                    needed.setdefault(node.inputs[trace.position], []).append(of_input)
        return found

    def _late_output(self, node: Node, position: int) -> str | None:
        if not self.spec.operator(node.uid).has_late_rows:
            return None
        return late_output(node.uid, edge_names(node.inputs), position)

    def _upstream(self) -> Iterator[Node]:
        return reversed(self.graph.nodes.values())

    def _known(self, node: Node, known: KnownValues, *, picked: bool) -> Iterator[tuple[RowTrace, KnownValues]]:
        for trace in self._traces(node):
            yield trace, known.through(trace, node.uid, picked=picked)

    def _traces(self, node: Node) -> tuple[RowTrace, ...]:
        if not node.inputs:
            return ()
        nodes = [self.graph.nodes[name] for name in node.inputs]
        return self.spec.operator(node.uid).row_traces(
            [tuple(one.columns) for one in nodes], [one.event_time for one in nodes]
        )


def _emitted(node: Node, emitted: Mapping[str, Sequence[pa.Table]], *, is_live: bool) -> pa.Table:
    """Return the rows that a node emitted, without retractions.

    Args:
        is_live: whether to leave out what a later row has replaced or deleted.
    """
    tables = emitted.get(node.read) or emitted.get(node.uid, ())
    if not tables:
        return pa.table({})
    rows = pa.concat_tables(tables, promote_options="permissive")
    if WEIGHT_COLUMN in rows.column_names:
        places = not_retracted(rows) if is_live else _added(rows)
    elif is_live and node.output_kind == UPDATES:
        places = _newest(rows, node.key)
    else:
        return rows
    return rows.take(pa.array(places, pa.int64()))


def _added(rows: pa.Table) -> list[int]:
    return [place for place, weight in enumerate(rows.column(WEIGHT_COLUMN).to_pylist()) if weight > 0]


def not_retracted(rows: pa.Table) -> list[int]:
    """Return the positions of the added rows that no later row retracts.

    Rows a +1, b +1, a -1, a +1 have the positions 0 to 3: 1 and 3 are left.
    """
    names = [name for name in rows.column_names if name != WEIGHT_COLUMN and not is_stamp(name)]
    added = defaultdict[Values, list[int]](list)
    weights = rows.column(WEIGHT_COLUMN).to_pylist()
    for place, (values, weight) in enumerate(zip(value_tuples(rows, names), weights, strict=True)):
        if weight > 0:
            added[values] += [place] * weight
        else:
            del added[values][max(0, len(added[values]) + weight) :]
    return sorted({place for places in added.values() for place in places})


def _newest(rows: pa.Table, key: Sequence[str]) -> list[int]:
    """Return the position of the last row of each key, unless it is a delete."""
    places = {values: place for place, values in enumerate(value_tuples(rows, key))}
    if DELETED_COLUMN not in rows.column_names:
        return sorted(places.values())
    deleted = rows.column(DELETED_COLUMN).to_pylist()
    return sorted(place for place in places.values() if not deleted[place])

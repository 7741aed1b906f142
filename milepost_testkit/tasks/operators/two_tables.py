"""An operator that keeps two tables of state, whose keys differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from milepost.operators.aggregate.run import AggregateByKey
from milepost.operators.contract import (
    ONLY_TABLE,
    CheckpointListener,
    Combiner,
    KeyedState,
    OperatorOutput,
    OperatorRun,
    OutputKind,
    StateTable,
)


class CountTwice:
    """Counts rows by its key in the table `coarse`, and by the key and one more column in `fine`; emits both."""

    output_kind = OutputKind.APPEND
    output_key: tuple[str, ...] = ()
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(self, coarse: AggregateByKey, fine: AggregateByKey) -> None:
        self.uid, self.routing_keys = coarse.uid, coarse.routing_keys
        self.parts = {"coarse": coarse, "fine": fine}
        self.tables = {
            "coarse": coarse.tables[ONLY_TABLE],
            "fine": StateTable(fine.key, coarse.routing_key, fine.state_schema),
        }
        self.output_schema = pa.schema([("table", pa.string()), *coarse.output_schema])

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> CountTwiceRun:
        runs = {name: part.begin({ONLY_TABLE: tables[name]}, previous_firing_us) for name, part in self.parts.items()}
        return CountTwiceRun(self, runs)


class CountTwiceRun:
    def __init__(self, operator: CountTwice, runs: Mapping[str, OperatorRun]) -> None:
        self._schema, self._runs = operator.output_schema, runs

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        for run in self._runs.values():
            for output in run.rows(position, rows, lateness_us):
                yield OperatorOutput(self._schema.empty_table(), output.late)

    def advance(self, firing_us: int | None) -> pa.Table:
        return self._schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        parts = [(name, run.finish(firing_us)) for name, run in self._runs.items()]
        return pa.concat_tables(
            part.select(self._schema.names[1:]).add_column(0, "table", pa.array([name] * part.num_rows, pa.string()))
            for name, part in parts
        )

"""DESIGN 4.3: a run that leaves rows in flight gives what the aligned run gives, row for row, and the same state.

Each epoch reads rows with the lateness stamp of that epoch. The aligned run takes them all; the other one takes as many
of what waits as hypothesis says, oldest first, in pieces, and leaves the rest to later epochs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.operators.build import build_operator
from milepost.operators.contract import BuildOptions, OperatorInput, StatefulOperator
from milepost.operators.kinds import STATEFUL_KINDS
from milepost.operators.process.declared import declare
from milepost.operators.process.run import ProcessFunction
from milepost.operators.process.user_code import read_function
from milepost.protocol.exchange.watermarks import END_OF_TIME_US, firing_watermark, source_watermark
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles
from milepost_testkit.tasks.operators.subtasks import OperatorRun

MINUTE_US = 60_000_000
DELAY_US = 10 * MINUTE_US
SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))])
NOTHING: list[tuple[pa.Table, int | None]] = [(SCHEMA.empty_table(), None)]

FUNCTION = """
from datetime import timedelta

class Sessions:
    state = {"rows": "list<int64>"}
    output = {"k": "string", "what": "string", "rows": "list<int64>"}

    def on_rows(self, key, rows, state, ctx):
        for row in rows.to_pylist():
            state["rows"] = [*(state["rows"] or []), row["x"]]
            yield {"k": key, "what": "row", "rows": state["rows"]}
            ctx.set_timer(row["t"] + timedelta(minutes=15))

    def on_timer(self, key, time, state, ctx):
        yield {"k": key, "what": f"timer {time}", "rows": state["rows"]}
        state.clear()
"""

row = st.tuples(st.sampled_from([None, "a", "b", "c"]), st.integers(0, 90))
epochs_of_rows = st.lists(st.lists(row, max_size=6), min_size=1, max_size=5)
taken = st.lists(st.integers(1, 5), min_size=5, max_size=5)
piece_sizes = st.lists(st.integers(1, 3), min_size=5, max_size=5)
some = profiles.examples(share=0.25)


def operator(kind: str, folder: Path) -> StatefulOperator:
    specs: dict[str, dict[str, Any]] = {
        "window": {"window": {"tumbling": "15m"}, "aggregates": {"n": "count(*)", "s": "sum(x)"}},
        "aggregate": {"aggregates": {"n": "count(*)", "s": "sum(x)", "last": "max(t)"}},
        "deduplicate": {"ttl": "20m"},
        "process": {"function": "ops:Sessions"},
    }
    spec = STATEFUL_KINDS[kind].model_validate(
        {"uid": "op", "kind": kind, "inputs": ["in"], "key": ["k"], **specs[kind]}
    )
    if kind != "process":
        return build_operator(spec, [OperatorInput(SCHEMA, "t")])
    (folder / "ops.py").write_text(FUNCTION)
    code = read_function("op", "ops:Sessions", folder)
    function = ProcessFunction(code, declare("op", ["k"], code.load()))
    return build_operator(spec, [OperatorInput(SCHEMA, "t")], BuildOptions(function, in_pieces=True))


class Stream:
    """The rows of some epochs, each with its stamp, and the watermark of the input after each epoch."""

    def __init__(self, epochs: Sequence[Sequence[tuple[str | None, int]]]) -> None:
        self.epochs: list[tuple[pa.Table, int | None]] = []
        self.watermarks: list[int | None] = []
        watermark: int | None = None
        number = 0
        for rows in epochs:
            times = [minute * MINUTE_US for _, minute in rows]
            columns = [[k for k, _ in rows], list(range(number, number + len(rows))), pa.array(times, pa.int64())]
            columns[2] = columns[2].cast(SCHEMA.field("t").type)
            self.epochs.append((pa.table(columns, schema=SCHEMA), watermark))
            watermark = source_watermark(watermark, max(times, default=None), DELAY_US)
            self.watermarks.append(watermark)
            number += len(rows)


class Result:
    """What a run has emitted, in order, what was late, and the state it left."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.late: list[dict[str, Any]] = []
        self.state: list[dict[str, Any]] = []

    def published(self, kind: str) -> list[str]:
        """What readers see in the end: the newest row of each key for updates, else every row."""
        if kind == "aggregate":
            return sorted(map(repr, {row["k"]: row for row in self.rows}.values()))
        return sorted(map(repr, self.rows))


def run_aligned(run: OperatorRun, stream: Stream) -> Result:
    result = Result()
    for (rows, stamp), watermark in zip(stream.epochs, stream.watermarks, strict=True):
        take(result, run, [(rows, stamp)], watermark)
    result.state = run.state().to_pylist()
    return result


def run_unaligned(run: OperatorRun, stream: Stream, taken: Sequence[int], sizes: Sequence[int]) -> Result:
    result = Result()
    waiting: list[tuple[pa.Table, int | None]] = []
    arriving = list(stream.epochs)
    index = 0
    while arriving or waiting:
        if arriving:
            rows, stamp = arriving.pop(0)
            waiting += [(rows.slice(position, 1), stamp) for position in range(rows.num_rows)]
        now, waiting = waiting[: taken[index % 5]], waiting[taken[index % 5] :]
        watermark = stream.watermarks[min(index, len(stream.watermarks) - 1)]
        firing = firing_watermark(run.firing_us, watermark, (stamp for _, stamp in waiting))
        take(result, run, join(now, sizes[index % 5]), firing)
        index += 1
    result.state = run.state().to_pylist()
    return result


def take(result: Result, run: OperatorRun, pieces: list[tuple[pa.Table, int | None]], firing: int | None) -> None:
    out = run.pieces([pieces or NOTHING], firing)
    result.rows += out.rows.to_pylist()
    result.late += out.late.to_pylist()


def join(pieces: Sequence[tuple[pa.Table, int | None]], size: int) -> list[tuple[pa.Table, int | None]]:
    """Neighbours of one stamp in pieces of at most `size` rows."""
    joined: list[tuple[pa.Table, int | None]] = []
    for rows, stamp in pieces:
        if joined and joined[-1][1] == stamp and joined[-1][0].num_rows < size:
            joined[-1] = (pa.concat_tables([joined[-1][0], rows]), stamp)
        else:
            joined.append((rows, stamp))
    return joined


@pytest.mark.deep
@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", ["window", "aggregate", "deduplicate", "process"])
def test_rows_left_in_flight_change_no_result_and_no_state(kind: str) -> None:
    """Whatever is left behind, and however the rest is cut, the outcome is that of the aligned run."""

    @some
    @given(epochs_of_rows, taken, piece_sizes)
    # The repeat of `a` waits while the watermark passes; what is remembered of it must wait as well.
    @example([[("a", 0)], [("a", 5), ("b", 60)], []], [1] * 5, [1] * 5)
    # A row that waits sets the timer of its key on, after the one that the aligned run fires first.
    @example([[("a", 0)], [("b", 30)], [("a", 25), ("b", 60)]], [1] * 5, [1] * 5)
    def same(epochs: Any, taken: Any, sizes: Any) -> None:
        stream = Stream(epochs)
        with tempfile.TemporaryDirectory() as folder:
            built = operator(kind, Path(folder))
            stores = [LocalStore(StoreConfig(f"file://{folder}/store-{number}")) for number in (1, 2)]
            aligned = run_aligned(OperatorRun(built, stores[0]), stream)
            unaligned = run_unaligned(OperatorRun(built, stores[1]), stream, taken, sizes)
        assert unaligned.published(kind) == aligned.published(kind)
        assert unaligned.late == aligned.late
        assert sorted(map(repr, unaligned.state)) == sorted(map(repr, aligned.state))

    same()


@pytest.mark.parametrize("kind", ["window", "process", "deduplicate"])
def test_at_the_end_of_time_everything_fires_and_no_state_is_left(kind: str, tmp_path: Path) -> None:
    """`run --drain`: plus infinity is past every window, timer and ttl."""
    run = OperatorRun(operator(kind, tmp_path), LocalStore(StoreConfig(f"file://{tmp_path}/store")))
    stream = Stream([[("a", 0), ("b", 80)]])
    run_aligned(run, stream)
    assert run.state().num_rows > 0
    out = run.pieces([NOTHING], END_OF_TIME_US).rows
    assert run.state().num_rows == 0
    assert out.num_rows == {"window": 1, "process": 1, "deduplicate": 0}[kind]

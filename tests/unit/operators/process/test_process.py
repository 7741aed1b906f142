"""Process functions: what a user's class is given, what its answers become, what is refused (DESIGN 8.1)."""

from __future__ import annotations

import itertools
import pickle
import random
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.operators.build import build_operator
from milepost.operators.contract import BuildOptions, OperatorFailed, OperatorInput, OutputKind, StatefulOperator
from milepost.operators.process.declared import declare
from milepost.operators.process.run import ProcessFunction
from milepost.operators.process.spec import ProcessOperator
from milepost.operators.process.user_code import UserCodeFailed, read_function
from milepost.protocol.exchange.watermarks import END_OF_TIME_US
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun
from milepost_testkit.tasks.operators.timers import next_timer

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))])
START = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_US = 60_000_000


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def rows(*values: tuple[Any, ...]) -> pa.Table:
    """Rows of (key, x, minute since the epoch)."""
    return pa.table(
        [[k for k, _, _ in values], [x for _, x, _ in values], [at(minute) for _, _, minute in values]], schema=SCHEMA
    )


class Workbench:
    """A folder next to a spec, and operators over the classes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "job"
        self.folder.mkdir()
        self._stores = (LocalStore(StoreConfig(f"file://{folder}/store-{number}")) for number in itertools.count())

    def write(self, text: str, path: str = "ops.py") -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))

    def operator(
        self,
        function: str = "ops:F",
        key: Sequence[str] = ("k",),
        schema: pa.Schema = SCHEMA,
        event_time: str | None = "t",
        timed: bool = True,
        in_pieces: bool = False,
    ) -> StatefulOperator:
        spec = ProcessOperator(uid="p", kind="process", inputs=["in"], key=list(key), function=function)
        code = read_function("p", function, self.folder)
        loaded = ProcessFunction(code, declare("p", key, code.load()))
        inputs = [OperatorInput(schema, event_time)]
        return build_operator(
            spec, inputs, BuildOptions(pickle.loads(pickle.dumps(loaded)), timed=timed, in_pieces=in_pieces)
        )

    def run(self, text: str | None = None, **more: Any) -> OperatorRun:
        if text is not None:
            self.write(text)
        return OperatorRun(self.operator(**more), next(self._stores))


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


COUNT = """\
class F:
    state = {"seen": "int64"}
    output = {"k": "string", "x": "int64", "seen": "int64"}

    def on_rows(self, key, rows, state, ctx):
        for x in rows.column("x").to_pylist():
            state["seen"] = (state["seen"] or 0) + 1
            yield {"x": x, "seen": state["seen"], "k": key}
"""


def test_rows_of_a_key_come_in_event_time_order_and_ties_in_plan_order(bench: Workbench) -> None:
    run = bench.run(COUNT)
    out = run.epoch(rows(("a", 3, 9), ("b", 1, 5), ("a", 1, 2), ("a", 4, 9), ("a", 2, 5), (None, 7, 1)))
    assert out.rows.to_pylist() == [
        *({"k": "a", "x": x, "seen": x} for x in (1, 2, 3, 4)),
        {"k": "b", "x": 1, "seen": 1},
        {"k": None, "x": 7, "seen": 1},
    ]
    assert out.late.num_rows == 0 and run.operator.output_kind is OutputKind.APPEND


def test_without_event_time_rows_of_a_key_come_in_plan_order(bench: Workbench) -> None:
    run = bench.run(COUNT, event_time=None)
    out = run.epoch(rows(("a", 3, 9), ("a", 1, 2), ("a", 4, 9)))
    assert out.rows.column("x").to_pylist() == [3, 1, 4]


def test_in_pieces_rows_of_a_key_keep_plan_order_wherever_they_are_cut(bench: Workbench) -> None:
    """A sort over what one call happens to hold would make the result depend on the clock."""
    given = rows(("a", 3, 9), ("a", 1, 2), ("a", 4, 9), ("a", 2, 5))
    for cuts in ((), (1,), (2, 3)):
        out = bench.run(COUNT, in_pieces=True).epoch(given, cuts=cuts).rows
        assert [(row["x"], row["seen"]) for row in out.to_pylist()] == [(3, 1), (1, 2), (4, 3), (2, 4)]


@pytest.mark.deep
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_state_of_a_key_is_what_it_was_left_at_whatever_the_parallelism(bench: Workbench, parallelism: int) -> None:
    run = bench.run(COUNT)
    for epoch in range(1, 4):
        keys = [f"k{number}" for number in range(20)]
        out = run.epoch(rows(*((key, epoch, epoch) for key in keys)), parallelism=parallelism)
        assert out.rows.column("seen").to_pylist() == [epoch] * 20
    assert sorted(run.state().column("k").to_pylist()) == sorted(keys)


def test_several_key_columns_come_as_a_tuple(bench: Workbench) -> None:
    run = bench.run(
        """
        class F:
            output = {"key": "string"}
            def on_rows(self, key, rows, state, ctx):
                yield {"key": repr(key)}
        """,
        key=("x", "k"),
    )
    assert run.epoch(rows(("a", 1, 0))).rows.column("key").to_pylist() == ["(1, 'a')"]


def test_a_cleared_state_is_deleted_and_an_unchanged_one_is_not_rewritten(bench: Workbench) -> None:
    run = bench.run("""
        class F:
            state = {"n": "int64", "seen": "list<int64>"}
            output = {"n": "int64"}
            def on_rows(self, key, rows, state, ctx):
                x = rows.column("x")[0].as_py()
                if x < 0:
                    state.clear()
                elif x > 0:
                    state["n"] = x
                    state["seen"] = [*(state["seen"] or []), x]
                elif state["seen"]:
                    state["seen"].append(0)
        """)
    run.epoch(rows(("a", 1, 0), ("b", 2, 0)))
    assert sorted(run.state().select(["k", "n", "seen"]).to_pylist(), key=lambda row: row["k"]) == [
        {"k": "a", "n": 1, "seen": [1]},
        {"k": "b", "n": 2, "seen": [2]},
    ]
    before = run.handles
    run.epoch(rows(("a", 1, 1)).slice(0, 0))
    assert [handle.runs for handle in run.handles] == [handle.runs for handle in before]
    run.epoch(rows(("a", -1, 1), ("b", 0, 1)))
    assert run.state().select(["k", "seen"]).to_pylist() == [{"k": "b", "seen": [2, 0]}]
    before = run.handles
    run.epoch(rows(("never", -1, 2)))
    assert [handle.runs for handle in run.handles] == [handle.runs for handle in before]


TIMEOUT = """\
class F:
    state = {"last": "timestamp[us, UTC]"}
    output = {"k": "string", "fired": "timestamp[us, UTC]", "watermark": "timestamp[us, UTC]"}

    def on_rows(self, key, rows, state, ctx):
        from datetime import timedelta
        state["last"] = rows.column("t")[-1].as_py()
        ctx.set_timer(state["last"] + timedelta(minutes=10))

    def on_timer(self, key, time, state, ctx):
        state.clear()
        yield {"k": key, "fired": time, "watermark": ctx.watermark}
"""


def test_a_timer_fires_in_the_epoch_whose_firing_watermark_reaches_it(bench: Workbench) -> None:
    run = bench.run(TIMEOUT)
    assert run.epoch(rows(("a", 1, 0), ("b", 1, 5)), firing_us=9 * MINUTE_US).rows.num_rows == 0
    assert [next_timer(handle) for handle in run.handles] == [10 * MINUTE_US]
    fired = run.epoch(rows().slice(0), firing_us=10 * MINUTE_US).rows
    assert fired.to_pylist() == [{"k": "a", "fired": at(10), "watermark": at(10)}]
    assert run.state().column("k").to_pylist() == ["b"]
    assert run.epoch(rows(("b", 1, 7)), firing_us=16 * MINUTE_US).rows.num_rows == 0, "set again: it replaces"
    assert run.epoch(rows(("c", 1, 2)), firing_us=20 * MINUTE_US).rows.to_pylist() == [
        {"k": "c", "fired": at(12), "watermark": at(20)},
        {"k": "b", "fired": at(17), "watermark": at(20)},
    ]
    assert run.state().num_rows == 0 and run.epoch(rows(), firing_us=2**62).rows.num_rows == 0


def test_a_timer_may_set_the_next_one_and_all_that_are_due_fire_in_order(bench: Workbench) -> None:
    run = bench.run("""
        from datetime import timedelta
        class F:
            state = {"ticks": "int64"}
            output = {"k": "string", "at": "timestamp[us, UTC]", "ticks": "int64"}
            def on_rows(self, key, rows, state, ctx):
                ctx.set_timer(rows.column("t")[0].as_py())
            def on_timer(self, key, time, state, ctx):
                state["ticks"] = (state["ticks"] or 0) + 1
                if state["ticks"] < 4:
                    ctx.set_timer(time + timedelta(minutes=10))
                return {"k": key, "at": time, "ticks": state["ticks"]}
        """)
    first = run.epoch(rows(("b", 1, 0), ("a", 1, 10)), firing_us=20 * MINUTE_US).rows
    assert [(row["k"], row["at"]) for row in first.to_pylist()] == [
        ("b", at(0)), ("a", at(10)), ("b", at(10)), ("a", at(20)), ("b", at(20)),
    ]  # fmt: skip
    assert [next_timer(handle) for handle in run.handles] == [30 * MINUTE_US]
    rest = run.epoch(rows(), firing_us=10**9 * MINUTE_US).rows
    assert [(row["k"], row["ticks"]) for row in rest.to_pylist()] == [("a", 3), ("b", 4), ("a", 4)]


def test_the_watermark_of_on_rows_is_that_of_the_start_of_the_epoch(bench: Workbench) -> None:
    run = bench.run("""
        class F:
            output = {"watermark": "timestamp[us, UTC]"}
            def on_rows(self, key, rows, state, ctx):
                yield {"watermark": ctx.watermark}
        """)
    assert run.epoch(rows(("a", 1, 0)), firing_us=MINUTE_US).rows.column(0).to_pylist() == [None]
    assert run.epoch(rows(("a", 1, 0)), MINUTE_US, 5 * MINUTE_US).rows.column(0).to_pylist() == [at(1)]


@pytest.mark.deep
def test_the_result_depends_neither_on_epochs_nor_on_parallelism(bench: Workbench) -> None:
    """A value read back from a checkpoint is the value that was set: float32 rounds, lists are copies."""
    text = """
        class F:
            state = {"sum": "float32", "seen": "list<float32>"}
            output = {"k": "string", "x": "int64", "sum": "float64", "seen": "string"}
            def on_rows(self, key, rows, state, ctx):
                for x in rows.column("x").to_pylist():
                    state["sum"] = (state["sum"] or 0.0) + x / 7
                    state["seen"] = [*(state["seen"] or [])[-2:], state["sum"]]
                    yield {"k": key, "x": x, "sum": state["sum"], "seen": repr(state["seen"])}
        """
    generator = random.Random(7)
    values = [(generator.choice("abcdef"), number, number) for number in range(300)]

    def everything(cuts: Sequence[int], parallelism: int) -> list[tuple[Any, ...]]:
        run = bench.run(text)
        bounds = [0, *cuts, len(values)]
        parts = [run.epoch(rows(*values[a:b]), parallelism=parallelism).rows for a, b in itertools.pairwise(bounds)]
        return sorted(tuple(row.values()) for row in pa.concat_tables(parts).to_pylist())

    whole = everything([], 1)
    assert len(whole) == 300
    for parallelism in (1, 2, 3):
        assert everything(sorted(generator.sample(range(300), 6)), parallelism) == whole


def test_a_second_attempt_of_an_epoch_gives_the_same_bytes(bench: Workbench) -> None:
    """An instance serves one subtask in one epoch: what a class stores in `self` or its module is lost (I12)."""
    run = bench.run("""
        CALLS = []
        class F:
            state = {"calls": "int64"}
            output = {"calls": "int64", "own": "int64"}
            def __init__(self):
                self.own = 0
            def on_rows(self, key, rows, state, ctx):
                CALLS.append(key)
                self.own += 1
                state["calls"] = len(CALLS)
                yield {"calls": len(CALLS), "own": self.own}
        """)
    first = run.epoch(rows(("a", 1, 0), ("b", 1, 0))).rows
    handles, run.handles, run.epochs = run.handles, (), 0
    assert run.epoch(rows(("a", 1, 0), ("b", 1, 0))).rows.equals(first)
    assert run.handles == handles and first.to_pylist()[-1] == {"calls": 2, "own": 2}


BATCH = """\
import pyarrow as pa
import pyarrow.compute as pc

class F:
    state = {"total": "int64"}
    output = {"k": "string", "total": "int64"}

    def on_batch(self, batch, state, ctx):
        both = pa.concat_tables([state, batch.select(["k", "x"]).rename_columns(["k", "total"])])
        sums = both.group_by("k", use_threads=False).aggregate([("total", "sum")]).rename_columns(["k", "total"])
        return sums, sums.filter(pc.field("total") != 0)
"""


@pytest.mark.parametrize("parallelism", [1, 3])
def test_on_batch_gets_all_rows_and_the_state_of_their_keys_and_returns_both(
    bench: Workbench, parallelism: int
) -> None:
    run = bench.run(BATCH)
    run.epoch(rows(("a", 1, 0), ("b", 2, 1), ("a", 3, 2), ("c", 9, 3)), parallelism=parallelism)
    out = run.epoch(rows(("a", -4, 4), ("b", 5, 5)), parallelism=parallelism).rows
    assert sorted(out.to_pylist(), key=lambda row: row["k"]) == [{"k": "a", "total": 0}, {"k": "b", "total": 7}]
    left = {row["k"]: row["total"] for row in run.state().to_pylist()}
    assert left == {"b": 7, "c": 9}, "a is not in the new state, c was not in the batch"


FAR = {
    "date": pa.array([3_000_000], pa.int32()).cast(pa.date32()),
    "timestamp[s]": pa.array([2**50], pa.timestamp("s")),
}


@pytest.mark.parametrize("type_", FAR)
def test_a_time_that_python_lacks_is_named_where_a_class_needs_it_as_key_or_state(bench: Workbench, type_: str) -> None:
    """Arrow has it, so `on_batch` takes it."""
    value = FAR[type_]
    batch = f"""\
        class F:
            state = {{"seen": "{type_}"}}
            output = {{"x": "int64"}}

            def on_batch(self, batch, state, ctx):
                return None, batch.append_column("seen", batch["v"]).select(["v", "seen"])
        """
    each = batch.replace("on_batch(self, batch, state, ctx)", "on_rows(self, key, rows, state, ctx)")
    keyed = pa.table({"v": value, "x": [1]})
    more = {"key": ("v",), "schema": keyed.schema, "event_time": None}
    run = bench.run(batch, **more)
    run.epoch(keyed)
    assert run.state().column("seen").combine_chunks().equals(value)
    with wording.raises(OperatorFailed):
        bench.run(each, **more).epoch(keyed)

    keyed = pa.table({"k": ["a"], "v": value})
    more = {"schema": keyed.schema, "event_time": None}
    run = bench.run(batch.replace('["v", "seen"]', '["k", "seen"]'), **more)
    run.epoch(keyed)
    bench.write(each)
    run.operator = bench.operator(**more)
    with wording.raises(OperatorFailed):
        run.epoch(keyed)


def test_on_batch_gets_rows_by_event_time_and_those_of_one_time_as_they_came(bench: Workbench) -> None:
    """I12: what a class makes of the order is the same in every attempt."""
    run = bench.run("""
        class F:
            output = {"x": "int64"}
            def on_batch(self, batch, state, ctx):
                return batch.select(["x"]), state
        """)
    told = run.epoch(rows(*(("a", number, 1 - number % 2) for number in range(400)))).rows
    assert told.column("x").to_pylist() == [*range(1, 400, 2), *range(0, 400, 2)]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("None", "on_batch: expected (output, state), got NoneType"),
        ("(None, 1)", "expected a pyarrow Table as new state, got int"),
        ("(None, pa.concat_tables([new, new]))", "the new state has a key twice"),
        ("(None, new.set_column(0, 'k', pa.array(['z'])))", "the new state has a key that is not in the batch"),
        ("(None, new.select(['k']))", "state column total is missing; got k"),
        ("(None, new.set_column(1, 'total', pa.array(['z'])))", "state column total is int64, got string"),
        ("(batch, None)", "output column total is missing; got k, x, t"),
        ("(ctx.set_timer(None), None)", "timers of on_batch are not available in this version (ops.py, line 9)"),
    ],
)
def test_what_on_batch_returns_is_checked(bench: Workbench, result: str, message: str) -> None:
    run = bench.run(f"""\
import pyarrow as pa

class F:
    state = {{"total": "int64"}}
    output = {{"k": "string", "total": "int64"}}

    def on_batch(self, batch, state, ctx):
        new = pa.table({{"k": ["a"], "total": [1]}})
        return {result}
""")
    with pytest.raises(OperatorFailed) as failure:
        run.epoch(rows(("a", 1, 0)))
    assert message in failure.value.reason


def test_a_yielded_table_may_have_its_columns_in_any_order_and_narrower_types(bench: Workbench) -> None:
    run = bench.run("""
        import pyarrow as pa
        class F:
            output = {"n": "int64", "f": "float64", "s": "string"}
            def on_rows(self, key, rows, state, ctx):
                yield {"n": 1, "f": 2, "s": None}
                yield pa.table({"s": pa.array(["x"], pa.large_string()), "f": [1], "n": pa.array([3], pa.int8())})
                yield pa.record_batch({"n": [4], "f": [0.5], "s": ["y"]})
                yield {"n": 5, "f": 0.25, "s": "z"}
        """)
    out = run.epoch(rows(("a", 1, 0))).rows
    assert out.schema == pa.schema([("n", pa.int64()), ("f", pa.float64()), ("s", pa.string())])
    assert out.column("n").to_pylist() == [1, 3, 4, 5] and out.column("f").to_pylist() == [2.0, 1.0, 0.5, 0.25]


BODY = """\
import sys
from datetime import datetime, timedelta, timezone
import pyarrow as pa

class F:
    state = {"n": "int64"}
    output = {"n": "int64", "at": "timestamp[us, UTC]"}

    def on_rows(self, key, rows, state, ctx):
        now = rows.column("t")[0].as_py()
        BODY

    def on_timer(self, key, time, state, ctx):
        ctx.set_timer(time)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise RuntimeError('broken\\nhere')", "RuntimeError: broken (ops.py, line 11)"),
        ("yield 1 / 0", "ZeroDivisionError: division by zero (ops.py, line 11)"),
        ("sys.exit(3)", "SystemExit: 3 (ops.py, line 11)"),
        ("rows.column('missing')", "(ops.py, line 11)"),
        ("assert False", "AssertionError (ops.py, line 11)"),
        ("yield {'n': 1}", "on_rows: output column at is missing; got n (ops.py, line 11)"),
        ("yield {'n': 1, 'at': now, 'nn': 1}", "output has no column nn; did you mean"),
        ("yield {'n': 'x', 'at': now}", "on_rows: output column n is int64, got str (ops.py, line 11)"),
        ("yield {'n': True, 'at': now}", "output column n is int64, got bool"),
        ("yield {'n': 1.0, 'at': now}", "output column n is int64, got float"),
        ("yield {'n': 2**63, 'at': now}", "output column n is int64, got int:"),
        ("yield {'n': 1, 'at': now.replace(tzinfo=None)}", "got datetime without time zone"),
        ("yield {'n': 1, 'at': 5}", "output column at is timestamp[us, UTC], got int"),
        ("yield 5", "expected a dict or a pyarrow Table as output, got int (ops.py, line 11)"),
        ("return 5", "on_rows: expected dicts or tables, got int"),
        ("yield pa.table({'n': ['x'], 'at': [now]})", "output column n is int64, got string"),
        ("yield pa.table({'n': [1]})", "output column at is missing; got n"),
        ("state['m'] = 1", "KeyError: `state` declares no column m; known: n (ops.py, line 11)"),
        ("state['n'] = 'x'", "TypeError: state column n is int64, got str (ops.py, line 11)"),
        ("ctx.set_timer(5)", "expected a datetime with time zone, got 5"),
        ("ctx.set_timer(datetime(2020, 1, 1))", "expected a datetime with time zone"),
        (
            "ctx.set_timer(now)",
            "a timer set in on_timer must be later than 1970-01-01 00:00:00+00:00 (ops.py, line 14)",
        ),
    ],
)
def test_what_a_class_does_wrong_is_a_typed_failure_with_its_line(bench: Workbench, body: str, message: str) -> None:
    """A subtask never raises for what the user's code does: it declines, and names the user's line (DESIGN 4.2)."""
    run = bench.run(BODY.replace("BODY", body))
    with pytest.raises(OperatorFailed) as failure:
        run.epoch(rows(("a", 1, 0)), firing_us=0)
    assert message in failure.value.reason and "\n" not in failure.value.reason and failure.value.uid == "p"


def test_memory_that_a_class_does_not_get_is_no_failure_of_its_own_and_names_its_line(bench: Workbench) -> None:
    """The task says what to set, as of all else that runs out of memory; the job does not count it."""
    run = bench.run(BODY.replace("BODY", "bytearray(1 << 62)"))
    with pytest.raises(MemoryError, match=r"MemoryError \(ops.py, line 11\)"):
        run.epoch(rows(("a", 1, 0)), firing_us=0)


def test_a_timer_that_could_never_fire_is_refused(bench: Workbench) -> None:
    with wording.raises(OperatorFailed):
        bench.run(TIMEOUT, timed=False).epoch(rows(("a", 1, 0)))
    with wording.raises(OperatorFailed):
        bench.run(TIMEOUT.replace("on_timer(", "other(")).epoch(rows(("a", 1, 0)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("output = {'a': 'int64'}", "expected on_rows or on_batch, got neither"),
        ("output = {'a': 'int64'}; on_rows = on_batch = print", "expected on_rows or on_batch, got both"),
        ("output = {'a': 'int64'}; on_timer = on_batch = print", "timers of on_batch are not available"),
        ("on_rows = print", "`output` must be a mapping of column names to types, got nothing"),
        ("output = {}; on_rows = print", "`output` declares no column"),
        ("output = ['a']; on_rows = print", "`output` must be a mapping of column names to types, got a list"),
        ("output = {'a': 'varchar'}; on_rows = print", "'varchar' is not a column type"),
        ("output = {'a': 'int64', 'A': 'int64'}; on_rows = print", "the column A occurs twice"),
        ("output = {'a': 'int64'}; state = {'K': 'int64'}; on_rows = print", "`state` declares K, which is a key"),
        ("output = {'a': 'int64'}; state = {'__timer': 'int64'}; on_rows = print", "'__timer' is not a column name"),
        ("output = {1: 'int64'}; on_rows = print", "a column name is text, got 1"),
    ],
)
def test_a_class_that_is_no_process_function_is_refused(bench: Workbench, body: str, message: str) -> None:
    bench.write(f"class F:\n    {body}\n")
    with wording.raises(InvalidRequest) as refusal:
        bench.operator()
    assert message in refusal.value.message


def test_a_missing_module_or_class_or_a_broken_file_is_named(bench: Workbench) -> None:
    with wording.raises(InvalidRequest):
        bench.operator("nowhere.ops:F")
    bench.write("x = 1\nclass F\n", "broken.py")
    with wording.raises(InvalidRequest):
        bench.operator("broken:F")
    bench.write("F = 1")
    with wording.raises(UserCodeFailed):
        bench.operator()
    bench.write("\nimport absent_library")
    with wording.raises(UserCodeFailed):
        bench.operator()


def test_modules_next_to_the_spec_import_each_other_and_travel_together(bench: Workbench) -> None:
    """The text travels: a worker that has no such file runs it, helpers, packages and relative imports included."""
    bench.write("def double(x):\n    return shared.FACTOR * x\nimport shared\n", "helper.py")
    bench.write("FACTOR = 2\n", "shared.py")
    bench.write(
        "from .parts import unit\nfrom . import parts as same\nNAME = unit.NAME + same.__name__[-5:]\n",
        "pack/__init__.py",
    )
    bench.write("", "pack/parts/__init__.py")
    bench.write("from ...shared import FACTOR as f\nNAME = f'unit{f}'\n", "pack/parts/unit.py")
    bench.write("raise RuntimeError('nobody imports this')\n", "other.py")
    bench.write(
        """
        from __future__ import annotations
        import dataclasses, json
        import pack.parts.unit as unit
        from helper import *
        @dataclasses.dataclass
        class Row:
            x: int
        class F:
            output = {"x": "int64", "name": "string"}
            def on_rows(self, key, rows, state, ctx):
                import pack
                assert pack.parts.unit is unit and json.dumps(1) == "1"
                yield {"x": double(Row(21).x), "name": pack.NAME}
        """
    )
    run = bench.run()
    assert {file.module for file in read_function("p", "ops:F", bench.folder).files} == {
        "ops", "helper", "shared", "pack", "pack.parts", "pack.parts.unit",
    }  # fmt: skip
    before = set(sys.modules) & {"ops", "helper", "shared", "pack"}
    for file in bench.folder.rglob("*.py"):
        file.unlink()
    assert run.epoch(rows(("a", 1, 0))).rows.to_pylist() == [{"x": 42, "name": "unit2parts"}]
    assert set(sys.modules) & {"ops", "helper", "shared", "pack"} == before


def test_an_edited_helper_changes_the_hash_and_the_next_load_runs_it(bench: Workbench) -> None:
    """I13: the code that ran is the code that is recorded, helpers included."""
    bench.write("VALUE = 1\n", "helper.py")
    bench.write("import helper\nclass F:\n    value = helper.VALUE\n")
    first = read_function("p", "ops:F", bench.folder)
    bench.write("VALUE = 2\n", "helper.py")
    second = read_function("p", "ops:F", bench.folder)
    assert first.digest != second.digest
    assert (first.load().value, second.load().value, first.load().value) == (1, 2, 1)
    bench.write("VALUE = 1\n", "helper.py")
    assert read_function("p", "ops:F", bench.folder) == first


def test_a_timer_set_below_the_firing_watermark_waits_until_that_moves(bench: Workbench) -> None:
    """When it fires must not depend on where an epoch was cut; Flink's timers wait for the next watermark, too."""
    run = bench.run(TIMEOUT)
    run.epoch(rows(), firing_us=30 * MINUTE_US)
    assert run.epoch(rows(("a", 1, 0)), firing_us=30 * MINUTE_US).rows.num_rows == 0
    fired = run.epoch(rows(), firing_us=30 * MINUTE_US + 1).rows
    assert fired.column("fired").to_pylist() == [at(10)]


def test_a_class_that_always_sets_new_timers_does_not_keep_a_job_from_ending(bench: Workbench) -> None:
    """`run --drain`: at plus infinity every timer is due, also the one that a timer sets."""
    run = bench.run("""
        from datetime import timedelta
        class F:
            output = {"n": "int64"}
            def on_rows(self, key, rows, state, ctx):
                ctx.set_timer(rows.column("t")[0].as_py())
            def on_timer(self, key, time, state, ctx):
                yield {"n": 1}
                ctx.set_timer(time + timedelta(hours=1))
        """)
    assert run.epoch(rows(("a", 1, 0)), firing_us=300 * MINUTE_US).rows.num_rows == 6
    with wording.raises(OperatorFailed):
        run.epoch(rows(), firing_us=END_OF_TIME_US)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def write(path: str, text: str) -> None:
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))

    yield write
    for name in [name for name in sys.modules if name.startswith("milepost_test_ops")]:
        del sys.modules[name]


def test_an_installed_module_is_imported_and_one_that_changed_since_is_refused(
    bench: Workbench, installed: Callable[[str, str], None]
) -> None:
    """A process cannot run two forms of an installed package: it says so instead of recording the wrong one (I13)."""
    installed("milepost_test_ops_a/__init__.py", "")
    installed("milepost_test_ops_a/inner.py", COUNT.replace('"x": x', '"x": 1 // 0'))
    with wording.raises(OperatorFailed):
        bench.run(function="milepost_test_ops_a.inner:F").epoch(rows(("a", 1, 0)))
    function = read_function("p", "milepost_test_ops_a.inner:F", bench.folder)
    assert function.files == () and function.running_digest() == function.digest
    installed("milepost_test_ops_a/__init__.py", "CHANGED = True\n")
    with wording.raises(InvalidRequest):
        read_function("p", "milepost_test_ops_a.inner:F", bench.folder)
    assert function.running_digest() == function.digest


def test_a_module_next_to_the_spec_precedes_an_installed_one(
    bench: Workbench, installed: Callable[[str, str], None]
) -> None:
    installed("milepost_test_ops_b.py", "class F:\n    output = {'here': 'int64'}\n    on_rows = print\n")
    assert bench.operator("milepost_test_ops_b:F").output_schema.names == ["here"]
    bench.write("class F:\n    output = {'beside': 'int64'}\n    on_rows = print\n", "milepost_test_ops_b.py")
    assert bench.operator("milepost_test_ops_b:F").output_schema.names == ["beside"]

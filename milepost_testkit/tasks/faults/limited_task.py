"""One subtask's epochs in a process of limited address space, as a Spark worker has: `main FOLDER LIMIT_MB BUDGET`.

BUDGET is `own`, what the worker makes of its limit, or `none`: as if there were no limit. Prints a JSON document per
epoch: the acknowledgement's state, the staged file and the peak of the address space in MiB. Exits with 3 when memory
ran out, and says so as a task would.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from milepost.codec.records import from_json
from milepost.spark.worker.worker_memory import (
    UNLIMITED,
    MemoryBudget,
    apply_worker_limit,
    budget_bytes,
    reduce_reserved_memory,
)

KEYS, MAX_PARALLELISM = 600_000, 16
ROWS = (KEYS, 100_000)


def main(folder: str, limit_mb: int, budget: str) -> int:
    reduce_reserved_memory()
    from milepost.errors import EnvironmentUnusable
    from milepost.protocol.records.object_store import StoreConfig
    from milepost.spark.worker.task_memory import explain_out_of_memory, task_memory
    from milepost.storage.local.store import LocalStore

    store = LocalStore(StoreConfig(url=Path(folder, "store").as_uri()))
    limit = limit_mb << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    own = MemoryBudget(budget_bytes(apply_worker_limit()), limit)
    handles: tuple[object, ...] = ()
    try:
        for epoch in range(len(ROWS)):
            with (
                task_memory(str(Path(folder, "cache")), own if budget == "own" else UNLIMITED) as memory,
                explain_out_of_memory("operator totals (level 1, subtask 0)", own),
            ):
                ack = _epoch(store, epoch, handles, memory, str(Path(folder, "cache")))
            handles = (ack["operators"]["totals"]["state"][""],)
            print(json.dumps({"state": handles[0], "staged": ack["sinks"]["out"], "peak_mb": _peak_mb()}), flush=True)
    except EnvironmentUnusable as error:
        print(error.full_message(), file=sys.stderr)
        return 3
    return 0


def rows_of(epoch: int):  # type: ignore[no-untyped-def]  # a pyarrow table: nothing heavy is imported before the limit
    """The input of an epoch: in the first every key comes once."""
    import numpy as np
    import pyarrow as pa

    chance = np.random.default_rng(epoch)
    keys = chance.permutation(KEYS) if epoch == 0 else chance.integers(0, KEYS, ROWS[epoch])
    return pa.table({"k": pa.array(keys), "v": pa.array(chance.integers(-(10**9), 10**9, ROWS[epoch]))})


def _epoch(store, epoch, handles, memory, cache):  # type: ignore[no-untyped-def]
    from milepost.epoch.metadata import StateTableSnapshot
    from milepost.epoch.plan import EpochAlignment
    from milepost.language.aggregates import parse_aggregate
    from milepost.operators.aggregate.run import AggregateByKey
    from milepost.operators.contract import ONLY_TABLE
    from milepost.protocol.exchange.barrier import AckEvent
    from milepost.protocol.records.ids import CheckpointId, FencingToken
    from milepost.protocol.subtask.task_lifecycle import Notifications
    from milepost.sinks.contract import SinkMode
    from milepost.sinks.staging.table_staging import TableStaging
    from milepost.spark.task.attempt import Attempt
    from milepost.spark.task.level_task import run_subtask
    from milepost.spark.task.output_stage import OutputPlan, run_output_stage
    from milepost.spark.wire.epoch_clock import LevelShare
    from milepost.spark.wire.exchange import BufferLimits, Edge, Stamp
    from milepost.spark.wire.level_plan import LevelPlan, OperatorPlan, input_plans
    from milepost.spark.wire.task_output import OperatorStageEnd, Rows, RowsDone, SnapshotStarted, TaskOutput
    from milepost.spark.worker.task_metrics import TaskMetrics
    from milepost.state.runs.handles import StateHandle
    from milepost_testkit.rows.key_hashes import KEYED

    calls = {name: parse_aggregate(text) for name, text in {"n": "count(*)", "s": "sum(v)", "m": "max(v)"}.items()}
    rows = rows_of(epoch)
    operator = AggregateByKey("totals", ("k",), calls, rows.schema)
    checkpoint, token = CheckpointId(epoch + 1), FencingToken(1)
    edge = Edge("events", "totals", ("k",), ("k", "v"), None, Stamp(None))

    def source() -> Iterator[TaskOutput]:
        for start in range(0, rows.num_rows, 65_536):
            yield Rows("events", rows.slice(start, 65_536))
        yield RowsDone()
        yield SnapshotStarted()
        yield OperatorStageEnd({"sources": {}})

    def tail(level: int, edges: tuple[Edge, ...], sinks: dict[str, tuple[str, ...]]) -> OutputPlan:
        limits = BufferLimits(1_000_000)
        return OutputPlan(checkpoint, token, level, len(edges), MAX_PARALLELISM, KEYED, limits, edges, sinks)

    item = OperatorPlan(
        operator=operator,
        inputs=input_plans("totals", ("events",), [rows.schema], operator.routing_keys),
        tables={
            ONLY_TABLE: StateTableSnapshot(
                operator.key,
                operator.key,
                operator.state_schema,
                tuple(from_json(StateHandle, handle, "state handle") for handle in handles),
            )
        },
        firing=(None,) * len(handles),
        channels=(),
        directory=f"chk-{epoch + 1}/t1/state/totals/",
        signature="made so",
        clocks=(),
    )
    plan = LevelPlan(
        job="test",
        checkpoint_id=checkpoint,
        token=token,
        base=CheckpointId(epoch),
        level=1,
        senders=1,
        parallelism=1,
        max_parallelism=MAX_PARALLELISM,
        hasher=KEYED,
        operators=(item,),
        channel_directory=f"chk-{epoch + 1}/t1/channel/",
        cache_directory=cache,
        alignment=EpochAlignment(None, None, 0, False),
        share=LevelShare(1, 1, 1),
        notifications=Notifications(completed=CheckpointId(epoch)),
    )
    received = run_output_stage(tail(0, (edge,), {}), 0, source(), {}, memory)
    hosted = run_subtask(plan, Attempt(0, 0, memory), received, store, TaskMetrics(1, 0, 0))
    sink = TableStaging("out", mode=SinkMode.UPSERT, key=("k",), store=store)
    (last,) = run_output_stage(tail(1, (), {"totals": ("out",)}), 0, hosted, {"out": sink}, memory)
    return AckEvent.decode(last.column("payload")[0].as_py()).own.ack


def _peak_mb() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmPeak"))
    return int(line.split()[1]) >> 10


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))

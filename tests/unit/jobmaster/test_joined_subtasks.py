"""A change of parallelism with rows in flight: rows that the leading subtask has emitted are not emitted again."""

from __future__ import annotations

import datetime as dt
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from milepost_testkit.jobs.sparkless.two_feeds import TwoFeeds
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec
from milepost_testkit.tasks.clocks import ticking

SPEC = """\
name: sales
storage: ../store
sources:
  shop: {format: csv, path: ../landing/shop/*.csv, settle: 0s, schema: {k: int64, at: "timestamp[us, UTC]"},
         event_time: at}
operators:
  - {uid: visits, kind: window, inputs: [shop], key: [k], window: WINDOW, aggregates: {rows: count(*)},
     allowed_lateness: 2d, emit: EMIT}
sinks:
  - {name: visits, input: visits, format: parquet, path: ../lake/visits, mode: changelog}
checkpointing: {retained: {last: 20}, aligned_timeout: 9m}
spark: {parallelism: 2, buffer_size: 1KB}
"""
KEYS = range(8)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


WINDOWS = (
    "{tumbling: 1h}",
    "{session: {gap: 1h}}",
    "{sliding: {size: 1h, slide: 30m}}",
    "{tumbling: 1d, timezone: Asia/Tokyo}",
)
IN_MAKE_TEST = {*zip(WINDOWS[:3], ("final", "early", "final"), strict=True)}


@pytest.mark.parametrize(
    ("window", "emit"),
    [
        pytest.param(*one, marks=() if one in IN_MAKE_TEST else pytest.mark.deep)
        for one in product(WINDOWS, ("final", "early"))
    ],
)
def test_windows_that_came_out_do_not_again_when_their_subtask_joins_one_that_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str, emit: str
) -> None:
    """Not in the epoch that joins them, which is cut before it fires so far, and in none after it."""
    spec = SPEC.replace("WINDOW", window).replace("EMIT", emit)
    sales = TwoFeeds.create(tmp_path, spec, "k", partial(SparklessRunner, clock=ticking()), monkeypatch)
    path = sales.folder / "config" / "sales.yaml"

    def fired(checkpoint: int) -> list[int]:
        """Keys whose windows before noon came out."""
        rows = sales.master.reports.read("visits").to_pylist()
        return sorted({row["k"] for row in rows if row["_checkpoint"] == checkpoint and row["window_start"] < NOON})

    sales.land("shop", *[(key, "00:10") for key in KEYS])
    assert not sales.epoch().in_flight_bytes
    edit_spec(path, {"aligned_timeout: 9m": "aligned_timeout: 1ms"})
    sales.land("shop", *[(0, "23:59")] * 40)
    assert sales.epoch().in_flight_bytes, "its subtask is behind"
    ahead = fired(2)
    assert ahead and 0 not in ahead
    edit_spec(path, {"parallelism: 2": "parallelism: 1"})
    assert sales.epoch().in_flight_bytes and not fired(3)
    values = sales.master.reports.state_values("visits")
    assert values.num_rows >= len(KEYS) and all(values.column(values.column_names[2]).is_valid().to_pylist())
    edit_spec(path, {"aligned_timeout: 1ms": "aligned_timeout: 9m"})
    assert not sales.epoch().in_flight_bytes
    assert fired(4) == [key for key in KEYS if key not in ahead]

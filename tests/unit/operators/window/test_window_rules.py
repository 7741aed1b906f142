"""Output, checks and signatures of window operators."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.compatibility import COMPATIBLE, NEW_UID, compare_signatures, state_signatures
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.validation import validate_spec
from milepost.language.times import time_zones
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph

CLICKS = {"visitor": "string", "at": "timestamp[us, UTC]", "x": "float64", "paid": "decimal(9, 2)"}
WINDOW = {"uid": "win", "kind": "window", "inputs": ["clicks"], "key": ["visitor"], "aggregates": {"n": "count(*)"}}
SLIDING = {"sliding": {"size": "1h", "slide": "15m"}}
SESSION = {"session": {"gap": "30m"}}


def document(**operator: Any) -> dict[str, Any]:
    source = {"format": "json", "path": "in/*", "schema": CLICKS, "event_time": "at"}
    return {"name": "job", "storage": "lake", "sources": {"clicks": source}, "operators": [{**WINDOW, **operator}]}


def spec(**operator: Any) -> JobSpec:
    return JobSpec.model_validate(document(**operator))


@pytest.mark.parametrize("window", [SLIDING, SESSION])
def test_a_window_of_any_kind_emits_final_rows_with_its_bounds(window: dict[str, Any]) -> None:
    node = build_graph(spec(window=window)).nodes["win"]
    assert list(node.columns) == ["visitor", "window_start", "window_end", "n"]
    assert (node.event_time, node.shift_us, node.output_kind) == ("window_end", -1, "append")
    assert node.key == ("visitor", "window_start", "window_end")


def test_sliding_windows_with_allowed_lateness_emit_updates() -> None:
    node = build_graph(spec(window=SLIDING, allowed_lateness="1h")).nodes["win"]
    assert (node.output_kind, node.holdback_us) == ("updates", 3_600_000_000)


@pytest.mark.parametrize("window", [SLIDING, {"tumbling": "1h"}])
def test_early_windows_are_updates_for_upsert_and_changelog_tables(window: dict[str, Any]) -> None:
    node = build_graph(spec(window=window, emit="early")).nodes["win"]
    assert (node.output_kind, node.holdback_us, node.key) == ("updates", 0, ("visitor", "window_start", "window_end"))
    value, early = document(window=window, emit="early"), True
    for format_, mode, refused in (
        ("parquet", "append", True),
        ("delta", "upsert", early),
        ("parquet", "upsert", None),
        ("delta", "changelog", None),
    ):
        sink = {"name": "out", "input": "win", "format": format_, "path": "out", "mode": mode}
        job = JobSpec.model_validate({**value, "sinks": [sink]})
        if not refused:
            assert build_graph(job)
        else:
            with wording.raises(InvalidRequest):
                build_graph(job)
    before, after = spec(window=window), spec(window=window, emit="early")
    assert [row["verdict"] for row in of_window(state_signatures(before, build_graph(before)), after)] == [COMPATIBLE]


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ({}, "expected one of tumbling, sliding and session, got none"),
        ({"tumbling": "1h", **SESSION}, "expected one of tumbling, sliding and session, got tumbling and session"),
        ({"sliding": {"size": "1h", "slide": "25m"}}, "size: 1h is not a multiple of slide: 25m"),
        ({"sliding": {"size": "1h", "slide": "2h"}}, "size: 1h is not a multiple of slide: 2h"),
        ({"sliding": {"size": "1h", "slide": "60m"}}, "windows of 1h every 1h do not overlap: write tumbling: 1h"),
        ({"sliding": {"size": "1001s", "slide": "1s"}}, "1001 times slide: 1s; at most 1000 times is available"),
        ({"sliding": {"size": "1h", "slide": "0s"}}, "expected a duration above 0s"),
        ({"session": {"gap": "0s"}}, "expected a duration above 0s"),
        ({"tumbling": "0s"}, "expected a duration above 0s"),
        ({"tumbling": "0mo"}, "expected a length above 0"),
        ({"tumbling": "1y"}, "expected a duration such as"),
        ({"tumbling": "1d", "timezone": "Europe/Berlim"}, "'Europe/Berlim' is not a time zone"),
        ({"tumbling": "6h", "timezone": "UTC"}, "timezone needs whole days, weeks or months, got tumbling: 6h"),
        ({"tumbling": "1h", "offset": "1h"}, "offset: 1h is not below the length, 1h"),
        ({"tumbling": "1mo", "offset": "28d"}, "offset: 28d is not below the length, 28d"),
        ({**SLIDING, "timezone": "UTC"}, "timezone needs whole days, weeks or months, got slide: 15m"),
        ({**SLIDING, "offset": "15m"}, "offset: 15m is not below slide, 15m"),
        ({"sliding": {"size": "1w", "slide": "1d"}}, "size: 1w and slide: 1d must both be durations, both weeks"),
        ({"sliding": {"size": "1mo", "slide": "1w"}}, "size: 1mo and slide: 1w must both be durations, both weeks"),
        ({"sliding": {"size": "3mo", "slide": "2mo"}}, "size: 3mo is not a multiple of slide: 2mo"),
        (
            {"sliding": {"size": "9600h", "slide": "1d"}, "timezone": "UTC"},
            "expected at most 366d with a time zone, got",
        ),
        ({"tumbling": "400d", "timezone": "UTC"}, "tumbling: expected at most 366d with a time zone, got 400d"),
        (
            {**SESSION, "offset": "1m"},
            "`offset` applies to tumbling and sliding windows: a session begins with its first",
        ),
    ],
)
def test_invalid_windows_are_refused(window: dict[str, Any], says: str) -> None:
    found, problems = validate_spec(document(window=window))
    assert found is None and [problem.message for problem in problems if says in problem.message], problems


@pytest.mark.parametrize("length", ["366d", "400d", "10000d", "9600h"])
def test_windows_of_a_fixed_length_may_be_of_any_length(length: str) -> None:
    assert spec(window={"tumbling": length}).operators


def test_a_window_has_at_most_a_thousand_panes() -> None:
    assert spec(window={"sliding": {"size": "1000s", "slide": "1s"}}).operators


@pytest.mark.parametrize("window", [SESSION, SLIDING, {"tumbling": "1h"}])
def test_windows_of_any_kind_have_the_same_aggregates(window: dict[str, Any]) -> None:
    """This includes sums of floats and distinct counts, also for windows made of panes."""
    calls = {"s": "sum(x)", "a": "avg(x)", "d": "stddev(x)", "p": "sum(paid)", "n": "count(distinct x)"}
    columns = build_graph(spec(window=window, aggregates=calls)).nodes["win"].columns
    assert {name: str(columns[name]) for name in calls} == {
        "s": "float64", "a": "float64", "d": "float64", "p": "decimal(38,2)", "n": "int64",
    }  # fmt: skip


@pytest.mark.parametrize("option", [{"allowed_lateness": "1h"}, {"emit": "early"}])
def test_sessions_with_updates_are_keyed_by_key_and_start_and_have_deletes(option: dict[str, str]) -> None:
    """Their end may change, so it is not part of the key, and their deletes have no event time."""
    node = build_graph(spec(window=SESSION, **option)).nodes["win"]
    assert (node.output_kind, node.key, node.deletes) == ("updates", ("visitor", "window_start"), True)
    assert (node.event_time, node.holdback_us) == (None, 3_600_000_000 if "allowed_lateness" in option else 0)
    value, early = document(window=SESSION, **option), "emit" in option
    for format_, mode, refused in (
        ("parquet", "append", True),
        ("delta", "upsert", early),
        ("parquet", "upsert", None),
        ("delta", "changelog", None),
    ):
        sink = {"name": "out", "input": "win", "format": format_, "path": "out", "mode": mode}
        job = JobSpec.model_validate({**value, "sinks": [sink]})
        if not refused:
            assert build_graph(job)
        else:
            with wording.raises(InvalidRequest):
                build_graph(job)


def test_state_of_changed_windows_cannot_be_continued() -> None:
    job_spec = spec(window=SLIDING, allowed_lateness="1h")
    before = state_signatures(job_spec, build_graph(job_spec))
    assert before["operators"]["win"]["window"] == {"sliding": {"size": "1h", "slide": "15m"}}
    verdicts = []
    for changed in (
        {"window": {"sliding": {"size": "30m", "slide": "15m"}}, "allowed_lateness": "1h"},
        {"window": {"sliding": {"size": "1h", "slide": "30m"}}, "allowed_lateness": "1h"},
        {"window": SESSION},
        {"window": {"session": {"gap": "1h"}}},
        {"window": SLIDING, "allowed_lateness": "30m"},
    ):
        verdicts += [row["verdict"] for row in of_window(before, spec(**changed))]
    assert verdicts == [NEW_UID] * 4 + [COMPATIBLE]


def of_window(before: dict[str, Any], after: JobSpec) -> list[dict[str, str]]:
    """Return the verdict on the window operator of a changed spec."""
    verdicts = compare_signatures(before, state_signatures(after, build_graph(after)))
    return [row for row in verdicts if row["uid"] == "win"]


def test_state_cannot_be_continued_with_other_rules_of_a_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed rules of other zones have no effect."""
    daily = {"tumbling": "1d", "timezone": "Europe/Berlin", "offset": "6h"}
    job_spec, changed_spec = spec(window=daily), spec(window={**daily, "timezone": "Europe/Paris"})
    before = state_signatures(job_spec, build_graph(job_spec))
    assert before["operators"]["win"]["window"] == daily
    assert len(before["operators"]["win"]["time zone data"]) == 16
    (verdict,) = of_window(before, changed_spec)
    wording.matches("explain", verdict["detail"])
    assert verdict["verdict"] == NEW_UID
    monkeypatch.setattr(time_zones, "zone_data", lambda name: b"TZif of another year")
    (verdict,) = of_window(before, job_spec)
    wording.matches("explain", verdict["detail"])
    assert verdict["verdict"] == NEW_UID

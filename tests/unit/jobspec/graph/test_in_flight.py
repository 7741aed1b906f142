"""The signature of rows in flight changes exactly when a producer would produce other columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.jobspec.graph.in_flight import consumed_columns, input_signatures
from milepost.jobspec.load.load import load_job

SPEC = """\
name: shop
storage: ../store
sources:
  visits:
    format: csv
    path: ../landing/*.csv
    schema: {who: string, page: string, spent: int64, at: "timestamp[us, UTC]"}
    event_time: at
    watermark_delay: 1h
operators:
  - {uid: paid, kind: sql, inputs: [visits], sql: "SELECT who, page, spent, at FROM visits WHERE spent > 0"}
  - {uid: once, kind: deduplicate, inputs: [paid], key: [who, page], ttl: 1d}
  - {uid: totals, kind: aggregate, inputs: [once], key: [who], aggregates: {spent: sum(spent)}}
  - {uid: hourly, kind: window, inputs: [once], key: [page], window: {tumbling: 1h}, aggregates: {n: count(*)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
  - {name: hourly, input: hourly, format: parquet, path: ../lake/hourly, mode: append}
"""


Signatures = Callable[[str, str], dict[str, str]]


@pytest.fixture
def signatures(tmp_path: Path) -> Signatures:
    def of(old: str, new: str) -> dict[str, str]:
        assert old in SPEC
        file = tmp_path / "shop.yaml"
        file.write_text(SPEC.replace(old, new) if old else SPEC)
        job = load_job(str(file))
        return input_signatures(job.spec, job.graph())

    return of


@pytest.mark.deep
@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("WHERE spent > 0", "WHERE spent > 1", {"once"}),
        ("spent: int64", "spent: int32", {"once", "totals"}),
        ("page: string, spent", "page: string, more: string, spent", {"once"}),
        ("event_time: at", "event_time: at\n    partitions: {dt: date}", {"once"}),
        ("sum(spent)", "max(page)", {"totals"}),
        (
            "sinks:\n",
            "sinks:\n  - {name: l, input: hourly.late, format: parquet, path: ../l, mode: append}\n",
            {"hourly"},
        ),
    ],
)
def test_a_change_of_how_rows_are_produced_changes_the_signature_of_their_readers(
    signatures: Signatures, old: str, new: str, changed: set[str]
) -> None:
    """No other signature changes: a stateful producer with the same columns hides what is upstream of it."""
    before, after = signatures("", ""), signatures(old, new)
    assert {uid for uid in before if before[uid] != after[uid]} == changed


def test_a_changed_condition_changes_the_signature_even_if_all_columns_are_sent(signatures: Signatures) -> None:
    late = "sinks:\n  - {name: l, input: hourly.late, format: parquet, path: ../l, mode: append}\n"
    for more in ("sinks:\n", late):
        both = [
            signatures("n: count(*)}}\nsinks:\n", f'n: "count(*) filter (where spent > {least})"}}}}\n{more}')
            for least in (1, 2)
        ]
        assert {uid for uid in both[0] if both[0][uid] != both[1][uid]} == {"hourly"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("watermark_delay: 1h", "watermark_delay: 2h"),
        ("ttl: 1d", "ttl: 2h"),
        ("path: ../landing/*.csv", "path: ../landing/more/*.csv"),
        ("sinks:\n", "spark: {parallelism: 3}\ncheckpointing: {epoch_budget: 1m}\nsinks:\n"),
    ],
)
def test_a_change_that_does_not_affect_rows_keeps_the_signatures(signatures: Signatures, old: str, new: str) -> None:
    """Limits, locations, parallelism and an operator's own options may change while rows are in flight."""
    assert signatures(old, new) == signatures("", "")


def test_an_input_that_changes_from_append_to_updates_changes_the_signature_of_its_readers(tmp_path: Path) -> None:
    """Append rows in flight cannot be processed as updates."""
    file = tmp_path / "shop.yaml"
    file.write_text(SPEC)
    job = load_job(str(file))
    graph = job.graph()
    turned = replace(graph, nodes=graph.nodes | {"once": replace(graph.nodes["once"], output_kind="updates")})
    before, after = input_signatures(job.spec, graph), input_signatures(job.spec, turned)
    assert {uid for uid in before if before[uid] != after[uid]} == {"totals", "hourly"}


def test_an_operator_consumes_the_columns_it_needs_or_all(tmp_path: Path) -> None:
    """These columns are sent, so only they may be in flight."""
    file = tmp_path / "shop.yaml"
    file.write_text(SPEC)
    job = load_job(str(file))
    graph = job.graph()
    assert consumed_columns(job.spec, graph, "totals") == {"who", "spent"}
    assert consumed_columns(job.spec, graph, "hourly") == {"page", "at"}
    assert consumed_columns(job.spec, graph, "once") is None

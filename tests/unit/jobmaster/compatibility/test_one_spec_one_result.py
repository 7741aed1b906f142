"""A spec makes the same plans and rows, by whatever path it reaches an epoch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.airflow.spec_cache import parsed_spec
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster import CheckpointDetails, JobMaster, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.savepoints.reader import read_savepoint
from milepost.jobspec.load.load import LoadedJob, from_text, load_job
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from milepost.testing.local_job import under_test
from milepost_testkit import profiles
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.deep

ROWS = {"k": "int64", "z": "int64", "a": "int64", "at": "timestamp[us, UTC]"}
OTHERS = {"k": "int64", "z": "int64", "a": "int64"}
PARTS = {"p": "int32", "d": "date"}
TOTALS = {"n": "count(*)", "most": "max(z)", "least": "min(a)"}
RENAMED = {"z2": "right.z", "a2": "right.a", "at2": "right.at"}
NOON = "2026-01-01T12:00:00Z"
TIED = [(2, 1), (1, 2), (1, 3), (2, 0)]
LANDED = {
    "rows": [{"k": k, "z": z + k, "a": a, "at": NOON} for k in (1, 2) for z, a in TIED],
    "more": [{"k": 1, "z": 2, "a": 3}],
    "also": [{"k": 4, "z": 5, "a": 6}],
    "names": [{"k": k, "z": z, "a": a} for k in (1, 2) for z, a in TIED],
}
SINKS = {
    "newest": "upsert",
    "first": "upsert",
    "found": "append",
    "versions": "append",
    "totals": "upsert",
    "leader": "upsert",
    "both": "append",
}


@dataclass(frozen=True)
class Order:
    """The order of each mapping of a spec, by its name."""

    sources: Sequence[str]
    rows: Sequence[str]
    more: Sequence[str]
    also: Sequence[str]
    names: Sequence[str]
    parts: Sequence[str]
    totals: Sequence[str]
    renamed: Sequence[str]


orders = st.builds(
    Order,
    sources=st.permutations(list(LANDED)),
    rows=st.permutations(list(ROWS)),
    more=st.permutations(list(OTHERS)),
    also=st.permutations(list(OTHERS)),
    names=st.permutations(list(OTHERS)),
    parts=st.permutations(list(PARTS)),
    totals=st.permutations(list(TOTALS)),
    renamed=st.permutations(list(RENAMED)),
)


def document_of(order: Order) -> dict[str, Any]:
    """Return a spec with every operator that breaks ties, and SQL that goes by the places of columns."""

    def source(name: str, columns: Mapping[str, str], **keys: Any) -> dict[str, Any]:
        schema = {column: columns[column] for column in getattr(order, name)}
        return {"format": "json", "path": f"../landing/{name}/**/*.json", "settle": "0s", "schema": schema, **keys}

    sources = {
        "rows": source("rows", ROWS, event_time="at"),
        "more": source("more", OTHERS),
        "also": source("also", OTHERS),
        "names": source("names", OTHERS, static=True, partitions={name: PARTS[name] for name in order.parts}),
    }
    right = {name: RENAMED[name] for name in order.renamed}
    own = {"key": ["k"], "inputs": ["rows"]}
    operators = [
        {"uid": "newest", "kind": "latest", **own, "sequence_by": ["at"]},
        {"uid": "first", "kind": "top", **own, "order_by": ["at"], "n": 2, "rank": "place"},
        {"uid": "found", "kind": "lookup", "inputs": ["more", "names"], "key": ["k"], "order_by": ["k"],
         "columns": {"z2": "right.z", "a2": "right.a"}},
        {"uid": "versions", "kind": "asof", "inputs": ["rows", "rows"], "key": ["k"], "columns": right},
        {"uid": "totals", "kind": "aggregate", **own, "aggregates": {name: TOTALS[name] for name in order.totals}},
        {"uid": "leader", "kind": "top", "inputs": ["totals"], "key": ["n"], "order_by": ["n"], "n": 1, "rank": "no"},
        {"uid": "both", "kind": "sql", "inputs": ["more", "also"],
         "sql": "SELECT * FROM more UNION ALL SELECT * FROM also"},
    ]  # fmt: skip
    return {
        "name": "one",
        "storage": "../store",
        "sources": {name: sources[name] for name in order.sources},
        "operators": operators,
        "sinks": [
            {"name": name, "input": name, "format": "parquet", "path": f"../lake/{name}", "mode": mode}
            for name, mode in SINKS.items()
        ],
        "checkpointing": {"retained": {"last": 20}},
        "spark": {"parallelism": 1},
    }


class OneJob:
    """The job in a folder of its own, with all its input; a test says by which path its spec comes."""

    def __init__(self, folder: Path, text: str) -> None:
        self.path, self.folder = folder / "config" / "one.yaml", folder
        self.path.parent.mkdir(parents=True)
        self.path.write_text(text)
        for name, rows in LANDED.items():
            place = folder / "landing" / name / ("p=1/d=2026-01-01" if name == "names" else "all")
            place.mkdir(parents=True)
            (place / "0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(self, job: LoadedJob) -> CheckpointMetadata:
        report = JobMaster(job).epochs.run(Session.cli(), SparklessRunner(sql=True))
        assert isinstance(report, CheckpointDetails), report
        return self.head(job)

    def head(self, job: LoadedJob) -> CheckpointMetadata:
        context = JobContext(job)
        state = context.head().state
        metadata = context.base_metadata(state, state.timeline().head)
        assert metadata is not None
        return metadata

    def made(self, job: LoadedJob) -> dict[str, Any]:
        """Return the plan that the spec made, and the rows: every mapping in its order."""
        metadata = self.head(job)
        tables = {name: JobMaster(job).reports.read(name) for name in SINKS}
        return {
            "spec": [(name, *source.columns, *source.partitions) for name, source in job.spec.sources.items()],
            "goes on": [(row["uid"], row["outcome"], row["detail"]) for row in JobMaster(job).reports.compatibility()],
            "graph": repr(job.graph()),
            "signatures": json.dumps(metadata.signatures),
            "read_as": metadata.dimensions["names"].read_as,
            "state": {
                (uid, name): table.schema.serialize().to_pybytes()
                for uid, operator in metadata.operators.items()
                for name, table in operator.tables.items()
            },
            "rows": {
                name: (table.column_names, sorted(map(repr, table.to_pylist()))) for name, table in tables.items()
            },
        }


@profiles.examples(share=0.04)
@given(orders)
def test_every_path_of_a_spec_to_an_epoch_makes_the_same_plan_and_rows(
    tmp_path_factory: pytest.TempPathFactory, order: Order
) -> None:
    folder, text = tmp_path_factory.mktemp("one"), json.dumps(document_of(order), indent=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        typed = OneJob(folder / "typed", text)
        job = load_job(typed.path)
        pinned = typed.run(job).spec_text
        expected = typed.made(job)
        assert {outcome for _, outcome, _ in expected["goes on"]} == {"restored"}
        saved = read_savepoint(open_store(StoreConfig(JobMaster(job).savepoints.create("one").location)))
        paths: dict[str, Callable[[Path], LoadedJob]] = {
            "kept": lambda path: (parsed_spec(path), parsed_spec(path))[1],
            "pinned": lambda path: from_text(pinned, path),
            "savepoint": lambda path: from_text(saved.document.spec_text, path),
        }
        for name, load in paths.items():
            other = OneJob(folder / name, text)
            loaded = load(other.path)
            other.run(loaded)
            assert (loaded.spec_hash, other.made(loaded)) == (job.spec_hash, expected), name
        back_fill(JobMaster(loaded), SparklessRunner(sql=True), from_checkpoint=0)
        assert other.made(loaded) == expected, "backfill"
        tested = OneJob(folder / "tested", text)
        case = under_test(load_job(tested.path), tested.folder, job.spec.spark.parallelism, ())
        tested.run(case)
        found = tested.made(case)
        assert {**found, "signatures": expected["signatures"]} == expected, "milepost test"
        assert tested.made(from_text(case.text, case.path)) == found, "milepost test, by the text of its checkpoint"

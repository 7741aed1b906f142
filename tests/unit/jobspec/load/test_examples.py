"""The shipped specs are valid, and `all_keys.yaml` has every key."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from milepost.jobspec.job.checkpointing_spec import CheckpointingSpec
from milepost.jobspec.job.sources.source_kinds import UNAVAILABLE_FORMATS
from milepost.jobspec.job.spec import ScheduleSpec, SinkSpec, SparkSpec, StoreSpec, TablesSpec
from milepost.jobspec.load.document import read_document
from milepost.jobspec.load.lint import json_schema, lint_report
from milepost.jobspec.load.load import load_job
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.specs.examples import EXAMPLES

CONFIG = REPOSITORY / "config"
ALL_KEYS = CONFIG / "examples" / "all_keys.yaml"


@pytest.mark.deep
@pytest.mark.parametrize(
    "path",
    sorted([*CONFIG.glob("*.yaml"), *CONFIG.glob("examples/**/*.yaml"), *EXAMPLES.glob("*.yaml")]),
    ids=lambda p: p.name,
)
def test_a_shipped_spec_lints(path: Path) -> None:
    assert lint_report(load_job(path))["unread"] == []


def test_the_files_that_the_example_refers_to_exist() -> None:
    named = re.findall(r"[a-z_/]+/[a-z_]+\.py\b", ALL_KEYS.read_text(encoding="utf-8"))
    assert "pipeline/milepost/operators/process/run.py" in named
    assert all((CONFIG.parent / path).is_file() for path in named)


def test_the_demo_job_finds_late_rows_after_it_dropped_duplicates() -> None:
    graph = load_job(CONFIG / "flights.yaml").graph()
    assert [(node.uid, node.level) for node in graph.stateful] == [("unique", 1), ("carriers", 2), ("hourly", 2)]
    assert graph.nodes["hourly"].late_sinks == ("late_flights",)


def _schema_keys(schema: dict[str, Any], definitions: dict[str, Any]) -> set[tuple[str, str]]:
    return {(name, key) for name, model in {"JobSpec": schema, **definitions}.items() for key in model["properties"]}


@pytest.mark.deep
def test_the_example_with_every_key_has_every_key_of_the_schema() -> None:
    """`milepost schema` lists only supported keys, and `all_keys.yaml` uses all of them."""
    schema = json_schema()
    used: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            used.update(value)
            for item in value.values():
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    text = ALL_KEYS.read_text(encoding="utf-8")
    collect(read_document(text).value)
    for form in other_forms(text):
        collect(form)
    assert {key for _, key in _schema_keys(schema, schema["$defs"])} <= used


def other_forms(text: str) -> list[Any]:
    """Return the alternative forms that the example shows in comments."""
    begins = ("#   re", "#   s", "#   tables: ", "#   compiled: ")
    forms = (line.removeprefix("#   ") for line in text.splitlines() if line.startswith(begins))
    return [read_document(line).value for line in forms]


def test_every_form_that_the_example_shows_in_comments_is_valid() -> None:
    forms = other_forms(ALL_KEYS.read_text(encoding="utf-8"))
    restarts = [CheckpointingSpec.model_validate(form) for form in forms if "restart" in form]
    assert {item.restart.strategy for item in restarts} == {"none", "exponential_delay", "failure_rate"}
    schedules = [ScheduleSpec.model_validate(form["schedule"]) for form in forms if "schedule" in form]
    assert [item.model_fields_set for item in schedules] == [{"asset"}, {"sqs"}, {"any_of"}]
    ((served,),) = [form["sinks"] for form in forms if "sinks" in form]
    assert SinkSpec.model_validate(served).conn_id == "warehouse"
    (store,) = [StoreSpec.model_validate(form["store"]) for form in forms if "store" in form]
    (spark,) = [SparkSpec.model_validate(form["spark"]) for form in forms if "spark" in form]
    assert (store.conn_id, spark.conn_id) == ("lake", "spark_connect")
    (tables,) = [TablesSpec.model_validate(form["tables"]) for form in forms if "tables" in form]
    assert tables.table == "shop.{name}"


def test_the_defaults_of_the_schema_are_as_a_spec_writes_them() -> None:
    """An editor that inserts a default writes a valid value: `2s`, not `PT2S`."""
    schema = json_schema()
    parts = (schema, *schema["$defs"].values())
    filled = [key for part in parts for key in part["properties"].values() if isinstance(key.get("default"), str)]
    assert filled and all(re.fullmatch(key.get("pattern", ".*"), key["default"]) for key in filled)
    nullable = schema["$defs"]["FileSourceSpec"]["properties"]["max_event_time_ahead"]
    assert nullable["default"] == "7d"


def test_the_schema_has_nothing_that_this_version_refuses() -> None:
    text = json.dumps(json_schema())
    for word in UNAVAILABLE_FORMATS - {"spark"}:  # a key of a job
        assert f'"{word}"' not in text


@pytest.mark.deep
def test_loading_a_spec_imports_nothing_heavy() -> None:
    """DAG files load specs and must parse in under a second."""
    code = (
        "import sys; from milepost.jobspec.load.load import load_job; load_job(sys.argv[1]);"
        "print([m for m in ('pyarrow', 'sqlglot', 'pyspark', 'pandas', 'airflow', 'boto3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(ALL_KEYS)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Models of a dbt project are statements of a job. The manifest is one that dbt wrote of `dbt_project`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.errors import InvalidRequest
from milepost.jobspec.job.sql_spec import DbtSpec
from milepost.jobspec.load.dbt_models import MATERIALIZED, models_text
from milepost.jobspec.load.dbt_relations import renamed
from milepost.jobspec.load.explain_sql import explained_statements
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.language.sql import SqlProblem
from milepost_testkit import wording

PROJECT = Path(__file__).parent / "dbt_project"
MANIFEST = (PROJECT / "manifest.json").read_text("utf-8")
SOURCES = {
    "orders": {
        "schema": {"id": "int64", "customer": "string", "amount": "decimal(12,2)", "ordered_at": "timestamp[us, UTC]"},
        "event_time": "ordered_at",
    },
    "web_clicks": {"schema": {"page": "string"}},
    "countries": {"schema": {"customer": "string", "country": "string"}, "static": True},
}
Change = Callable[[dict[str, Any]], None]


def job(folder: Path, select: Any = "tag:milepost", change: Change | None = None, without: str = "") -> LoadedJob:
    """Load a job of models, after a change of the manifest, without one of its sources."""
    manifest = json.loads(MANIFEST)
    if change is not None:
        change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    sources = {
        name: {"format": "csv", "path": f"{name}/*.csv", **keys} for name, keys in SOURCES.items() if name != without
    }
    spec = {"name": "shop", "storage": "store", "sources": sources, "sql": {"dbt": "manifest.json", "select": select},
            "tables": {"format": "delta", "path": "lake/{name}"}}  # fmt: skip
    (folder / "shop.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return load_job(str(folder / "shop.yaml"))


def model(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the node of a model, to be changed."""
    node: dict[str, Any] = manifest["nodes"][f"model.shop.{name}"]
    return node


def test_selected_models_are_statements_with_the_names_of_the_job(tmp_path: Path) -> None:
    loaded = job(tmp_path)
    shown = {one["name"]: one for one in explained_statements(loaded, loaded.graph())}
    assert {name: [step["kind"] for step in one["steps"] if step["kind"] != "sql"] for name, one in shown.items()} == {
        "clicks_per_page": ["aggregate"],
        "customers": ["deduplicate"],
        "placed": ["lookup"],
        "revenue": ["aggregate"],
        "stg_shop_orders": [],
    }
    assert {name for name, one in shown.items() if not one["sink"]} == {"stg_shop_orders"}
    assert shown["revenue"]["file"] == "target/compiled/shop/models/revenue.sql"
    operator = loaded.spec.operator("customers__distinct")
    assert operator.model_dump()["ttl"] == "7d"
    assert loaded.spec.sink("customers").partition_by == ("customer",)


def test_relations_have_the_names_of_statements_and_sources() -> None:
    text = models_text(DbtSpec(dbt="manifest.json", select="tag:milepost"), MANIFEST, tuple(SOURCES)).text
    assert "FROM `stg_shop_orders`" in text and "FROM `orders`" in text and "FROM `web_clicks`" in text
    assert "`dbt_paid`" in text and "__dbt__cte__" not in text and "marts" not in text


def test_texts_that_equal_the_name_of_a_relation_stay() -> None:
    manifest = json.loads(MANIFEST)
    manifest["sources"]["source.shop.shop.orders"]["relation_name"] = "orders_of_shop"
    node = model(manifest, "stg_shop__orders")
    node["compiled_code"] = "SELECT 'orders_of_shop' a, '__dbt__cte__paid' b FROM orders_of_shop -- orders_of_shop"
    text = models_text(DbtSpec(dbt="m.json", select="stg_shop__orders"), json.dumps(manifest), tuple(SOURCES)).text
    assert "SELECT 'orders_of_shop' a, '__dbt__cte__paid' b FROM `orders` -- orders_of_shop" in text


RENAMED = {
    "SELECT * FROM shop.orders": "SELECT * FROM `n`",
    "SELECT 1 FROM a, `shop`.`ORDERS` o JOIN Shop.Orders ON x = 1, (shop.orders)":
        "SELECT 1 FROM a, `n` o JOIN `n` ON x = 1, (`n`)",
    "SELECT shop.orders AS c, f(a, shop.orders) FROM shop.a AS shop WHERE x = shop.orders":
        "SELECT shop.orders AS c, f(a, shop.orders) FROM shop.a AS shop WHERE x = shop.orders",
    "SELECT extract(day FROM shop.orders), a IS DISTINCT FROM shop.orders FROM shop.orders":
        "SELECT extract(day FROM shop.orders), a IS DISTINCT FROM shop.orders FROM `n`",
    "SELECT 1 FROM x WHERE a IN (SELECT a FROM shop.orders) UNION SELECT 2 FROM shop.orders ORDER BY 1, shop.orders":
        "SELECT 1 FROM x WHERE a IN (SELECT a FROM `n`) UNION SELECT 2 FROM `n` ORDER BY 1, shop.orders",
    "WITH n AS (SELECT * FROM shop.orders WHERE a > 1) SELECT * FROM n":
        "WITH n AS (SELECT * FROM `n` WHERE a > 1) SELECT * FROM n",
}  # fmt: skip
"""Compiled code -> with `n` in place of the relation shop.orders."""


@pytest.mark.parametrize("code", RENAMED)
def test_only_relations_are_renamed(code: str) -> None:
    assert renamed(code, {("shop", ".", "orders"): "n"}) == RENAMED[code]


@pytest.mark.parametrize("reader", ["m AS (SELECT * FROM shop.orders)", "m AS (SELECT 1 FROM n), o AS (TABLE x)"])
def test_a_common_table_expression_that_would_hide_a_relation_is_refused(reader: str) -> None:
    """In dbt both names differ: `n` is the expression, and shop.orders is the model n."""
    code = f"WITH n AS (SELECT * FROM shop.orders WHERE a > 1), {reader} SELECT * FROM m, shop.orders"
    with pytest.raises(SqlProblem, match="the common table expression n would hide this relation"):
        renamed(code, {("shop", ".", "orders"): "n"})


def test_a_problem_is_at_its_line_of_the_compiled_model(tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        node = model(manifest, "placed")
        node["compiled_code"] = node["compiled_code"].replace("c.country", "c.continent")

    with pytest.raises(InvalidRequest) as refused:
        job(tmp_path, change=change)
    assert "target/compiled/shop/models/placed.sql:1:15: " in refused.value.message
    wording.matches("dbt_models", refused.value.message.replace(str(tmp_path), "FOLDER"))


def test_a_source_that_the_spec_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        job(tmp_path, without="web_clicks")
    wording.matches("dbt_models", [refused.value.message, refused.value.hint])


@pytest.mark.parametrize("materialized", MATERIALIZED)
def test_each_materialization_is_a_statement(materialized: str) -> None:
    manifest = json.loads(MANIFEST)
    model(manifest, "placed")["config"]["materialized"] = materialized
    text = models_text(
        DbtSpec(dbt="m.json", select=("placed", "stg_shop__orders")), json.dumps(manifest), tuple(SOURCES)
    ).text
    assert f"{MATERIALIZED[materialized]} `placed` AS" in text


def _other_adapter(manifest: dict[str, Any]) -> None:
    manifest["metadata"]["adapter_type"] = "duckdb"


def _python(manifest: dict[str, Any]) -> None:
    model(manifest, "placed")["language"] = "python"


def _not_compiled(manifest: dict[str, Any]) -> None:
    del model(manifest, "placed")["compiled_code"]


def _unknown_option(manifest: dict[str, Any]) -> None:
    model(manifest, "placed")["config"]["meta"] = {"milepost": {"tll": "7 days"}}


def _hostile_option(manifest: dict[str, Any]) -> None:
    model(manifest, "placed")["config"]["meta"] = {"milepost": {"ttl": "7 days') AS SELECT 1 --"}}


def _source_of_a_model(manifest: dict[str, Any]) -> None:
    model(manifest, "placed")["config"]["meta"] = {"milepost": {"source": "orders"}}


def _same_name(manifest: dict[str, Any]) -> None:
    model(manifest, "placed")["name"] = "stg_shop_orders"


def _two_sources_with_one_name(manifest: dict[str, Any]) -> None:
    manifest["sources"]["source.shop.shop.clicks"]["config"]["meta"] = {"milepost": {"source": "orders"}}
    node = model(manifest, "stg_shop__orders")
    node["depends_on"]["nodes"].append("source.shop.shop.clicks")


def _not_in_it(manifest: dict[str, Any]) -> None:
    del manifest["sources"]["source.shop.shop.orders"]


def _unclosed(manifest: dict[str, Any]) -> None:
    model(manifest, "placed")["compiled_code"] = "SELECT\n'a"


def _two_queries(manifest: dict[str, Any]) -> None:
    model(manifest, "placed")["compiled_code"] = "SELECT 1 AS a;\nCREATE MATERIALIZED VIEW b AS SELECT 2 AS c"


def _no_nodes(manifest: dict[str, Any]) -> None:
    del manifest["nodes"]


@pytest.mark.parametrize(
    "change",
    [_other_adapter, _python, _not_compiled, _unknown_option, _hostile_option, _source_of_a_model, _same_name,
     _two_sources_with_one_name, _not_in_it, _unclosed, _two_queries, _no_nodes],
)  # fmt: skip
def test_a_manifest_that_cannot_be_a_job_is_refused(tmp_path: Path, change: Change) -> None:
    with pytest.raises(InvalidRequest) as refused:
        job(tmp_path, change=change)
    wording.matches("dbt_models", [refused.value.message, refused.value.hint])


@pytest.mark.parametrize("select", ["tag:milepots", ["revenue"], ["daily", "tag:milepost"], ["report"], "paid"])
def test_a_selection_that_cannot_be_a_job_is_refused(tmp_path: Path, select: Any) -> None:
    """An unknown tag, a model whose input is not selected, an incremental, and an ephemeral model."""
    with pytest.raises(InvalidRequest) as refused:
        job(tmp_path, select)
    wording.matches("dbt_models", [refused.value.message, refused.value.hint])


@pytest.mark.parametrize("select", ["+revenue", "path:models", [], "tag:"])
def test_other_selectors_are_refused_when_the_spec_is_read(tmp_path: Path, select: Any) -> None:
    with pytest.raises(InvalidRequest, match="select"):
        job(tmp_path, select)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"metadata": {}}', "[" * 5_000])
def test_a_file_that_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"m\.json is not a manifest of dbt"):
        models_text(DbtSpec(dbt="m.json", select="a"), text, ())


def test_a_missing_manifest_is_refused(tmp_path: Path) -> None:
    job(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(InvalidRequest, match=r"the dbt manifest of job shop, cannot be read"):
        load_job(str(tmp_path / "shop.yaml"))

"""SQL over updates: modes, keys, deletes and signatures."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.jobspec.graph.compatibility import NEW_UID, compare_signatures, state_signatures
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.explain import explained_edges, explained_node
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph

CLICKS = {"page": "string", "n": "int64", "tags": "list<string>"}
TOTALS = {"uid": "totals", "kind": "aggregate", "inputs": ["clicks"], "key": ["page", "n"],
          "aggregates": {"seen": "count(*)"}}  # fmt: skip


def sql(text: str, *inputs: str, uid: str = "made") -> dict[str, Any]:
    return {"uid": uid, "kind": "sql", "inputs": list(inputs or ("totals",)), "sql": text}


def sums(*inputs: str, uid: str = "sums", key: str = "page") -> dict[str, Any]:
    return {"uid": uid, "kind": "aggregate", "inputs": list(inputs), "key": [key], "aggregates": {"rows": "count(*)"}}


def spec(*operators: dict[str, Any], shown: tuple[str, ...] = ("sums",)) -> JobSpec:
    source = {"format": "json", "path": "in/*", "schema": CLICKS}
    sinks = [{"name": uid, "input": uid, "format": "parquet", "path": f"out/{uid}", "mode": "upsert"} for uid in shown]
    value = {"name": "job", "storage": "lake", "sources": {"clicks": source}, "sinks": sinks}
    return JobSpec.model_validate({**value, "operators": [TOTALS, *operators]})


def graph_of(*operators: dict[str, Any], shown: tuple[str, ...] = ("sums",)) -> JobGraph:
    return build_graph(spec(*operators, shown=shown))


@pytest.mark.parametrize(
    ("text", "kind", "key", "stable_key"),
    [
        ("SELECT * FROM totals", "updates", ("page", "n"), ("page", "n")),
        ("SELECT seen, n AS number, page FROM totals", "updates", ("page", "number"), ("page", "number")),
        ("SELECT * FROM totals WHERE seen > 1", "updates", ("page", "n"), None),
        ("SELECT page, seen FROM totals", "retract", (), None),
        ("SELECT upper(page) AS page, n FROM totals", "retract", (), None),
        ("SELECT page, n, explode(array(seen, n)) AS x FROM totals", "retract", (), None),
        ("SELECT page FROM totals UNION ALL SELECT page FROM totals", "retract", (), None),
    ],
)
def test_a_select_that_drops_the_key_emits_retractions(
    text: str, kind: str, key: tuple[str, ...], stable_key: tuple[str, ...] | None
) -> None:
    made = graph_of(sql(text), sums("made")).nodes["made"]
    assert (made.output_kind, made.key, made.stable_key) == (kind, key, stable_key)
    assert made.retracts and made.read == "made.retract"


def test_a_union_of_updates_and_append_rows_emits_retractions() -> None:
    union = sql("SELECT page FROM clicks UNION ALL SELECT page FROM totals", "clicks", "totals")
    graph = graph_of(union, sums("made"))
    assert graph.nodes["made"].output_kind == "retract" and graph.nodes["made"].levels == (0, 1)
    assert (graph.nodes["clicks"].retracts, graph.nodes["totals"].retracts) == (False, True)
    behind = sql("SELECT page FROM made WHERE page > 'a'", "made", uid="behind")
    assert graph_of(union, behind, sums("behind")).nodes["behind"].output_kind == "retract"


def test_updates_are_retracted_only_if_an_operator_reads_them() -> None:
    """Updates that only sinks read are not retracted; retractions that only operators read are not shown."""
    kept = sql("SELECT * FROM totals WHERE seen > 1", uid="kept")
    graph = graph_of(kept, sql("SELECT * FROM kept", "kept"), shown=("made",))
    assert not any(node.retracts for node in graph.nodes.values())
    assert [graph.nodes[uid].shown for uid in ("totals", "kept", "made")] == [True] * 3
    graph = graph_of(kept, sql("SELECT * FROM kept", "kept"), sums("made"))
    assert [graph.nodes[uid].retracts for uid in ("totals", "kept", "made", "sums")] == [True, True, True, False]
    assert [graph.nodes[uid].shown for uid in ("totals", "kept", "made", "sums")] == [False, False, False, True]


def test_keys_may_be_deleted_if_their_rows_may_be() -> None:
    whole, some = sql("SELECT * FROM totals"), sql("SELECT * FROM totals WHERE seen > 1")
    assert not graph_of(whole, {**sums("made"), "key": ["page", "n"]}).nodes["sums"].deletes
    assert graph_of(some, {**sums("made"), "key": ["page", "n"]}).nodes["sums"].deletes
    assert graph_of(sql("SELECT page, n, 1 AS one FROM totals"), sums("made", key="one")).nodes["sums"].deletes


def test_lint_shows_the_mode_of_each_edge_and_what_state_holds() -> None:
    first = {
        "uid": "sums",
        "kind": "top",
        "inputs": ["made"],
        "key": ["page"],
        "order_by": ["seen"],
        "n": 1,
        "rank": "r",
    }
    job = spec(sql("SELECT page, seen FROM totals"), first, sql("SELECT * FROM totals", uid="all"),
               sums("all", uid="others"), shown=("sums", "all", "others"))  # fmt: skip
    graph = build_graph(job)
    modes = {(edge["from"], edge["to"]): edge["mode"] for edge in explained_edges(job, graph)}
    assert modes["totals", "made"] == modes["made", "sums"] == "retract"
    assert modes["totals", "all"] == "upsert(page, n) and retract"
    (state,) = explained_node(job, graph, graph.nodes["sums"])["state"]
    wording.matches("explain", state["holds"])
    wording.matches("explain", state["grows_with"])


def verdict(before: JobSpec, after: JobSpec, uid: str = "sums") -> tuple[str, str]:
    rows = compare_signatures(*(state_signatures(job_spec, build_graph(job_spec)) for job_spec in (before, after)))
    return next((row["verdict"], row["detail"]) for row in rows if row["name"] == uid)


def test_changed_sql_between_updates_and_state_needs_a_new_uid() -> None:
    """This includes SQL over SQL, but neither what is upstream of the stateful producer nor other edges."""
    first, then = sql("SELECT page, n FROM totals", uid="first"), sql("SELECT page FROM first", "first")
    before = spec(first, then, sums("made"))
    for changed in (
        (sql("SELECT page, n FROM totals WHERE n > 0", uid="first"), then),
        (first, sql("SELECT upper(page) AS page FROM first", "first")),
    ):
        needed, detail = verdict(before, spec(*changed, sums("made")))
        assert needed == NEW_UID and "updates of" in detail and ": SQL was " in detail
    assert verdict(before, spec(first, then, sums("made"), sql("SELECT * FROM totals", uid="other")))[0] == "compatible"
    assert verdict(before, spec(first, then, sums("made"), sql("SELECT page FROM first", "first", uid="x")), "totals")[
        0
    ] == ("compatible")


def test_append_inputs_of_a_union_with_updates_may_change() -> None:
    """Rows of a source are never retracted, so SQL between a source and the union is in no signature."""
    union = sql("SELECT page FROM few UNION ALL SELECT page FROM totals", "few", "totals")
    few = [sql(f"SELECT page FROM clicks WHERE n > {n}", "clicks", uid="few") for n in (1, 2)]
    assert verdict(*(spec(operator, union, sums("made")) for operator in few)) == ("compatible", "unchanged")

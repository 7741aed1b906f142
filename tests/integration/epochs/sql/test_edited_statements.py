"""Edits of statements: refilled tables equal the new query, and others are refused or count from now on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.errors import InvalidRequest, QualityGateFailed
from milepost.jobmaster import Condition, NothingToDo, Session
from milepost.protocol.failure import reason_for
from milepost.protocol.records import CheckpointFailureReason
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sql_job import SqlJob, sources_with
from milepost_testkit.runners.planes import Plane

PAID = (
    "SELECT o.id, o.customer, p.amount AS paid, method FROM orders o JOIN payments p ON o.id = p.order_id "
    "AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 30 MINUTES"
)
SPENT = "SELECT customer, count(*) AS n, max(amount) AS most FROM orders GROUP BY customer"
HAVING = "HAVING count(*) > 3"
BUSY = f"SELECT customer, count(*) AS n, max(amount) AS most FROM orders GROUP BY customer {HAVING}"
SIZES = "SELECT n, count(*) AS customers FROM busy GROUP BY n"
TOP = "SELECT n, customers FROM sizes ORDER BY customers DESC, n LIMIT 2"
PAIRS = "SELECT b.customer, b.n, s.customers FROM busy b JOIN sizes s ON b.n = s.n"
LARGE = "SELECT id, amount FROM orders WHERE amount > 10"


def sql_of(**queries: str) -> str:
    kinds = {name: "STREAMING TABLE" if name in ("paid", "large") else "MATERIALIZED VIEW" for name in queries}
    return ";\n".join(f"CREATE {kinds[name]} {name} AS {query}" for name, query in queries.items())


def streams_of(**queries: str) -> str:
    return ";\n".join(f"CREATE STREAMING TABLE {name} AS {query}" for name, query in queries.items())


def check(job: SqlJob, **queries: str) -> None:
    """Compare each table with DuckDB's answer; a query may read those before it."""
    views = []
    for name, query in queries.items():
        job.database.execute(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
        views.append(name)
    for name in views:
        job.check(name, f"SELECT * FROM {name}")


def outcomes(reports: list[Any]) -> dict[str, str]:
    return {row["uid"]: row["outcome"] for row in reports[0]}


CHAIN = {"busy": BUSY, "sizes": SIZES, "top": TOP, "pairs": PAIRS}


def edited(having: str) -> dict[str, str]:
    return {**CHAIN, "busy": BUSY.replace(HAVING, having)}


@pytest.mark.deep
def test_an_edit_downstream_of_an_aggregate_refills_all_that_follows(tmp_path: Path, in_process: Plane) -> None:
    job, runner = SqlJob(tmp_path, sql_of(**CHAIN)), in_process()
    job.run(runner)
    job.run(runner)
    job.write(sql_of(**edited("HAVING count(*) > 9")))
    reports: list[Any] = []
    job.run(runner, tell=reports.append)
    refilled = {uid for uid, outcome in outcomes(reports).items() if outcome == "refilled"}
    steps = {"sizes__agg", "top__top", "pairs__join_sizes", "pairs__keyed"}
    assert steps <= refilled and {f"sink {name}" for name in CHAIN} <= refilled
    assert "busy__agg" not in refilled
    check(job, **edited("HAVING count(*) > 9"))
    job.run(runner)
    check(job, **edited("HAVING count(*) > 9"))


@pytest.mark.deep
def test_a_refill_needs_no_new_input_and_happens_once(tmp_path: Path, in_process: Plane) -> None:
    job, runner = SqlJob(tmp_path, sql_of(**CHAIN)), in_process()
    job.run(runner)
    job.write(sql_of(**edited("HAVING count(*) > 4")))
    assert job.master.epochs.run(Session.cli(), runner).checkpoint_id == 2
    check(job, **edited("HAVING count(*) > 4"))
    assert isinstance(job.master.epochs.run(Session.cli(), runner), NothingToDo)


@pytest.mark.deep
def test_a_rollback_across_a_refill_restores_tables_and_state_of_the_former_text(
    tmp_path: Path, in_process: Plane
) -> None:
    job, runner = SqlJob(tmp_path, sql_of(**CHAIN)), in_process()
    done = job.run(runner)
    before = {name: job.master.reports.read(name).num_rows for name in CHAIN}
    job.write(sql_of(**edited("HAVING count(*) > 5")))
    job.run(runner)
    roll_back(job.master, done.checkpoint_id)
    assert {name: job.master.reports.read(name).num_rows for name in CHAIN} == before
    job.write(sql_of(**CHAIN))
    reports: list[Any] = []
    job.run(runner, tell=reports.append)
    assert not reports, "the former text fits the checkpoint"
    check(job, **CHAIN)
    roll_back(job.master, done.checkpoint_id)
    job.write(sql_of(**edited("HAVING count(*) > 7")))
    job.run(runner)
    check(job, **edited("HAVING count(*) > 7"))


@pytest.mark.deep
def test_a_veto_of_the_gate_leaves_tables_and_state_as_they_were(tmp_path: Path, in_process: Plane) -> None:
    job, runner = SqlJob(tmp_path, sql_of(**CHAIN)), in_process()
    job.run(runner)
    strict = {"type": "expect_column_values_to_be_between", "column": "n", "max_value": 0}
    job.write(sql_of(**edited("HAVING count(*) > 4")), quality=[{"sink": "busy", "expectations": [strict]}])
    with pytest.raises(QualityGateFailed):
        job.master.epochs.run(Session.cli(), runner)
    check(job, **CHAIN)
    job.write(sql_of(**CHAIN), quality=[])
    assert milepost("resume", tmp_path / "shop.yaml").exit_code == 0
    assert isinstance(job.master.epochs.run(Session.cli(), runner), NothingToDo)
    job.run(runner)
    check(job, **CHAIN)


def test_an_aggregate_that_nothing_reads_now_leaves_state_that_continues(tmp_path: Path, in_process: Plane) -> None:
    job, runner = SqlJob(tmp_path, sql_of(busy=BUSY)), in_process()
    job.run(runner)
    fewer = {"busy": "SELECT customer, count(*) + 1 AS n, max(amount) AS most FROM orders GROUP BY customer"}
    job.write(sql_of(**fewer))
    job.run(runner)
    check(job, **fewer)


@pytest.mark.deep
def test_an_operator_of_the_spec_that_reads_a_refilled_one_is_refilled_with_it(
    tmp_path: Path, in_process: Plane
) -> None:
    by_customers = {"uid": "by_customers", "kind": "aggregate", "inputs": ["sizes"], "key": ["customers"],
                    "aggregates": {"sizes": "count(*)"}}  # fmt: skip
    sink = {"name": "by_customers", "input": "by_customers", "format": "parquet", "path": "lake/by_customers",
            "mode": "upsert"}  # fmt: skip
    own = {"operators": [by_customers], "sinks": [sink]}
    job, runner = SqlJob(tmp_path, sql_of(busy=BUSY, sizes=SIZES), own), in_process()
    job.run(runner)
    job.write(sql_of(busy=BUSY.replace(HAVING, "HAVING count(*) > 5"), sizes=SIZES))
    job.run(runner)
    counted = "SELECT customers, count(*) AS sizes FROM sizes GROUP BY customers"
    check(job, busy=BUSY.replace(HAVING, "HAVING count(*) > 5"), sizes=SIZES, by_customers=counted)


def test_an_edit_before_state_is_refused_unless_it_counts_from_now_on(tmp_path: Path, in_process: Plane) -> None:
    queries = {"large": LARGE, "busy": BUSY, "sizes": SIZES}
    job, runner = SqlJob(tmp_path, sql_of(**queries)), in_process()
    job.run(runner)
    filtered = BUSY.replace("FROM orders", "FROM orders WHERE amount > 5")
    after = {"large": LARGE.replace("10", "20"), "busy": filtered, "sizes": SIZES}
    job.write(sql_of(**after))
    with pytest.raises(InvalidRequest, match="busy__agg: needs a backfill or --from-now-on") as refused:
        job.run(runner)
    assert "milepost backfill shop --from-checkpoint 0" in str(refused.value.hint)
    assert "milepost run shop --from-now-on" in str(refused.value.hint)
    lint = milepost("lint", tmp_path / "shop.yaml", "--json").document()
    assert {one["name"]: one["edit"] for one in lint["statements"]} == dict.fromkeys(after, "backfill")
    done = job.run(runner, from_now_on=True)
    assert job.master.reports.status().incomplete == dict.fromkeys(after, done.checkpoint_id)
    # Orders of the first epoch count with the former text, and later ones with the new one.
    first = "SELECT * FROM orders WHERE id < 30"
    kept = f"SELECT * FROM ({first}) UNION ALL SELECT * FROM orders WHERE id >= 30 AND amount > 5"
    mixed = {
        "large": "SELECT id, amount FROM orders WHERE CASE WHEN id < 30 THEN amount > 10 ELSE amount > 20 END",
        "busy": BUSY.replace("FROM orders", f"FROM ({kept})"),
        "sizes": SIZES,
    }
    check(job, **mixed)
    job.run(runner)
    check(job, **mixed)
    shown = milepost("status", tmp_path / "shop.yaml").stdout
    assert f"busy does not equal its query before checkpoint {done.checkpoint_id}" in shown
    back_fill(job.master, runner, from_checkpoint=0)
    check(job, **after)
    assert job.master.reports.status().incomplete is None


@pytest.mark.deep
def test_renamed_statements_keep_state_and_table(tmp_path: Path, in_process: Plane) -> None:
    queries = {"busy": BUSY, "sizes": SIZES, "large": LARGE}
    job, runner = SqlJob(tmp_path, sql_of(**queries)), in_process()
    job.run(runner)
    renamed = (
        sql_of(**queries).replace("busy", "frequent").replace("large", "dear").replace("TABLE large", "TABLE dear")
    )
    job.write(renamed)
    with pytest.raises(InvalidRequest) as refused:
        job.run(runner)
    first, *_ = str(refused.value.hint).split("; or ")
    assert first.startswith("if the query was only renamed, write `renamed: {")
    assert "frequent: busy" in first and "dear: large" in first
    job.write(renamed, renamed={"frequent": "busy", "dear": "large"})
    reports: list[Any] = []
    for _ in range(2):
        job.run(runner, tell=reports.append)
        check(job, **queries)
    assert outcomes(reports)["frequent__agg"] == outcomes(reports)["sink large"] == "restored"


def test_a_renamed_common_table_expression_keeps_its_state(tmp_path: Path, in_process: Plane) -> None:
    totals = "SELECT customer, sum(quantity) AS q FROM orders GROUP BY customer"
    query = f"WITH totals AS ({totals}) SELECT q, count(*) AS n FROM totals GROUP BY q"
    job, runner = SqlJob(tmp_path, sql_of(v=query)), in_process()
    job.run(runner)
    job.write(sql_of(v=query.replace("totals", "sums")))
    with pytest.raises(InvalidRequest) as refused:
        job.run(runner)
    assert str(refused.value.hint).startswith("if the query was only renamed, write `renamed: {v.sums: v.totals}`")
    job.write(sql_of(v=query.replace("totals", "sums")), renamed={"v.sums": "v.totals"})
    reports: list[Any] = []
    job.run(runner, tell=reports.append)
    assert outcomes(reports)["v__sums__agg"] == "restored"
    job.check("v", query.replace("sum(quantity)", "CAST(sum(quantity) AS BIGINT)"))


COUNTS = "(SELECT customer, count(*) AS n FROM orders GROUP BY customer)"
FIRST = "(SELECT order_id AS id, max(amount) AS paid FROM payments GROUP BY order_id)"


@pytest.mark.deep
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"SELECT n, count(*) AS c FROM {COUNTS} GROUP BY n",
         f"SELECT d.n, count(*) AS c FROM {COUNTS} AS d GROUP BY d.n"),
        (f"SELECT customer, n, paid FROM {COUNTS} JOIN {FIRST} ON n = id",
         f"SELECT c.customer, c.n, f.paid FROM {COUNTS} c JOIN {FIRST} f ON c.n = f.id"),
        ("SELECT customer, sum(payments.amount) AS x FROM orders JOIN payments ON id = order_id GROUP BY customer",
         "SELECT o.customer, sum(p.amount) AS x FROM orders o JOIN payments p ON o.id = p.order_id GROUP BY 1"),
    ],
    ids=["query in FROM", "join of queries", "join of tables"],
)  # fmt: skip
def test_an_alias_is_no_edit(before: str, after: str, tmp_path: Path, in_process: Plane) -> None:
    job, runner = SqlJob(tmp_path, sql_of(v=before)), in_process()
    job.run(runner)
    job.write(sql_of(v=after))
    reports: list[Any] = []
    job.run(runner, tell=reports.append)
    assert {*outcomes(reports).values()} == {"restored"}
    job.check("v", before.replace("sum(payments.amount)", "CAST(sum(payments.amount) AS DECIMAL(20, 2))"))


@pytest.mark.deep
def test_a_renamed_relation_of_a_join_keeps_its_state(tmp_path: Path, in_process: Plane) -> None:
    queries = {"card": "SELECT order_id, amount AS cost FROM payments WHERE method = 'card'"}
    join = "SELECT id, {0}.cost FROM orders JOIN {0} ON id = {0}.order_id"
    job, runner = SqlJob(tmp_path, streams_of(**queries, v=join.format("card"))), in_process()
    job.run(runner)
    job.write(streams_of(plastic=queries["card"], v=join.format("plastic")), renamed={"plastic": "card"})
    reports: list[Any] = []
    for _ in range(2):
        job.run(runner, tell=reports.append)
        check(job, **queries, v=join.format("card"))
    assert outcomes(reports)["v__join_plastic"] == outcomes(reports)["sink v"] == "restored"


def test_a_renamed_relation_of_a_query_in_an_expression_keeps_its_state(tmp_path: Path, in_process: Plane) -> None:
    counts = "SELECT order_id, count(*) AS n FROM payments GROUP BY order_id"
    text = "SELECT customer, (SELECT max(c.n) FROM {0} c WHERE c.order_id = o.x) AS most FROM last_orders o"
    last = "SELECT customer, max(id) AS x FROM orders GROUP BY customer"
    queries = {"counts": counts, "last_orders": last, "v": text.format("counts")}
    job, runner = SqlJob(tmp_path, sql_of(**queries)), in_process()
    job.run(runner)
    renamed = {"tallies": counts, "last_orders": last, "v": text.format("tallies")}
    job.write(sql_of(**renamed), renamed={"tallies": "counts"})
    reports: list[Any] = []
    for _ in range(2):
        job.run(runner, tell=reports.append)
        check(job, **queries)
    assert {*outcomes(reports).values()} == {"restored"}


def test_a_backfill_may_add_a_source_with_event_time(tmp_path: Path, in_process: Plane) -> None:
    """The epochs that it replays have no input of the source. The next one reads it from its beginning."""
    large = "SELECT id, amount FROM orders WHERE amount > {0}"
    by_hour = "SELECT window.start AS hour, count(*) AS n FROM payments GROUP BY window(paid_at, '1 hour')"
    job, runner = SqlJob(tmp_path, streams_of(large=large.format(10))), in_process()
    job.run(runner)
    job.run(runner)
    job.write(streams_of(large=large.format(20), by_hour=by_hour))
    back_fill(job.master, runner, from_checkpoint=0)
    check(job, large=large.format(20))
    job.run(runner)
    check(job, large=large.format(20))
    final = "(SELECT date_trunc('hour', max(paid_at)) FROM payments)"
    job.check(
        "by_hour",
        f"SELECT date_trunc('hour', paid_at) AS hour, count(*) AS n FROM payments GROUP BY 1 HAVING hour < {final}",
    )


def own(uid: str, operators: list[dict[str, Any]], mode: str = "upsert") -> dict[str, Any]:
    """Return operators of the spec, and a table of the last one."""
    table = {"name": uid, "input": uid, "format": "parquet", "path": f"lake/{uid}", "mode": mode}
    return {"operators": operators, "sinks": [table]}


def selected(uid: str, query: str, name: str) -> dict[str, Any]:
    return {"uid": uid, "kind": "sql", "inputs": [name], "sql": query}


def counted(uid: str, name: str, key: str) -> dict[str, Any]:
    calls = {"n": "count(*)"}
    return {"uid": uid, "kind": "aggregate", "inputs": [name], "key": [key], "aggregates": calls}


def test_an_edit_that_only_a_changelog_refuses_says_to_begin_another_one(tmp_path: Path, in_process: Plane) -> None:
    """It lacks the deletes of the rows that the new query does not show. A new one begins with all current rows."""
    queries = {"busy": BUSY, "sizes": SIZES}
    changes = {"format": "parquet", "mode": "changelog"}
    sinks = [{"name": f"{name}_changes", "input": name, "path": f"lake/{name}_changes"} | changes for name in queries]
    job, runner = SqlJob(tmp_path, sql_of(**queries), {"sinks": sinks}), in_process()
    job.run(runner)
    after = {**queries, "busy": BUSY.replace(HAVING, "HAVING count(*) > 5")}
    for sink, verdict in zip(sinks, ("needs a backfill or --from-now-on", "needs a new sink name"), strict=True):
        job.write(sql_of(**after), sinks=[sink])
        with pytest.raises(InvalidRequest, match=f"sink {sink['name']}: {verdict}") as refused:
            job.run(runner)
        hint = str(refused.value.hint)
        assert f"give sink {sink['name']} a new name and path, then milepost run shop" in hint
        assert "statement" not in hint, "all statements can be refilled"
        assert ("--from-now-on" in hint) == (sink is sinks[0])
    job.write(
        sql_of(**after),
        sinks=[sink | {"name": f"{sink['name']}_2", "path": "lake/2/" + sink["name"]} for sink in sinks],
    )
    job.run(runner)
    check(job, **after)
    for name in queries:
        job.check(f"{name}_changes_2", f"SELECT *, 'upsert' AS _op, 2::BIGINT AS _checkpoint FROM {name}")


def test_a_new_table_or_changelog_of_current_rows_needs_no_new_input(tmp_path: Path, plane: Plane) -> None:
    queries = {"busy": BUSY}
    job, runner = SqlJob(tmp_path, sql_of(**queries)), plane()
    job.run(runner)
    queries["sizes"] = SIZES
    changes = {"name": "changes", "input": "busy", "format": "parquet", "path": "lake/changes", "mode": "changelog"}
    job.write(sql_of(**queries), sinks=[changes])
    assert job.master.epochs.run(Session.cli(), runner).checkpoint_id == 2
    check(job, **queries)
    job.check("changes", "SELECT *, 'upsert' AS _op, 2::BIGINT AS _checkpoint FROM busy")
    assert isinstance(job.master.epochs.run(Session.cli(), runner), NothingToDo)
    job.run(runner)
    check(job, **queries)


TWICE = "SELECT customer, n, n * 2 AS twice FROM busy"
VIEW = f"CREATE TEMPORARY VIEW busy AS {BUSY}"


@pytest.mark.deep
@pytest.mark.parametrize("sql", [sql_of(busy=BUSY), VIEW], ids=["over a table", "over a view"])
def test_a_table_of_the_spec_over_an_edited_statement_is_replaced(sql: str, tmp_path: Path, in_process: Plane) -> None:
    job, runner = SqlJob(tmp_path, sql, own("y", [selected("y", TWICE, "busy")])), in_process()
    job.run(runner)
    for having in ("HAVING count(*) > 5", HAVING):
        job.write(sql.replace(HAVING, having))
        job.run(runner)
        job.check("y", TWICE.replace("busy", f"({BUSY.replace(HAVING, having)})"))


def test_a_statement_over_edited_sql_of_the_spec_is_refused(tmp_path: Path, in_process: Plane) -> None:
    large, counts = "SELECT * FROM orders WHERE amount > {}", "SELECT n, count(*) AS c FROM y GROUP BY n"
    y = [selected("big", large.format(10), "orders"), counted("y", "big", "customer")]
    sql = sql_of(counts=counts, all="SELECT count(*) AS n FROM orders")
    job, runner = SqlJob(tmp_path, sql, {"operators": y}), in_process()
    job.run(runner)
    job.write(sql, operators=[selected("big", large.format(20), "orders"), *y[1:]])
    with pytest.raises(InvalidRequest, match="counts__agg: needs a backfill or --from-now-on"):
        job.run(runner)
    done = job.run(runner, from_now_on=True)
    assert job.master.reports.status().incomplete == {"counts": done.checkpoint_id}
    edited = counts.replace("GROUP BY", "WHERE n > 1 GROUP BY")
    job.write(sql.replace(counts, edited))
    job.run(runner)
    assert job.master.reports.status().incomplete == {"counts": done.checkpoint_id}, "y still lacks rows"


@pytest.mark.deep
def test_an_operator_of_the_spec_over_an_edited_view_of_appended_rows_is_refused_or_counts_from_now_on(
    tmp_path: Path, in_process: Plane
) -> None:
    sql = "CREATE TEMPORARY VIEW large AS SELECT id, customer FROM orders WHERE amount > 10;\n"
    sql += sql_of(counts="SELECT n, count(*) AS c FROM y GROUP BY n")
    job, runner = SqlJob(tmp_path, sql, own("y", [counted("y", "large", "customer")])), in_process()
    job.run(runner)
    job.write(sql.replace("> 10", "> 20"))
    with pytest.raises(InvalidRequest, match="y: needs a backfill or --from-now-on") as refused:
        job.run(runner)
    assert "let statement counts and y and sink y lack these rows" in str(refused.value.hint)
    done = job.run(runner, from_now_on=True)
    assert job.master.reports.status().incomplete == dict.fromkeys(("y", "counts"), done.checkpoint_id)
    back_fill(job.master, runner, from_checkpoint=0)
    y = "SELECT customer, count(*) AS n FROM orders WHERE amount > 20 GROUP BY customer"
    check(job, y=y, counts="SELECT n, count(*) AS c FROM y GROUP BY n")
    assert job.master.reports.status().incomplete is None


TYPES = {
    "that the SQL states": "CAST(max(amount) AS DOUBLE) AS most",
    "that only the epoch knows": "concat('', CAST(max(amount) AS STRING)) AS most",
}


@pytest.mark.parametrize("types", TYPES)
def test_an_edit_that_gives_a_column_another_type_is_refused_and_the_job_has_not_failed(
    types: str, tmp_path: Path, in_process: Plane
) -> None:
    job, runner = SqlJob(tmp_path, sql_of(busy=BUSY)), in_process()
    done = job.run(runner)
    job.write(sql_of(busy=BUSY.replace("max(amount) AS most", TYPES[types])))
    job.land()
    with pytest.raises(InvalidRequest, match="most"):
        job.master.epochs.run(Session.cli(), runner)
    status = job.master.reports.status()
    assert (status.job_status, status.head) == ("running", done.checkpoint_id)
    job.write(sql_of(busy=BUSY))
    job.run(runner)
    check(job, busy=BUSY)


def test_a_wider_column_of_a_source_whose_table_stays_narrow_is_refused_and_the_job_has_not_failed(
    tmp_path: Path, in_process: Plane
) -> None:
    items = "SELECT id, explode(array(quantity, 7)) AS item FROM orders"
    sql = streams_of(items=items)
    job, runner = SqlJob(tmp_path, sql), in_process()
    done = job.run(runner)
    job.write(sql, sources=sources_with(sql, quantity="int64"))
    job.land()
    with pytest.raises(InvalidRequest, match="column 'item' has the type int64, in the table it is int32") as refused:
        job.master.epochs.run(Session.cli(), runner)
    assert reason_for(refused.value) is CheckpointFailureReason.SPEC_REFUSED
    status = job.master.reports.status()
    assert (status.job_status, status.head) == ("running", done.checkpoint_id)
    job.write(sql, sources=sources_with(sql))
    job.run(runner)
    check(job, items="SELECT id, unnest([quantity, 7]) AS item FROM orders")


def test_a_wider_column_of_a_source_that_widens_a_computed_one_is_refused_before_anything_runs(
    tmp_path: Path, in_process: Plane
) -> None:
    largest = "SELECT customer, max(amount * quantity) AS largest FROM orders GROUP BY customer"
    sql = sql_of(largest=largest)
    job, runner = SqlJob(tmp_path, sql), in_process()
    done = job.run(runner)
    job.write(sql, sources=sources_with(sql, amount="decimal(12,2)"))
    job.land()
    with pytest.raises(InvalidRequest, match="the table's column largest is "):
        job.master.epochs.run(Session.cli(), runner)
    assert [row.checkpoint_id for row in job.master.reports.list_checkpoints()] == [done.checkpoint_id]
    report = milepost("lint", tmp_path / "shop.yaml")
    assert report.exit_code == 2 and "the type of amount changed after checkpoint 1" in " ".join(report.stdout.split())


@pytest.mark.parametrize(
    ("value", "condition"),
    [("CAST(amount AS DOUBLE)", Condition.SPEC_REFUSED), ("upper(customer)", Condition.EPOCH_FAILED)],
    ids=TYPES,
)
def test_state_of_another_type_does_not_count_from_now_on(
    value: str, condition: Condition, tmp_path: Path, in_process: Plane
) -> None:
    """Where only Spark knows the type, the epoch is aborted. The job has not failed either way."""
    newest = "WITH valued AS (SELECT id, customer, {} AS value, ordered_at FROM orders) SELECT id, customer, value "
    newest += "FROM valued QUALIFY row_number() OVER (PARTITION BY id ORDER BY ordered_at DESC) = 1"
    counts = "CREATE MATERIALIZED VIEW counts AS SELECT customer, count(value) AS n FROM newest GROUP BY customer"
    sql = f"CREATE TEMPORARY VIEW newest AS {newest};\n{counts}"
    job, runner = SqlJob(tmp_path, sql.format("amount")), in_process()
    done = job.run(runner)
    job.write(sql.format(value))
    with pytest.raises(InvalidRequest, match=r"newest__top.*value is .* which cannot become ") as refused:
        job.run(runner, from_now_on=True)
    assert "give statement newest a new name" in str(refused.value.hint)
    assert reason_for(refused.value) is CheckpointFailureReason.SPEC_REFUSED
    status = job.master.reports.status()
    assert (status.job_status, status.head, status.condition) == ("running", done.checkpoint_id, condition)
    job.write(sql.format("amount"))
    job.run(runner)
    job.check("counts", "SELECT customer, count(amount) AS n FROM orders GROUP BY customer")


@pytest.mark.deep
def test_another_aggregate_over_current_rows_is_a_refill(tmp_path: Path, in_process: Plane) -> None:
    job, runner = (
        SqlJob(tmp_path, sql_of(busy=BUSY, least="SELECT n, min(most) AS x FROM busy GROUP BY n")),
        in_process(),
    )
    job.run(runner)
    after = {"busy": BUSY, "least": "SELECT n, max(most) AS x FROM busy GROUP BY n"}
    job.write(sql_of(**after))
    for _ in range(2):
        job.run(runner)
        check(job, **after)


def test_a_statement_that_is_renamed_twice_keeps_its_first_table(tmp_path: Path, in_process: Plane) -> None:
    job, runner = SqlJob(tmp_path, sql_of(busy=BUSY)), in_process()
    job.run(runner)
    job.write(sql_of(busy=BUSY).replace("busy", "frequent"), renamed={"frequent": "busy"})
    job.run(runner)
    again = sql_of(busy=BUSY).replace("busy", "loyal")
    for sql, renamed, missing in (
        (again, {"loyal": "frequent"}, "loyal: frequent, frequent: busy"),
        (again.replace("loyal", "frequent"), {}, "frequent: busy"),
    ):
        job.write(sql, renamed=renamed)
        with pytest.raises(InvalidRequest, match="are in table busy, which would be dropped") as refused:
            job.run(runner)
        assert f"write `renamed: {{{missing}}}` in the spec" in str(refused.value.hint)
    job.write(again, renamed={"loyal": "frequent", "frequent": "busy"})
    reports: list[Any] = []
    for _ in range(2):
        job.run(runner, tell=reports.append)
        check(job, busy=BUSY)
    assert outcomes(reports)["loyal__agg"] == outcomes(reports)["sink busy"] == "restored"
    roll_back(job.master, 1)
    before_both: list[Any] = []
    for _ in range(2):
        job.run(runner, tell=before_both.append)
        check(job, busy=BUSY)
    assert outcomes(before_both)["loyal__agg"] == outcomes(before_both)["sink busy"] == "restored"


def test_without_the_recorded_spec_the_digests_of_queries_decide(
    tmp_path: Path, in_process: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version may not read the spec of an earlier one."""
    monkeypatch.setattr("milepost.jobmaster.compatibility.edits.recorded_texts.recorded_spec", lambda base: None)
    job, runner = SqlJob(tmp_path, sql_of(**CHAIN)), in_process()
    job.run(runner)
    job.rescale(1)
    reports: list[Any] = []
    job.run(runner, tell=reports.append)
    assert {*outcomes(reports).values()} == {"restored"}
    job.write(sql_of(**edited("HAVING count(*) > 5")))
    job.run(runner)
    check(job, **edited("HAVING count(*) > 5"))


@pytest.mark.deep
def test_an_edit_of_the_key_is_rebuilt_as_the_refusal_advises(tmp_path: Path, in_process: Plane) -> None:
    job, runner = SqlJob(tmp_path, sql_of(spent=SPENT)), in_process()
    job.run(runner)
    by_amount = {"spent": SPENT.replace("customer", "amount").replace("max(amount)", "max(customer)")}
    job.write(sql_of(**by_amount))
    with pytest.raises(InvalidRequest, match=r"key was \[customer\], is \[amount\]") as refused:
        job.run(runner)
    assert refused.value.hint is not None
    rebuild = "give statement spent a new name, then milepost backfill shop --from-checkpoint 0"
    assert rebuild in refused.value.hint and "CAST" not in refused.value.hint
    renamed = {"spent_by_amount": by_amount["spent"]}
    job.write(sql_of(**renamed))
    back_fill(job.master, runner, from_checkpoint=0)
    job.run(runner)
    check(job, **renamed)

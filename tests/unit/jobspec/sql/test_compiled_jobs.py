"""What a SQL file is compiled into: names, texts, keys, and where its problems are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.graph import COMPATIBLE, compare_signatures, state_signatures
from milepost.jobspec.graph.fingerprints import fingerprint
from milepost.jobspec.load.document import read_document
from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import LoadedJob, from_text, load_job
from milepost.jobspec.load.sql_text import SqlText
from milepost.operators.latest.spec import LatestOperator
from milepost_testkit.jobs.sql_job import document
from milepost_testkit.processes.processes import REPOSITORY

SPEC = Path("/jobs/shop.yaml")
NEXMARK = REPOSITORY / "config" / "examples" / "nexmark" / "nexmark.yaml"
GOLDEN = Path(__file__).parent / "golden" / "nexmark.yaml"
GROUPED = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"

JOINED = "SELECT count(*) AS n FROM orders o, payments p"


def job(sql: str, **changes: Any) -> LoadedJob:
    return from_text(json.dumps(document(sql, **changes)), SPEC, SqlText.of("shop.sql", sql))


def view(query: str, name: str = "v") -> str:
    return f"CREATE MATERIALIZED VIEW {name} AS {query};\n"


def uids(sql: str) -> list[str]:
    return [operator.uid for operator in job(sql).spec.operators]


def stateful(sql: str) -> list[str]:
    return [node.uid for node in job(sql).graph().stateful]


class _LaterLatest(LatestOperator):
    another_option: bool = False


def test_a_version_with_another_option_of_an_operator_continues_the_state_of_a_query() -> None:
    newest = "SELECT * FROM orders QUALIFY row_number() OVER (PARTITION BY id ORDER BY ordered_at DESC) = 1"
    spec = job(view(newest)).spec
    own = spec.operator("v__top")
    prints = []
    for option in (False, True):
        later = _LaterLatest.model_validate(own.model_dump() | {"another_option": option})
        operators = tuple(later if one is own else one for one in spec.operators)
        prints.append(fingerprint(spec.model_copy(update={"operators": operators}), "v"))
    assert prints[0] == fingerprint(spec, "v") != prints[1]


def test_an_expression_is_the_users_own_text_with_its_columns_replaced() -> None:
    query = "SELECT o.id, o . Amount*2  /* twice */ +  1 AS x FROM Orders o WHERE o.customer <> 'o.id'"
    (operator,) = job(f"CREATE STREAMING TABLE v AS {query}").spec.operators
    assert operator.model_dump()["sql"] == (
        "SELECT\n  `id`,\n  `amount`*2  /* twice */ +  1 AS `x`\nFROM `orders`\nWHERE (`customer` <> 'o.id')"
    )


def test_a_grouping_column_may_have_the_name_of_a_part_of_an_average() -> None:
    rows = "(SELECT quantity AS sum_amount, customer AS count_amount, amount FROM orders) AS o"
    query = f"SELECT sum_amount, count_amount, avg(amount) AS mean FROM {rows} GROUP BY ALL"
    operators = {one.uid: one.model_dump() for one in job(view(query)).spec.operators}
    assert operators["v__agg"]["key"] == ("count_amount", "sum_amount")
    assert [*operators["v__agg"]["aggregates"]] == ["agg_count_amount", "agg_sum_amount"]


def test_an_equality_in_every_branch_of_an_or_is_a_key() -> None:
    branches = "(o.id = p.order_id AND method = 'card' AND quantity > 2) OR (method = 'cash' AND O.ID = p.order_id)"
    operators = {one.uid: one.model_dump() for one in job(view(f"{JOINED} WHERE {branches}")).spec.operators}
    assert operators["v__join_payments"]["key"] == ({"id": "order_id"},)
    apart = view(f"{JOINED} WHERE {branches.replace('O.ID = p', 'o.id <> p')}")
    operators = {one.uid: one.model_dump() for one in job(apart).spec.operators}
    assert operators["v__join_payments"]["key"] == ()


@pytest.mark.deep
@pytest.mark.parametrize(
    "edited",
    [
        f"{GROUPED} HAVING count(*) > 3",
        GROUPED.replace("AS total", "AS other"),
        GROUPED.replace("customer, count(*) AS n", "count(*) AS n, customer"),
        GROUPED.replace("FROM orders", "FROM orders AS o"),
        f"{GROUPED} -- all of them",
    ],
)
def test_no_edit_downstream_of_state_renames_it_or_changes_its_signature(edited: str) -> None:
    before, after = job(view(GROUPED)), job(view(edited))
    assert stateful(view(edited)) == ["v__agg"]
    signatures = [state_signatures(one.spec, one.graph())["operators"] for one in (before, after)]
    assert signatures[0] == signatures[1]


def test_an_aggregate_may_be_the_right_side_of_a_comparison() -> None:
    loaded = job(view(f"{GROUPED} HAVING 1 < count(*) AND 2 = max(id) AND 'x' > min(customer)"))
    aggregates = loaded.spec.operator("v__agg").model_dump()["aggregates"]
    assert {"count", "max_id", "min_customer"} <= {*aggregates}


def test_not_in_compares_floats_with_integers_if_neither_has_nulls() -> None:
    schema = {"id": "int64", "customer": "string", "price": "float32"}
    sources = {"orders": {"format": "csv", "path": "landing/*.csv", "schema": schema}}
    sql = view(
        "SELECT price, count(*) AS n FROM orders WHERE price IS NOT NULL AND price NOT IN "
        "(SELECT count(*) AS m FROM orders GROUP BY customer) GROUP BY price"
    )
    joins = [one for one in job(sql, sources=sources).spec.operators if one.kind == "join"]
    assert [one.model_dump()["how"] for one in joins] == ["anti"]


def test_statements_may_be_in_any_order_and_white_space_changes_no_signature() -> None:
    first = view("SELECT n, count(*) AS customers FROM v GROUP BY n", "sizes") + view(GROUPED)
    second = view(GROUPED.replace(" ", "\n  ")) + view("select n, count ( * ) as customers from V group by n", "sizes")
    signatures = [state_signatures(one.spec, one.graph()) for one in (job(first), job(second))]
    assert all(one["verdict"] == COMPATIBLE for one in compare_signatures(*signatures))


def test_a_common_table_expression_may_shadow_the_name_that_its_body_reads() -> None:
    sql = view("WITH orders AS (SELECT id, customer FROM orders WHERE id > 3) SELECT customer, id FROM orders")
    assert uids(sql) == ["v__orders", "v"]


def test_a_join_names_its_steps_after_the_relations_and_the_columns_of_its_right_side() -> None:
    query = (
        "SELECT o.id, p.amount FROM orders o JOIN payments p "
        "ON p.order_id = o.id AND p.paid_at BETWEEN o.ordered_at - INTERVAL 5 MINUTES AND o.ordered_at + INTERVAL 1 DAY"
    )
    spec = job(view(query)).spec
    assert [one.uid for one in spec.operators] == ["v__orders", "v__payments", "v__join_payments", "v"]
    join = spec.operator("v__join_payments").model_dump(mode="json")
    assert (join["key"], join["within"]) == ([{"id": "order_id"}], ["-5m", "1d"])
    assert join["columns"] == {"payments__amount": "right.amount", "payments__paid_at": "right.paid_at"}


def test_keys_are_in_the_order_of_their_names_whatever_the_order_of_the_query() -> None:
    queries = [
        f"SELECT customer, id, count(*) AS n FROM orders GROUP BY {keys}" for keys in ("id, customer", "2, 1", "ALL")
    ]
    keys = {tuple(job(view(query)).spec.operator("v__agg").model_dump()["key"]) for query in queries}
    assert keys == {("customer", "id")}


def test_the_compiled_spec_is_a_valid_spec_that_continues_the_state_of_the_job() -> None:
    original = job(view(GROUPED))
    again = from_text(original.text, SPEC)
    assert again.sql is None and again.spec == original.spec and again.spec_hash == original.spec_hash
    assert state_signatures(again.spec, again.graph()) == state_signatures(original.spec, original.graph())
    assert list(read_document(again.text).value["statements"]) == ["v"]


SUMS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
LARGEST = "SELECT order_id, max(amount) AS paid FROM payments GROUP BY order_id"


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"SELECT total, count(*) AS n FROM ({SUMS}) GROUP BY total",
         f"SELECT s.total, count(*) AS n FROM ({SUMS}) AS s GROUP BY s.total"),
        (f"SELECT customer, paid FROM ({SUMS}) JOIN ({LARGEST}) ON total = paid",
         f"SELECT a.customer, b.paid FROM ({SUMS}) a JOIN ({LARGEST}) b ON a.total = b.paid"),
        (f"SELECT total FROM (SELECT * FROM ({SUMS}) s WHERE total > 1) UNION SELECT paid FROM ({LARGEST})",
         f"SELECT total FROM (SELECT * FROM ({SUMS}) WHERE total > 1) t UNION SELECT p.paid FROM ({LARGEST}) p"),
        (("SELECT customer, sum(payments.amount + 1) AS x FROM orders JOIN payments ON abs(id) = abs(order_id) "
         "GROUP BY customer"),
         ("SELECT o.customer, sum(p.amount + 1) AS x FROM orders AS o JOIN payments p ON abs(o.id) = abs(p.order_id) "
         "GROUP BY o.customer")),
        ("SELECT upper(customer) AS u, max(id + 1) FILTER (WHERE id > 1) AS m FROM orders GROUP BY upper(customer)",
         "SELECT upper(o.customer) AS u, max(o.id + 1) FILTER (WHERE o.id > 1) AS m FROM orders o GROUP BY 1"),
        ("SELECT id, amount FROM orders QUALIFY rank() OVER (PARTITION BY lower(customer) ORDER BY abs(amount)) <= 2",
         ("SELECT o.id, o.amount FROM orders o QUALIFY rank() OVER (PARTITION BY lower(o.customer) "
         "ORDER BY abs(o.amount)) <= 2")),
        ("SELECT id FROM orders WHERE amount > (SELECT avg(amount + 1) FROM payments)",
         "SELECT o.id FROM orders o WHERE o.amount > (SELECT avg(p.amount + 1) FROM payments AS p)"),
        (f"SELECT id FROM orders WHERE id IN (SELECT order_id FROM ({LARGEST}))",
         f"SELECT o.id FROM orders o WHERE o.id IN (SELECT l.order_id FROM ({LARGEST}) AS l)"),
        (("SELECT upper(customer) AS u, max(id) AS m FROM orders GROUP BY upper(customer) "
          "HAVING max(id) > (SELECT min(order_id) FROM payments)"),
         ("SELECT upper(o.customer) AS u, max(o.id) AS m FROM orders o GROUP BY upper(o.customer) "
          "HAVING max(o.id) > (SELECT min(payments.order_id) FROM payments)")),
        (f"SELECT customer, sum(total + 1) OVER (PARTITION BY total % 2) AS x FROM ({SUMS})",
         f"SELECT s.customer, sum(s.total + 1) OVER (PARTITION BY s.total % 2) AS x FROM ({SUMS}) s"),
    ],
)  # fmt: skip
def test_no_alias_of_a_relation_changes_an_operator(before: str, after: str) -> None:
    sql = [
        f"CREATE TEMPORARY VIEW v AS {query};" + view("SELECT count(*) AS n FROM v", "n") for query in (before, after)
    ]
    assert job(sql[0]).spec.operators == job(sql[1]).spec.operators


def test_a_query_in_having_renames_no_step() -> None:
    query = f"SELECT total, count(*) AS n FROM ({SUMS}) GROUP BY total"
    having = f"{query} HAVING count(*) > (SELECT min(amount) FROM payments)"
    assert stateful(view(query)) == ["v__query_orders__agg", "v__agg"]
    assert {*stateful(view(query))} <= {*stateful(view(having))}


def test_relations_that_are_read_twice_are_distinguished_by_their_aliases() -> None:
    query = f"SELECT a.customer, b.customer AS other FROM ({SUMS}) a JOIN ({SUMS}) b ON a.total = b.total"
    assert {"v__a__agg", "v__b__agg", "v__join_from_b"} <= {*uids(view(query))}


def test_equal_column_names_of_two_relations_of_a_subquery_are_compared_each() -> None:
    inner = "SELECT max(paid_at) FROM payments p JOIN orders i ON i.id = p.order_id WHERE p.amount = s.total AND "
    sql = view(f"SELECT customer, ({inner}i.amount = s.n) AS x FROM ({GROUPED}) s")
    join = next(one for one in job(sql).spec.operators if one.uid == "v__join_from_scalar_payments")
    assert len(join.model_dump()["key"]) == 2


def test_a_query_in_from_without_a_name_has_that_of_its_relation() -> None:
    inner = "SELECT o.customer, amount FROM orders AS o WHERE id > 3"
    sql = view(f"SELECT customer, sum(amount) AS total FROM ({inner}) GROUP BY customer")
    assert uids(sql) == ["v__query_orders", "v__rows", "v__agg", "v"]
    assert job(sql).spec.operators == job(sql.replace(") GROUP", ") AS query_orders GROUP")).spec.operators


def test_a_users_operator_cannot_have_the_name_of_a_step() -> None:
    operator = {"uid": "v__agg", "kind": "sql", "inputs": ["orders"], "sql": "SELECT id FROM orders"}
    with pytest.raises(InvalidRequest, match=r"operators\[0\].uid: 'v__agg' is not a valid name"):
        job(view(GROUPED), operators=[operator])


def test_statements_and_operators_of_the_spec_read_each_other() -> None:
    operators = [
        {"uid": "few", "kind": "sql", "inputs": ["v"], "sql": "SELECT customer, n FROM v WHERE n < 3"},
        {"uid": "clean", "kind": "sql", "inputs": ["orders"], "sql": "SELECT * FROM orders WHERE id > 0"},
    ]
    sinks = [{"name": "few", "input": "few", "format": "parquet", "path": "lake/few", "mode": "upsert"}]
    loaded = job(view(GROUPED.replace("FROM orders", "FROM clean")) + "-- orders", operators=operators, sinks=sinks)
    assert loaded.graph().nodes["few"].key == ("customer",)
    assert loaded.graph().nodes["v__rows"].inputs == ("clean",)


def test_a_problem_of_the_graph_is_reported_at_the_statement() -> None:
    tables = {"format": "iceberg", "path": "lake/{name}"}
    with pytest.raises(InvalidRequest) as refused:
        job(view(GROUPED), tables=tables).graph()
    assert "shop.sql:1:1: " in refused.value.message


def test_lint_explains_each_statement() -> None:
    sql = view(GROUPED) + "CREATE TEMPORARY VIEW unread AS SELECT DISTINCT * FROM orders;\n"
    first, second = lint_report(job(sql))["statements"]
    assert (first["mode"], first["key"], first["line"], first["sink"]) == ("upsert(customer)", ["customer"], 1, True)
    assert [step["kind"] for step in first["steps"]] == ["sql", "aggregate", "sql"]
    assert [state["bound"] for state in first["state"]] == ["grows without bound with: distinct customer"]
    assert (second["mode"], second["sink"], len(second["warnings"])) == ("append", False, 1)


def test_lint_and_messages_name_the_users_expressions_instead_of_columns_of_the_compiler() -> None:
    query = "SELECT lower(customer) AS who, max(amount + 1) AS m FROM orders GROUP BY lower( customer)"
    (statement,) = lint_report(job(view(query)))["statements"]
    assert [state["bound"] for state in statement["state"]] == ["grows without bound with: distinct lower( customer)"]
    with pytest.raises(InvalidRequest, match=r"select lower\(customer\)$"):
        job(view("SELECT count(*) AS n FROM orders GROUP BY lower(customer)"))


def test_lint_names_the_columns_of_a_join_as_the_query_does() -> None:
    newest = "SELECT * FROM orders QUALIFY row_number() OVER (PARTITION BY id ORDER BY ordered_at DESC) = 1"
    counts = "SELECT o.customer, count(*) AS n FROM payments p JOIN newest o ON p.order_id = o.id GROUP BY o.customer"
    loaded = job(view(newest, "newest") + view(counts))
    states = {one["name"]: one for of in lint_report(loaded)["statements"] for one in of["state"]}
    assert states["v__agg"]["holds"] == "a row per o.customer"


def test_late_rows_of_a_window_and_a_join_are_inputs_of_sinks() -> None:
    sql = (
        "CREATE STREAMING TABLE hourly AS SELECT window.start AS b, count(*) AS n FROM orders "
        "GROUP BY window(ordered_at, '1 hour');\n"
        "CREATE STREAMING TABLE paid AS SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id "
        "AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 9 MINUTES"
    )
    inputs = ("hourly__agg.late", "paid__join_payments.late.paid__payments")
    sinks = [
        {"name": f"late_{number}", "input": name, "format": "parquet", "path": f"lake/late_{number}", "mode": "append"}
        for number, name in enumerate(inputs)
    ]
    assert {sink.input for sink in job(sql, sinks=sinks).spec.sinks} == {"hourly", "paid", *inputs}
    job(sql, sinks=sinks).graph()


def test_lint_warns_of_a_join_that_runs_in_one_task() -> None:
    (statement,) = lint_report(
        job(
            view(
                "SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM payments)"
                " QUALIFY row_number() OVER (PARTITION BY id ORDER BY amount) = 1"
            )
        )
    )["statements"]
    assert [one["message"] for one in statement["warnings"]] == ["this join has no equality, so it runs in one task"]


NEWEST = (
    "CREATE TEMPORARY VIEW newest AS "
    "SELECT * FROM orders QUALIFY row_number() OVER (PARTITION BY id ORDER BY ordered_at DESC) = 1;\n"
)


def test_functions_with_over_become_an_operator_between_the_expressions_before_and_after_it() -> None:
    query = (
        "SELECT id, amount - lag(amount) OVER (PARTITION BY lower(customer) ORDER BY ordered_at) AS more, "
        "avg(quantity + 1) OVER (PARTITION BY lower(customer) ORDER BY ordered_at ROWS 9 PRECEDING) AS mean "
        "FROM newest WHERE id > 3"
    )
    spec = job(NEWEST + view(query)).spec
    assert [one.uid for one in spec.operators if one.uid.startswith("v")] == [
        "v__rows", "v__over", "v__unkeyed", "v__keyed", "v",
    ]  # fmt: skip
    over = spec.operator("v__over").model_dump(mode="json")
    assert (over["row_key"], over["order_by"]) == (["id"], [{"ordered_at": "asc"}])
    assert [one.startswith("key_") for one in over["key"]] == [True]
    calls = sorted(over["functions"].values())
    assert calls[0].startswith("avg(arg_") and calls[0].endswith(") rows between 9 preceding and current row")
    assert calls[1] == "lag(amount, 1)"
    assert "WHERE (`id` > 3)" in spec.operator("v__rows").model_dump()["sql"]


@pytest.mark.parametrize(
    "edited",
    [
        "SELECT id, customer AS who, -amount AS debit, rank() OVER (PARTITION BY customer ORDER BY amount) + 1 AS r",
        "SELECT amount, rank() OVER (PARTITION BY customer ORDER BY amount) AS r, customer, id",
        "SELECT n.id, n.customer, n.amount, rank( ) over (partition by n.customer order by n.amount) AS r",
    ],
)
def test_no_edit_of_the_select_list_around_functions_with_over_changes_state(edited: str) -> None:
    query = "SELECT id, customer, amount, rank() OVER (PARTITION BY customer ORDER BY amount) AS r"
    before, after = (job(NEWEST + view(f"{one} FROM newest n")) for one in (query, edited))
    signatures = [state_signatures(one.spec, one.graph())["operators"]["v__over"] for one in (before, after)]
    assert signatures[0] == signatures[1]


def test_lint_names_functions_with_over_and_warns_if_they_run_in_one_task() -> None:
    query = "SELECT id, sum(quantity) OVER (ORDER BY amount) AS total FROM newest"
    statements = lint_report(job(NEWEST + view(query)))["statements"]
    assert [one["message"] for one in statements[1]["warnings"]] == ["OVER without PARTITION BY runs in one task"]
    assert [state["bound"] for state in statements[1]["state"]] == ["grows without bound with: distinct id of v__rows"]


def test_a_partition_that_the_select_list_shows_is_the_key_of_the_table() -> None:
    """Otherwise the rows lose a part of their key, and `materialize` has to store them again."""
    over = "count(*) OVER (PARTITION BY lower(customer)) AS n FROM newest AS o"
    shown = job(NEWEST + view(f"SELECT id, lower(o.customer) AS who, {over}")).spec
    assert [operator.uid for operator in shown.operators][-3:] == ["v__rows", "v__over", "v"]
    assert "`customer`" not in shown.operator("v").sql
    for expression in ("lower(o.customer)", "LOWER( customer )"):
        graph = job(NEWEST + view(f"SELECT id, {expression} AS who, {over}")).graph()
        assert graph.sink_inputs["v"].key == ("who", "id")
    hidden = job(NEWEST + view(f"SELECT id, {over}")).spec
    assert [operator.kind for operator in hidden.operators][-2:] == ["materialize", "sql"]


def test_an_argument_is_computed_only_where_the_condition_of_its_filter_holds() -> None:
    query = "SELECT customer, sum(1 / quantity) FILTER (WHERE quantity <> 0) AS s FROM orders GROUP BY customer"
    rows = job(view(query)).spec.operator("v__rows").model_dump()["sql"]
    assert "CASE WHEN `quantity` <> 0 THEN 1 / `quantity` END AS `arg_" in rows


def test_sums_and_means_of_decimals_have_the_types_of_spark() -> None:
    query = "SELECT customer, sum(amount) AS total, avg(amount) AS mean FROM orders GROUP BY customer"
    text = job(view(query)).spec.operator("v").model_dump()["sql"]
    assert "CAST(`sum_amount` AS DECIMAL(20, 2)) AS `total`" in text
    mean = "CAST(CAST(`sum_amount` AS DECIMAL(20, 2)) / NULLIF(`count_amount`, 0) AS DECIMAL(14, 6)) AS `mean`"
    assert mean in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("argument", "sum_type", "avg_type"),
    [
        ("amount + 0", "DECIMAL(21, 2)", "DECIMAL(15, 6)"),
        ("amount * 2", "DECIMAL(22, 2)", "DECIMAL(16, 6)"),
        ("amount * 1.5", "DECIMAL(23, 3)", "DECIMAL(17, 7)"),
        ("CAST(id / 100 AS DECIMAL(12, 2))", "DECIMAL(22, 2)", "DECIMAL(16, 6)"),
        ("coalesce(amount, 0)", "DECIMAL(22, 2)", "DECIMAL(16, 6)"),
        ("CASE WHEN quantity > 1 THEN amount END", "DECIMAL(20, 2)", "DECIMAL(14, 6)"),
        ("coalesce(amount, id)", "DECIMAL(32, 2)", "DECIMAL(26, 6)"),
        ("abs(amount)", "DECIMAL(20, 2)", "DECIMAL(14, 6)"),
        ("amount / 3", "DECIMAL(24, 6)", "DECIMAL(18, 10)"),
        ("if(quantity > 1, amount, -amount)", "DECIMAL(20, 2)", "DECIMAL(14, 6)"),
    ],
)
def test_sums_and_means_of_computed_decimals_have_the_types_of_spark(
    argument: str, sum_type: str, avg_type: str
) -> None:
    query = f"SELECT customer, sum({argument}) AS total, avg({argument}) AS mean FROM orders GROUP BY customer"
    text = job(view(query)).spec.operator("v").model_dump()["sql"]
    assert f"AS {sum_type}) AS `total`" in text and f"AS {avg_type}) AS `mean`" in text


@pytest.mark.long
def test_the_compiled_form_of_the_example_does_not_change_by_itself() -> None:
    """State is stored under these names. To accept a new form: `milepost lint --as-yaml` writes it."""
    assert load_job(str(NEXMARK)).text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("query", "key"),
    [
        (
            (
                "WITH l AS (SELECT * FROM orders QUALIFY row_number() OVER (PARTITION BY id ORDER BY amount DESC) = 1) "
                "SELECT l.id, s.n FROM l JOIN sizes s ON s.customer = l.customer"
            ),
            ["id"],
        ),
        ("SELECT a.customer, b.n FROM sizes a JOIN sizes b ON a.customer = b.customer", ["customer"]),
        ("SELECT a.customer, b.customer AS other FROM sizes a JOIN sizes b ON a.n = b.n", ["customer", "other"]),
        ("SELECT customer, n FROM sizes ORDER BY n DESC LIMIT 3", ["customer"]),
        ("SELECT n, row_number() OVER (ORDER BY n DESC) AS place FROM sizes QUALIFY place <= 3", ["place"]),
    ],
)
def test_a_view_has_the_key_of_the_side_whose_partner_is_unique(query: str, key: list[str]) -> None:
    sizes = "CREATE TEMPORARY VIEW sizes AS SELECT customer, count(*) AS n FROM orders GROUP BY customer;\n"
    loaded = job(sizes + view(query))
    assert loaded.spec.operator("v__keyed").model_dump()["key"] == tuple(key)
    assert loaded.graph().sink_inputs["v"].mode == "upsert"


def test_a_group_expression_is_found_only_as_a_whole_operand() -> None:
    query = "SELECT id + quantity AS a, (id + quantity) * 2 AS b, count(*) AS n FROM orders GROUP BY id + quantity"
    text = job(f"CREATE TEMPORARY VIEW v AS {query}").spec.operator("v").model_dump()["sql"]
    assert text.count("`key_") == 2
    with pytest.raises(InvalidRequest, match=r"(id|quantity) is neither in GROUP BY nor in an aggregate"):
        job(f"CREATE TEMPORARY VIEW v AS {query.replace('(id + quantity) * 2', 'id + quantity * 2')}")


def test_over_does_not_see_the_aliases_of_its_select() -> None:
    query = (
        "SELECT customer, -amount AS amount, id FROM orders "
        "QUALIFY row_number() OVER (PARTITION BY customer ORDER BY amount DESC) = 1"
    )
    latest = job(view(query)).spec.operator("v__top").model_dump()
    assert latest["sequence_by"] != ("amount",) and latest["sequence_by"][0].startswith("order_")


def test_windows_that_may_be_emitted_again_are_updated_by_their_bounds() -> None:
    sql = (
        "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('milepost.allowed_lateness' = '1 hour') AS "
        "SELECT window.start AS begins, window.end AS ends, count(*) AS n FROM orders "
        "GROUP BY window(ordered_at, '1 hour')"
    )
    assert job(sql).graph().nodes["v"].key == ("begins", "ends")
    with pytest.raises(InvalidRequest, match=r"milepost\.ttl has no effect"):
        job(sql.replace("milepost.allowed_lateness", "milepost.ttl"))


def test_the_first_rows_of_all_are_bounded_state_and_so_is_what_reads_only_them() -> None:
    """Without PARTITION BY the key is a constant, which is no key to grow with."""
    query = "SELECT id, row_number() OVER (ORDER BY amount) AS place FROM orders QUALIFY place <= 5"
    (statement,) = lint_report(job(view(query)))["statements"]
    assert [(one["name"], one["holds"], one["bound"]) for one in statement["state"]] == [
        ("v__top", "at most 5 rows in total", "bounded"),
        ("v__keyed", "the rows of v__unkeyed", "bounded"),
    ]


def test_a_misspelt_event_time_is_reported_in_the_spec_not_in_the_sql() -> None:
    text = document(view(GROUPED))
    text["sources"]["orders"]["event_time"] = "orderedat"
    with pytest.raises(InvalidRequest, match=r'sources\.orders\.event_time: .* did you mean "ordered_at"'):
        from_text(json.dumps(text), SPEC, SqlText.of("shop.sql", view(GROUPED)))

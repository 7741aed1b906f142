"""SQL that cannot be compiled is refused at its line and column, with what to write instead."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.jobspec.load.load import from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost.language.sql import SqlProblem, sql_tokens
from milepost_testkit.jobs.sql_job import document
from milepost_testkit.profiles import examples

REFUSED = {
    'SELECT id FROM ordrs':
        '2:16: there is no source or statement ordrs; did you mean "orders"? Known: v, orders,',
    'SELECT id,\n  custmer FROM orders':
        '3:3: there is no column custmer; did you mean "customer"? Known: id, customer, amount,',
    'SELECT amount FROM orders o JOIN payments p USING (id)':
        '2:52: USING needs the column id on both sides',
    'SELECT o.id FROM orders o FULL JOIN payments p ON o.id = p.order_id AND p.amount > 3':
        '2:73: this condition of the full join is not available in this version: expected comparisons of both sides',
    'SELECT o.id FROM orders o RIGHT JOIN payments p ON o.id = p.order_id AND p.amount > 3':
        '2:74: this condition of the right join is not available in this version: expected comparisons of both',
    'SELECT o.id FROM orders o JOIN orders b ON o.id = b.id RIGHT JOIN payments p ON o.id = p.order_id':
        '2:56: a right join after an inner join: put the joins before it into a common table expression',
    'SELECT o.id FROM orders o RIGHT JOIN countries c ON o.customer = c.customer':
        '2:27: a right join with a static source is not available in this version',
    'SELECT customer, median(amount) AS m FROM orders GROUP BY customer':
        '2:18: median is not available in this version; aggregates: count, sum, avg,',
    'SELECT customer, 1 + any_value(id) AS i FROM orders GROUP BY ALL':
        '2:22: any_value is not available in this version; write max(…)',
    'SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING percentile(id, 0.5) > 1':
        '2:69: percentile is not available in this version; aggregates: count, sum, avg,',
    'SELECT id, amount AS a, a * 2 AS twice FROM orders':
        '2:25: there is no column a; known: id, customer, amount, quantity, ordered_at; a name',
    'SELECT id FROM orders\nCREATE MATERIALIZED VIEW w AS SELECT id FROM orders':
        '3:1: a semicolon is missing before CREATE',
    'SELECT customer, count(*) AS n FROM orders WHERE sum(id) > 1 GROUP BY customer':
        '2:50: sum(id) in WHERE: a condition on an aggregate is HAVING',
    'SELECT id FROM orders o NATURAL JOIN payments p':
        '2:25: NATURAL JOIN is not available here; expected a join such as LEFT JOIN … ON …',
    "SELECT id, 'one AS a FROM orders":
        '2:12: syntax error: a quote or a comment is not closed',
    'SELECT id, id FROM orders':
        '2:12: the output column id occurs twice; give one of them a name with AS',
    'SELECT id + 1 FROM orders':
        '2:8: give id + 1 a name with AS',
    'SELECT id + 1 AS next, next + 1 AS last FROM orders':
        '2:24: there is no column next; known: id, customer, amount, quantity, ordered_at; a name',
    'SELECT customer, id, count(*) AS n FROM orders GROUP BY customer':
        '2:18: id is neither in GROUP BY nor in an aggregate; add it to GROUP BY, or write max(id)',
    'SELECT customer, longest(id) AS id FROM orders GROUP BY customer':
        '2:18: id is neither in GROUP BY nor in an aggregate (longest is not one; known: count, sum, avg',
    'SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING n > 1':
        '2:69: there is no column n; known: id, customer, amount, quantity, ordered_at; a name',
    'SELECT count(*) AS n FROM orders GROUP BY customer':
        '1:1: the rows of v have no key by which a table could be updated: select customer',
    'SELECT customer, sum(DISTINCT id) AS n FROM orders GROUP BY customer':
        '2:18: sum(DISTINCT …) is not available in this version; aggregate over SELECT DISTINCT',
    "SELECT customer, count(*) AS n FROM orders GROUP BY customer, session_window(ordered_at, '0 minutes')":
        '2:63: expected session_window(time, gap), with a gap above 0',
    'SELECT id FROM orders LIMIT 3':
        '2:29: LIMIT without ORDER BY: which rows it takes would not be determined',
    'SELECT id, sum(id) OVER (PARTITION BY customer) AS s FROM orders':
        '2:12: these rows have no key by which their values could be replaced: read the newest row per key (QUALIFY',
    'SELECT id, 1 + ntile(4) OVER (ORDER BY amount) AS s FROM orders':
        '2:16: ntile with OVER is not available in this version; available: row_number, rank, dense_rank, lag, lead,',
    'SELECT id, lag(amount) IGNORE NULLS OVER (ORDER BY amount) AS s FROM orders':
        '2:24: IGNORE NULLS is not available in this version',
    'SELECT id, sum(id) FILTER (WHERE id > 1) OVER (ORDER BY amount) AS s FROM orders':
        '2:20: Spark has no FILTER with OVER; write CASE WHEN condition THEN value END',
    'SELECT id, count(DISTINCT id) OVER (ORDER BY amount) AS s FROM orders':
        '2:18: Spark has no DISTINCT with OVER; aggregate over SELECT DISTINCT',
    'SELECT id, sum(id) OVER (ORDER BY amount RANGE BETWEEN 5 PRECEDING AND CURRENT ROW) AS s FROM orders':
        '2:42: a frame of RANGE is not available in this version; write ROWS BETWEEN …, or no frame: then all rows up',
    'SELECT id, sum(id) OVER (ORDER BY amount GROUPS 2 PRECEDING) AS s FROM orders':
        '2:42: a frame of GROUPS is not available in this version',
    'SELECT id, sum(id) OVER (ORDER BY amount ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING) AS s FROM orders':
        "2:42: 'ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING': the frame ends before it begins",
    'SELECT id, sum(id) OVER (ROWS 2 PRECEDING) AS s FROM orders':
        '2:12: ORDER BY is missing in OVER: which rows come first would not be determined',
    'SELECT id, lead(id) OVER (PARTITION BY customer) AS s FROM orders':
        '2:12: ORDER BY is missing in OVER: which rows come first would not be determined',
    'SELECT id, lag(id, 1, 0) OVER (ORDER BY amount) AS s FROM orders':
        '2:23: a default of lag is not available in this version; write CASE WHEN row_number() OVER (…) <= 1 THEN',
    'SELECT id, lag(id, -1) OVER (ORDER BY amount) AS s FROM orders':
        '2:12: expected lag(value) or lag(value, number of rows)',
    'SELECT id, lag(id, 9999999999) OVER (ORDER BY amount) AS s FROM orders':
        '2:20: a distance of lag is at most 999,999,999 rows',
    'SELECT id, sum(id) OVER (ORDER BY amount ROWS 9999999999 PRECEDING) AS s FROM orders':
        '2:42: a frame ends at most 999,999,999 rows from the current one; write unbounded preceding',
    f'SELECT id FROM orders ORDER BY amount LIMIT {"9" * 5000}':
        '2:45: expected at most 1,000, because state has these rows',
    'SELECT id FROM orders QUALIFY rank() OVER (ORDER BY amount) <= 1001':
        '2:64: expected at most 1,000, because state has these rows',
    'SELECT id FROM orders WHERE sum(id) OVER (PARTITION BY customer) > 3':
        '2:29: sum with OVER is not available in WHERE; select it AS a column of a common table expression, and filter',
    'SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING rank() OVER (ORDER BY count(*)) < 3':
        '2:69: rank with OVER is not available in HAVING; put the GROUP BY into a common table expression, select it',
    'SELECT count(*) AS n FROM orders GROUP BY 1 + rank() OVER (ORDER BY id)':
        '2:47: rank with OVER is not available in GROUP BY; select it AS a column of a common table expression, and',
    'SELECT o.id FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND sum(o.id) OVER (ORDER BY o.id) > 3':
        '2:73: sum with OVER is not available in ON; select it AS a column of a common table expression, and join on',
    'SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = rank() OVER (ORDER BY amount))':
        '2:83: rank with OVER is not available in WHERE; select it AS a column of a common table expression, and',
    'SELECT id FROM orders ORDER BY rank() OVER (ORDER BY id) LIMIT 3':
        '2:32: rank with OVER is not available in ORDER BY; select it AS a column of a common table expression, and',
    'SELECT id, lag(id) AS s FROM orders':
        '2:12: lag needs OVER (PARTITION BY … ORDER BY …)',
    "SELECT id, window(ordered_at, '1 hour') AS w FROM orders":
        '2:12: window groups rows by time; write GROUP BY window(…)',
    'SELECT id, sum(id) OVER w AS s FROM orders':
        '2:20: a named window is not available in this version; write OVER (…) in full',
    'SELECT id, sum(id) OVER (ORDER BY 1) AS s FROM orders':
        '2:35: a number in OVER is a constant, not a position; write the expression',
    'SELECT id, sum(lag(id) OVER (ORDER BY id)) OVER (ORDER BY amount) AS s FROM orders':
        '2:16: put the inner function with OVER into a common table expression, and write OVER in a query that',
    'SELECT customer, sum(sum(id)) OVER (ORDER BY customer) AS s FROM orders GROUP BY customer':
        '2:22: put the GROUP BY into a common table expression, and write OVER in a query that reads it',
    'SELECT customer, rank() OVER (ORDER BY customer) AS s FROM orders GROUP BY customer':
        '2:18: put the GROUP BY into a common table expression, and write OVER in a query that reads it',
    'SELECT customer, count(*) - rank() OVER (ORDER BY customer) AS s FROM orders GROUP BY customer':
        '2:18: put the GROUP BY into a common table expression, and write OVER in a query that reads it',
    'SELECT id, rank() OVER (ORDER BY id) AS r, lag(id) OVER (ORDER BY id) AS s FROM orders QUALIFY r <= 2':
        '2:44: QUALIFY or LIMIT in a SELECT with functions with OVER: put one of them into a common table expression',
    'SELECT DISTINCT id, sum(id) OVER (ORDER BY id) AS r, sum(id) OVER (ORDER BY amount) AS s FROM orders':
        '2:54: functions with OVER of one SELECT must have the same PARTITION BY and ORDER BY; put the others into a',
    'SELECT id, dense_rank() OVER (ORDER BY amount) AS place FROM orders':
        '2:12: write QUALIFY … <= n for the first rows; these rows have no key by which their values could be replaced',
    'SELECT id FROM orders QUALIFY rank() OVER (ORDER BY amount ROWS UNBOUNDED PRECEDING) <= 3':
        '2:60: rank() takes no frame',
    'SELECT id FROM orders GROUP BY CUBE (id)':
        '2:32: CUBE is not available in this version; write a SELECT per grouping and UNION ALL',
    'SELECT id FROM orders INTERSECT SELECT id FROM orders EXCEPT ALL SELECT id FROM orders':
        '2:23: INTERSECT and EXCEPT ALL in one query: put one of them in a common table expression',
    '(SELECT id FROM orders EXCEPT SELECT id FROM orders) UNION ALL SELECT id FROM orders':
        '2:24: EXCEPT in brackets: put it in a common table expression',
    'SELECT id FROM orders EXCEPT SELECT id FROM orders ORDER BY id':
        '2:61: ORDER BY and LIMIT of EXCEPT: put it in a common table expression',
    'SELECT id FROM orders EXCEPT ALL SELECT id FROM orders':
        '1:1: the rows of v have no key by which a table could be updated: ',
    'SELECT current_timestamp() AS t, id FROM orders':
        '2:8: `current_timestamp` depends on the time or the machine; an epoch that runs again',
    'SELECT id, rand() AS r FROM orders':
        '2:12: `rand` depends on the time or the machine; an epoch that runs again must produce',
    'SELECT frobnicate(id) AS f FROM orders':
        '2:8: Spark has no function `frobnicate`; did you mean "locate"? User-defined functions',
    "SELECT '${env:TOKEN}' AS t, id FROM orders":
        '2:8: variables are not available in SQL; write the value',
    'WITH a AS (SELECT id FROM orders) SELECT id FROM orders':
        '2:6: nothing reads a; remove it',
    'WITH agg AS (SELECT id FROM orders) SELECT id FROM agg':
        '2:6: agg is the name of a step; choose another name',
    'WITH RECURSIVE a AS (SELECT 1) SELECT id FROM a':
        '2:6: a recursive query is not available in this version',
    'SELECT a.id FROM (SELECT id FROM orders) JOIN (SELECT id FROM orders) ON true':
        '2:48: two relations have the name query_orders; give one an alias with AS',
    "SELECT window.start AS s, count(*) AS n FROM orders GROUP BY window(id, '1 hour')":
        '2:69: a window is over the event time: expected the event time ordered_at, got id',
    "SELECT window.start AS s, count(*) AS n FROM orders GROUP BY window(ordered_at, '1 month')":
        "2:81: expected a constant duration such as '10 minutes'",
    'SELECT id FROM orders WHERE':
        '2:23: nothing follows WHERE',
    'SELECT id FROM v':
        '1:1: a cycle: v <- v',
    'SELECT id FROM orders OFFSET 3':
        '2:23: OFFSET is not available in this version',
    'SELECT upper((id) FROM orders':
        '2:1: FROM is missing: a query reads sources or other statements',
    'SELECT country FROM countries':
        '2:21: countries is a static source, which only joins read; begin FROM with a stream',
    'SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id AND p.paid_at > o.ordered_at':
        '2:68: a bound of a join includes its end; write <= or >=, or BETWEEN',
    'SELECT sum(count(*)) AS s FROM orders':
        '2:12: an aggregate cannot be inside another; use a common table expression',
    'SELECT id FROM orders QUALIFY row_number() OVER (PARTITION BY id ORDER BY amount NULLS LAST) = 1':
        '2:75: nulls are the smallest values: NULLS FIRST with ASC, NULLS LAST with DESC',
    'SELECT p.id FROM orders o':
        '2:8: there is no column p; known: id, customer, amount, quantity, ordered_at',
    'SELECT o.idd FROM orders o':
        '2:10: o has no column idd; did you mean "id"? Known: id, customer, amount, quantity,',
    'SELECT id FROM orders UNION ALL SELECT order_id, amount FROM payments':
        '2:33: this SELECT has 2 columns, the first one has 1',
    'SELECT * FROM orders GROUP BY customer':
        '2:8: * is not available with GROUP BY; name the columns',
    'SELECT id FROM orders TABLESAMPLE (10 PERCENT)':
        '2:23: a sample depends on chance; filter by a hash of a column instead',
    'SELECT id FROM orders AS o (a, b)':
        '2:28: column aliases of a table are not available in this version; write AS in SELECT',
    'SELECT a FROM (SELECT id, amount FROM orders) AS o (a)':
        '2:16: this query has 2 columns, the list has 1',
    'SELECT a FROM (SELECT * FROM orders) AS o (a)':
        '2:23: the list of columns outside this query needs them by name here, not *',
    'WITH o (a) AS (SELECT id AS b FROM orders) SELECT a FROM o':
        '2:23: this column is b here and a in the list; remove AS or the list',
    'SELECT a FROM (SELECT id FROM orders) AS o (a BIGINT)':
        '2:45: expected the names of columns alone, such as (a, b)',
    'FROM orders SELECT id':
        '2:1: expected SELECT',
    'SELECT id FROM lake.orders':
        '2:16: expected the name of a source or statement: one part, no function',
    'SELECT id FROM range(10)':
        '2:16: expected the name of a source or statement: one part, no function',
    'SELECT id FROM orders WHERE id NOT IN (SELECT order_id FROM payments)':
        '2:29: NOT IN: a null of the left side would decide; add `id IS NOT NULL` to the WHERE there',
    'SELECT id FROM orders o WHERE NOT EXISTS (SELECT max(order_id) FROM payments WHERE order_id = o.id)':
        '2:50: an aggregate without GROUP BY always has a row, so EXISTS of it is always true',
    'SELECT id FROM orders WHERE id IS NOT NULL AND id NOT IN (SELECT order_id FROM payments)':
        '2:48: NOT IN: a null of the query would decide; add `order_id IS NOT NULL` to the WHERE there',
    'SELECT id FROM orders WHERE id > (SELECT order_id FROM payments)':
        '2:42: a query in an expression is one aggregate without GROUP BY: this one may return two rows; write max(',
    'SELECT id FROM orders WHERE id > (SELECT max(order_id) FROM payments GROUP BY method)':
        '2:79: a query in an expression is one aggregate without GROUP BY, HAVING, QUALIFY and LIMIT; put this',
    'SELECT id FROM orders WHERE id > (SELECT max(order_id), min(order_id) FROM payments)':
        '2:57: a query in an expression returns one column, got 2',
    'SELECT id FROM orders o WHERE amount > (SELECT max(amount) FROM payments p WHERE p.order_id < o.id)':
        '2:82: a subquery compares columns of the query around it by `=` alone: inner.column = outer.column',
    'SELECT id FROM orders WHERE amount > (SELECT amount + max(amount) FROM payments)':
        '2:46: amount is not in an aggregate; write max(amount)',
    'SELECT id FROM orders WHERE amount > (SELECT max(amount) FROM payments) OR 2 < (SELECT count(*) FROM payments)':
        '2:80: two queries in expressions read payments; put one into a common table expression',
    'SELECT id FROM orders WHERE amount > (SELECT max(amont) FROM payments)':
        '2:50: there is no column amont; did you mean "amount"?',
    'SELECT customer FROM orders GROUP BY customer HAVING sum(quantity) > (SELECT max(quantity) FROM orders) + id':
        '2:107: id is neither in GROUP BY nor in an aggregate; add it to GROUP BY, or write max(id)',
    'SELECT id FROM orders o WHERE quantity IN (SELECT count(*) FROM payments p WHERE p.order_id = o.id)':
        '2:44: an aggregate without GROUP BY always has a row; compare it with =',
    'SELECT id FROM orders WHERE id > 3 OR id IN (SELECT order_id FROM payments)':
        '2:46: a query in an expression is not available in this version',
    'SELECT id FROM orders QUALIFY row_number() OVER (PARTITION BY id ORDER BY 1) = 1':
        '2:75: a number in OVER is a constant, not a position',
    'SELECT o.id, o.amount, p.amount AS paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id':
        '1:1: the rows of v have no key by which a table could be updated: group them, select row_number()',
    'SELECT o.id FROM orders o LEFT JOIN payments p ON o.id = p.order_id OR o.amount > p.amount':
        '2:51: this condition of the left join is not available in this version',
    'SELECT id FROM orders ORDER BY amount LIMIT 3':
        '1:1: the rows of v have no key by which a table could be updated',
    'WITH s AS (SELECT customer, quantity, max(id) AS m FROM orders GROUP BY 1, 2) SELECT m FROM s ORDER BY m LIMIT 3':
        '1:1: the rows of v have no key by which a table could be updated: select customer, quantity',
    'WITH s AS (SELECT customer, max(id) m FROM orders GROUP BY 1) SELECT customer, EXPLODE (array(1, m)) AS e FROM s':
        '1:1: the rows of v have no key by which a table could be updated: group them',
    'WITH s AS (SELECT customer, max(id) m FROM orders GROUP BY 1), e AS (SELECT customer, Explode(array(1, m)) AS i '
    'FROM s) SELECT o.customer, e.i FROM s AS o JOIN e ON o.customer = e.customer':
        '1:1: the rows of v have no key by which a table could be updated: ',
    'SELECT DISTINCT customer FROM orders ORDER BY customer LIMIT 3':
        '2:62: LIMIT of SELECT DISTINCT: put the DISTINCT into a common table expression',
    'SELECT id, row_number() OVER (PARTITION BY customer ORDER BY id) AS rn FROM orders QUALIFY id - rn <= 3':
        '2:92: expected QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) <= n',
}  # fmt: skip
"""Query of a materialized view, in line 2 of its file -> position and beginning of the message."""
VALID = (
    "SELECT customer, count(*) FILTER (WHERE amount > 1) AS n FROM orders WHERE id > 3 GROUP BY 1 HAVING sum(id) > 1",
    (
        "SELECT o.*, p.amount AS paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id "
        "AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 9 MINUTES"
    ),
    (
        "WITH a AS (SELECT * FROM orders) SELECT customer, id, row_number() OVER (PARTITION BY customer ORDER BY id) r "
        "FROM a QUALIFY r <= 3"
    ),
    "SELECT window.end AS e, CASE WHEN count(*) > 1 THEN 1 END n FROM orders GROUP BY window(ordered_at, '1 hour')",
    "SELECT DISTINCT customer, country FROM orders JOIN countries USING (customer) UNION SELECT '', 'x' FROM orders",
    (
        "SELECT window.start AS h, customer, row_number() OVER (PARTITION BY window.start ORDER BY sum(id)) AS place "
        "FROM orders GROUP BY window(ordered_at, '1 hour'), customer QUALIFY place <= 3"
    ),
)


def compiled(sql: str) -> None:
    spec = json.dumps(document("orders payments countries"))
    from_text(spec, Path("/jobs/shop.yaml"), SqlText.of("shop.sql", sql)).graph()


@pytest.mark.long
@pytest.mark.parametrize("query", REFUSED)
def test_a_query_is_refused_at_its_line_and_column(query: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        compiled(f"CREATE MATERIALIZED VIEW v AS\n{query}")
    problem = refused.value.message.splitlines()[1]
    assert problem.startswith(f"shop.sql:{REFUSED[query]}")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT *, count(*) OVER (PARTITION BY customer) AS n FROM seen", "1:41: these rows may return, because a"),
        ("SELECT id, dense_rank() OVER (ORDER BY customer) AS n FROM seen", "1:42: write QUALIFY … <= n for the"),
        ("SELECT s.*, n FROM seen s LEFT JOIN sizes z ON s.customer = z.customer", "1:1: the rows of v have no key"),
    ],
)
def test_rows_that_a_ttl_forgets_are_no_key(query: str, problem: str) -> None:
    """They may return, so a table with one row per key could not show the query."""
    seen = "SELECT DISTINCT id, customer, ordered_at FROM orders"
    sizes = "CREATE TEMPORARY VIEW sizes AS SELECT customer, count(*) AS n FROM orders GROUP BY customer;\n"
    sql = f"CREATE MATERIALIZED VIEW v AS {query};\nCREATE TEMPORARY VIEW seen %s AS {seen};\n{sizes}"
    with pytest.raises(InvalidRequest) as refused:
        compiled(sql % "TBLPROPERTIES ('milepost.ttl' = '7 days')")
    assert refused.value.message.splitlines()[1].startswith(f"shop.sql:{problem}")
    if "dense_rank" not in query:
        spec = json.dumps(document(sql))
        from_text(spec, Path("/jobs/shop.yaml"), SqlText.of("shop.sql", sql % "")).graph()


def test_each_statement_reports_its_own_problem_and_none_that_follows_from_it() -> None:
    sql = (
        "CREATE TEMPORARY VIEW a AS SELECT nothing FROM orders;\n"
        "CREATE TEMPORARY VIEW b AS SELECT x FROM a;\n"
        "CREATE TABLE c AS SELECT id FROM orders"
    )
    with pytest.raises(InvalidRequest) as refused:
        compiled(sql)
    lines = refused.value.message.splitlines()[1:]
    assert [line.split(":")[1] for line in lines] == ["1", "3"]


@pytest.mark.parametrize("quote", ["'", '"', "`"])
def test_a_missing_quote_is_reported_where_it_was_opened_whatever_quotes_follow(quote: str) -> None:
    later = f"CREATE  or refresh\n  STREAMING TABLE c AS SELECT {quote}id{quote} FROM orders;\n"
    sql = f"CREATE TEMPORARY VIEW b AS SELECT id FROM orders WHERE {quote}a = 1;\n" + 2 * later
    with pytest.raises(InvalidRequest) as refused:
        compiled(sql)
    assert refused.value.message.splitlines()[1] == "shop.sql:1:56: syntax error: a quote or a comment is not closed"


def test_a_text_of_several_lines_is_no_missing_quote() -> None:
    with pytest.raises(InvalidRequest, match=r"shop.sql:4:7: syntax error: a quote"):
        compiled("CREATE TEMPORARY VIEW b AS SELECT 'one\n\nCREATE two' AS a FROM orders\nWHERE 'c = 1")


def test_problems_of_statements_name_no_sql_operator() -> None:
    """A statement can compute the columns that a spec computes in an operator before."""
    with pytest.raises(InvalidRequest) as refused:
        compiled(
            "CREATE MATERIALIZED VIEW v AS SELECT o.id, c.country FROM orders o JOIN countries c ON o.id = c.customer"
        )
    (_, line) = refused.value.message.splitlines()
    assert line.endswith("their values cannot be compared; CAST one of them")


def test_a_constraint_of_spark_declarative_pipelines_is_refused_with_the_place_of_the_rule() -> None:
    with pytest.raises(InvalidRequest) as refused:
        compiled(
            "CREATE STREAMING TABLE t (CONSTRAINT paid EXPECT (id > 0) ON VIOLATION DROP ROW) AS SELECT id FROM orders"
        )
    (_, line) = refused.value.message.splitlines()
    assert line.startswith(
        "shop.sql:1:27: CONSTRAINT … EXPECT is not available in this version; write the expectation under"
    )


@given(st.sampled_from(VALID), st.integers(min_value=0, max_value=2**32))
@examples(share=0.5)
def test_whatever_is_typed_is_compiled_or_refused_with_a_position(query: str, seed: int) -> None:
    """Tokens are deleted, repeated, moved or replaced by others."""
    rng = random.Random(seed)
    words = [query[token.start : token.end + 1] for token in sql_tokens(query)]
    for _ in range(rng.randrange(1, 4)):
        at, other = rng.randrange(len(words)), rng.randrange(len(words))
        action = rng.randrange(4)
        if action == 0 and len(words) > 2:
            del words[at]
        elif action == 1:
            words.insert(at, words[other])
        elif action == 2:
            words[at], words[other] = words[other], words[at]
        else:
            words[at] = rng.choice(["(", ")", ",", "SELECT", "x", "CASE", "END", "'a'", "*", ".", "UNION", "OVER", "`"])
    try:
        compiled(f"CREATE TEMPORARY VIEW v AS\n{' '.join(words)}")
    except InvalidRequest as refused:
        assert "shop.sql:" in refused.message or "shop.yaml:" in refused.message
    except SqlProblem as escaped:
        raise AssertionError(f"{' '.join(words)}: {escaped}") from escaped

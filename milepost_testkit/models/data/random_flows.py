"""Random flows of change feeds, with DuckDB's query for the table of each."""

from __future__ import annotations

from milepost_testkit.models.data.random_sql import Draws


def flow(rng: Draws, name: str) -> tuple[str, str]:
    """Return a flow whose changes arrive in their order, and DuckDB's query."""
    quantity, source = rng.choice((0, 1, 4)), rng.choice(("orders", "STREAM orders", "STREAM(orders)"))
    when = f"APPLY AS DELETE WHEN quantity = {quantity} SEQUENCE BY ordered_at"
    is_row = f"quantity IS DISTINCT FROM {quantity}"
    begin = f"CREATE STREAMING TABLE {name}; CREATE FLOW changes_of_{name} AS AUTO CDC INTO {name} FROM"
    newest = "SELECT * FROM {} QUALIFY row_number() OVER (PARTITION BY {} ORDER BY ordered_at DESC) = 1"
    kind = rng.choice(("newest", "newest by an expression", "versions"))
    if kind == "newest":
        text = f"{begin} {source} KEYS (customer) {when} COLUMNS * EXCEPT (quantity)"
        return text, f"SELECT * EXCLUDE (quantity) FROM ({newest.format('orders', 'customer')}) WHERE {is_row}"
    if kind == "newest by an expression":
        feed = "SELECT *, id % 7 AS part FROM orders"
        text = f"{begin} feed_of_{name} KEYS (part) {when} COLUMNS (part, id, amount)"
        answer = f"SELECT part, id, amount FROM ({newest.format(f'({feed})', 'part')}) WHERE {is_row}"
        return f"CREATE TEMPORARY VIEW feed_of_{name} AS {feed}; {text}", answer
    return (
        f"{begin} {source} KEYS (customer) {when} COLUMNS (customer, quantity) STORED AS SCD TYPE 2",
        (
            "WITH changed AS (SELECT *, lag(quantity) OVER keys IS NOT DISTINCT FROM quantity "
            "AND row_number() OVER keys > 1 AS same FROM orders "
            "WINDOW keys AS (PARTITION BY customer ORDER BY ordered_at)) "
            "SELECT * FROM (SELECT customer, quantity, ordered_at AS valid_from, lead(ordered_at) OVER "
            "(PARTITION BY customer ORDER BY ordered_at) AS valid_to, valid_to IS NULL AS is_current "
            f"FROM changed WHERE NOT same) WHERE {is_row}"
        ),
    )


def partial_flow(rng: Draws, name: str) -> tuple[str, str]:
    """Return a flow that a null leaves as it is, or whose versions begin with changes in some columns.

    The changes of a key may arrive in another order than that of their sequence.
    """
    order = rng.choice(("ordered_at", "id * 37 % 997", "id * 37 % 997"))  # each value once
    gone = f"quantity = {rng.choice((0, 4))}"
    feed = (
        "SELECT customer, quantity, CASE WHEN id % 3 > 0 THEN amount END AS amount, "
        f"CASE WHEN id % 4 > 1 THEN id END AS seen, {order} AS place FROM orders"
    )
    begin = (
        f"CREATE TEMPORARY VIEW feed_of_{name} AS {feed}; CREATE STREAMING TABLE {name}; "
        f"CREATE FLOW changes_of_{name} AS AUTO CDC INTO {name} FROM feed_of_{name} KEYS (customer) SEQUENCE BY place "
    )
    deletes = rng.choice((True, True, False))
    begin += f"APPLY AS DELETE WHEN {gone} " if deletes else ""
    feed = f"feed AS (SELECT *, {f'coalesce({gone}, false)' if deletes else 'false'} AS gone FROM ({feed}))"
    if rng.choice((True, False)):
        shown = rng.choice((("amount",), ("amount", "seen"), ("quantity", "amount", "seen")))
        newest = ", ".join(f"arg_max({one}, place) FILTER ({one} IS NOT NULL) AS {one}" for one in shown)
        answer = (
            f"WITH {feed}, live AS (SELECT * FROM (SELECT *, max(CASE WHEN gone THEN place END) OVER "
            "(PARTITION BY customer) AS ended FROM feed) WHERE ended IS NULL OR place > ended) "
            f"SELECT customer, {newest} FROM live GROUP BY customer"
        )
        return f"{begin}IGNORE NULL UPDATES COLUMNS (customer, {', '.join(shown)})", answer
    tracked = rng.choice((("quantity",), ("quantity", "amount"), ("amount", "seen")))
    others = [one for one in ("quantity", "amount", "seen") if one not in tracked]
    listed = rng.choice((f"({', '.join(tracked)})", f"* EXCEPT ({', '.join(others)})"))
    same = " AND ".join(f"lag({one}) OVER keys IS NOT DISTINCT FROM {one}" for one in tracked)
    answer = (
        f"WITH {feed}, begun AS (SELECT *, gone OR coalesce(lag(gone) OVER keys, true) OR NOT ({same}) AS begins "
        "FROM feed WINDOW keys AS (PARTITION BY customer ORDER BY place)), numbered AS (SELECT *, count(*) FILTER "
        "(begins) OVER (PARTITION BY customer ORDER BY place) AS version FROM begun), versions AS (SELECT customer, "
        "last(quantity ORDER BY place) AS quantity, last(amount ORDER BY place) AS amount, last(seen ORDER BY place) "
        "AS seen, min(place) AS valid_from, bool_or(gone) AS gone FROM numbered GROUP BY customer, version) "
        "SELECT * EXCLUDE (gone) FROM (SELECT *, lead(valid_from) OVER (PARTITION BY customer ORDER BY valid_from) "
        "AS valid_to, valid_to IS NULL AS is_current FROM versions) WHERE NOT gone"
    )
    text = f"{begin}COLUMNS (customer, quantity, amount, seen) STORED AS SCD TYPE 2 TRACK HISTORY ON {listed}"
    return text, answer

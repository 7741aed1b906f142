"""Random operators for the laws, rich in edge cases, each decoded from an integer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from milepost.operators.join.unmatched import LEFT_ALONE
from milepost_testkit.law.readable import BASE_KEYS, CALLS, OVER_CHOSEN, Readable, over_updates
from milepost_testkit.law.rows import Digits
from milepost_testkit.law.sql_operators import sql_operator
from milepost_testkit.models.data.kinds.lookups import KEYS as LOOKED_UP
from milepost_testkit.models.data.kinds.lookups import SCHEMA as STATIC_SCHEMA
from milepost_testkit.models.data.kinds.lookups import STATIC

SIZES = ({"tumbling": "1h"}, {"tumbling": "30m"}, {"tumbling": "7m"})
CALENDARS = (
    {"tumbling": "1d", "timezone": "America/St_Johns"},
    {"tumbling": "1h", "offset": "25m"},
    {"tumbling": "1d", "timezone": "Europe/London", "offset": "30m"},
    {"tumbling": "1mo"},
    {"tumbling": "1w", "timezone": "Asia/Kolkata", "offset": "3d"},
    {"sliding": {"size": "3d", "slide": "1d"}, "timezone": "America/St_Johns", "offset": "30m"},
    {"sliding": {"size": "1h", "slide": "15m"}, "offset": "5m"},
    {"sliding": {"size": "2mo", "slide": "1mo"}, "timezone": "Asia/Kolkata"},
)
SLIDING = tuple(
    {"sliding": {"size": size, "slide": slide}} for size, slide in (("1h", "15m"), ("14m", "7m"), ("2h", "30m"))
)
SESSIONS = tuple({"session": {"gap": gap}} for gap in ("30m", "15m", "1h", "1s"))
WINDOWS = (SIZES, SLIDING, SESSIONS, SIZES, CALENDARS)
LATENESS = ("0s", "30m", "1h")
TTLS = ("30m", "1h", "1s")
ORDERS = (("x",), ("f", "x"), ("k",), ("d", "i"), ("t",))
WINDOW_ORDERS = (("n",), ("window_start", "n"))
DELETES = ("i < 0", None, "x IS NULL OR x > 1", "d < 0")
WINDOW_DELETES = ("n < 2", None)
BEFORE, AFTER = ["-1h", "-30m"], ["30m", "1h"]
WITHIN = (["-30m", "30m"], ["0s", "0s"], ["-1h", "-1s"], ["0s", "1h"], BEFORE, AFTER)
HOWS_ASOF = ("inner", "left")
HOWS = ("inner", "left", "right", "full", "semi", "anti")
CONDITIONS = (
    ("i < right.i",),
    ("x <= right.f", "b <=> right.b"),
    ("k <> right.k",),
    ("d >= right.d", "x <> right.x"),
    ("t > right.t", "i <= right.i"),
)
EXTREMES = ("min(", "max(", "arg_min(", "arg_max(")

First = Callable[[str, Digits, list[Readable]], tuple[dict[str, Any], bool, Readable | None]]
"""Makes an operator over sources, as `operator_of` does."""

KINDS = ("window", "deduplicate", "aggregate", "window", "ttl", "join", "top", "latest", "asof", "sql", "lookup",
         "history")  # fmt: skip


def operator_of(
    uid: str, digits: Digits, nodes: list[Readable], kinds: Sequence[str]
) -> tuple[dict[str, Any], bool, Readable | None]:
    """Return an operator, whether its rows are updates, and its readable columns."""
    kind = digits.pick(kinds)
    updated = [node for node in nodes if node.numbered]
    if updated and digits.pick((True, False)):  # chains of updates and SQL are rare otherwise
        nodes, updated, kind = (
            updated[-1:],
            updated[-1:],
            digits.pick(("sql", "aggregate", "top", "materialize", "over")),
        )
    if kind == "sql":
        if updated:
            return sql_operator(uid, digits, digits.pick(updated))
        kind = "aggregate"
    if kind in ("join", "asof"):
        return _paired(uid, kind, digits, nodes)
    if kind == "materialize":
        rows = digits.pick(updated)
        return _materialize(uid, digits, rows) if rows.key else _top(uid, digits, rows)
    if kind == "over":
        rows = digits.pick(updated)
        return _with_functions(uid, digits, rows) if rows.key else _top(uid, digits, rows)
    if kind == "top":
        return _top(uid, digits, digits.pick(nodes))
    kept = [node for node in nodes if kind == "aggregate" or not node.updates]
    if kind == "lookup":
        return _lookup(uid, digits, digits.pick([node for node in kept if node.event_time == "t"]))
    rows = digits.pick(kept)
    keys = [one for one in rows.keys if kind != "window" or "window_start" not in one]
    key = digits.pick([*keys, ()] if kind in ("aggregate", "window") else keys)
    operator: dict[str, Any] = {"uid": uid, "kind": kind, "inputs": [rows.name], "key": list(key)}
    if kind == "latest":
        operator |= _latest(digits, rows, key)
        return operator, True, _of_latest(uid, operator, rows)
    if kind == "history":
        return _history(uid, digits, operator, rows)
    if kind == "aggregate":
        calls = {f"of_{name}" if name in key else name: call for name, call in digits.pick(rows.calls).items()}
        parts = tuple((name,) for name in key)
        keys = (*parts, ("n",), *([key] if key else []))
        totals = Readable(uid, keys, _over(key, calls), "", updates=True, key=key, numbered=True)
        return operator | {"aggregates": calls}, True, totals
    if kind == "window":
        return _window(uid, digits, rows, key, LATENESS)
    if kind == "ttl":
        operator |= {"kind": "deduplicate", "ttl": digits.pick(TTLS)}
        operator["key"] = list(dict.fromkeys((*key, *digits.pick(((rows.event_time,), ())))))
    return operator, False, replace(rows, name=uid)


def _window(
    uid: str, digits: Digits, rows: Readable, key: tuple[str, ...], latenesses: Sequence[str]
) -> tuple[dict[str, Any], bool, Readable]:
    lateness, calls, window = digits.pick(latenesses), digits.pick(rows.calls), digits.pick(digits.pick(WINDOWS))
    operator: dict[str, Any] = {"uid": uid, "kind": "window", "inputs": [rows.name], "key": list(key)}
    operator |= {"window": window, "allowed_lateness": lateness, "aggregates": calls}
    if digits.pick((False, False, False, True)):
        operator["emit"] = "early"
    if lateness != "0s" or "emit" in operator:
        keys = (("window_start",), *([key] if key else []), (*key, "window_start"), ("n",))
        timed = () if "session" in window else ({"n": "first(n)", "last_n": "last(n)", "end": "last(window_start)"},)
        further = (*_over((*key, "window_start"), calls), *timed)
        return operator, True, Readable(uid, keys, further, "", updates=True)
    keys = (("window_start",), (*key, "window_start"), *([key] if key else []))
    more = (
        {"n": "count(*)", "last": "max(window_end)", "sum_n": "sum(n)"},
        {"n": "count(distinct n)", "ends": "count(distinct window_end)"},
        {"n": "last(n)", "least": "arg_min(window_start, n)", "spread": "var(n)"},
    )
    return operator, False, Readable(uid, keys, more, "window_end")


def _over(key: Sequence[str], calls: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Return the possible aggregates over an operator's updates: of its key and of its calls' results."""
    flags = [name for name, call in calls.items() if call.startswith(("any(", "every("))]
    return over_updates([*key, *(name for name in calls if name != "n")], flags)


def _lookup(uid: str, digits: Digits, rows: Readable) -> tuple[dict[str, Any], bool, Readable | None]:
    key = digits.pick((("k",), ("i",), ("f",), ("k", "i")))
    pairs = [{one: LOOKED_UP[one]} for one in key]
    taken = {LOOKED_UP[one] for one in key}
    new = {f"{uid}_{name}": f"right.{name}" for name in STATIC_SCHEMA.names if name not in taken}
    operator = {"uid": uid, "kind": "lookup", "inputs": [rows.name, STATIC], "key": pairs,
                "how": digits.pick(("left", "inner")), "order_by": [{"label": digits.pick(("desc", "asc"))}],
                "columns": new}  # fmt: skip
    found = replace(rows, name=uid, keys=(*rows.keys, (f"{uid}_label",)), columns=(*rows.columns, *new))
    return operator, False, found


def _top(uid: str, digits: Digits, rows: Readable) -> tuple[dict[str, Any], bool, Readable | None]:
    key = digits.pick((*rows.keys, *rows.keys, ()))
    if rows.updates:
        order = digits.pick((digits.pick(rows.orders), (*key, *rows.orders[0])))
    else:
        order = digits.pick(ORDERS if rows.event_time == "t" else WINDOW_ORDERS)
    operator = {"uid": uid, "kind": "top", "inputs": [rows.name], "key": list(key),
                "order_by": [{name: digits.pick(("desc", "asc"))} for name in dict.fromkeys(order)],
                "n": digits.pick((2, 1, 3))}  # fmt: skip
    ties = digits.pick((False, False, True, "dense"))
    ranked = digits.pick((True, True, False))
    if ties or not ranked:
        operator |= {"ties": ties} if ties else {}
        operator |= {"rank": f"place_{uid}"} if ranked else {}
        single = not ties and operator["n"] == 1 and key
        return operator, True, replace(_chosen(uid, rows), key=key if single else None, columns=())
    operator["rank"] = f"place_{uid}"
    keys = (*((name,) for name in key), *([key] if key else []), (*key, f"place_{uid}"), (f"place_{uid}",))
    return operator, True, replace(_chosen(uid, rows), keys=keys, key=(*key, f"place_{uid}"), columns=())


def _materialize(uid: str, digits: Digits, rows: Readable) -> tuple[dict[str, Any], bool, Readable]:
    """Return the rows of updates under their own key in another order, or with further columns in it."""
    assert rows.key, "rows without a key may be equal"
    more = digits.pick(((), *rows.keys))
    key = tuple(dict.fromkeys((*more, *rows.key[::-1])))
    return (
        {"uid": uid, "kind": "materialize", "inputs": [rows.name], "key": list(key)},
        True,
        replace(rows, name=uid, key=key, keys=(*rows.keys, key)),
    )


def _with_functions(uid: str, digits: Digits, rows: Readable) -> tuple[dict[str, Any], bool, Readable]:
    """Return the rows of updates with functions over those of a partition."""
    assert rows.key, "rows without a key may be equal"
    key, order, number = digits.pick((*rows.keys, ())), digits.pick(rows.orders), "n" if rows.value == "n" else "i"
    value = digits.pick(rows.keys)[0]
    functions = digits.pick((
        {"place": "row_number()", "before": f"lag({value})", "running": f"sum({number}) rows unbounded preceding"},
        {"place": "rank()", "rows": "count(*)", "end": f"last_value({value}) rows between 1 preceding and 2 following"},
        {"place": "dense_rank()", "next": f"lead({value}, 2)", "mean": f"avg({number}) rows 2 preceding"},
    ))  # fmt: skip
    operator = {"uid": uid, "kind": "over", "inputs": [rows.name], "key": list(key), "row_key": list(rows.key),
                "order_by": [{name: digits.pick(("desc", "asc"))} for name in dict.fromkeys(order)],
                "functions": {f"{name}_{uid}": text for name, text in functions.items()}}  # fmt: skip
    output_key = tuple(dict.fromkeys((*key, *rows.key)))
    return operator, True, replace(rows, name=uid, key=output_key, columns=())


def _chosen(uid: str, rows: Readable) -> Readable:
    """Return the readable columns of an operator that passes complete rows."""
    if rows.updates:
        return replace(rows, name=uid)
    of_source = rows.event_time == "t"
    calls, orders = (OVER_CHOSEN, ORDERS) if of_source else (over_updates(rows.keys[-1]), WINDOW_ORDERS)
    return Readable(uid, rows.keys, calls, "", rows.columns if of_source else (), updates=True, orders=orders)


def _of_latest(uid: str, operator: dict[str, Any], rows: Readable) -> Readable:
    """Return the readable columns of the newest rows: all of their columns, or a few."""
    shown = operator.get("columns")
    if shown is None:
        numbered = rows.event_time == "t"
        key, value = tuple(operator["key"]), "CAST(i AS BIGINT)" if numbered else "n"
        return replace(_chosen(uid, rows), key=key, value=value, numbered=numbered)
    keys, sums = tuple((name,) for name in shown), ({"n": "count(*)"}, {"n": f"count({shown[0]})"})
    calls = over_updates(shown, by=shown[0], sums=sums)
    return Readable(uid, keys, calls, "", updates=True, orders=keys)


def _latest(digits: Digits, rows: Readable, key: tuple[str, ...]) -> dict[str, Any]:
    """Return a latest operator with few sequence values, so that rows tie, and deletes anywhere among them."""
    of_source = rows.event_time == "t"
    order = list(dict.fromkeys(digits.pick(ORDERS if of_source else WINDOW_ORDERS)))
    said: dict[str, Any] = {"sequence_by": order}
    condition = digits.pick(DELETES if of_source else WINDOW_DELETES)
    if condition is not None:
        said |= {"delete_when": condition} | digits.pick(({}, {"tombstone_ttl": digits.pick(TTLS)}))
    if order == ["t"] and "tombstone_ttl" not in said:  # other sequences may be null
        said |= digits.pick(({}, {"ignore_nulls": True}, {"unchanged": "AA"}, {"ignore_nulls": True, "unchanged": "a"}))
    return said | digits.pick(({}, {"columns": list(dict.fromkeys((*order[:1], *key)))}))


def _history(
    uid: str, digits: Digits, operator: dict[str, Any], rows: Readable
) -> tuple[dict[str, Any], bool, Readable]:
    """Return the versions of keys. Only times are sequences, because others may be null."""
    of_source = rows.event_time == "t"
    operator |= {"sequence_by": [rows.event_time]}
    condition = digits.pick(DELETES if of_source else WINDOW_DELETES)
    if condition is not None:
        operator["delete_when"] = condition
    others = [name for name in (("i", "x", "f", "b", "k") if of_source else ("n",)) if name not in operator["key"]]
    track = digits.pick((None, others[:1], others[1:2] or others, others[:2]))
    if track is not None:
        operator["track"] = track
        operator |= digits.pick(({}, {"columns": [*track, *operator["key"]]}))
    shown = operator.get("columns", [*operator["key"], *others])
    key = (*operator["key"], "valid_from")
    keys = (*((name,) for name in shown), ("is_current",), key, ("valid_to",))
    calls = over_updates(
        [*shown, "valid_to"], ["is_current"], "valid_from", ({"n": "count(*)"}, {"n": "count(valid_to)"})
    )
    return operator, True, Readable(uid, keys, calls, "", updates=True, orders=(("valid_to",), *keys), key=key)


def _paired(uid: str, kind: str, digits: Digits, nodes: list[Readable]) -> tuple[dict[str, Any], bool, Readable]:
    """Return a join of two sources, or of a node with itself, and its readable columns."""
    if kind == "join" and digits.pick((False, True)):
        return _joined_now(uid, digits, [node for node in nodes if node.columns])
    sources = [node for node in nodes if node.name in ("a", "b")]
    left, right = digits.pick(sources), digits.pick(sources)
    if digits.pick((False, False, True)):
        left = right = digits.pick([node for node in nodes if node.columns and not node.updates])
    return _joined(uid, kind, digits, left, right)


def _joined_now(uid: str, digits: Digits, nodes: list[Readable]) -> tuple[dict[str, Any], bool, Readable]:
    """Return a join of the current rows of two nodes, and its readable columns, as of updates."""
    left, right = digits.pick(nodes[::-1]), digits.pick(nodes[::-1])
    key, how = digits.pick((*BASE_KEYS, ())), digits.pick(HOWS)
    operator: dict[str, Any] = {
        "uid": uid,
        "kind": "join",
        "inputs": [left.name, right.name],
        "key": list(key),
        "how": how,
    }
    condition = digits.pick(((), *CONDITIONS))
    if condition:
        operator["condition"] = list(condition)
    columns = left.columns
    if how not in LEFT_ALONE:
        operator["columns"] = {f"{uid}_{name}": f"right.{name}" for name in right.columns if name not in key}
        columns = (*columns, *operator["columns"])
    made = Readable(uid, BASE_KEYS, OVER_CHOSEN, "", columns, updates=True, orders=ORDERS, numbered=True)
    retracts = left.updates or right.updates or how not in ("inner", "semi")
    return operator, retracts, replace(made, value="CAST(i AS BIGINT)")


def met(uid: str, digits: Digits, sources: list[Readable]) -> tuple[dict[str, Any], bool, Readable]:
    """Return an interval or as-of join of two sources."""
    left, right = digits.pick((sources, sources[::-1]))
    return _joined(uid, digits.pick(("join", "asof")), digits, left, right)


def again(uid: str, digits: Digits, sources: list[Readable]) -> tuple[dict[str, Any], bool, Readable]:
    """Return windows that are emitted repeatedly."""
    return _window(uid, digits, digits.pick(sources), digits.pick(BASE_KEYS), LATENESS[1:])


def apart(uid: str, digits: Digits, sources: list[Readable]) -> tuple[dict[str, Any], bool, Readable]:
    """Return a join with distant sides, so that a row may be on time and yet have no match to wait for."""
    how, within = digits.pick((("left", BEFORE), ("anti", BEFORE), ("right", AFTER), ("full", BEFORE)))
    operator, updates, rows = _joined(uid, "join", digits, digits.pick(sources), digits.pick(sources), (how,))
    return operator | {"within": within}, updates, rows


def once(uid: str, digits: Digits, sources: list[Readable]) -> tuple[dict[str, Any], bool, Readable | None]:
    """Return an operator that passes rows of the last source, for which a downstream operator may have to wait."""
    return operator_of(uid, digits, sources[-1:], ("ttl",))


def fires_behind(uid: str, digits: Digits, nodes: list[Readable]) -> tuple[dict[str, Any], bool, Readable]:
    """Return windows over the previous node, or an interval or as-of join of it with the first source."""
    if digits.pick((True, False)):
        return _window(uid, digits, nodes[-1], digits.pick(nodes[-1].keys), LATENESS)
    left, right = digits.pick(((nodes[-1], nodes[0]), (nodes[0], nodes[-1])))
    return _joined(uid, digits.pick(("join", "asof")), digits, left, right)


def passed(uid: str, digits: Digits, sources: list[Readable]) -> tuple[dict[str, Any], bool, Readable]:
    """Return a join by name that passes every row of the first source, because each row matches itself."""
    operator, updates, rows = _joined(uid, "join", digits, sources[0], sources[0], ("semi",))
    return operator | {"key": ["k"], "within": ["0s", "0s"]}, updates, rows


def fires(uid: str, digits: Digits, nodes: list[Readable]) -> tuple[dict[str, Any], bool, Readable]:
    """Return windows over the previous node that are emitted once."""
    return _window(uid, digits, nodes[-1], digits.pick(nodes[-1].keys), LATENESS[:1])


def replaced(uid: str, digits: Digits, sources: list[Readable]) -> tuple[dict[str, Any], bool, Readable | None]:
    """Return an operator over a source whose rows replace each other."""
    return operator_of(uid, digits, sources, ("latest", "aggregate", "top"))


def extremes(uid: str, digits: Digits, nodes: list[Readable]) -> tuple[dict[str, Any], bool, Readable | None]:
    """Return the minimum and maximum over the previous node's updates."""
    rows = nodes[-1]
    texts = dict.fromkeys(text for one in rows.calls for text in one.values() if text.startswith(EXTREMES))
    some = [*texts][digits.pick((0, 1, 2)) :: 3]
    calls = {"n": "count(*)", **{f"extreme{place}": text for place, text in enumerate(some)}}
    keys = ((), (), (), *rows.keys)
    return operator_of(uid, digits, [replace(rows, calls=(calls,), keys=keys, numbered=False)], ("aggregate",))


def _joined(
    uid: str, kind: str, digits: Digits, left: Readable, right: Readable, hows: Sequence[str] = ()
) -> tuple[dict[str, Any], bool, Readable]:
    key = digits.pick(BASE_KEYS)
    operator = {
        "uid": uid,
        "kind": kind,
        "inputs": [left.name, right.name],
        "key": list(key),
        "how": digits.pick(hows or (HOWS if kind == "join" else HOWS_ASOF)),
    }
    if kind == "join":
        operator["within"] = digits.pick(WITHIN)
    columns = left.columns
    if operator["how"] not in LEFT_ALONE:
        renamed = {f"{uid}_{name}": f"right.{name}" for name in right.columns if name not in key}
        operator["columns"], columns = renamed, (*columns, *renamed)
    return operator, False, Readable(uid, BASE_KEYS, CALLS, "t", columns)

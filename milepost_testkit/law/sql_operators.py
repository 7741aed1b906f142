"""Random SQL over updates: kept, dropped and repeated keys, filters, explodes and unions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from milepost_testkit.law.readable import Readable
from milepost_testkit.law.rows import Digits

SOURCE_COLUMNS = ("k", "f", "i")
CALLS = ({"n": "count(*)", "total": "sum(n)"}, {"n": "count(n)", "mean": "avg(n)", "spread": "var(n)"})


def sql_operator(uid: str, digits: Digits, rows: Readable) -> tuple[dict[str, Any], bool, Readable]:
    """Return SQL over updates, whether its rows have a key, and its readable columns, of which `n` is numeric."""
    key, name, value = rows.key, rows.name, rows.value
    others = [one for one in dict.fromkeys(one for key in rows.keys for one in key) if one != "n"]
    one = digits.pick(others or ("n",))
    where = digits.pick(("", f" WHERE {value} > 1", f" WHERE {value} IS NOT NULL"))
    made = replace(rows, name=uid, calls=CALLS, orders=(("n",),), value="n", columns=())
    if digits.pick((True, False)):
        number = value if "n" in (key or ()) else digits.pick((value, f"{value} + 1", f"-{value}"))
        text = f"SELECT {', '.join([*others, f'{number} AS n' if number != 'n' else number])} FROM {name}{where}"
        return _sql(uid, [name], text), key is not None, made
    few = f"{value} AS n" if one == "n" else f"{one}, {value} AS n"
    several = f"explode(array({value}, {value} + 1)) AS n"
    texts = (
        f"SELECT {few} FROM {name}{where}",
        f"SELECT {several if one == 'n' else f'{one}, {several}'} FROM {name}{where}",
        f"SELECT {few} FROM {name}{where} UNION ALL SELECT {few} FROM {name}",
        f"SELECT {few} FROM {name} UNION ALL SELECT {one}, CAST(i AS BIGINT) AS n FROM a WHERE b",
    )
    text = digits.pick(texts if one in SOURCE_COLUMNS else texts[:-1])
    kept = {one, "n"} if value == "n" else {one}
    stays = text == texts[0] and key is not None and set(key) <= kept
    keys = (("n",),) if one == "n" else ((one,), ("n",), (one, "n"))
    inputs = [name, "a"] if text.endswith("WHERE b") else [name]
    return _sql(uid, inputs, text), stays, replace(made, keys=keys, key=key if stays else None)


def _sql(uid: str, inputs: list[str], text: str) -> dict[str, Any]:
    return {"uid": uid, "kind": "sql", "inputs": inputs, "sql": text}

"""Clauses that a job cannot have, and phrases of other SQL engines, with what to write instead."""

from __future__ import annotations

import re

from milepost.jobspec.sql.text.tokens import Tokens

REFUSED_CLAUSES = {
    "OFFSET": "OFFSET is not available in this version",
    "WINDOW": "a WINDOW clause is not available in this version; write OVER (…) in full",
    "SORT_BY": "a table has no order; remove SORT BY",
    "CLUSTER_BY": "a table has no order; remove CLUSTER BY",
    "DISTRIBUTE_BY": "Milepost decides how rows are distributed; remove DISTRIBUTE BY",
    "PIVOT": "PIVOT is not available in this version; write an aggregate with FILTER per column",
    "TABLE_SAMPLE": "a sample depends on chance; filter by a hash of a column instead",
    "GROUPING_SETS": "GROUPING SETS is not available in this version; write a SELECT per grouping and UNION ALL",
    "CUBE": "CUBE is not available in this version; write a SELECT per grouping and UNION ALL",
    "ROLLUP": "ROLLUP is not available in this version; write a SELECT per grouping and UNION ALL",
    "PIPE_GT": "the pipe `|>` is not available in this version; write SELECT … FROM … WHERE …",
}
"""Kind of a token outside brackets -> why it is refused."""

_WINDOW = "write GROUP BY window(time, '10 minutes')"
_SLIDING = "write GROUP BY window(time, '2 hours', '1 hour'), with the size first"
_SESSION = "write GROUP BY session_window(time, '30 minutes')"
_EXPLODE = "write LATERAL VIEW explode(list) alias AS column"
_NEWEST = "write QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) = 1"
_LATERAL = f"LATERAL is not available in this version; of a list {_EXPLODE}, of the first rows of a key {_NEWEST}"
_TEMPLATE = "templates are not available here; `sql: {dbt: …/manifest.json}` reads the compiled models of dbt"
_VERSION = (
    "a table has no readable versions here: join a source with `static: true` for current values, or write ASOF JOIN … "
    "MATCH_CONDITION (left.time >= right.time) for those of a time"
)

REFUSED_PHRASES = {
    "TUMBLE (": _WINDOW,
    "TUMBLE_START (": "write window.start, and GROUP BY window(time, '10 minutes')",
    "TUMBLE_END (": "write window.end, and GROUP BY window(time, '10 minutes')",
    "HOP (": _SLIDING,
    "HOP_START (": "write window.start, and GROUP BY window(time, '2 hours', '1 hour')",
    "HOP_END (": "write window.end, and GROUP BY window(time, '2 hours', '1 hour')",
    "SESSION (": _SESSION,
    "SESSION_START (": "write session_window.start, and GROUP BY session_window(time, '30 minutes')",
    "SESSION_END (": "write session_window.end, and GROUP BY session_window(time, '30 minutes')",
    "CUMULATE (": "cumulating windows are not available in this version; write GROUP BY window(time, '10 minutes')",
    "MATCH_RECOGNIZE (": "MATCH_RECOGNIZE is not available in this version; compare a row with those before it by "
    "lag(…) OVER (PARTITION BY … ORDER BY …), or write a process function",
    "UNPIVOT (": "UNPIVOT is not available in this version; write a SELECT per column and UNION ALL, or LATERAL VIEW "
    "explode(array(struct('name' AS name, value AS value), …))",
    "UNNEST (": _EXPLODE,
    ", LATERAL": _LATERAL,
    "JOIN LATERAL": _LATERAL,
    "VIEW OUTER": "OUTER is not available in this version; write explode(if(size(list) > 0, list, array(NULL)))",
    "POSEXPLODE (": "posexplode is not available in this version; write explode(transform(list, (x, i) -> struct(i AS "
    "pos, x AS item)))",
    "INLINE (": "inline is not available in this version; write explode(list) AS item, and item.field in a query "
    "that reads it",
    "FOR SYSTEM_TIME": _VERSION,
    "VERSION AS OF": _VERSION,
    "TIMESTAMP AS OF": _VERSION,
    "DELAY OF": "write `event_time` and `watermark_delay` of the source in the spec",
    "WATERMARK FOR": "write `event_time` and `watermark_delay` of the source in the spec",
    "DISTINCT ON (": f"DISTINCT ON is not in Spark; {_NEWEST}",
    "TOP #": "TOP is not in Spark; write ORDER BY … LIMIT n",
    "FETCH FIRST": "FETCH is not in Spark; write ORDER BY … LIMIT n",
    "FETCH NEXT": "FETCH is not in Spark; write ORDER BY … LIMIT n",
    "* EXCLUDE (": "EXCLUDE is not in Spark; write * EXCEPT (columns)",
    "READ_FILES (": "files are a source of the spec: write its name",
    "READ_KAFKA (": "a topic is a source of the spec: write its name",
    "{ {": _TEMPLATE,
    "{%": _TEMPLATE,
}
"""Words, brackets and `#` for a number -> what to write instead."""

_PHRASES = {words: tuple(words.split()) for words in REFUSED_PHRASES}
_BY_FIRST_WORD = {words[0]: [one for one in _PHRASES.items() if one[1][0] == words[0]] for words in _PHRASES.values()}


def check_phrases(run: Tokens) -> None:
    """Raise SqlProblem at the first phrase of another engine, unless it is a name."""
    for index in range(len(run)):
        if run.kind(index - 1) in ("DOT", "ALIAS"):
            continue
        for phrase, words in _BY_FIRST_WORD.get(run.word(index), ()):
            if all(_is(run, index + number, word) for number, word in enumerate(words)):
                raise run.problem(named(phrase, REFUSED_PHRASES[phrase]), index)


def named(phrase: str, instead: str) -> str:
    """Return what to write instead of a phrase, after its name unless the text has it."""
    name = phrase.strip(" (#,*%{")
    longest = max(name.split(), key=len, default="")
    return instead if not name or longest.lower() in re.findall(r"\w+", instead.lower()) else f"{name}: {instead}"


def _is(run: Tokens, index: int, word: str) -> bool:
    return run.kind(index) == "NUMBER" if word == "#" else run.word(index) == word

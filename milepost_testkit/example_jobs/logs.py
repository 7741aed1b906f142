"""Request logs in JSON, flattened to a row per call; lines that cannot be read are a table of their own."""

from __future__ import annotations

from pathlib import Path

import duckdb

from milepost_testkit.example_jobs.example_job import ExampleJob, Lot, Tables

_BROKEN, _WITHOUT_TIME = 50, 51
"""Of 200 lines one is cut in the middle, and one has no time that is one."""


def land(folder: Path, lot: Lot) -> None:
    """Write one object of lines, of which a request has up to three calls; one that comes a little late is not late."""
    call = """{'service': 'service-' || (hash(i, call, 4) % 40), 'ms': (hash(i, call, 5) % 1000)::BIGINT,
               'ok': hash(i, call, 6) % 10 <> 0}"""
    request = f"""{{'request': 'r' || i, 'host': 'web-' || (hash(i, 1) % 20),
                   'at': strftime(make_timestamp(({lot.time_us("i")} - hash(i, 2) % 60_000_000)::BIGINT),
                                  '%Y-%m-%dT%H:%M:%S.%fZ'),
                   'calls': list_transform(range((hash(i, 3) % 4)::BIGINT), lambda call: {call})}}"""
    line = f"""CASE hash(i, 7) % 200
        WHEN {_BROKEN} THEN left(line, 70)
        WHEN {_WITHOUT_TIME} THEN replace(line, '"at":"2', '"at":"two thousand and 2')
        ELSE line END"""
    rows = f"SELECT {line} FROM (SELECT i, to_json({request})::VARCHAR AS line FROM {lot.numbers})"
    file = folder / "logs" / f"{lot.name}.jsonl"
    duckdb.sql(f"COPY ({rows}) TO '{file}' (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x01')")


def tables(connection: duckdb.DuckDBPyConnection, folder: Path, lots: list[Lot]) -> Tables:
    """Answer from the lines themselves: what is no JSON, or has no time, is unreadable."""
    files = [str(folder / "logs" / f"{lot.name}.jsonl") for lot in lots]
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE lines AS
        SELECT parse_filename(filename) AS object, unnest(generate_series(1, len(lines))) AS line, unnest(lines) AS text
        FROM (SELECT filename, string_split(rtrim(content, chr(10)), chr(10)) AS lines FROM read_text($files))""",
        {"files": files},
    )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE parsed AS
        SELECT object, line, text, CASE WHEN json_valid(text) THEN from_json(text, '{"request": "VARCHAR",
            "host": "VARCHAR", "at": "VARCHAR", "calls": [{"service": "VARCHAR", "ms": "BIGINT", "ok": "BOOLEAN"}]}')
        END AS request FROM lines"""
    )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE calls AS
        SELECT request.request AS request, request.host AS host, TRY_CAST(request.at AS TIMESTAMPTZ) AS "at",
            call.service AS service, call.ms AS ms, call.ok AS ok
        FROM (SELECT request, unnest(request.calls) AS call FROM parsed
              WHERE TRY_CAST(request.at AS TIMESTAMPTZ) IS NOT NULL)"""
    )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE mark AS
        SELECT max(TRY_CAST(request.at AS TIMESTAMPTZ)) - INTERVAL 5 MINUTE AS watermark FROM parsed"""
    )
    return {
        "failed": 'SELECT service, host, request, "at", ms FROM calls WHERE NOT ok',
        "services": """SELECT service, count(*) AS calls, sum(ms)::BIGINT AS ms, max(ms) AS slowest FROM calls
            GROUP BY service""",
        "minutes": """SELECT service, host, window_start, window_start + INTERVAL 1 MINUTE AS window_end,
                count(*) AS calls, max(ms) AS slowest
            FROM (SELECT *, time_bucket(INTERVAL 1 MINUTE, "at") AS window_start FROM calls), mark
            WHERE window_start + INTERVAL 1 MINUTE <= watermark GROUP BY service, host, window_start""",
        "unreadable": """SELECT object, line FROM parsed WHERE TRY_CAST(request.at AS TIMESTAMPTZ) IS NULL""",
    }


JOB = ExampleJob("logs", land, tables)

"""The queries of Nexmark as SQL: over several epochs and a rollback, each table equals DuckDB's answer."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import duckdb
import pyarrow.csv
import pytest
import yaml

from milepost.epoch.answers import EpochRunner
from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.planes import Plane

FOLDER = REPOSITORY / "config" / "examples" / "nexmark"
SOURCES = ("person", "auction", "bid")
FIRED = "(SELECT max(event_time) FROM {})"
WINDOW = "time_bucket(INTERVAL 10 SECONDS, event_time, TIMESTAMPTZ '1970-01-01')"
CLOSED = """SELECT a.id, a.category, max(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.event_time BETWEEN a.event_time AND a.expires GROUP BY a.id, a.category"""
PER_WINDOW = f"""SELECT auction, starttime, starttime + INTERVAL 10 SECONDS AS window_end, count(*) AS num
    FROM (SELECT auction, unnest([time_bucket(INTERVAL 2 SECONDS, event_time, TIMESTAMPTZ '1970-01-01')
        - INTERVAL (2 * n) SECONDS FOR n IN [0, 1, 2, 3, 4]]) AS starttime FROM bid)
    GROUP BY ALL HAVING window_end <= {FIRED.format("bid")}"""
HIGHEST = f"""SELECT max(price) AS price, {WINDOW} AS starts, starts + INTERVAL 10 SECONDS AS window_end FROM bid
    GROUP BY starts HAVING window_end <= {FIRED.format("bid")}"""
DAY, MINUTE = "strftime(event_time, '%Y-%m-%d')", "strftime(event_time, '%H:%M')"
WINNING = """SELECT a.id, a.item, a.seller, b.bidder, b.price, b.event_time FROM auction a JOIN bid b
    ON a.id = b.auction WHERE b.event_time BETWEEN a.event_time AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.event_time, b.bidder) = 1"""
ANSWERS = {
    "q0": "SELECT auction, bidder, price, event_time FROM bid",
    "q1": "SELECT auction, bidder, price * 0.908 AS price, event_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT category, avg(final) AS mean FROM ({CLOSED}) GROUP BY category",
    "most_bids": f"SELECT window_end, max(num) AS maxnum FROM ({PER_WINDOW}) GROUP BY window_end",
    "q5": f"""SELECT * FROM ({PER_WINDOW}) QUALIFY num = max(num) OVER (PARTITION BY window_end)""",
    "q6": f"""SELECT seller, id, event_time, avg(price) OVER (PARTITION BY seller ORDER BY event_time, id
        ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean FROM ({WINNING})""",
    "q7": f"""SELECT auction, b.price, bidder, event_time FROM bid b JOIN ({HIGHEST}) h
        ON b.price = h.price AND b.event_time >= h.starts AND b.event_time < h.window_end""",
    "q8": f"""SELECT DISTINCT p.id, p.name, p.starts + INTERVAL 10 SECONDS AS window_end
        FROM (SELECT *, {WINDOW} AS starts FROM person) p JOIN (SELECT seller, {WINDOW} AS starts FROM auction) a
        ON p.id = a.seller AND p.starts = a.starts
        WHERE window_end <= {FIRED.format("person")} AND window_end <= {FIRED.format("auction")}""",
    "q9": WINNING,
    "q10": f"SELECT auction, bidder, price, event_time, {DAY} AS dt, {MINUTE} AS hm FROM bid",
    "q11": f"""SELECT bidder, count(*) AS bids, min(event_time) AS starttime,
        max(event_time) + INTERVAL 10 SECONDS AS endtime
        FROM (SELECT *, count(*) FILTER (begins) OVER (PARTITION BY bidder ORDER BY event_time) AS session
            FROM (SELECT *, event_time > lag(event_time) OVER (PARTITION BY bidder ORDER BY event_time)
                + INTERVAL 10 SECONDS AS begins FROM bid))
        GROUP BY bidder, session HAVING endtime < {FIRED.format("bid")}""",
    "q12": f"""SELECT bidder, count(*) AS bids, {WINDOW} AS starttime, starttime + INTERVAL 10 SECONDS AS endtime
        FROM bid GROUP BY bidder, starttime HAVING endtime <= {FIRED.format("bid")}""",
    "q13": """SELECT auction, bidder, price, event_time, value FROM bid JOIN side_input ON auction % 100 = key""",
    "q14": """SELECT auction, bidder, price * 0.908 AS price, CASE WHEN hour(event_time) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(event_time) <= 6 OR hour(event_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bid_time,
        event_time FROM bid WHERE price * 0.908 > 1000 AND price * 0.908 < 50000000""",
    "q15": f"""SELECT {DAY} AS day, count(*) AS total_bids, count(*) FILTER (price < 10000) AS rank1_bids,
        count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
        count(*) FILTER (price >= 1000000) AS rank3_bids, count(DISTINCT bidder) AS total_bidders,
        count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders, count(DISTINCT auction) AS total_auctions,
        count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions FROM bid GROUP BY day""",
    "q16": f"""SELECT channel, {DAY} AS day, max({MINUTE}) AS minute, count(*) AS total_bids,
        count(*) FILTER (price < 10000) AS rank1_bids, count(DISTINCT bidder) AS total_bidders,
        count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions
        FROM bid GROUP BY channel, day""",
    "q17": f"""SELECT auction, {DAY} AS day, count(*) AS total_bids, count(*) FILTER (price < 10000) AS rank1_bids,
        min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
        CAST(sum(price) AS BIGINT) AS sum_price FROM bid GROUP BY auction, day""",
    "q18": """SELECT auction, bidder, price, channel, event_time FROM bid QUALIFY row_number() OVER (
        PARTITION BY bidder, auction ORDER BY event_time DESC, price DESC, channel DESC) = 1""",
    "q19": """SELECT auction, bidder, price, event_time, CAST(row_number() OVER (PARTITION BY auction
        ORDER BY price DESC, event_time, bidder) AS INTEGER) AS rank_number FROM bid QUALIFY rank_number <= 10""",
    "q20": """SELECT b.auction, bidder, price, channel, b.event_time, item, initial_bid, expires, seller
        FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10""",
    "q21": """SELECT * FROM (SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0'
        WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id FROM bid) WHERE channel_id <> ''""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
        split_part(url, '/', 6) AS dir3 FROM bid""",
    "q23": """SELECT b.auction, price, name, city, item, category FROM bid b JOIN person p ON b.bidder = p.id
        JOIN auction a ON b.auction = a.id WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
}
EMPTY = {"q2"}
"""Queries that may have no rows over so few events."""


def created(folder: Path) -> str:
    """Write the example with fewer events, a record of each source per epoch, and a table of each source."""
    spec = yaml.safe_load((FOLDER / "nexmark.yaml").read_text())
    spec |= {"storage": "store", "tables": {"format": "parquet", "path": "lake/{name}"}}
    rows = {"person": 5, "auction": 15, "bid": 230}  # of the same 250 events
    for name in SOURCES:
        source = spec["sources"][name]
        limits = {"land": {"max_rows": rows[name]}, "limits_per_epoch": {"max_records": 1}}
        source |= {"total": 4 * rows[name], **limits}
    spec["sinks"] = [
        {"name": f"raw-{name}", "input": name, "format": "parquet", "path": f"lake/raw_{name}", "mode": "append"}
        for name in SOURCES
    ]
    shutil.copy(FOLDER / "nexmark.sql", folder)
    shutil.copytree(FOLDER / "side_input", folder / "side_input")
    (folder / "nexmark.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return str(folder / "nexmark.yaml")


def run(spec: str, runner: EpochRunner) -> int:
    """Run epochs until all events are read; return how many."""
    count = 0
    while not isinstance(JobMaster(load_job(spec)).epochs.run(Session.cli(), runner), NothingToDo):
        count += 1
    return count


def check(spec: str) -> None:
    reports = JobMaster(load_job(spec)).reports
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name in SOURCES:
            database.register(name, reports.read(f"raw-{name}"))
        database.register("side_input", pyarrow.csv.read_csv(FOLDER / "side_input" / "values.csv"))
        for table, query in ANSWERS.items():
            expected, shown = database.sql(query), reports.read(table)
            assert shown.column_names == expected.columns, table
            database.register("shown", shown)
            both = f"SELECT *, 1 AS more FROM shown UNION ALL SELECT *, -1 FROM ({query})"
            differing = f"SELECT sum(more) AS more, * EXCLUDE (more) FROM ({both}) GROUP BY ALL HAVING sum(more) <> 0"
            assert not database.sql(differing).limit(4).fetchall(), table
            assert shown.num_rows or table in EMPTY, table


def test_every_statement_of_the_example_with_a_table_has_an_answer() -> None:
    text = (FOLDER / "nexmark.sql").read_text()
    tables = re.findall(r"^CREATE (?:STREAMING TABLE|MATERIALIZED VIEW) (\w+)", text, re.MULTILINE)
    assert tables == [*ANSWERS]


@pytest.mark.deep
def test_each_query_equals_duckdbs_answer_over_five_epochs_and_a_rollback(tmp_path: Path, in_process: Plane) -> None:
    spec, runner = created(tmp_path), in_process()
    JobMaster(load_job(spec)).landings.land()
    assert run(spec, runner) == 5  # the first record of a log has no rows
    check(spec)
    roll_back(JobMaster(load_job(spec)), 3)
    assert run(spec, runner) == 2
    check(spec)

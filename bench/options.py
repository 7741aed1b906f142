"""The options of the benchmark's command line."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.parts import MODES
from bench.scheduled.parts import PARTS
from bench.studies.months.small_job import FORMATS
from bench.studies.page_times import STORES
from bench.studies.round_trips import DELAYS_MS
from bench.systems.registry import SYSTEMS
from bench.workloads.workloads import WORKLOADS
from scripts.processes import ROOT

NEIGHBOURS, SMALL_OBJECTS = "neighbours", "small_objects"
MONTHS = (*FORMATS, NEIGHBOURS, SMALL_OBJECTS)

HOME = Path(__file__).resolve().parent
DEFAULT_FOLDER = ROOT / ".milepost" / "bench"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Epochs side by side on several systems.")
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure", help="some workloads on some systems; prints a table each")
    run = commands.add_parser("run", help="all parts of a mode; writes the raw results, their report and the plots")
    report = commands.add_parser("report", help="write a mode's report and the plots again, from raw results")
    measure.add_argument(
        "--workloads", nargs="+", choices=list(WORKLOADS), default=["keyed-10k", "keyed-1m", "keyed-5m"]
    )
    measure.add_argument(
        "--systems", nargs="+", choices=list(SYSTEMS), default=["milepost", "spark-hdfs", "limit-numpy"]
    )
    measure.add_argument("--rounds", type=_positive, default=3, help="counted epochs of each system")
    measure.add_argument("--warmups", type=_positive, default=3, help="epochs before those; the first fills the state")
    measure.add_argument("--rows", type=_positive, help="rows per epoch, instead of the workload's")
    measure.add_argument("--keys", type=_positive, help="number of keys, instead of the workload's")
    measure.add_argument("--output", type=Path, help="file for the raw results, as JSON")
    old_job = commands.add_parser("old-job", help="thousands of small epochs of one job in one process")
    old_job.add_argument("--epochs", type=_positive, default=5_000)
    months = commands.add_parser("months", help="thousands of small epochs for each kind of table; writes MONTHS.md")
    months.add_argument("--epochs", type=_positive, default=10_000)
    months.add_argument("--only", nargs="+", choices=MONTHS, help="these again; the others stay")
    months.add_argument("--objects", type=_positive, default=100_000, help="how many small objects")
    commands_ = commands.add_parser("commands", help="each command in a new process, on a bucket that answers in 20 ms")
    commands_.add_argument("--epochs", type=_positive, default=30)
    commands_.add_argument("--rounds", type=_positive, default=5)
    pages = commands.add_parser("pages", help="each page of 50 jobs with 10,000 epochs, cold and warm; PAGES.md")
    pages.add_argument("--jobs", type=_positive, default=50)
    pages.add_argument("--epochs", type=_positive, default=10_000)
    pages.add_argument("--rounds", type=_positive, default=3)
    pages.add_argument("--only", nargs="+", choices=STORES, default=STORES, help="these stores; the others stay")
    memory_ = commands.add_parser("command-memory", help="peak memory of each command over so many keys")
    memory_.add_argument("--keys", type=_positive, nargs="+", default=[1_000_000, 5_000_000], metavar="N")
    memory_.add_argument("--before", metavar="COMMIT", help="keep the figures as those of an earlier commit")
    driver = commands.add_parser("driver", help="a driver of 1 GB over so many keys, on a cluster; writes DRIVER.md")
    driver.add_argument("--keys", type=_positive, nargs="+", default=[5_000_000, 50_000_000], metavar="N")
    trips = commands.add_parser("round-trips", help="requests of an epoch that wait for one another; ROUND_TRIPS.md")
    trips.add_argument("--epochs", type=_positive, default=3)
    trips.add_argument("--delays", type=int, nargs="+", default=list(DELAYS_MS), metavar="MS", help="30 among them")
    trips.add_argument("--before", metavar="COMMIT", help="keep the figures as those of an earlier commit")
    tables = commands.add_parser("tables", help="open tables beside Spark's MERGE, delta-rs and DuckDB; TABLES.md")
    tables.add_argument("--report", action="store_true", help="write TABLES.md and its plot again, from raw results")
    kafka = commands.add_parser("kafka", help="messages beside Structured Streaming and PyFlink; writes KAFKA.md")
    kafka.add_argument("--report", action="store_true", help="write KAFKA.md again, from raw results")
    airflow = commands.add_parser("airflow", help="epochs through Airflow beside empty tasks; writes AIRFLOW.md")
    airflow.add_argument("--only", nargs="+", choices=list(PARTS), help="these parts again; the others stay")
    airflow.add_argument("--rounds", type=_positive, help="turns, or minutes, instead of each part's own number")
    for one in (measure, run, old_job, months, commands_, pages, memory_, driver, trips, tables, kafka, airflow):
        one.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="for inputs and scratch files")
    for one, modes in ((run, MODES), (report, MODES), (tables, MODES[:2]), (kafka, MODES[:2])):
        one.add_argument("--mode", choices=modes, default="quick")
    for one in (run, report, old_job, months, commands_, pages, memory_, driver, trips, tables, kafka, airflow):
        one.add_argument("--results", type=Path, default=HOME, help="folder of the raw results and of their report")
    for one in (run, tables, kafka):
        one.add_argument(
            "--only", nargs="+", metavar="PART", help="measure the parts whose names begin so; keep the others"
        )
        one.add_argument(
            "--resume", action="store_true", help="keep what was measured; measure what is missing or failed"
        )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {value}")
    return value

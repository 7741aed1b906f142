"""A random job in a bucket behind a faulty proxy, with its landed input and its model."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from milepost.jobmaster import JobMaster
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost_testkit.chaos.commands import Command, Running
from milepost_testkit.chaos.gates import random_gate
from milepost_testkit.chaos.model import Model
from milepost_testkit.chaos.object_formats import object_body, random_format, storable
from milepost_testkit.chaos.places import Places, served_operators
from milepost_testkit.chaos.reach import check_reachable, check_whole
from milepost_testkit.chaos.small_limits import small_limits
from milepost_testkit.chaos.tries import LANDED
from milepost_testkit.law.examples import cuts_epochs
from milepost_testkit.models.data import file_feed
from milepost_testkit.models.data.file_feed import feed_document, is_feed, produce, waiting
from milepost_testkit.models.data.kinds.lookups import STATIC, static_rows
from milepost_testkit.models.data.kinds.process_law import CODE, MODULE, counting_operator

TIMEOUT = "30s"
"""Timeout of a checkpoint, after which nothing waits any longer for a process that died."""
_OF_SPARK = "2m"
_FEEDS = 0.4
"""Chance of each source that it is landed."""


@dataclass
class ChaosJob:
    """One job, its landing places and its tables.

    Attributes:
        document: its spec. places: of its tables. client: S3 client that bypasses the proxy. limits: of its processes.
        landing: URL below which objects land. landed: versions of each object, by source and name. Of an external
            system they are its files.
        saved: numbers of the requested savepoints. leaves: whether state of removed operators may be dropped.
        on_spark: whether its epochs run on Spark.
    """

    folder: Path
    document: dict[str, Any]
    places: Places
    client: Any
    bucket: str
    landing: str
    limits: dict[str, int]
    model: Model
    landed: dict[str, dict[str, list[tuple[str, pa.Table]]]] = field(default_factory=dict)
    saved: list[int] = field(default_factory=list)
    leaves: bool = False
    on_spark: bool = False

    @classmethod
    def create(
        cls,
        folder: Path,
        document: dict[str, Any],
        places: Places,
        client: Any,
        store: dict[str, str],
        random: Random,
        spark: Mapping[str, Any] | None = None,
    ) -> ChaosJob:
        """Create a job without epochs. Each epoch will read one object of each source.

        Args:
            store: the S3 connection. spark: the Spark section of its spec; None runs epochs in the calling process.
        """
        bucket = places.root.split("/")[2]
        document |= {"storage": f"{places.root}/store", "store": store}
        landing = f"{places.root}/landing"
        _choose_sources(document["sources"], landing, random, folder, on_spark=spark is not None)
        if spark is not None:
            # With a real clock, a second attempt is not cut at the same position.
            document["checkpointing"].pop("aligned_timeout", None)
        document["checkpointing"] |= {
            "retained": {"last": random.choice((2, 5, 50))},
            "tolerable_failures": 1000,
            "timeout": TIMEOUT if spark is None else _OF_SPARK,
        }
        for part in ("config", "captured"):
            (folder / part).mkdir(parents=True)
        (folder / "config" / f"{MODULE}.py").write_text(CODE)
        (folder / "config" / f"{file_feed.MODULE}.py").write_text(file_feed.CODE)
        for source in document["sources"].values():
            if is_feed(source):
                Path(source["options"]["folder"]).mkdir(parents=True)
        document["spark"] |= spark or {}
        _add_operators(document, random, on_spark=spark is not None)
        job = cls(
            folder,
            document,
            places,
            client,
            bucket,
            landing,
            {} if spark else small_limits(random),
            Model(folder / "captured"),
            on_spark=spark is not None,
        )
        places.choose(document, random, job.checked)
        job.write()
        if spark is None and random.random() < 0.4:
            document["quality"] = random_gate(random, job.checked())
        if STATIC in document["sources"]:
            job.put(STATIC, "0", static_rows(random.randrange(1, 12)))
        return job.write()

    @property
    def feeds(self) -> dict[str, Path]:
        """The folders of its external systems, by source."""
        sources = self.document["sources"]
        return {name: Path(one["options"]["folder"]) for name, one in sources.items() if is_feed(one)}

    @property
    def waits_to_land(self) -> bool:
        """Whether an external system has what was not acknowledged."""
        return any(waiting(folder) for folder in self.feeds.values())

    @property
    def spec(self) -> Path:
        return self.folder / "config" / "law.yaml"

    @property
    def loaded(self) -> LoadedJob:
        return load_job(str(self.spec))

    def write(self) -> ChaosJob:
        """Write the current spec."""
        self.spec.write_text(json.dumps(self.document, indent=1))
        return self

    def checked(self) -> JobGraph:
        """Write the current spec, and return its graph. Raises InvalidRequest if it is invalid."""
        return self.write().loaded.graph()

    def set_parallelism(self, parallelism: int) -> None:
        """Write the spec with this number of subtasks per level."""
        self.document["spark"]["parallelism"] = parallelism
        self.write()

    def relax(self) -> None:
        """Remove the quality gate, as users do when the vetoed rows are right."""
        self.document.pop("quality", None)
        self.write()

    def land(self, source: str, rows: pa.Table) -> None:
        """Store rows as one object, or one file of an external system."""
        objects, rows = self.landed.setdefault(source, {}), storable(self.document["sources"][source], rows)
        name = f"{len(objects):04}"
        if system := self.feeds.get(source):
            produce(system, len(objects), rows)
            objects[name] = [(LANDED, rows)]
            return
        objects[name] = [(self.put(source, name, rows), rows)]

    def replace(self, random: Random, rows: pa.Table) -> str:
        """Overwrite one of a source's objects, consumed or not. Returns what was replaced."""
        files = {source: objects for source, objects in self.landed.items() if source not in self.feeds}
        chances = [(source, name) for source, objects in files.items() for name in objects]
        if not chances:
            return "nothing"
        source, name = random.choice(chances)
        rows = storable(self.document["sources"][source], rows)
        self.landed[source][name].append((self.put(source, name, rows), rows))
        return f"{source}/{name}"

    def put(self, source: str, name: str, rows: pa.Table) -> str:
        """Store rows as an object of a source. Returns its etag."""
        document = self.document["sources"][source]
        key = "/".join(document["path"].replace("*", name).split("/")[3:])
        reply = self.client.put_object(Bucket=self.bucket, Key=key, Body=object_body(document, rows))
        return str(reply["ETag"]).strip('"')

    def savepoint(self, random: Random) -> str | None:
        """Return the location of one of its savepoints; None if it has none."""
        found = [one.location for one in JobMaster(self.loaded).list_savepoints() if one.location]
        return random.choice(found) if found else None

    def begin(self, command: Command) -> Running:
        """Begin a command in its own process."""
        return Running(self.spec, self.folder / "captured", command, self.limits)

    def check(self) -> None:
        """Check that everything equals the model and that the stores are intact. Raises AssertionError."""
        job = self.loaded
        self.model.check(job, self.landed)
        check_whole(job)

    def check_collected(self) -> int:
        """Check that each of its stored objects is needed. Returns their number. Raises AssertionError."""
        job, (_, _, _, *below) = self.loaded, self.places.root.split("/")
        # Tables without a path have no objects in the bucket.
        tables = [f"lake/{one['name']}" for one in self.document["sinks"] if "path" in one]
        prefixes = [f"{'/'.join(below)}/{part}/" for part in ("store", *tables)]
        return check_reachable(job, self.client, self.bucket, prefixes)

    def fork(self, folder: Path, places: Places, random: Random) -> ChaosJob:
        """Return a new job of the same spec, with its own storage and tables. Both read the same landed input."""
        document = copy.deepcopy(self.document) | {"name": "fork", "storage": f"{places.root}/store"}
        document.pop("quality", None)
        document["sinks"] = [places.put(sink, sink["format"], random) for sink in document["sinks"]]
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("catalog.db*"))
        model = Model(folder / "captured", dict(self.model.renamed), self.model.by_token(self.loaded))
        return replace(self, folder=folder, document=document, places=places, model=model, saved=[]).write()


def _choose_sources(sources: dict[str, Any], landing: str, random: Random, folder: Path, *, on_spark: bool) -> None:
    """Choose location and format of each source's objects. An epoch reads one object of each stream.

    Some sources are external systems below a folder.
    """
    for name, source in sources.items():
        if name != STATIC and not on_spark and random.random() < _FEEDS:
            retain = random.choice(("0s", "7d"))
            sources[name] = feed_document(source, folder / "external" / name) | {"land": {"retain": retain}}
            continue
        plain = name == STATIC or on_spark  # the replay of Spark's epochs reads Parquet
        how = {"format": "parquet", "suffix": ".parquet"} if plain else random_format(random)
        source |= {"path": f"{landing}/{name}/*{how.pop('suffix')}", "settle": "0s"} | how
        if name != STATIC:
            source |= {"limits_per_epoch": {"max_files": 1}, "on_change": random.choice(("ignore", "reprocess"))}


def _add_operators(document: dict[str, Any], random: Random, *, on_spark: bool) -> None:
    """Randomly add operators that generated jobs lack: a process function, and a table that can be served."""
    source = random.choice([one for one in document["sources"] if one != STATIC])
    # If epochs are cut, rows of a key may be counted in later epochs.
    if not on_spark and not cuts_epochs(document) and random.random() < 0.3:
        _add(document, counting_operator("counted", source), "append")
    if random.random() < 0.6:
        clean, served = served_operators(source, random)
        _add(document, clean, "append")  # rows that are only read with delete marks are not compared
        _add(document, served, "upsert")


def _add(document: dict[str, Any], operator: dict[str, Any], mode: str) -> None:
    """Add an operator to a spec, with a table of its rows."""
    document["operators"].append(operator)
    document["sinks"].append({"name": operator["uid"], "input": operator["uid"], "mode": mode})

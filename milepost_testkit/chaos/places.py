"""Locations of the tables of random jobs: Parquet, Delta and Iceberg in a bucket, and Postgres."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.graph import JobGraph
from milepost_testkit.servers.postgres_server import PostgresServer

_IN_FILES = ("parquet", "delta", "iceberg")
SERVED_KEY = "served"
"""A key that is never null, which the rows of random jobs else are: a primary key of Postgres."""


@dataclass(frozen=True)
class Places:
    """The locations of one job's tables.

    Attributes:
        root: URL below which file tables are stored. folder: of the Iceberg catalog. postgres: the server on which the
            job gets its own database, in a variable that its spec names.
    """

    root: str
    folder: Path
    postgres: PostgresServer
    variable: str

    @classmethod
    def create(cls, root: str, folder: Path, postgres: PostgresServer) -> Places:
        """Return the locations for a job, and create its database."""
        variable = f"CHAOS_{folder.name.upper()}_DSN"
        os.environ[variable] = postgres.new_database().dsn
        return cls(root, folder, postgres, variable)

    def put(self, sink: dict[str, Any], format_: str, random: Random) -> dict[str, Any]:
        """Return a sink with its table in a format, with a random layout."""
        name = sink["name"]
        made = {key: sink[key] for key in ("name", "input", "mode")} | {"format": format_}
        if format_ == "postgres":
            return made | {"dsn": f"${{env:{self.variable}}}", "table": f"public.{name}"}
        made["path"] = f"{self.root}/lake/{name}"
        if format_ == "iceberg":
            catalog = {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db"}
            made |= {"catalog": catalog, "table": f"law.{name}"}
        if made["mode"] == "upsert" and format_ != "parquet" and random.random() < 0.7:
            made["buckets"] = random.choice((1, 2, 5, 8))
        return made

    def choose(self, document: dict[str, Any], random: Random, check: Callable[[], JobGraph]) -> None:
        """Choose a random format for each sink, or a managed Parquet table if that format refuses the sink.

        Args:
            check: returns the graph of the current spec, or raises InvalidRequest.
        """
        for place, sink in enumerate(document["sinks"]):
            document["sinks"][place] = self.put(sink, "parquet", random)
        graph = check()
        for place, sink in enumerate(document["sinks"]):
            asked = sink | ({"mode": "changelog"} if random.random() < 0.2 else {})
            format_ = random.choice(formats_of(asked["mode"], graph.sink_inputs[sink["name"]].key))
            document["sinks"][place] = self.put(asked, format_, random)
            try:
                check()
            except InvalidRequest:
                document["sinks"][place] = sink


def formats_of(mode: str, key: Sequence[str]) -> tuple[str, ...]:
    """Return the possible formats of a sink's table, by its mode and upsert key."""
    return (
        (*_IN_FILES, "postgres", "postgres", "postgres") if mode == "upsert" and [*key] == [SERVED_KEY] else _IN_FILES
    )


def served_operators(source: str, random: Random) -> list[dict[str, Any]]:
    """Return operators whose rows have a key that every table format supports."""
    clean = f"SELECT coalesce(k, '-') AS {SERVED_KEY}, i, x, t FROM {source}"
    kinds: tuple[dict[str, Any], ...] = (
        {"kind": "aggregate", "aggregates": {"n": "count(*)", "total": "sum(i)"}},
        {"kind": "latest", "sequence_by": ["t", "i"], "delete_when": "i < 0"},
        {"kind": "latest", "sequence_by": ["t"]},
    )
    return [
        {"uid": "clean", "kind": "sql", "inputs": [source], "sql": clean},
        {"uid": "served", "inputs": ["clean"], "key": [SERVED_KEY]} | random.choice(kinds),
    ]

"""Readers of the examples `python_source.yaml` and `dlt_resource.yaml`. Each reads a file instead of a server."""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader


class Readings(DataSource):
    """The lines `sensor,celsius` of a file to which lines are appended."""

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return ReadingsReader(Path(self.options["path"]))


class ReadingsReader(SimpleDataSourceStreamReader):
    """Reads the lines after a number of lines, which is the position."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def initialOffset(self) -> dict[str, int]:
        return {"after": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[str, float, int]], dict[str, int]]:
        with self.path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))
        rows = [
            (sensor, float(celsius), number)
            for number, (sensor, celsius) in enumerate(lines, 1)
            if number > start["after"]
        ]
        return iter(rows), {"after": len(lines)}

    def commit(self, end: dict[str, int]) -> None:
        """Nothing waits for an acknowledgement."""


@dlt.resource(name="orders", primary_key=["id", "version"], write_disposition="merge")
def orders(version: Any = dlt.sources.incremental("version", initial_value=-1)) -> Iterator[list[dict[str, Any]]]:
    """The orders of a file from a version on."""
    listed = json.loads(Path(os.environ["ORDERS"]).read_text(encoding="utf-8"))
    yield [order for order in listed if order["version"] >= version.last_value]

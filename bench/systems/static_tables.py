"""The static table of a workload, as each system reads it: Parquet, or CSV."""

from __future__ import annotations

import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bench.systems.contract import Folders
from bench.workloads.generate import auctions
from bench.workloads.workloads import Workload


def write_static(workload: Workload, folders: Folders, *, csv: bool = False) -> None:
    """Write the static tables that a workload reads in addition to its stream, if any."""
    if not workload.static:
        return
    table, folder = auctions(workload.shape), folders.static(workload.static)
    folder.mkdir()
    if csv:
        options = pcsv.WriteOptions(include_header=False, quoting_style="none")
        pcsv.write_csv(table, folder / "auctions.csv", options)
    else:
        pq.write_table(table, folder / "auctions.parquet")

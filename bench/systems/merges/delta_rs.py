"""delta-rs, the library that Python writes Delta with: `DeltaTable.merge` in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.systems.contract import Folders, NotAsked
from bench.systems.merges.merging import CHANGES, TableVolumes, same_key, stage_changes, updates
from bench.workloads.workloads import Workload


class DeltaRs:
    """One table, written anew by the first epoch and merged into by the others."""

    def prepare(self, workload: Workload, folders: Folders) -> None:
        self._workload, self._folders = workload, folders
        self._volumes = TableVolumes(folders)

    def stage(self, source: Path, target: Path) -> None:
        stage_changes(self._workload, source, target)

    def epoch(self, number: int) -> None:
        from deltalake import DeltaTable, write_deltalake

        rows = pq.read_table(self._folders.epoch(number) / CHANGES)
        if not self._folders.output.exists():
            write_deltalake(str(self._folders.output), rows)
            return
        table = DeltaTable(str(self._folders.output))
        merge = table.merge(rows, same_key(self._workload), source_alias="s", target_alias="t")
        merge.when_matched_update(updates()).when_not_matched_insert_all().execute()

    def figures(self, number: int) -> dict[str, Any]:
        return self._volumes.figures()

    def probe(self, name: str) -> dict[str, Any]:
        raise NotAsked(name)

    def result_sql(self) -> str:
        from deltalake import DeltaTable

        files = [file.removeprefix("file://") for file in DeltaTable(str(self._folders.output)).file_uris()]
        return f"SELECT {', '.join(self._workload.result_columns)} FROM read_parquet({files!r})"

    def versions(self) -> dict[str, str]:
        import deltalake

        return {"deltalake": deltalake.__version__}

    def close(self) -> None:
        """Nothing stays up."""

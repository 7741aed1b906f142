"""How much of the files a sample has, and whether it says so."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.protocol.records import StoreConfig, file_url
from milepost.sources.inference import ProposedSource, infer_source
from milepost.sources.inference.reading import MAX_ROWS
from milepost.storage import open_store


def proposed(folder: Path, pattern: str) -> ProposedSource:
    return infer_source(open_store(StoreConfig(url=file_url(folder.resolve()))), pattern, pattern)


def test_the_last_value_of_a_text_file_with_many_short_rows_counts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n" + "1\n" * 600_000 + "bad\n")
    source = proposed(tmp_path, "a.csv")
    assert (source.sample.rows, source.sample.is_complete) == (600_001, True)
    assert str(source.columns[0].type) == "string"


def test_parquet_files_are_a_complete_sample_if_none_has_more_rows_than_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"n": range(MAX_ROWS - 1)}), tmp_path / f"{name}.parquet")
    assert proposed(tmp_path, "*.parquet").sample.is_complete
    pq.write_table(pa.table({"n": range(4 * MAX_ROWS)}), tmp_path / "c.parquet", row_group_size=MAX_ROWS)
    source = proposed(tmp_path, "*.parquet")
    assert not source.sample.is_complete
    assert source.sample.rows < 6 * MAX_ROWS - 2

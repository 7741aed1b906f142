"""Locations in Iceberg are text with several spellings, and not everything that a table names is below it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.errors import StateCorrupt
from milepost.tables.iceberg.file_io import STORE, StoreFileIO
from milepost.tables.iceberg.locations import key_below
from milepost_testkit import wording
from milepost_testkit.formats.iceberg_lake import SCHEMA, IcebergLake
from milepost_testkit.formats.iceberg_writers import set_properties


@pytest.mark.parametrize(
    ("root", "location", "key"),
    [
        ("s3://b/t", "s3://b/t/data/x.parquet", "data/x.parquet"),
        ("s3://b/t", "s3a://b/t/data/x.parquet", "data/x.parquet"),
        ("s3://b/t", "s3://b/tt/x.parquet", "s3://b/tt/x.parquet"),
        ("file:///a b/t", "file:/a b/t/x.parquet", "x.parquet"),
        ("file:///a b/t", "/a b/t/x.parquet", "x.parquet"),
        ("file:///a b/t", "file:///a b/x.parquet", "file:///a b/x.parquet"),
    ],
)
def test_a_file_of_the_table_has_one_key_however_it_is_spelled(root: str, location: str, key: str) -> None:
    """Engines write `s3a`, or omit slashes; files elsewhere keep their whole location."""
    assert key_below(root, location) == key


def test_metadata_that_a_table_keeps_elsewhere_is_read_and_written_there(lake: IcebergLake, tmp_path: Path) -> None:
    """Contract 7: an engine's choice of a folder is followed."""
    lake.made().move(1, (lake.staged(1),))
    elsewhere = tmp_path / "else where"
    set_properties(lake.foreign_table(), **{"write.metadata.path": f"file://{elsewhere}"})

    first = lake.staged(2)
    lake.move(2, (first,))
    after = lake.move(3, (lake.staged(3),), (first,))

    assert any(path.name.startswith("snap-") for path in elsewhere.iterdir())
    assert (after.number, lake.keys()) == (3, [1, 3])


def test_files_that_others_added_from_elsewhere_stay(lake: IcebergLake, tmp_path: Path) -> None:
    """Contract 7: foreign rows stay, wherever they are stored."""
    file = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"k": [50], "v": ["x"]}, SCHEMA), file)
    lake.made().move(1, (lake.staged(1),))
    lake.foreign_table().add_files([f"file://{file}"])

    seen = lake.opened()
    lake.move(2, (lake.staged(2),))

    assert f"file://{file}" in seen.live_files()
    assert lake.keys() == [1, 2, 50]


def test_a_missing_manifest_is_reported_as_corruption(lake: IcebergLake) -> None:
    """What the table needs and is not there is never taken for an empty table."""
    lake.made().move(1, (lake.staged(1),))
    (manifest,) = [stat.key for stat in lake.store.list("metadata/") if stat.key.endswith("-m0.avro")]
    lake.store.delete([manifest])

    with wording.raises(StateCorrupt) as refused:
        lake.opened().live_files()
    assert manifest in str(refused.value)


def test_the_library_deletes_nothing(lake: IcebergLake) -> None:
    """Contract 5: a commit that is taken for failed may have landed, and needs its manifests."""
    lake.made()
    (key,) = [stat.key for stat in lake.store.list("metadata/")]
    files = StoreFileIO({STORE: lake.store})
    location = f"{lake.foreign_table().location()}/{key}"

    files.delete(location)
    files.delete(files.new_input(location))

    assert files.new_input(location).exists()
    assert not files.new_input(f"{location}.other").exists()


def test_a_file_whose_writer_failed_is_not_there(lake: IcebergLake) -> None:
    """A part of a file is never seen."""
    file = StoreFileIO({STORE: lake.store}).new_output(
        f"file://{lake.store.config.url.removeprefix('file://')}/metadata/x"
    )

    with pytest.raises(ZeroDivisionError):
        with file.create() as stream:
            stream.write(b"a part")
            raise ZeroDivisionError

    assert not file.exists()

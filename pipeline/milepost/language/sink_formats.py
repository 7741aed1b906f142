"""What the spec of a sink may declare, by format, and what kind of table the format makes."""

from __future__ import annotations

from dataclasses import dataclass

ALL_MODES = ("append", "upsert", "changelog")


@dataclass(frozen=True, slots=True)
class SinkFormat:
    """What the spec of a sink of one format may declare.

    A table that is neither open nor a database is managed: only Milepost reads and writes it.

    Attributes:
        name: the format's name in a spec.
        required_keys, optional_keys: keys that only some formats have.
        refused_keys: key that users may expect -> why the format does not have it.
        modes: modes that are available.
        is_open: other engines read and write the table. Its upsert tables have buckets, and its files have column
            statistics.
        is_database: the table stores rows by a primary key. The staged files are in the job's storage.
        distinguishes_empty_text: a partition value distinguishes an empty text from null.
    """

    name: str
    required_keys: tuple[str, ...]
    optional_keys: tuple[str, ...] = ()
    refused_keys: tuple[tuple[str, str], ...] = ()
    modes: tuple[str, ...] = ALL_MODES
    is_open: bool = False
    is_database: bool = False
    distinguishes_empty_text: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a sink of this format that only some formats have."""
        return (*self.required_keys, *self.optional_keys)

    @property
    def is_managed(self) -> bool:
        """Whether only Milepost reads and writes the table."""
        return not (self.is_open or self.is_database)

    def can_migrate_to(self, other: SinkFormat) -> bool:
        """Return whether a table of this format can move to a table of another.

        Any table of files can become open. A managed table can move to another managed table.
        """
        return not self.is_database and (other.is_open or other == self)


_CREATED_BY_MILEPOST = "a table of `format: parquet` is always created by Milepost, so it cannot be adopted"
_ADOPTS_NO_ROWS = "`adopt` is not available in this version for format: postgres; name a table that does not exist yet"
_OPEN_KEYS = ("buckets", "adopt", "partition_by")

SINK_FORMATS = {
    format_.name: format_
    for format_ in (
        SinkFormat("parquet", ("path",), refused_keys=(("adopt", _CREATED_BY_MILEPOST),)),
        SinkFormat("delta", ("path",), _OPEN_KEYS, is_open=True),
        SinkFormat("iceberg", ("path", "catalog", "table"), _OPEN_KEYS, is_open=True, distinguishes_empty_text=True),
        SinkFormat(
            "postgres",
            ("table",),
            ("dsn", "conn_id"),
            refused_keys=(("adopt", _ADOPTS_NO_ROWS),),
            modes=("upsert",),
            is_database=True,
        ),
    )
}
"""Format of a sink -> what its spec may declare. `milepost.sinks` has the tables."""

FORMAT_KEYS = tuple(dict.fromkeys(key for format_ in SINK_FORMATS.values() for key in format_.keys))
"""Keys of a sink that only some formats have."""

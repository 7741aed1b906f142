"""Tables in Postgres: projections of the contents of checkpoints."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.formats.postgres.postgres_format import PostgresFormat as PostgresFormat
else:
    __getattr__, __dir__ = lazy_exports(__name__)

"""Sources that are landed into a log before they are processed."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sources.landed.contract import FileReference as FileReference
    from milepost.sources.landed.contract import FileRetention as FileRetention
    from milepost.sources.landed.contract import LandedSource as LandedSource
    from milepost.sources.landed.contract import Note as Note
    from milepost.sources.landed.contract import NotedSource as NotedSource
    from milepost.sources.landed.contract import PartRows as PartRows
    from milepost.sources.landed.contract import PassedFiles as PassedFiles
    from milepost.sources.landed.contract import Pull as Pull
    from milepost.sources.landed.contract import Reached as Reached
    from milepost.sources.landed.contract import ReferencedSource as ReferencedSource
    from milepost.sources.landed.contract import ResumableSource as ResumableSource
    from milepost.sources.landed.contract import Resumption as Resumption
    from milepost.sources.landed.contract import RewindableSource as RewindableSource
    from milepost.sources.landed.contract import stored_position as stored_position
    from milepost.sources.landed.delta.delta_source import open_delta_source as open_delta_source
    from milepost.sources.landed.dlt_source import open_dlt_source as open_dlt_source
    from milepost.sources.landed.given_rows import GivenRows as GivenRows
    from milepost.sources.landed.iceberg.iceberg_source import open_iceberg_source as open_iceberg_source
    from milepost.sources.landed.kafka.kafka_source import open_kafka_source as open_kafka_source
    from milepost.sources.landed.messages import MESSAGE_SCHEMA as MESSAGE_SCHEMA
    from milepost.sources.landed.messages import partition_name as partition_name
    from milepost.sources.landed.milepost.milepost_source import open_milepost_source as open_milepost_source
    from milepost.sources.landed.nexmark_source import open_nexmark_source as open_nexmark_source
    from milepost.sources.landed.postgres.postgres_source import PostgresTable as PostgresTable
    from milepost.sources.landed.postgres.postgres_source import open_postgres_source as open_postgres_source
    from milepost.sources.landed.postgres.postgres_source import slot_name as slot_name
    from milepost.sources.landed.postgres.table import TableName as TableName
    from milepost.sources.landed.python_source import open_python_source as open_python_source
    from milepost.sources.landed.registry_schemas import HEADER_BYTES as HEADER_BYTES
    from milepost.sources.landed.registry_schemas import SCHEMA_METADATA as SCHEMA_METADATA
    from milepost.sources.landed.registry_schemas import RegistrySchema as RegistrySchema
    from milepost.sources.landed.registry_schemas import decode_schema as decode_schema
    from milepost.sources.landed.registry_schemas import schema_id_of as schema_id_of
    from milepost.sources.landed.registry_schemas import stored_schema as stored_schema
    from milepost.sources.landed.schema_registry import SchemaRegistry as SchemaRegistry
    from milepost.sources.landed.schema_registry import WithSchemas as WithSchemas
    from milepost.sources.landed.tables.reading import TableReading as TableReading
else:
    __getattr__, __dir__ = lazy_exports(__name__)

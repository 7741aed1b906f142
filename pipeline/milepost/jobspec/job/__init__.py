"""The keys of a job spec, and resolving references and Connections."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.job.catalog_spec import SIGNED as SIGNED
    from milepost.jobspec.job.catalog_spec import CatalogSpec as CatalogSpec
    from milepost.jobspec.job.catalog_spec import is_on_aws as is_on_aws
    from milepost.jobspec.job.checkpointing_spec import CheckpointingSpec as CheckpointingSpec
    from milepost.jobspec.job.checkpointing_spec import ExponentialDelayRestart as ExponentialDelayRestart
    from milepost.jobspec.job.checkpointing_spec import FailureRateRestart as FailureRateRestart
    from milepost.jobspec.job.checkpointing_spec import FixedDelayRestart as FixedDelayRestart
    from milepost.jobspec.job.checkpointing_spec import NoneRestart as NoneRestart
    from milepost.jobspec.job.checkpointing_spec import Restart as Restart
    from milepost.jobspec.job.checkpointing_spec import Retained as Retained
    from milepost.jobspec.job.connections import Connection as Connection
    from milepost.jobspec.job.connections import PostgresAccess as PostgresAccess
    from milepost.jobspec.job.connections import RegistryAccess as RegistryAccess
    from milepost.jobspec.job.connections import connection_of as connection_of
    from milepost.jobspec.job.connections import environment_connection as environment_connection
    from milepost.jobspec.job.connections import s3_access as s3_access
    from milepost.jobspec.job.connections import s3_store as s3_store
    from milepost.jobspec.job.connections import spark_server as spark_server
    from milepost.jobspec.job.environment import referenced_variables as referenced_variables
    from milepost.jobspec.job.environment import resolve_sink as resolve_sink
    from milepost.jobspec.job.event_time_spec import EventTimeSpec as EventTimeSpec
    from milepost.jobspec.job.health_spec import HealthSpec as HealthSpec
    from milepost.jobspec.job.notifier_spec import NotifierSpec as NotifierSpec
    from milepost.jobspec.job.prices_spec import PricesSpec as PricesSpec
    from milepost.jobspec.job.sources.delta_source import DeltaSourceSpec as DeltaSourceSpec
    from milepost.jobspec.job.sources.dlt_source import DltSourceSpec as DltSourceSpec
    from milepost.jobspec.job.sources.file_source import EpochLimits as EpochLimits
    from milepost.jobspec.job.sources.file_source import FileSourceSpec as FileSourceSpec
    from milepost.jobspec.job.sources.iceberg_source import IcebergSourceSpec as IcebergSourceSpec
    from milepost.jobspec.job.sources.kafka_source import KafkaSourceSpec as KafkaSourceSpec
    from milepost.jobspec.job.sources.kafka_source import MessageValue as MessageValue
    from milepost.jobspec.job.sources.landed_source import LandedEpochLimits as LandedEpochLimits
    from milepost.jobspec.job.sources.landed_source import LandedSourceSpec as LandedSourceSpec
    from milepost.jobspec.job.sources.landed_source import LandRules as LandRules
    from milepost.jobspec.job.sources.messages import CHANGE_METADATA as CHANGE_METADATA
    from milepost.jobspec.job.sources.messages import MESSAGE_COLUMNS as MESSAGE_COLUMNS
    from milepost.jobspec.job.sources.messages import SEQUENCE as SEQUENCE
    from milepost.jobspec.job.sources.messages import CarriedColumn as CarriedColumn
    from milepost.jobspec.job.sources.messages import ChangeRules as ChangeRules
    from milepost.jobspec.job.sources.messages import MessageLayout as MessageLayout
    from milepost.jobspec.job.sources.milepost_source import MilepostSourceSpec as MilepostSourceSpec
    from milepost.jobspec.job.sources.nexmark_source import NEXMARK_COLUMNS as NEXMARK_COLUMNS
    from milepost.jobspec.job.sources.nexmark_source import LandLimits as LandLimits
    from milepost.jobspec.job.sources.nexmark_source import NexmarkSourceSpec as NexmarkSourceSpec
    from milepost.jobspec.job.sources.postgres_source import PostgresSourceSpec as PostgresSourceSpec
    from milepost.jobspec.job.sources.python_source import PythonSourceSpec as PythonSourceSpec
    from milepost.jobspec.job.sources.source_kinds import AnySource as AnySource
    from milepost.jobspec.job.sources.source_spec import BadRecordRules as BadRecordRules
    from milepost.jobspec.job.sources.source_spec import SourceSpec as SourceSpec
    from milepost.jobspec.job.spec import Expectation as Expectation
    from milepost.jobspec.job.spec import JobSpec as JobSpec
    from milepost.jobspec.job.spec import QualitySpec as QualitySpec
    from milepost.jobspec.job.spec import ScheduleSpec as ScheduleSpec
    from milepost.jobspec.job.spec import SinkSpec as SinkSpec
    from milepost.jobspec.job.spec import SparkSpec as SparkSpec
else:
    __getattr__, __dir__ = lazy_exports(__name__)
